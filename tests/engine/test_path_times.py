"""Performance ratios as the engine measures them: delay over the time of the longest path."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.core.codec import from_json, to_json
from millstream.engine.steps.path_times import PathTimes
from millstream.store.moves.transfer import Page, PathTime


def engine(**operators: tuple[str, ...]) -> Any:
    """Operators by name with their inputs; `top` gives the result of query `q`."""
    return SimpleNamespace(
        operators={n: SimpleNamespace(id=n, inputs=inputs) for n, inputs in operators.items()},
        queries={"q": SimpleNamespace(name="q", stream="top")},
    )


def path_times(found: Any) -> PathTimes:
    return PathTimes(found.operators, found.queries)


def step(operator: str, seconds: float, *, rows_out: int = 1, waited: float = 0.0) -> Any:
    return SimpleNamespace(
        operator=operator,
        seconds=seconds,
        rows_out=rows_out,
        arrived=time.time() - waited,
        job="",
        started=0.0,
    )


def test_a_ratio_is_delay_over_the_steps_of_the_path() -> None:
    found = engine(low=("s:a",), top=("low",))
    times = path_times(found)
    times.stepped(step("low", 0.2))
    assert times.ratios() == {}, "nothing came out yet"
    times.stepped(step("top", 0.3, waited=2.0))
    seen = times.ratios()["q"]
    assert seen.delay_s == pytest.approx(2.0, abs=0.1)
    assert seen.evaluation_s == pytest.approx(0.5)
    assert seen.ratio == pytest.approx(4.0, abs=0.2)
    assert seen.communication == 0


def test_steps_without_results_do_not_count_but_cost() -> None:
    times = path_times(engine(top=("s:a",)))
    times.stepped(step("top", 0.2, rows_out=0, waited=50.0))
    assert times.ratios() == {}
    times.stepped(step("top", 0.2, waited=1.0))
    assert times.ratios()["q"].ratio == pytest.approx(5.0, abs=0.5)


def test_of_two_ways_the_longer_one_counts() -> None:
    times = path_times(engine(left=("s:a",), right=("s:b",), top=("left", "right")))
    for name, seconds in (("left", 0.1), ("right", 0.4), ("top", 0.1)):
        times.stepped(step(name, seconds, waited=1.0))
    assert times.path("top") == PathTime(pytest.approx(0.5), 0.0)


def test_what_comes_from_elsewhere_brings_its_path_and_its_transfer() -> None:
    times = path_times(engine(top=("o:far",)))
    times.pulled("o:far", PathTime(0.3, 0.1), 0.2)
    times.stepped(step("top", 0.1, waited=2.0))
    seen = times.ratios()["q"]
    assert seen.evaluation_s == pytest.approx(0.4)
    assert seen.communication == pytest.approx(0.3 / 0.4)
    assert seen.ratio == pytest.approx(5.0, abs=0.3)
    figures = seen.figures()
    parts = figures["ratio_processing"] + figures["ratio_communication"]
    assert figures["ratio"] == pytest.approx(parts, abs=0.01)


def test_a_page_carries_the_path() -> None:
    page = Page("o:x", 1, 1, path=PathTime(0.5, 0.25))
    assert from_json(Page, to_json(page)) == page
    old = {k: v for k, v in to_json(page).items() if k != "path"}
    assert from_json(Page, old).path == PathTime(), "of a processor that does not tell"


def test_what_is_gone_is_forgotten() -> None:
    found = engine(top=("s:a",))
    times = path_times(found)
    times.stepped(step("top", 0.1, waited=1.0))
    found.queries.clear()
    found.operators.clear()
    assert times.ratios() == {}
    assert times.path("top") == PathTime()


def test_shared_parts_are_looked_at_once() -> None:
    """Forty levels, each reading the one below twice: no work that doubles with each level."""
    chain = {"o0": ("s:a", "s:a")} | {f"o{n}": (f"o{n - 1}", f"o{n - 1}") for n in range(1, 40)}
    times = path_times(engine(**chain))
    for name in chain:
        times.stepped(step(name, 0.1))
    assert times.path("o39").evaluation_s == pytest.approx(4.0)
