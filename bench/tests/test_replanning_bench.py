"""The real run of planning again: its queries, its rows, its verdicts."""

import doctest

import duckdb
import numpy as np
import pytest

from millstream_bench.cluster import replanning
from millstream_bench.cluster.replanning import QUICK, TEXTS, Plan, batch, targets, texts


def test_examples_in_the_text() -> None:
    found = doctest.testmod(replanning)
    assert found.attempted
    assert not found.failed


def test_queries_overlap_and_duckdb_reads_them() -> None:
    told = [texts(number)[0] for number in range(Plan().queries)]
    assert len(set(told)) == TEXTS < len(told)
    chance = np.random.default_rng(1)
    a, b = (batch(chance, 0.0, 20.0, 3_000) for _ in range(2))
    with duckdb.connect() as db:
        db.register("a", a)
        db.register("b", b)
        assert all(db.execute(texts(number)[1]).fetchall() for number in range(TEXTS))
    times = a.column("ms").to_pylist()
    assert times == sorted(times)
    assert all(ms % 5_000 for ms in times), "none on the edge of a window"


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, None),
        ({"queries": 59}, "every query is taken"),
        ({"planned_after_s": None}, "moves begin"),
        ({"planned_after_s": 31.0}, "moves begin"),
        ({"behind_s": 10.5}, "stays near"),
        ({"wrong": ["q01: 1 missing, 0 too many"]}, "DuckDB"),
    ],
)
def test_verdicts_can_be_missed(change: dict[str, object], missed: str | None) -> None:
    good = {"queries": 60, "planned_after_s": 12.0, "behind_s": 4.0, "wrong": []}
    failed = [t["what"] for t in targets({**good, **change}, Plan()) if not t["met"]]
    assert [missed in what for what in failed] == [True] * (missed is not None)


@pytest.mark.soak
@pytest.mark.process
def test_every_row_is_right_while_the_load_changes() -> None:
    found = replanning.measure(QUICK, print)
    assert found["wrong"] == []
    assert found["queries"] == QUICK.queries
