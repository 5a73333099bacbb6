"""CREATE OR REPLACE QUERY: what stays, what readers get, through crashes; against DuckDB."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from small_engines import bag, file_rows

from millstream.core.errors import UsageError
from millstream.engine.changes.switching import tidy
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.delivery import FileSink

pytestmark = pytest.mark.spark

COLUMNS = tuple(Field(n, t) for n, t in (("at", "bigint"), ("name", "string"), ("n", "int")))
MINUTE = 60_000_000
SETTINGS = EngineSettings(batch_rows=1_000)
HALF = 70.5  # seconds: rows before have come when queries are replaced
BAD = 35  # the number that breaks a query
OLD_WINDOW = "[RANGE 20 SECONDS SLIDE 10 SECONDS]"
NEW_WINDOW = "[RANGE 30 SECONDS SLIDE 10 SECONDS]"
# what a query is at first, and what it becomes
TEXTS = {
    "filter": ("SELECT name, n FROM a WHERE n % 3 = 0", "SELECT name, -n AS n FROM a WHERE n > 40"),
    "having": (
        f"SELECT name, sum(n) AS s FROM a {OLD_WINDOW} GROUP BY name",
        f"SELECT name, sum(n) AS s FROM a {OLD_WINDOW} GROUP BY name HAVING sum(n) > 200",
    ),
    "wider": (
        f"SELECT name, count(*) AS s FROM b {OLD_WINDOW} GROUP BY name",
        f"SELECT name, sum(n) AS s FROM b {NEW_WINDOW} GROUP BY name",
    ),
    "join": (
        "SELECT x.n AS n, y.n AS m FROM a [RANGE 5 SECONDS] x JOIN b [RANGE 5 SECONDS] y"
        " ON x.name = y.name",
        "SELECT x.n AS n, y.n AS m FROM a [RANGE 3 SECONDS] x JOIN b [RANGE 3 SECONDS] y"
        " ON x.name = y.name AND x.n > y.n",
    ),
    "total": (
        "SELECT name, count(*) AS c FROM b GROUP BY name",
        "SELECT name, sum(n) AS c FROM b WHERE n % 2 = 0 GROUP BY name",
    ),
    "broken": (
        f"SELECT name, 1000 div (n - {BAD}) AS r FROM b",
        f"SELECT name, 1000 div (n - {BAD} - 1000) AS r FROM b",
    ),
}  # fmt: skip
POINTS = (  # as they are met on the way
    "replace.noted", "replace.begun", "step.written", "step.committed", "replace.written",
    "replace.committed", "delivery.written", "delivery.committed", "replace.tidied",
    "removal.committed",
)  # fmt: skip
Row = dict[str, Any]


class Crash(BaseException):
    """What a test does to the process."""


def rows_of(name: str) -> list[Row]:
    """Rows in order of time; those of stream b break a query in the first half."""
    chance = random.Random(name)
    return [
        {"at": i * 500 + chance.randrange(1, 400), "name": chance.choice("uvw"),
         "n": BAD if i == 130 and name == "b" else chance.choice([*range(BAD), *range(36, 100)])}
        for i in range(300)
    ]  # fmt: skip


def batches(name: str) -> list[list[Row]]:
    """What comes before the break, up to the replacement, and after it."""
    rows = rows_of(name)
    half = [r for r in rows if r["at"] < HALF * 1000]
    return [half[:100], half[100:], rows[len(half) :]]


@pytest.fixture(scope="module")
def plane(spark: Any) -> SparkPlane:
    return SparkPlane(spark)


def opened(plane: SparkPlane, home: Path, texts: dict[str, tuple[str, str]] = TEXTS) -> Engine:
    """An engine with everything as its ledger has it."""
    engine = Engine(home, plane, SETTINGS)
    for name, retained in (("a", None), ("b", 60 * MINUTE)):
        engine.add_stream(
            StreamDefinition(
                name, COLUMNS, "timestamp_millis(at)", source={"source": "push"}, retain_us=retained
            )
        )
    for name, (first, _) in texts.items():
        known = engine.ledger.query(name)
        query = engine.add_query(name, first if known is None else known["cql"])
        changes = Consumer("changes", name) if query.plan.relation else None
        engine.deliver(name, FileSink(home / "out" / name, "parquet"), consumer=changes)
    return engine


def settle(engine: Engine) -> None:
    """Works until all rows so far are processed and nobody waits for another's place."""
    loop = Loop(engine)
    loop.start()
    assert loop.settled.wait(240)
    loop.stop()
    if loop.failure is not None:
        raise loop.failure


def push(engine: Engine, number: int) -> None:
    for name in ("a", "b"):
        source = engine.sources[name]
        assert isinstance(source, PushSource)
        source.push("test", number, batches(name)[number - 1])


def live(plane: SparkPlane, home: Path) -> Engine:
    """The whole story; whatever of it has happened before is not repeated."""
    engine = opened(plane, home)
    for number in (1, 2):
        push(engine, number)
        settle(engine)
    for name, (_, then) in TEXTS.items():
        engine.add_query(name, f"CREATE OR REPLACE QUERY {name} AS {then}")
    settle(engine)
    push(engine, 3)
    for name in ("a", "b"):
        engine.sources[name].finish()  # type: ignore[attr-defined]
    settle(engine)
    return engine


