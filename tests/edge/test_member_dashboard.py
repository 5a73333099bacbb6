"""The dashboard of a cluster without a manager, at a member."""

import time
from pathlib import Path

import httpx
import pytest
from plain_members import TIMING, Plane, table

from millstream.client.manager_client import ManagerClient
from millstream.core.errors import UsageError
from millstream.edge.http.serving import Address
from millstream.edge.peers.balancing import BalanceSettings
from millstream.edge.peers.member_dashboard import member_dashboard
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings


def server_of(folder: Path, balance: BalanceSettings | None) -> ProcessorServer:
    return ProcessorServer(
        "p0", folder, Plane(), ProcessorSettings(balance=balance), EngineSettings(slots=1)
    )


def test_a_member_shows_the_cluster(tmp_path: Path) -> None:
    calm = BalanceSettings("none", round_s=600.0, membership=TIMING)
    server = server_of(tmp_path, calm)
    server.start()
    try:
        with (
            member_dashboard(server, Address(port=0)) as board,
            ManagerClient(server.url) as client,
        ):
            client.declare(table("a"), processor="p0")
            client.submit("q", "a+1", from_beginning=True, wait_s=60)
            page = httpx.get(board.url)
            assert page.status_code == 200
            deadline = time.monotonic() + 60
            while True:
                told = httpx.get(f"{board.url.rstrip('/')}/api/snapshot", timeout=60).json()
                if [query["name"] for query in told.get("queries", ())] == ["q"]:
                    break
                assert time.monotonic() < deadline, told
                time.sleep(0.1)
            assert "seen by p0" in told["overview"]["title"]
    finally:
        server.stop()


def test_one_that_is_no_member_says_so(tmp_path: Path) -> None:
    server = server_of(tmp_path, None)
    with (
        pytest.raises(
            UsageError, match="only a member of a cluster without a manager has a dashboard"
        ),
        member_dashboard(server, Address(port=0)),
    ):
        pass
    server.start()
    server.stop()
