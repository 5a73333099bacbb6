"""A manager of managers, each a process, with virtual processors behind real HTTP."""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from test_manager_app import PLANS, STAYING, Process, all_up, submit_both, wait

from millstream.app import cli
from millstream.client.http import HttpClient
from millstream.sim.managed.managed_cluster import tree
from millstream_bench.cluster.plan_processor import HttpProcessor, World

WATCHING = {
    "watch": tree("watch", ("o:w", "s:sys.operators")),
    "steps": tree("steps", ("o:s", "s:sys.steps")),
    "moved": tree("moved", ("o:m", "s:sys.moves")),
    "taken": tree("taken", ("o:t", "s:sys.admissions")),
}
WATCHERS = {"o:w", "o:s", "o:m", "o:t"}  # the streams about the system leave them out
LOWER = {"m1": ("p1", "p2"), "m2": ("p3", "p4")}
ROWS = 60


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[tuple[Process, dict[str, Process], World]]:
    world = World({**PLANS, **WATCHING}, rows=ROWS)
    top = Process(tmp_path / "top", "--pattern", "round_robin")
    lower: dict[str, Process] = {}
    try:
        for name, processors in LOWER.items():
            lower[name] = Process(
                tmp_path / name, "--above", top.client.url, "--id", name, *STAYING
            )
            for processor in processors:
                joined = HttpProcessor(processor, world).join()
                lower[name].client.ask("POST", f"{lower[name].client.url}/processors", joined)
        wait(lambda: len(top.client.status()["processors"]) == 2 and all_up(top))
        wait(lambda: all(all_up(m) for m in lower.values()))
        yield top, lower, world
    finally:
        for process in (top, *lower.values()):
            process.close()
        world.close()


def test_queries_of_a_higher_manager_run_below(
    tiers: tuple[Process, dict[str, Process], World],
) -> None:
    top, lower, world = tiers
    submit_both(top, start=False)
    places = {o["id"]: o["processor"] for o in top.client.placement()["operators"]}
    assert set(places.values()) == {"m1", "m2"}, "the plan is spread over both"
    top.client.start_streams()

    def results(operator: str) -> int:
        known = [p.processor.engine.ledger.operator_statistics() for p in world.processors.values()]
        return sum(counts[operator]["rows_out"] for counts in known if operator in counts)

    wait(lambda: results("o:r") == 2 * ROWS and results("o:g") == ROWS, 60)
    for name, below in lower.items():
        mine = {o["id"] for o in below.client.placement()["operators"]}
        assert mine == {o for o, place in places.items() if place == name}
        inside = {o["processor"] for o in below.client.placement()["operators"]}
        assert inside <= set(LOWER[name])
    owners = {
        s: n for n, p in world.processors.items()
        for s in (o.stream for o in p.processor.ownership.all_owned())
    }  # fmt: skip
    assert set(owners) == {"s:a", "s:b", "o:f", "o:j", "o:r", "o:g"}, "one owner each"
    assert not world.faults

    lower["m1"].kill()
    lower["m1"].start()
    wait(lambda: all_up(lower["m1"]))
    wait(lambda: all_up(top))
    top.client.drop("one", wait_s=30.0)
    wait(lambda: not any(
        o in p.hosted()
        for p in world.processors.values() for o in ("o:j", "o:r")
    ), 30)  # fmt: skip
    left = {o for p in world.processors.values() for o in p.hosted()}
    assert left == {"o:f", "o:g"}


def test_a_processor_below_that_dies_is_seen_above(
    tiers: tuple[Process, dict[str, Process], World], capsys: pytest.CaptureFixture[str]
) -> None:
    top, _, world = tiers
    submit_both(top, start=False)
    assert top.client.alarms() == []
    dead = next(p for p in LOWER["m2"] if world.processors[p].hosted())
    waiting = world.processors[dead].hosted()
    needed = {
        q["name"] for q in top.client.queries() if waiting & {o["id"] for o in q["operators"]}
    }
    assert needed
    world.processors.pop(dead).stop()

    def alarms() -> dict[tuple[str, str], str]:
        return {(a["kind"], a["subject"]): a["sentence"] for a in top.client.alarms()}

    wait(lambda: ("trouble", "m2") in alarms())
    assert alarms()["trouble", "m2"] == f"processor m2: processor {dead} is silent"
    for query in needed:
        told = alarms()["stalled", query]
        assert told == f"query {query} does not advance: processor {dead} is silent"
    with HttpClient() as client:
        wait(lambda: client.get(f"{top.client.url}/health")["status"] == "error")
        seen = client.get(f"{top.client.url}/api/snapshot")
    states = {q["name"]: q["state"] for q in seen["queries"]}
    assert {name for name, state in states.items() if state == "stalled"} >= needed
    for command in (["top", "--once", "--url"], ["status", "--manager"], ["queries", "--manager"]):
        assert cli.run([*command, top.client.url]) == 0
        assert f"processor {dead} is silent" in capsys.readouterr().out, command