def answers(engine: Engine, home: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    found = {}
    for name in TEXTS:
        rows = file_rows(home / "out" / name)
        for row in rows:
            row.pop("ts")
        if engine.queries[name].plan.relation:
            sums: Counter[tuple[Any, ...]] = Counter()
            for row in rows:
                sums[tuple(row.values())[:-1]] += 1 if row["op"] == "+" else -1
            assert all(n >= 0 for n in sums.values()), name
            found[name] = +sums
            table = engine.table(name).drop_columns(["ts"])
            assert bag(table.to_pylist()) == found[name]
        else:
            found[name] = bag(rows)
    return found


@pytest.fixture(scope="module")
def expected() -> dict[str, Counter[tuple[Any, ...]]]:
    """From SQL of its own: what the old text gives up to the replacement, the new one after it."""
    with duckdb.connect() as db:
        for name in ("a", "b"):
            parts = batches(name)
            table = pa.Table.from_pylist(
                [{**r, "part": i, "t": r["at"] / 1000} for i, p in enumerate(parts) for r in p]
            )
            db.register(name, table)
        mark = {n: max(r["at"] for r in batches(n)[1]) / 1000 for n in ("a", "b")}

        def rows(sql: str) -> Counter[tuple[Any, ...]]:
            return Counter(db.execute(sql).fetchall())

        def windows(stream: str, length: int, what: str, having: str) -> str:
            return (
                f"SELECT name, {what} AS s FROM {stream}, range(10, 400, 10) e(e)"
                f" WHERE t >= e - {length} AND t < e AND {having} GROUP BY name, e"
            )

        join = "SELECT a.n, b.n FROM a JOIN b ON a.name = b.name AND abs(a.t - b.t) <= "
        before, after = (f"{{}}e {sign} {{}}" for sign in ("<=", ">"))
        return {
            "filter": rows("SELECT name, n FROM a WHERE part < 2 AND n % 3 = 0")
            + rows("SELECT name, -n FROM a WHERE part = 2 AND n > 40"),
            "having": rows(windows("a", 20, "sum(n)", before.format("", mark["a"])))
            + rows(
                windows("a", 20, "sum(n)", after.format("", mark["a"])) + " HAVING sum(n) > 200"
            ),
            "wider": rows(windows("b", 20, "count(*)", before.format("", mark["b"])))
            + rows(windows("b", 30, "sum(n)", after.format("", mark["b"]))),
            "join": rows(f"{join} 5 WHERE a.part < 2 AND b.part < 2")
            + rows(f"{join} 3 AND a.n > b.n WHERE a.part = 2 OR b.part = 2"),
            "total": rows("SELECT name, sum(n) FROM b WHERE n % 2 = 0 GROUP BY name"),
            "broken": rows(f"SELECT name, 1000 // (n - {BAD}) FROM b WHERE part < 1")
            + rows(f"SELECT name, 1000 // (n - {BAD} - 1000) FROM b WHERE part >= 1"),
        }


def compare(found: dict[str, Counter[tuple[Any, ...]]], wanted: dict[str, Any]) -> None:
    for name, rows in wanted.items():
        assert rows, f"{name} has rows to lose"
        assert found[name] == rows, f"{name}: {found[name] - rows} too many, {rows - found[name]}"


def test_results_go_on_with_the_new_text(
    plane: SparkPlane, tmp_path: Path, expected: dict[str, Any]
) -> None:
    engine = live(plane, tmp_path)
    compare(answers(engine, tmp_path), expected)
    assert sorted(engine.queries) == sorted(TEXTS)
    assert engine.fences == {}
    tidy(engine)  # what was read to its end goes
    kept = {o for q in engine.queries.values() for o in q.operators} | {"s:a", "s:b"}
    streams = {r["id"].partition("#")[0] for r in engine.ledger.streams()}
    assert {s for s in streams if s[0] in "obs"} == kept
    assert engine.ledger.query("filter")["cql"].startswith("CREATE QUERY filter AS")  # type: ignore[index]
    engine.close()


class CrashPlan:
    """Raises at a point, and from then on at every one."""

    def __init__(self, wanted: str) -> None:
        self.wanted, self.gone = wanted, False

    def __call__(self, point: str) -> None:
        self.gone = self.gone or point == self.wanted
        if self.gone:
            raise Crash(point)


def test_a_crash_between_any_two_commits(
    plane: SparkPlane, tmp_path: Path, expected: dict[str, Any]
) -> None:
    engine = opened(plane, tmp_path)
    for number in (1, 2):
        push(engine, number)
        settle(engine)
    engine.close()
    for point in POINTS:
        plan = CrashPlan(point)
        faults.set_hook(plan)
        try:
            with pytest.raises(Crash):
                live(plane, tmp_path)
        finally:
            faults.set_hook(None)
        assert plan.gone, point
    engine = live(plane, tmp_path)
    compare(answers(engine, tmp_path), expected)
    engine.close()


def test_what_cannot_go_on_is_refused(plane: SparkPlane, tmp_path: Path) -> None:
    texts = {n: TEXTS[n] for n in ("filter", "total")}
    engine = opened(plane, tmp_path, texts)
    for name, cql, words in (
        ("filter", "SELECT name, count(*) AS n FROM a GROUP BY name", "a stream of rows, and"),
        ("total", "SELECT name, n FROM a", "a table that changes, and"),
        ("total", "SELECT name, count(*) AS d FROM b GROUP BY name", "other columns"),
        ("filter", "SELECT nobody FROM a", "nobody"),
    ):
        with pytest.raises(UsageError, match=words):
            engine.add_query(name, f"CREATE OR REPLACE QUERY {name} AS {cql}")
    assert sorted(engine.queries) == ["filter", "total"]
    assert not engine.replacements.waits
    engine.add_query("new", "CREATE OR REPLACE QUERY new AS SELECT n FROM a")
    assert engine.queries["new"].cql == "CREATE QUERY new AS SELECT n FROM a"
    engine.close()
