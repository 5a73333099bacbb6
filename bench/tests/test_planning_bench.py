"""The planning benchmark: targets are judged as stated; the quick run gives every part."""

from typing import Any

import pytest

from millstream.core.errors import UsageError
from millstream_bench.planning.reuse import PARTS, _targets, parts_of, run_planning_bench


def part(**changes: float) -> dict[str, float]:
    figures = {
        "admitted": 720.0,
        "before_first_refusal": 450.0,
        "weight": 1000.0,
        "median_cpu_ms": 0.4,
        "p95_cpu_ms": 2.0,
    }
    return {**figures, **changes}


def figures(batch_gap: float = 0.08, **sqpr: float) -> dict[str, Any]:
    regime = {
        "aggregate_host": 670.0,
        "proven_bound": 850.0,
        "sqpr": part(**sqpr),
        "heuristic": part(admitted=420.0, before_first_refusal=90.0, weight=600.0),
        "soda": part(admitted=310.0, before_first_refusal=95.0, weight=500.0),
    }
    return {
        "tight": regime,
        "literal": regime,
        "large": {"sqpr": {"cpu_seconds": 20.0}},
        "milp": {"p95_cpu_ms": 900.0},
        "batch": {"50 hosts, tight": {"gap": batch_gap, "seconds": 200.0}},
    }


def test_good_figures_meet_every_target() -> None:
    assert all(target["met"] for target in _targets(figures()))


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"admitted": 600.0}, "gap to the proven bound"),
        ({"admitted": 650.0}, "aggregate host"),
        ({"before_first_refusal": 94.0}, "before_first_refusal"),
        ({"p95_cpu_ms": 5.1}, "p95 ms"),
        ({"batch_gap": 0.101}, "batch, 50 hosts, tight: gap"),
    ],
)
def test_poor_figures_miss_theirs(change: dict[str, float], missed: str) -> None:
    failed = [target["what"] for target in _targets(figures(**change)) if not target["met"]]
    assert any(missed in what for what in failed)


def test_parts_are_chosen_by_name() -> None:
    assert parts_of(None) == PARTS
    assert parts_of("milp,tight") == ("tight", "milp")
    with pytest.raises(UsageError, match="unknown part 'tihgt'"):
        parts_of("tihgt,milp")


def test_only_what_ran_is_judged() -> None:
    only = {"milp": {"p95_cpu_ms": 2100.0}}
    assert [(target["what"], target["met"]) for target in _targets(only)] == [
        ("sqpr_milp: p95 ms of CPU", False)
    ]


@pytest.mark.soak
def test_a_quick_run_gives_every_part() -> None:
    lines: list[str] = []
    found = run_planning_bench(seed=3, quick=True, progress=lines.append)
    assert {"tight", "literal", "large", "links", "milp", "targets"} <= set(found)
    assert lines
