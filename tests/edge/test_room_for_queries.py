"""A submission moves what runs: the manager's process, processors behind real HTTP, no Spark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_manager_app import Process, all_up, wait

from millstream.app.cli import run
from millstream.control.admission.planning_state import HEADROOM
from millstream.control.protocol.replies import Compiled, CompiledOperator
from millstream.core.errors import StateError
from millstream.sim.managed.managed_cluster import table, tree
from millstream_bench.cluster.plan_processor import HttpProcessor, World

JOIN = CompiledOperator("o:large", "join", "large", ("s:a", "s:b"))
PLANS = {
    "small": tree("small", ("o:small", "s:a")),  # 0.022 CPU at 1,000 rows a second
    "large": Compiled((JOIN,), JOIN.id, (("row", "string"),), False, ("s:a", "s:b")),  # 0.06
    "again": Compiled(
        (replace(JOIN, id="o:again"),), "o:again", (("row", "string"),), False, ("s:a", "s:b")
    ),
}


@pytest.fixture
def world() -> Iterator[World]:
    found = World(PLANS, rows=30)
    for name in ("p1", "p2"):
        HttpProcessor(name, found)
    yield found
    found.close()


@pytest.fixture
def manager(tmp_path: Path, world: World) -> Iterator[Process]:
    found = Process(tmp_path / "manager", "--weights", "balance=0.5")
    try:
        for name, cpu in (("p1", 0.07), ("p2", 0.03)):
            joining = world.processors[name].join() | {"properties": {"cpu": cpu / HEADROOM}}
            found.client.ask("POST", f"{found.client.url}/processors", joining)
        wait(lambda: all_up(found))
        for name in ("a", "b"):
            found.client.declare(table(name, rate=1000), processor="p1")
        yield found
    finally:
        found.close()


def test_a_submission_moves_a_running_operator_and_says_why(
    manager: Process, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    client = manager.client
    assert client.submit("small", "small", from_beginning=True)["state"] == "running"
    assert "o:small" in world.processors["p1"].hosted()
    told = client.submit("large", "large", from_beginning=True, weight=2.0)
    assert told["state"] == "running"
    assert told["admission"]["weights"]["balance"] == 0.5
    assert told["weight"] == 2.0
    assert "o:small" in world.processors["p2"].hosted()
    assert "o:small" not in world.processors["p1"].hosted()
    assert "o:large" in world.processors["p1"].hosted()
    decisions = {d["sentence"]: d["reason"] for d in client.decisions()}
    assert decisions["small/o:small goes from p1 to p2"] == "query large needs the room"
    assert run(["decisions", "--manager", client.url]) == 0
    assert "query large needs the room" in capsys.readouterr().out
    assert run(["submit", "small", "--name", "x", "--dry-run", "--manager", client.url]) == 0
    assert "network 1, cpu 1, balance 0.5; of the query: 1" in capsys.readouterr().out
    for wrong in ("0", "nan", "-1"):
        assert run(["submit", "small", "--weight", wrong, "--manager", client.url]) == 2
        assert "--weight is" in capsys.readouterr().err
    with pytest.raises(StateError, match="cpu of host"):
        client.submit("again", "again")
    assert not world.faults
