"""Every construct of the language shared, moved, crashed and merged at any point: DuckDB's rows.

`test_every_kind` has a query for each kind of operator; here are the constructs that are made of
them. Two processors share all operators of a set of queries. Each operator crashes once while it
steps, each at another point; every operator moves while rows come; after some steps all that can be
merged is. Before that, all queries run in one engine that merges after half of its steps.
"""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction, arrived, compact_all
from processors_together import FIRST, Cluster, CrashPlan

from millstream.engine.processor import Processor
from millstream.language.share.dataflow import Operator
from millstream.spark.plane import SparkPlane
from millstream.store import faults
from oracle.harness import cut, files_of
from oracle.model import Column, Stream
from oracle.plain_sql import Case, made_up, problems, windows

pytestmark = pytest.mark.spark

POINTS = ("step.evaluated", "step.written", "step.committed")
ROWS, ROUNDS = 24, 2
MERGED_SHARE = 0.2  # of steps on the processors, after which everything is merged
COLUMNS = (Column("k", "string"), Column("g", "int"), Column("v", "int"))
VALUES = {"k": ("u", "u", "w", "x", None), "g": (1, 2, 3, None), "v": (0, 1, 2, 5, 7, None)}
MET = "greatest(a.ts_us, b.ts_us) <= least(a.ts_us, b.ts_us) + 2000000"
LATER = "greatest(a.ts_us, b.ts_us) AS ts"
TEN = "(ts_us // 10000000 + 1) * 10000000"
BY_K = "PARTITION BY k ORDER BY ts_us, pos"
TUMBLED = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
STATES = "(SELECT g, last(k) AS k, count(*) AS n FROM {0} GROUP BY g)"
STATES_SQL = "(SELECT g, last(k ORDER BY ts_us, pos) AS k, count(*) AS n FROM {0} GROUP BY g)"


def alone(side: str, condition: str = "TRUE") -> str:
    """Rows of a side that meet nobody, when they have left their window of two seconds."""
    other = "b" if side == "a" else "a"
    return (
        f"{side}.ts_us + 2000001 AS ts FROM {side} WHERE NOT EXISTS "
        f"(SELECT 1 FROM {other} WHERE {MET} AND {condition})"
    )


def tables(text: str) -> Case:
    """A query over tables that reads alike in both but for `@a` and `@b`, states that change."""
    cql = sql = text
    for name in "ab":
        cql = cql.replace(f"@{name}", STATES.format(name))
        sql = sql.replace(f"@{name}", STATES_SQL.format(name))
    return Case(cql, sql)