def system_rows(world: World, stream: str) -> list[dict[str, Any]]:
    """What has entered of a stream about the system, wherever that is."""
    entered = [p.entered[stream] for p in world.processors.values() if stream in p.entered]
    assert len(entered) <= 1, "it enters at one place"
    return [row for rows in entered for row in list(rows)]


def operators(world: World) -> dict[str, str]:
    """Where each one runs."""
    found: dict[str, str] = {}
    for name, processor in world.processors.items():
        found |= dict.fromkeys(processor.hosted(), name)
    return found


def step_everywhere(world: World, number: int) -> None:
    for processor in world.processors.values():
        processor.step(f"{number}")


def steps_told(world: World) -> Counter[tuple[str, str]]:
    """By processor and number: how often."""
    return Counter((r["processor"], r["operator"]) for r in system_rows(world, "sys.steps"))


def test_streams_about_the_system_tell_of_all_processors_below(
    tiers: tuple[Process, dict[str, Process], World],
) -> None:
    top, lower, world = tiers
    submit_both(top, start=False)
    assert not any(p.asked for p in world.processors.values()), "nobody reads about the system"
    for name in WATCHING:
        assert top.client.submit(name, name)["state"] == "running"

    wait(lambda: {(r["operator"], r["processor"]) for r in system_rows(world, "sys.operators")}
         >= {(o, p) for o, p in operators(world).items() if o not in WATCHERS})  # fmt: skip
    assert {"p1", "p2"} & set(operators(world).values()), "something runs below one of them"
    assert {"p3", "p4"} & set(operators(world).values()), "and something below the other"
    queries = {"one", "two", *WATCHING}
    wait(lambda: {r["query"] for r in system_rows(world, "sys.admissions")} == queries)
    assert all(p.asked for p in world.processors.values())

    def step_until_all_are_heard(since: int) -> bool:
        """Who is asked for the first time tells what comes after."""
        step_everywhere(world, next(numbers))
        time.sleep(0.3)
        return {p for p, number in steps_told(world) if int(number) >= since} == set(
            world.processors
        )

    def all_told(number: int) -> bool:
        return {(p, f"{number}") for p in world.processors} <= steps_told(world).keys()

    numbers = count()
    wait(partial(step_until_all_are_heard, 0))
    for number in (next(numbers), next(numbers)):
        step_everywhere(world, number)
        wait(partial(all_told, number))
    inputs = {"o:f": "a", "o:w": "sys.operators", "o:s": "sys.steps", "o:t": "sys.admissions"}
    entered = {n: s["processor"] for n, s in top.client.streams().items()}
    above = {o["id"]: o["processor"] for o in top.client.placement()["operators"]}
    moving = next(o for o, stream in inputs.items() if above[o] == entered[stream])
    here, place = above[moving], operators(world)[moving]
    other = next(p for p in LOWER[here] if p != place)
    lower[here].client.move(moving, other, wait_s=60.0)
    wait(lambda: len(system_rows(world, "sys.moves")) == 2)
    ends = [(r["operator"], r["processor"], r["direction"])
            for r in system_rows(world, "sys.moves")]  # fmt: skip
    assert ends == [(moving, place, "out"), (moving, other, "in")]

    lower["m2"].kill()  # what it has not handed on is lost; nothing comes twice
    lower["m2"].start()
    wait(lambda: all_up(lower["m2"]) and all_up(top))
    wait(partial(step_until_all_are_heard, next(numbers)))
    last = next(numbers)
    step_everywhere(world, last)
    wait(partial(all_told, last))
    assert set(steps_told(world).values()) == {1}
    for stream in ("sys.steps", "sys.operators", "sys.moves"):
        times = [row["at"] for row in system_rows(world, stream)]
        assert times == sorted(times)
    assert len(system_rows(world, "sys.moves")) == 2
    assert len(system_rows(world, "sys.admissions")) == len(queries)

    for name in WATCHING:
        top.client.drop(name, wait_s=30.0)
    wait(lambda: not any(n[:4] == "sys." for m in (top, *lower.values())
                         for n in m.client.streams()))  # fmt: skip
    assert not world.faults
