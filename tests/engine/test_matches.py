"""MATCH_RECOGNIZE agrees with brute force, whatever the batches, the disorder and the company."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction, declare
from processors_together import ClusterRunner
from test_moves import Disturbance

from millstream.core.errors import CqlError
from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane
from oracle.compare import difference
from oracle.model import Column, Stream
from oracle.plain_sql import SECOND, made_up
from oracle.row_patterns import (
    MEASURES,
    Search,
    expected,
    on_time,
    random_rows,
    random_search,
    row_conditions,
)

pytestmark = pytest.mark.spark

WRONG = {
    "PARTITION BY k ORDER BY v MEASURES A.v AS a PATTERN (A) DEFINE A AS v > 1":
        "ORDER BY something else than the time",
    "PARTITION BY k ORDER BY ts DESC MEASURES A.v AS a PATTERN (A) DEFINE A AS v > 1":
        "ORDER BY something else than the time",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A) DEFINE B AS v > 1": "B is not in the pattern",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A B) DEFINE A AS v > 1, A AS v < 3":
        "A is defined twice",
    "ORDER BY ts MEASURES A.v AS a AFTER MATCH SKIP TO LAST C PATTERN (A) DEFINE A AS v > 1":
        "C is not in the pattern",
    "ORDER BY ts MEASURES A.y AS a PATTERN (A) DEFINE A AS v > 1": "unknown column y",
    "ORDER BY ts MEASURES A.v AS ts PATTERN (A) DEFINE A AS v > 1": "a measure named ts",
    "PARTITION BY k ORDER BY ts MEASURES A.v AS k PATTERN (A) DEFINE A AS v > 1":
        "two columns named k",
    "ORDER BY ts MEASURES A.v PATTERN (A) DEFINE A AS v > 1": "a measure needs a name",
    "ORDER BY ts MEASURES sum(A.v + B.v) AS a PATTERN (A B) DEFINE A AS v > 1":
        "values of several variables in one call",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A B) DEFINE B AS upper(A.k) = k":
        "upper over rows of another variable",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A B) DEFINE B AS NEXT(v) > 1": "NEXT is not supported",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A B) DEFINE B AS median(A.v) > 1": "median in DEFINE",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A B) DEFINE B AS MATCH_NUMBER() > 1":
        "MATCH_NUMBER in DEFINE",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A) DEFINE A AS v": "DEFINE needs a condition",
    "ORDER BY ts MEASURES A.v AS x ALL ROWS PER MATCH PATTERN (A) DEFINE A AS v > 1":
        "two columns named x",
    "ORDER BY ts MEASURES FINAL LAST(v) - sum(v) AS d ALL ROWS PER MATCH PATTERN (A) DEFINE A AS "
    "v > 1": "FINAL before several calls",
    "ORDER BY ts ALL ROWS PER MATCH WITH UNMATCHED ROWS AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) "
    "DEFINE A AS v > 1": "WITH UNMATCHED ROWS where matches overlap",
    "ORDER BY ts ONE ROW PER MATCH PATTERN (A) DEFINE A AS v > 1": "needs MEASURES",
    "ORDER BY ts MEASURES A.v AS a PATTERN (A) SUBSET U = (A) DEFINE A AS v > 1":
        "SUBSET is not supported",
}  # fmt: skip

COLUMNS = (Column("k", "string"), Column("v", "int"), Column("x", "double"))
VALUES = {"k": ("a", "b", None), "v": (1, 2, 3, None), "x": (0.5, 1.5, -2.0, 2.5)}


def disagreements(
    searches: dict[str, Search], stream: Stream, results: dict[str, list[dict[str, Any]]]
) -> list[str]:
    told = []
    for name, search in searches.items():
        wanted = expected(search, stream)
        columns = [*search.keys, *search.measures, "ts"]
        if search.all_rows:
            columns += [c.name for c in COLUMNS if c.name not in search.keys]
        found = difference(wanted, results[name], columns)
        if found:
            told.append(
                f"{name}: {search.cql}\n{columns}\nmissing {found.missing[:5]}\n"
                f"extra   {found.extra[:5]}"
            )
    return told


def runs_along(search: Search, stream: Stream) -> bool:
    """Whether it matters that measures are over the rows so far, and which of them are FINAL."""
    if not search.all_rows:
        return False
    told = [
        sorted(map(repr, expected(replace(search, finals=finals), stream)))
        for finals in (search.finals, frozenset(), frozenset(search.measures))
    ]
    return told[0] != told[1] and told[0] != told[2]


@pytest.mark.parametrize(("seed", "sharing"), [(1, "subsuming"), (2, "none")])
def test_matches_agree_with_brute_force(
    seed: int, sharing: str, spark: Any, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    made = made_up("s", COLUMNS, VALUES, rows=48, seed=seed)
    searches = {f"q{i}": random_search(dice) for i in range(8)}
    searches |= {f"rows{i}": random_rows(dice) for i in range(5)}
    searches["unmatched"] = replace(
        random_rows(dice), unmatched=True, skip=("PAST LAST ROW", ""), within=5 * SECOND,
        pattern=("all", (("row", "A"), ("many", ("row", "B"), 1, None, True))),
        conditions={"A": row_conditions("A")[0], "B": row_conditions("B")[3]},
        measures={n: MEASURES[n] for n in ("who", "n", "last_a", "number")},
        finals=frozenset({"n"}),
    )  # fmt: skip
    searches["counted_back"] = replace(
        random_rows(dice), pattern=("many", ("row", "A"), 1, None, True), within=None,
        conditions={"A": row_conditions("A")[2]}, skip=("PAST LAST ROW", ""),
        measures={"back": MEASURES["last_but_one"], "count": MEASURES["n"]},
        finals=frozenset({"count"}),
    )  # fmt: skip
    assert sum(bool(expected(s, made)) for s in searches.values()) > 4, "too little is judged"
    assert any(runs_along(s, made) for s in searches.values()), "no measure runs along"
    disturbed = EngineRunner(
        spark, tmp_path, EngineSettings(sharing=sharing), between_steps=ForcedCompaction(share=0.3)
    )
    texts = {name: search.cql for name, search in searches.items()}
    results = disturbed.run([made], texts, {"s": [16, 7, 25]})
    assert not disagreements(searches, made, results)


def test_matches_that_move(spark: Any, tmp_path: Path) -> None:
    dice = random.Random(3)
    made = made_up("s", COLUMNS, VALUES, rows=48, seed=3)
    searches = {f"q{i}": random_search(dice) for i in range(3)}
    made_rows = (random_rows(dice) for _ in range(50))
    searches["rows"] = next(r for r in made_rows if runs_along(r, made))
    assert any(expected(s, made) for s in searches.values())
    disturbance = Disturbance(2)
    runner = ClusterRunner(spark, tmp_path, 2, seed=3, disturb=disturbance)
    texts = {name: search.cql for name, search in searches.items()}
    results = runner.run([made], texts, {"s": [16, 16, 16]})
    assert disturbance.done > 2
    assert not disagreements(searches, made, results)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 40))
def test_many_matches(seed: int, spark: Any, tmp_path: Path) -> None:
    dice = random.Random(seed)
    made = made_up("s", COLUMNS, VALUES, rows=60, seed=seed)
    searches = {f"q{i}": random_search(dice) for i in range(10)}
    searches |= {f"rows{i}": random_rows(dice) for i in range(6)}
    size = dice.choice((5, 13, 60))
    disturbed = EngineRunner(spark, tmp_path, between_steps=ForcedCompaction(share=0.3))
    texts = {name: search.cql for name, search in searches.items()}
    results = disturbed.run([made], texts, {"s": cut_evenly(60, size)})
    assert not disagreements(searches, made, results)


def cut_evenly(rows: int, size: int) -> list[int]:
    return [min(size, rows - at) for at in range(0, rows, size)]


def test_windows_over_matches_and_matches_over_windows(spark: Any, tmp_path: Path) -> None:
    """The watermark of matches lets windows over them close; results of windows have an order."""
    made = made_up("s", COLUMNS, VALUES, rows=48, seed=4)
    search = replace(
        random_search(random.Random(1)), keys=("k",), pattern=("all", (("row", "A"), ("row", "B"))),
        conditions={"B": ("x > A.x", lambda s: s.last("A", "x") < s.last("B", "x"))},
        measures={"gap": ("B.x - A.x", lambda s, _: s.last("B", "x") - s.last("A", "x"))},
        within=5 * SECOND, skip=("TO NEXT ROW", ""),
    )  # fmt: skip
    pairs = search.cql.removeprefix("SELECT * FROM ")
    counts = "(SELECT count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS]) AS c"
    texts = {
        "over": f"SELECT count(*) AS n, max(gap) AS most FROM {pairs} "
                "[RANGE 4 SECONDS SLIDE 4 SECONDS]",
        "under": f"SELECT * FROM {counts} MATCH_RECOGNIZE (ORDER BY ts MEASURES "
                 "FIRST(n) AS a, LAST(n) AS b PATTERN (A B) DEFINE B AS n > PREV(n)) AS m",
    }  # fmt: skip
    results = EngineRunner(spark, tmp_path).run([made], texts, {"s": [16, 16, 16]})
    windows: dict[int, list[float]] = {}
    for row in expected(search, made):
        end = (row["ts"] // (4 * SECOND) + 1) * 4 * SECOND
        windows.setdefault(end, []).append(row["gap"])
    wanted = [{"n": len(v), "most": max(v), "ts": e} for e, v in windows.items()]
    assert not difference(wanted, results["over"], ["n", "most", "ts"])
    counted = Counter((r.ts // (2 * SECOND) + 1) * 2 * SECOND for r in on_time(made))
    ends = sorted(counted)
    wanted, at = [], 0
    while at + 1 < len(ends):
        a, b = counted[ends[at]], counted[ends[at + 1]]
        if b > a:
            wanted.append({"a": a, "b": b, "ts": ends[at + 1]})
        at += 2 if b > a else 1
    assert wanted
    assert not difference(wanted, results["under"], ["a", "b", "ts"])


def test_mistakes_are_told(spark: Any, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings())
    declare(engine, [made_up("s", COLUMNS, VALUES, rows=1, seed=1)])
    for clauses, message in WRONG.items():
        with pytest.raises(CqlError, match=message):
            engine.add_query("wrong", f"SELECT * FROM s MATCH_RECOGNIZE ({clauses}) AS m")
    for source, message in {
        "s [RANGE 5 SECONDS]": "MATCH_RECOGNIZE over a window",
        "(SELECT k, sum(v) AS v FROM s GROUP BY k) AS t": "over a table that changes",
    }.items():
        clauses = "ORDER BY ts MEASURES A.v AS a PATTERN (A) DEFINE A AS v > 1"
        with pytest.raises(CqlError, match=message):
            engine.add_query("wrong", f"SELECT * FROM {source} MATCH_RECOGNIZE ({clauses}) AS m")
    engine.close()
