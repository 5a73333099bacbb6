"""Alarms of a cluster over HTTP: who dies is told by `/alarms`, `/health` and `status`."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from plain_members import TIMING, Plane, table

from millstream.app import cli
from millstream.app.commands.cluster.cluster import _told as submitted_line
from millstream.client.manager_client import ManagerClient
from millstream.control.manager.state import Live, ManagerState, Processor, Settings
from millstream.control.snapshot.model import GoalSnapshot, Overview, ProcessorSnapshot, Snapshot
from millstream.edge.manager.alarms import KEPT_S, ClusterAlarms
from millstream.edge.manager.app import ManagerServer
from millstream.edge.manager.settings import ManagerSettings
from millstream.edge.peers.balancing import BalanceSettings
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings

NOBODY = "http://127.0.0.1:9"
DEADLINE_S = 60.0


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def beside(server: ManagerServer, look: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """What another thread sees of a manager that runs in this one."""
    found: dict[str, Any] = {}

    def work() -> None:
        try:
            found.update(look(server.url))
        finally:
            server.stop()

    looker = threading.Thread(target=work)
    server.run(looker.start)
    looker.join()
    return found


def test_a_processor_that_dies_is_told_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(url: str) -> dict[str, Any]:
        before = httpx.get(f"{url}/health").json()["status"], httpx.get(f"{url}/alarms").json()
        news = {"id": "p1", "url": NOBODY, "epoch": 1, "properties": {}}
        httpx.post(f"{url}/processors", json=news).raise_for_status()
        until(lambda: bool(httpx.get(f"{url}/alarms").json()))
        until(lambda: httpx.get(f"{url}/health").json()["status"] == "error")
        alarms = httpx.get(f"{url}/alarms").json()
        return {
            "before": before,
            "alarms": alarms,
            "code": cli.run(["status", "--manager", url]),
            "told": capsys.readouterr().out,
        }

    deciding = Settings(beat_s=0.1, silent_after_s=0.3)
    server = ManagerServer(tmp_path, ManagerSettings(port=0, deciding=deciding))
    seen = beside(server, look)
    assert seen["before"] == ("ok", [])
    (alarm,) = seen["alarms"]
    assert (alarm["kind"], alarm["subject"], alarm["severity"]) == ("away", "p1", "error")
    assert alarm["since"] > 0
    assert "start it again" in alarm["todo"]
    assert seen["code"] == 0
    assert "error: processor p1 is silent" in seen["told"]
    assert "load" not in seen["told"], "a dead processor has no load"


def test_submit_says_where_the_beginning_is_gone() -> None:
    query = {"name": "q", "state": "running", "admission": {}, "reason": "", "start": 1_000_000}
    assert "are gone" not in submitted_line(query | {"from_beginning": False})
    told = submitted_line(query | {"from_beginning": True})
    assert "q: rows before 1970-01-01T00:00:01Z are gone" in told


def test_health_counts_what_processors_say_and_remembers_it_for_a_while() -> None:
    """The manager itself knows no goals; it does not wait for processors to answer either."""
    alarms = ClusterAlarms(one_processor, None, True)
    goal = GoalSnapshot("delay (s)", "at most 1 s", 3.0, met=False)
    said = Snapshot(1.0, Overview("p1"), processors=(ProcessorSnapshot("p1", goals=(goal,)),))
    answers = [said, None, None]

    async def told(client: object, name: str, url: str) -> tuple[str, Snapshot | None]:
        return name, answers.pop(0) if answers else None

    async def words() -> list[str]:
        found = []
        for _ in range(3):
            alarms._judged_s = -KEPT_S
            found.append(alarms.word())
            assert alarms._asking is not None
            await alarms._asking
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.edge.manager.alarms._told", told)
        assert asyncio.run(words()) == ["ok", "warning", "warning"]


def one_processor() -> ManagerState:
    return ManagerState(
        processors={"p1": Processor("p1", NOBODY, 1)}, live={"p1": Live(state="up")}
    )


def test_a_member_tells_its_alarms_everywhere(tmp_path: Path) -> None:
    """A processor that no manager leads: in its own health, in `/alarms`, `status` and `top`."""
    calm = BalanceSettings("none", round_s=600.0, membership=TIMING)
    server = ProcessorServer(
        "p0", tmp_path, Plane(), ProcessorSettings(balance=calm), EngineSettings(slots=1)
    )
    server.start()
    try:
        with ManagerClient(server.url) as client:
            client.declare(table("a"), processor="p0")
            client.submit("q", "a+1", from_beginning=True, wait_s=60)
            assert httpx.get(f"{server.url}/health").json()["status"] == "ok"
            client.start_streams()
            at = client.entrance("a")["url"]
            rows = [{"ts": second * 1_000_000, "c0": second} for second in (90, 1, 2, 3)]
            body = {"producer": "x", "sequence": 1, "rows": rows}
            assert client.post(f"{at}/streams/a/rows", body)["late"] == 3
            until(lambda: httpx.get(f"{server.url}/health").json()["status"] == "error")
            until(lambda: [a["kind"] for a in client.alarms()] == ["late"])
            (alarm,) = client.alarms()
            assert (alarm["subject"], alarm["queries"]) == ("a", ["q"])
            seen = httpx.get(f"{server.url}/api/snapshot").json()["overview"]["alarms"]
            assert [a["kind"] for a in seen] == ["late"]
    finally:
        server.stop()