OVER_WINDOWS = {
    "left": Case(
        "SELECT a.k, a.v, b.v AS w FROM a [RANGE 2 SECONDS] LEFT JOIN b [RANGE 2 SECONDS] "
        "ON a.k = b.k AND a.v < b.v",
        f"SELECT a.k, a.v, b.v AS w, {LATER} FROM a, b WHERE {MET} AND a.k = b.k AND a.v < b.v "
        f"UNION ALL SELECT k, v, NULL, {alone('a', 'a.k = b.k AND a.v < b.v')}",
    ),
    "full": Case(
        "SELECT k, a.v, b.v AS w FROM a [RANGE 2 SECONDS] FULL JOIN b [RANGE 2 SECONDS] USING (k)",
        f"SELECT a.k, a.v, b.v AS w, {LATER} FROM a, b WHERE {MET} AND a.k = b.k "
        f"UNION ALL SELECT k, v, NULL, {alone('a', 'a.k = b.k')} "
        f"UNION ALL SELECT k, NULL, v, {alone('b', 'a.k = b.k')}",
    ),
    "not_in": Case(
        "SELECT k, v FROM a [RANGE 2 SECONDS] WHERE v NOT IN (SELECT v FROM b [RANGE 2 SECONDS])",
        f"SELECT k, v, {alone('a', '(a.v = b.v) IS NOT FALSE')}",
    ),
    "exists": Case(
        "SELECT k, v FROM a [RANGE 2 SECONDS] WHERE EXISTS (SELECT 1 FROM b [RANGE 2 SECONDS] "
        "WHERE b.g = a.g AND b.v >= a.v)",
        "SELECT any_value(a.k) AS k, any_value(a.v) AS v, min(greatest(a.ts_us, b.ts_us)) AS ts "
        f"FROM a, b WHERE {MET} AND b.g = a.g AND b.v >= a.v GROUP BY a.pos",
    ),
    "asof": Case(
        "SELECT a.k, a.v, b.v AS w FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts",
        "SELECT a.k, a.v, l.v AS w, a.ts_us AS ts FROM a LEFT JOIN LATERAL (SELECT v FROM b WHERE "
        "b.k = a.k AND b.ts_us <= a.ts_us ORDER BY b.ts_us DESC, b.pos DESC LIMIT 1) l ON TRUE",
    ),
    "joined_windows": Case(
        f"SELECT p.k, p.n, q.n AS m FROM (SELECT k, count(*) AS n FROM a {TUMBLED} GROUP BY k) p "
        f"[NOW] LEFT JOIN (SELECT k, count(*) AS n FROM b {TUMBLED} GROUP BY k) q [NOW] "
        "ON p.k = q.k",
        f"SELECT p.k, p.n, q.n AS m, p.ts FROM (SELECT k, count(*) AS n, {TEN} AS ts FROM a "
        f"GROUP BY ALL) p LEFT JOIN (SELECT k, count(*) AS n, {TEN} AS ts FROM b GROUP BY ALL) q "
        "ON p.k = q.k AND p.ts = q.ts",
    ),
    "many_panes": Case(
        "SELECT g, count(*) AS n, median(v) AS m, approx_count_distinct(v) AS d "
        "FROM a [RANGE 20 SECONDS SLIDE 1 SECOND] GROUP BY g",
        "SELECT g, count(*) AS n, median(v) AS m, count(DISTINCT v) AS d, e AS ts "
        f"FROM {windows(20, 1, table='a')} GROUP BY g, e",
    ),
    "joined_and_counted": Case(
        "SELECT a.k, count(*) AS n, max(b.v) AS m FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS], "
        "b [RANGE 4 SECONDS] WHERE a.k = b.k GROUP BY a.k",
        "SELECT a.k, count(*) AS n, max(b.v) AS m, (a.ts_us // 4000000 + 1) * 4000000 AS ts "
        "FROM a, b WHERE a.k = b.k AND a.ts_us // 4000000 = b.ts_us // 4000000 GROUP BY 1, 4",
    ),
    "groupings": Case(
        f"SELECT k, g, count(*) AS n, grouping(k) AS r FROM a {TUMBLED} GROUP BY CUBE (k, g)",
        f"SELECT k, g, count(*) AS n, grouping(k) AS r, t AS ts FROM (SELECT *, {TEN} AS t FROM a)"
        " GROUP BY t, CUBE (k, g)",
    ),
    "ranked": Case(
        f"SELECT k, sum(v) AS s FROM a {TUMBLED} GROUP BY k QUALIFY RANK() OVER "
        "(PARTITION BY window_end ORDER BY sum(v) DESC) <= 2",
        f"SELECT k, sum(v) AS s, {TEN} AS ts FROM a GROUP BY k, 3 "
        "QUALIFY rank() OVER (PARTITION BY ts ORDER BY s DESC NULLS LAST) <= 2",
    ),
    "cumulated": Case(
        "SELECT g, count(*) AS n FROM a [CUMULATE 12 SECONDS SLIDE 3 SECONDS] GROUP BY g",
        "SELECT g, count(*) AS n, e AS ts FROM (SELECT g, ts_us // 12000000 AS b, unnest("
        "generate_series((ts_us // 3000000 + 1) * 3000000, (ts_us // 12000000 + 1) * 12000000, "
        "3000000)) AS e FROM a) GROUP BY g, b, e",
    ),
    "compared_windows": Case(
        f"SELECT k, count(*) - LAG(count(*)) OVER (PARTITION BY k ORDER BY window_end) AS d "
        f"FROM a {TUMBLED} GROUP BY k",
        f"SELECT k, count(*) - lag(count(*)) OVER (PARTITION BY k ORDER BY {TEN}) AS d, "
        f"{TEN} AS ts FROM a GROUP BY k, {TEN}",
    ),
    "last_rows": Case(
        "SELECT k, sum(v) AS s FROM a [PARTITION BY k ROWS 2] GROUP BY k",
        f"SELECT q.k, sum(v) AS s, q.ts_us AS ts FROM (SELECT DISTINCT k, ts_us FROM a) q JOIN "
        f"(SELECT *, lead(ts_us, 2) OVER ({BY_K}) AS u FROM a) l ON l.k IS NOT DISTINCT FROM q.k "
        "AND l.ts_us <= q.ts_us AND (u IS NULL OR u > q.ts_us) GROUP BY q.k, q.ts_us",
    ),
    "left_relation": Case(
        "DSTREAM(SELECT a.k, b.v FROM a [RANGE 2 SECONDS] JOIN b [RANGE 2 SECONDS] ON a.k = b.k)",
        "SELECT a.k, b.v, least(a.ts_us, b.ts_us) + 2000001 AS ts FROM a, b "
        f"WHERE {MET} AND a.k = b.k",
    ),
    "looked_at": Case(
        "SELECT RSTREAM k, v FROM a [RANGE 3 SECONDS SLIDE 2 SECONDS] WHERE g = 1",
        "SELECT k, v, unnest(generate_series((ts_us + 1999999) // 2000000 * 2000000, "
        "(ts_us + 3000000) // 2000000 * 2000000, 2000000)) AS ts FROM a WHERE g = 1",
    ),
    "elements": Case(
        "SELECT i, count(*) AS n FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] CROSS JOIN "
        "UNNEST(sequence(0, v)) AS t(i) GROUP BY i",
        f"SELECT i, count(*) AS n, t AS ts FROM (SELECT unnest(generate_series(0, v)) AS i, {TEN} "
        "AS t FROM a) GROUP BY i, t",
    ),
    "rows_of_matches": Case(
        "SELECT k, v, role FROM a MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES CLASSIFIER()"
        " AS role ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B) DEFINE A AS g = 1, "
        "B AS g <> 1)",
        "SELECT k, v, CASE WHEN g = 1 AND next <> 1 THEN 'A' WHEN g <> 1 AND before = 1 THEN 'B' "
        f"END AS role, ts_us AS ts FROM (SELECT *, lead(g) OVER ({BY_K}) AS next, "
        f"lag(g) OVER ({BY_K}) AS before FROM a)",
    ),
}
OVER_TABLES = {
    "of_states": tables("SELECT k, count(*) AS c, sum(n) AS s FROM @a x GROUP BY k"),
    "three_deep": tables(
        "SELECT c, count(*) AS d FROM (SELECT k, count(*) AS c FROM @a x GROUP BY k) y GROUP BY c"
    ),
    "full_tables": tables(
        "SELECT x.g, y.g AS h, x.n, y.n AS m FROM @a x FULL JOIN @b y ON x.k = y.k AND x.n <> y.n"
    ),
    "not_in_table": tables("SELECT g, n FROM @a x WHERE k NOT IN (SELECT k FROM @b y WHERE n > 7)"),
    "except_all": tables("SELECT k FROM @a x EXCEPT ALL SELECT k FROM @b y"),
    "union": tables("SELECT k, n FROM @a x UNION SELECT k, n FROM @b y"),
    "current_rows": Case(
        "SELECT c.k, c.v, t.n FROM a [PARTITION BY k ROWS 1] c LEFT JOIN @b t ON c.g = t.g".replace(
            "@b", STATES.format("b")
        ),
        "SELECT c.k, c.v, t.n FROM (SELECT DISTINCT ON (k) * FROM a ORDER BY k, ts_us DESC, "
        f"pos DESC) c LEFT JOIN {STATES_SQL.format('b')} t ON c.g = t.g",
    ),
    "whole_streams": Case(
        "SELECT a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v AND a.g = b.g",
        "SELECT a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v AND a.g = b.g",
    ),
    "best_so_far": Case(
        "SELECT k, v FROM a WHERE v IS NOT NULL ORDER BY v DESC LIMIT 3",
        "SELECT k, v FROM a WHERE v IS NOT NULL ORDER BY v DESC, ts_us, pos LIMIT 3",
    ),
    "first_of_each": Case(
        "SELECT DISTINCT ON (g) g, v FROM a ORDER BY g, v DESC",
        "SELECT DISTINCT ON (g) g, v FROM a ORDER BY g, v DESC NULLS LAST, ts_us, pos",
    ),
    "best_of_table": tables(
        "SELECT k, g FROM @a x QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC, g "
        "NULLS FIRST) = 1"
    ),
    "beside_average": tables("SELECT g, n - avg(n) OVER (PARTITION BY k) AS d FROM @a x"),
    "above_own": tables("SELECT g FROM @a x WHERE n >= (SELECT avg(n) FROM @a y WHERE y.k = x.k)"),
    "pivoted": Case(
        "SELECT * FROM (SELECT k, g FROM a) q PIVOT (count(*) FOR g IN (1 AS one, 2 AS two))",
        "SELECT k, count(*) FILTER (g = 1) AS one, count(*) FILTER (g = 2) AS two FROM a "
        "GROUP BY k",
    ),
    "looked_up": Case(
        "SELECT a.k, a.v, t.n FROM a LEFT JOIN (SELECT k, count(*) AS n FROM b GROUP BY k HAVING "
        "count(*) > 1) FOR SYSTEM_TIME AS OF a.ts AS t ON a.k = t.k",
        "SELECT a.k, a.v, t.n, a.ts_us AS ts FROM a LEFT JOIN LATERAL (SELECT k, count(*) AS n "
        "FROM b WHERE b.ts_us <= a.ts_us GROUP BY k HAVING count(*) > 1) t ON a.k = t.k",
    ),
    "values_at": Case(
        "SELECT k, v - (SELECT max(v) FROM b WHERE b.k = a.k) AS d FROM a [NOW]",
        "SELECT k, v - (SELECT max(v) FROM b WHERE b.k = a.k AND b.ts_us <= a.ts_us) AS d, "
        "ts_us AS ts FROM a",
    ),
    "told_changes": Case(
        "ISTREAM(SELECT g, count(*) AS n FROM a [UNBOUNDED SLIDE 5 SECONDS] GROUP BY g)",
        "SELECT g, n, e AS ts FROM (SELECT g, count(*) AS n, e FROM a, (SELECT DISTINCT (ts_us + "
        "4999999) // 5000000 * 5000000 AS e FROM a) WHERE ts_us <= e GROUP BY g, e) "
        "QUALIFY lag(n) OVER (PARTITION BY g ORDER BY e) IS DISTINCT FROM n",
    ),
}
SETS = {"windows": OVER_WINDOWS, "tables": OVER_TABLES}


