"""Every kind of operator, moved and crashed, with compaction between steps: DuckDB's rows.

Two processors share the operators of a query for each kind. Each kind crashes in a step, after its
rows are written and before they are committed; every operator moves while rows come; after some
steps all that can be merged is. A kind that is new fails this test until it has a query here.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from engine_runner import arrived, compact_all, declare, rows_of, settle
from processors_together import FIRST, Cluster, Crash, CrashPlan

from millstream.engine.engine import Engine
from millstream.engine.processor import Processor
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from millstream.spark.operators import LOGIC
from millstream.spark.plane import SparkPlane
from millstream.store import faults
from oracle.harness import cut, files_of
from oracle.model import Column, Row, Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
POINT = "step.written"
ROUNDS = 2
MERGED_SHARE = 0.2  # of steps, after which everything is merged
NO_CLUSTER = {"rules"}  # a cluster has no rule tables: they crash in an engine of their own, below
TA = "(SELECT name, count(*) AS c FROM a GROUP BY name)"
TB = "(SELECT name, max(n) AS m FROM b GROUP BY name)"
NEAR = "x.name = y.name AND abs(x.ts - y.ts) <= 3000000"
BY_NAME = "PARTITION BY name ORDER BY ts"
# CQL, and SQL that gives its rows; with ts where the result is a stream
QUERIES = {
    "join": (
        "SELECT x.n AS n, y.n AS m FROM a [RANGE 3 SECONDS] x JOIN b [RANGE 3 SECONDS] y"
        " ON x.name = y.name",
        f"SELECT x.n, y.n AS m, greatest(x.ts, y.ts) AS ts FROM a x JOIN b y ON {NEAR}",
    ),
    "semijoin": (
        "SELECT n FROM a [RANGE 3 SECONDS] x LEFT SEMI JOIN b [RANGE 3 SECONDS] y"
        " ON x.name = y.name",
        "SELECT any_value(x.n) AS n, min(greatest(x.ts, y.ts)) AS ts FROM a x JOIN b y"
        f" ON {NEAR} GROUP BY x.pos",
    ),
    "interval": (
        "DSTREAM(SELECT n FROM a [RANGE 7 SECONDS])",
        "SELECT n, ts + 7000001 AS ts FROM a",
    ),
    "distinct": ("SELECT DISTINCT name FROM b", "SELECT name, min(ts) AS ts FROM b GROUP BY name"),
    "running_emit": (
        "ISTREAM(SELECT count(*) AS c FROM b [UNBOUNDED SLIDE 20 SECONDS])",
        "SELECT (SELECT count(*) FROM b WHERE b.ts <= e) AS c, e AS ts FROM"
        " (SELECT DISTINCT (ts + 19999999) // 20000000 * 20000000 AS e FROM b)",
    ),
    "session": (
        "SELECT name, count(*) AS c FROM a [SESSION 5 SECONDS] GROUP BY name",
        "SELECT name, count(*) AS c, max(ts) + 5000000 AS ts FROM (SELECT *, sum(opens) OVER"
        f" ({BY_NAME}, pos) AS s FROM (SELECT *, coalesce(ts - lag(ts) OVER ({BY_NAME}, pos)"
        " >= 5000000, TRUE)::INT AS opens FROM a)) GROUP BY name, s",
    ),
    "rank": (
        "SELECT name, count(*) AS c FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY name"
        " ORDER BY c DESC, name LIMIT 2",
        "SELECT name, c, ts FROM (SELECT name, count(*) AS c, ts // 10000000 * 10000000 + 10000000"
        " AS ts FROM a GROUP BY ALL) QUALIFY row_number() OVER (PARTITION BY ts ORDER BY c DESC,"
        " name) <= 2",
    ),
    "over": (
        "SELECT name, n - LAG(n) OVER w AS d, LEAD(n) OVER w AS m, sum(n) OVER w AS t, count(*)"
        " OVER (w RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) AS c FROM a"
        " WINDOW w AS (PARTITION BY name ORDER BY ts)",
        f"SELECT name, n - lag(n) OVER ({BY_NAME}, pos) AS d, lead(n) OVER ({BY_NAME}, pos) AS m,"
        f" sum(n) OVER ({BY_NAME}) AS t, count(*) OVER ({BY_NAME} RANGE BETWEEN 5000000 PRECEDING"
        " AND CURRENT ROW) AS c, ts FROM a",
    ),
    "calendar": (
        "SELECT name, count(*) AS c FROM a [RANGE 1 DAY SLIDE 1 DAY IN 'Europe/Berlin']"
        " GROUP BY name",
        "SELECT name, count(*) AS c, 82800000000 AS ts FROM a GROUP BY name",
    ),
    "match": (
        "SELECT * FROM a MATCH_RECOGNIZE (PARTITION BY name ORDER BY ts MEASURES A.n AS low,"
        " B.n AS high AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN INTERVAL '30' SECONDS"
        " DEFINE B AS n > PREV(n)) AS m",
        f"SELECT name, lag(n) OVER ({BY_NAME}, pos) AS low, n AS high, ts FROM a QUALIFY n > low"
        f" AND ts - lag(ts) OVER ({BY_NAME}, pos) < 30000000",
    ),
    "table_join": (
        f"SELECT x.name, x.c, y.m FROM {TA} x JOIN {TB} y ON x.name = y.name",
        f"SELECT x.name, x.c, y.m FROM {TA} x JOIN {TB} y ON x.name = y.name",
    ),
    "table_semijoin": (
        f"SELECT name, c FROM {TA} x WHERE c NOT IN (SELECT m % 10 FROM {TB} y)",
        f"SELECT name, c FROM {TA} x WHERE c NOT IN (SELECT m % 10 FROM {TB} y)",
    ),
    "table_rank": (
        f"SELECT name, c FROM {TA} x ORDER BY c DESC, name LIMIT 2",
        f"SELECT name, c FROM {TA} x ORDER BY c DESC, name LIMIT 2",
    ),
    "table_over": (
        f"SELECT name, sum(c) OVER (ORDER BY c, name ROWS 1 PRECEDING) AS s FROM {TA} x",
        f"SELECT name, sum(c) OVER (ORDER BY c, name ROWS 1 PRECEDING) AS s FROM {TA} x",
    ),
}


def made_up(count: int) -> tuple[Stream, ...]:
    """Two streams over one clock, out of order within their lateness."""
    chance = random.Random(11)
    columns = (Column("name", "string"), Column("n", "int"))
    made = []
    for name in ("a", "b"):
        rows = []
        for i in range(count):
            at = 2 * i + chance.choice((0, 0, 1, -1, -2))
            rows.append(Row(max(at, 0) * SECOND, (chance.choice("uvwx"), chance.randrange(100))))
        made.append(Stream(name, columns, tuple(rows), 3 * SECOND))
    return tuple(made)


def expected(streams: Sequence[Stream], sql: str) -> tuple[list[str], Counter[tuple[Any, ...]]]:
    """DuckDB's columns and rows."""
    base = duckdb.connect()
    for stream in streams:
        base.execute(f"CREATE TABLE {stream.name} (ts BIGINT, pos BIGINT, name TEXT, n INTEGER)")
        for position, row in enumerate(stream.rows):
            values = [row.ts, position, *row.values]
            base.execute(f"INSERT INTO {stream.name} VALUES (?, ?, ?, ?)", values)
    cursor = base.execute(sql)
    names = [part[0] for part in cursor.description]
    return names, Counter(cursor.fetchall())


