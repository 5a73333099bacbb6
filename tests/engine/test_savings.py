"""What sharing saves: a step as it was, beside one for each query."""

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.engine.steps.reports import StepReport
from millstream.engine.steps.savings import Savings


def report(operator: str, seconds: float, job: str = "", members: int = 1, at: float = 0.0) -> Any:
    return StepReport(operator, 1, 1, 1, 1, seconds, 0.0, 0, at, at, True, job, members)


def savings(kinds: dict[str, str], queries: dict[str, tuple[str, ...]]) -> Savings:
    operators: Any = {name: SimpleNamespace(kind=kind) for name, kind in kinds.items()}
    users: Any = {name: SimpleNamespace(operators=needed) for name, needed in queries.items()}
    return Savings(operators, users)


def test_nothing_is_saved_where_nothing_is_shared() -> None:
    found = savings({"a": "map", "b": "map"}, {"q": ("a",), "r": ("b",)})
    found.stepped(report("a", 2.0))
    found.stepped(report("b", 3.0))
    saved = found.saved()
    assert (saved.jobs, saved.jobs_alone, saved.saved_s, saved.part) == (2, 2, 0.0, 0.0)
    assert saved.shared_operators == 0


def test_an_operator_of_three_queries_would_have_run_three_times() -> None:
    found = savings({"a": "map"}, {"q": ("a",), "r": ("a",), "s": ("a",)})
    found.stepped(report("a", 2.0))
    saved = found.saved()
    assert (saved.jobs, saved.jobs_alone, saved.most_queries) == (1, 3, 3)
    assert (saved.seconds, saved.seconds_alone) == (2.0, 6.0)
    assert saved.part == pytest.approx(4 / 6)


def test_members_of_one_job_would_have_had_one_each() -> None:
    found = savings({"a": "map", "b": "map"}, {"q": ("a",), "r": ("b",)})
    found.stepped(report("a", 1.0, "a+b", 2))
    assert found.saved().jobs == 0  # its other member is not told yet
    found.stepped(report("b", 2.0, "a+b", 2))
    saved = found.saved()
    assert (saved.jobs, saved.jobs_alone, saved.most_queries) == (1, 2, 2)
    assert saved.seconds_alone == 6.0  # nobody was alone: the whole job for each


def test_a_lone_job_counts_as_lone_jobs_of_its_kind_did() -> None:
    kinds = {"a": "map", "b": "map", "c": "map", "d": "join"}
    found = savings(kinds, {"q": ("a",), "r": ("b",), "s": ("c",), "t": ("d",)})
    for seconds in (0.5, 0.5, 9.0):  # the first step of a process is slow
        found.stepped(report("c", seconds))
    found.stepped(report("d", 0.1))
    found.stepped(report("a", 1.0, "a+b", 2))
    found.stepped(report("b", 2.0, "a+b", 2))
    saved = found.saved()
    assert saved.seconds_alone == pytest.approx(10.0 + 0.1 + 0.5 + 0.5)
    assert saved.saved_s == 0.0  # never less than nothing


def test_what_is_no_longer_there_does_not_count() -> None:
    found = savings({"a": "map"}, {"q": ("a",)})
    found.stepped(report("gone", 5.0))
    assert found.saved().seconds == 0.0