def streams(seed: int) -> list[Stream]:
    return [made_up(n, COLUMNS, VALUES, rows=ROWS, seed=seed + i) for i, n in enumerate("ab")]


@pytest.mark.parametrize("name", SETS)
def test_constructs_merged_between_steps(name: str, spark: Any, tmp_path: Path) -> None:
    made, cases = streams(3), SETS[name]
    runner = EngineRunner(spark, tmp_path, between_steps=ForcedCompaction(share=0.5))
    texts = {n: case.cql for n, case in cases.items()}
    results = runner.run(made, texts, cut(made, ROWS // ROUNDS))
    assert not problems(made, cases, results)


class Disturbed(Cluster):
    """Processors that crash once in each operator, at one point after another."""

    def __init__(self, plane: SparkPlane, folder: Path) -> None:
        self.plan, self.chance = CrashPlan(), random.Random(5)
        self.crashed: dict[str, str] = {}  # operator -> point
        self.points = itertools.cycle(POINTS)
        super().__init__(plane, folder, 2)

    def step(self, processor: Processor, operator: Operator) -> bool:
        point = "" if operator.id in self.crashed else next(self.points)
        self.plan.arm(point)
        try:
            worked = super().step(processor, operator)
        finally:
            if self.plan.at:
                self.crashed[operator.id] = point
            self.plan.arm("")
        if self.chance.random() < MERGED_SHARE:
            compact_all(processor.engine)
        return worked

    def drain(self) -> None:
        """Works until nothing is left to do; who was lost comes back."""
        worked = True
        while worked:
            self.revive()
            before = len(self.crashed)
            worked = self.exchange()
            worked = self.steps() or worked or len(self.crashed) > before

    def move_all(self) -> None:
        for name in sorted(self.where):
            (to,) = (n for n in self.names if n != self.where[name])
            assert self.move([name], to, self.exchange)


@pytest.mark.parametrize("name", SETS)
def test_constructs_moved_and_crashed(name: str, spark: Any, tmp_path: Path) -> None:
    made, cases = streams(4), SETS[name]
    cluster = Disturbed(SparkPlane(spark), tmp_path)
    cluster.declare(made)
    for query, case in cases.items():
        cluster.deploy(query, case.cql, lambda _: cluster.chance.choice(cluster.names))
    parts = {s.name: files_of(s, cut(made, ROWS // 2)[s.name]) for s in made}
    appenders = cluster.alive[FIRST].engine.appenders
    faults.set_hook(cluster.plan)
    try:
        for number in range(2):
            for stream, files in parts.items():
                cluster.alive[FIRST].engine.appenders[stream].append(arrived(files[number]), {})
            if number:
                cluster.exchange()
                cluster.move_all()
            cluster.drain()
        for stream in parts:
            cluster.alive[FIRST].engine.appenders[stream].finish()
        cluster.drain()
    finally:
        faults.set_hook(None)
    assert appenders is not cluster.alive[FIRST].engine.appenders, "it was never lost"
    cluster.check_numbers()
    results = {query: cluster.rows(query) for query in cases}
    missed = set(cluster.where) - set(cluster.crashed)
    cluster.close()
    assert not problems(made, cases, results)
    assert not missed, "operators that never crashed"
    assert set(cluster.crashed.values()) == set(POINTS)