def check(streams: Sequence[Stream], sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
    names, wanted = expected(streams, sql)
    assert wanted, f"nothing is judged by {sql}"
    assert Counter(tuple(row[name] for name in names) for row in rows) == wanted, sql


class Disturbed(Cluster):
    """Processors of which one is lost when a kind of operator writes its first rows."""

    def __init__(self, plane: SparkPlane, folder: Path) -> None:
        self.plan, self.crashed, self.chance = CrashPlan(), set[str](), random.Random(5)
        super().__init__(plane, folder, 2)

    def step(self, processor: Processor, operator: Operator) -> bool:
        self.plan.arm("" if operator.kind in self.crashed else POINT)
        try:
            worked = super().step(processor, operator)
        finally:
            if self.plan.at:
                self.crashed.add(operator.kind)
            self.plan.arm("")
        if self.chance.random() < MERGED_SHARE:
            compact_all(processor.engine)
        return worked

    def drain(self) -> None:
        """Works until nothing is left to do; who was lost comes back."""
        while True:
            self.revive()
            before = len(self.crashed)
            worked = self.exchange()
            if not self.steps() and not worked and len(self.crashed) == before:
                return

    def move_all(self) -> set[str]:
        """Every operator goes to the other processor; gives the kinds that did."""
        kinds = set()
        for name in sorted(self.where):
            (to,) = (n for n in self.names if n != self.where[name])
            kinds.add(str(self.alive[self.where[name]].engine.operators[name].kind))
            assert self.move([name], to, self.exchange)
        return kinds


def test_every_kind_is_moved_crashed_and_merged(spark: Any, tmp_path: Path) -> None:
    streams = made_up(20)
    cluster = Disturbed(SparkPlane(spark), tmp_path)
    cluster.declare(streams)
    for name, (cql, _) in QUERIES.items():
        cluster.deploy(name, cql, lambda _: cluster.chance.choice(cluster.names))
    moved: set[str] = set()
    sizes = cut(streams, ROUNDS)
    parts = {s.name: files_of(s, sizes[s.name]) for s in streams}
    faults.set_hook(cluster.plan)
    try:
        for number in range(max(len(tables) for tables in parts.values())):
            for name, tables in parts.items():
                if number < len(tables):
                    cluster.alive[FIRST].engine.appenders[name].append(arrived(tables[number]), {})
            if number:
                cluster.exchange()
                moved |= cluster.move_all()
            cluster.drain()
        for name in parts:
            cluster.alive[FIRST].engine.appenders[name].finish()
        cluster.drain()
    finally:
        faults.set_hook(None)
    cluster.check_numbers()
    for name, (_, sql) in QUERIES.items():
        check(streams, sql, cluster.rows(name))
    cluster.close()
    assert moved == set(LOGIC) - NO_CLUSTER, "every kind has moved"
    assert cluster.crashed == set(LOGIC) - NO_CLUSTER, "every kind has crashed"


def test_rules_that_crash_and_are_merged(spark: Any, tmp_path: Path) -> None:
    streams = made_up(20)[:1]
    limits = StreamDefinition(
        "limits", (Field("rule", "string"), Field("least", "int")), "", source={"source": "rules"}
    )
    plane, plan = SparkPlane(spark), CrashPlan()

    def opened() -> Engine:
        engine = Engine(tmp_path / "home", plane, EngineSettings())
        declare(engine, streams)
        engine.add_stream(limits)
        engine.add_query("q", "SELECT name, n FROM a WHERE n > :least FOR EACH limits")
        return engine

    engine = opened()
    rules = [{"rule": "low", "least": 20}, {"rule": "high", "least": 80}]
    engine.sources["limits"].push("test", None, rules)
    faults.set_hook(plan)
    try:
        for table in files_of(streams[0], cut(streams, ROUNDS)["a"]):
            engine.appenders["a"].append(arrived(table), {})
            plan.arm(POINT)
            with pytest.raises(Crash):
                settle(engine)
            engine.close()
            engine = opened()
            settle(engine, compact_all)
    finally:
        faults.set_hook(None)
    engine.appenders["a"].finish()
    settle(engine)
    least = "(VALUES ('low', 20), ('high', 80)) AS r (rule, least)"
    check(
        streams, f"SELECT rule, name, n, ts FROM a, {least} WHERE n > least", rows_of(engine, "q")
    )
    engine.close()
