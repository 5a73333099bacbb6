"""A manager of managers, each a process, with virtual processors behind real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_manager_app import PLANS, Process, all_up, wait

from millstream.bench.virtual_endpoint import HttpProcessor, World

LOWER = {"m1": ("p1", "p2"), "m2": ("p3", "p4")}
ROWS = 60


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[tuple[Process, dict[str, Process], World]]:
    world = World(PLANS, rows=ROWS)
    top = Process(tmp_path / "top", "--pattern", "round_robin")
    lower: dict[str, Process] = {}
    try:
        for name, processors in LOWER.items():
            lower[name] = Process(tmp_path / name, "--above", top.client.url, "--id", name)
            for processor in processors:
                joined = HttpProcessor(processor, world).join()
                lower[name].client.ask("POST", f"{lower[name].client.url}/processors", joined)
        wait(lambda: len(top.client.status()["processors"]) == 2 and all_up(top))
        wait(lambda: all(all_up(m) for m in lower.values()))
        yield top, lower, world
    finally:
        for process in (top, *lower.values()):
            process.close()
        for processor in world.processors.values():
            processor.close()


def test_queries_of_a_higher_manager_run_below(
    tiers: tuple[Process, dict[str, Process], World],
) -> None:
    top, lower, world = tiers
    for name in ("a", "b"):
        top.client.declare({"name": name})
    for name in ("one", "two"):
        assert top.client.submit(name, name, from_beginning=True)["state"] == "running"
    places = {o["id"]: o["processor"] for o in top.client.placement()["operators"]}
    assert set(places.values()) == {"m1", "m2"}, "the plan is spread over both"
    top.client.start_streams()

    def results(operator: str) -> int:
        return sum(p.virtual.ledger.states.get(operator, 0) for p in world.processors.values())

    wait(lambda: results("o:r") == 2 * ROWS and results("o:g") == ROWS, 60)
    for name, below in lower.items():
        mine = {o["id"] for o in below.client.placement()["operators"]}
        assert mine == {o for o, place in places.items() if place == name}
        inside = {o["processor"] for o in below.client.placement()["operators"]}
        assert inside <= set(LOWER[name])
    owners = {
        s: n for n, p in world.processors.items()
        for s, held in p.virtual.ledger.streams.items() if held.epoch
    }  # fmt: skip
    assert set(owners) == {"s:a", "s:b", "o:f", "o:j", "o:r", "o:g"}, "one owner each"
    assert not world.faults

    lower["m1"].kill()
    lower["m1"].start()
    wait(lambda: all_up(lower["m1"]))
    wait(lambda: all_up(top))
    top.client.drop("one", wait_s=30.0)
    wait(lambda: not any(
        o in p.virtual.ledger.operators()
        for p in world.processors.values() for o in ("o:j", "o:r")
    ), 30)  # fmt: skip
    left = {o for p in world.processors.values() for o in p.virtual.ledger.operators()}
    assert left == {"o:f", "o:g"}
