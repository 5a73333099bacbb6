"""Queries that begin with a table of the past: the rows of both, each once, against DuckDB."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_runner import arrived, rows_of, settle
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from millstream.app import cli
from millstream.core.errors import UsageError
from millstream.edge.views.engine_preview import preview_rows
from millstream.engine.costs import explained
from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.histories import instant_text, past_name
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane
from millstream.store import faults
from oracle.generate import examples
from oracle.harness import Example, files_of, judge, whole
from oracle.model import Stream

pytestmark = pytest.mark.spark
SECOND = 1_000_000
COLUMNS = (Field("k", "string"), Field("v", "bigint"), Field("at", "timestamp"))
MADE = settings(
    max_examples=4, deadline=None, database=None, print_blob=True, phases=(Phase.generate,),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)  # fmt: skip


class CrashError(BaseException):
    """The end of a process."""


# -- generated queries ----------------------------------------------------------------------------


def in_order(stream: Stream) -> Stream:
    """The same rows, none of which is late for another: what is late is not the question here."""
    timed = sorted((r for r in stream.rows if r.ts is not None), key=lambda r: r.ts or 0)
    return Stream(stream.name, stream.columns, tuple(timed), stream.lateness)


def run_from_history(spark: Any, folder: Path, made_up: Example, at: int) -> dict[str, Any]:
    """Rows before an instant lie in Parquet, the others are pushed, and each side has some that
    are the other's to give."""
    streams = {s.name: s for s in made_up.streams}
    times = sorted({row.ts for s in streams.values() for row in s.rows if row.ts is not None})
    until = times[at * len(times) // 10] if times else 0
    queries = {
        name: f"CREATE QUERY {name} FROM HISTORY UNTIL '{instant_text(until)}' AS {text}"
        for name, text in made_up.texts().items()
    }
    engine = Engine(folder / "home", SparkPlane(spark), EngineSettings(batch_rows=5))
    engine.check_new = lambda _: None  # type: ignore[method-assign]  # made-up joins may be products
    live: dict[str, list[pa.Table]] = {}
    for stream in streams.values():
        (table,) = files_of(stream, [len(stream.rows)])
        place = sum(row.ts < until for row in stream.rows if row.ts is not None)
        past = table.slice(0, min(place + 3, table.num_rows))
        (folder / stream.name).mkdir()
        for part, order in enumerate(([*range(past.num_rows)][::2], [*range(past.num_rows)][1::2])):
            pq.write_table(
                past.take(pa.array(order, pa.int64())), folder / stream.name / f"{part}.parquet"
            )
        kept = table.slice(max(0, place - 2))
        live[stream.name] = [kept.slice(begun, 7) for begun in range(0, kept.num_rows, 7)]
        columns = (Field("ts", "timestamp"), *(Field(c.name, c.type) for c in stream.columns))
        history = {"format": "parquet", "path": str(folder / stream.name)}
        engine.add_stream(
            StreamDefinition(
                stream.name, columns, "ts", stream.lateness,
                source={"source": "push", "history": history},
            )
        )  # fmt: skip
    for name, text in queries.items():
        engine.add_query(name, text)
    for number in range(max(map(len, live.values()), default=0)):
        for name, parts in live.items():
            if number < len(parts):
                engine.appenders[name].append(arrived(parts[number]), {})
        if number == 1:
            start_pasts(engine)
        settle(engine)
    start_pasts(engine)
    for name in live:
        engine.appenders[name].finish()
    settle(engine)
    results = {name: rows_of(engine, name) for name in queries}
    engine.close()
    return results


def start_pasts(engine: Engine) -> None:
    """Lets the tables of the past be read to their end."""
    for name, source in engine.sources.items():
        if ".history." in name and not source.ended:
            source.start()
            deadline = time.monotonic() + 60
            while not source.ended and time.monotonic() < deadline:
                assert source.failure is None, source.failure
                settle(engine)
                time.sleep(0.01)
            source.stop()


def agrees_on_seed(number: int, spark: Any, folders: pytest.TempPathFactory) -> None:
    @seed(number)
    @MADE
    @given(examples(), st.integers(2, 9))
    def check(made_up: Example, at: int) -> None:
        streams = tuple(in_order(s) for s in made_up.streams)
        ordered = Example(streams, whole(streams), made_up.queries)
        results = run_from_history(spark, folders.mktemp("run"), ordered, at)
        problems = judge(ordered, results)
        assert not problems, "\n\n".join(problems)

    check()


def test_made_up_queries_agree_with_duckdb(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    agrees_on_seed(1, spark, tmp_path_factory)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(2, 11))
def test_two_hundred_made_up_queries_agree_with_duckdb(
    number: int, spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    agrees_on_seed(number, spark, tmp_path_factory)


# -- one stream -----------------------------------------------------------------------------------


def rows(*numbers: int) -> pa.Table:
    times = pa.array([n * SECOND for n in numbers], pa.int64()).cast(pa.timestamp("us", "UTC"))
    words = pa.array(["even" if n % 2 == 0 else "odd" for n in numbers])
    return pa.table({"k": words, "v": pa.array(numbers, pa.int64()), "at": times})


class Living:
    """An engine with one stream that has a history."""

    def __init__(self, spark: Any, folder: Path, history: Mapping[str, Any]) -> None:
        self.spark, self.folder, self.history = spark, folder, history
        self.notices: list[str] = []
        self.open()

    def open(self) -> None:
        self.engine = Engine(self.folder, SparkPlane(self.spark), EngineSettings(batch_rows=10))
        self.engine.on_notice.append(self.notices.append)
        source = {"source": "push", "history": dict(self.history)}
        self.engine.add_stream(StreamDefinition("s", COLUMNS, "at", source=source))

    def push(self, *numbers: int) -> None:
        self.engine.appenders["s"].append(arrived_rows(rows(*numbers)), {})
        settle(self.engine)

    def values(self, query: str) -> list[int]:
        return sorted(row["v"] for row in rows_of(self.engine, query))


def arrived_rows(table: pa.Table) -> pa.Table:
    made = arrived(table.append_column("ts", table["at"]))
    return made.drop_columns(["c3"])


@pytest.fixture
def living(spark: Any, tmp_path: Path) -> Iterator[Living]:
    pq.write_table(rows(*range(100)), tmp_path / "past.parquet")
    made = Living(
        spark, tmp_path / "home", {"format": "parquet", "path": str(tmp_path / "past.parquet")}
    )
    yield made
    made.engine.close()


def test_the_boundary_is_where_live_rows_are_all_there(living: Living) -> None:
    living.push(*range(80, 90))
    query = living.engine.add_query("q", "CREATE QUERY q FROM HISTORY AS SELECT v FROM s")
    assert "FROM HISTORY UNTIL '1970-01-01T00:01:20Z' AS" in query.cql
    start_pasts(living.engine)
    living.push(*range(90, 110))
    assert living.values("q") == list(range(110))


def test_queries_share_one_scan_until_it_is_used_up(living: Living) -> None:
    engine = living.engine
    living.push(80)
    first = engine.add_query("a", "CREATE QUERY a FROM HISTORY AS SELECT v FROM s WHERE v > 3")
    living.push(81, 82)
    second = engine.add_query("b", "CREATE QUERY b FROM HISTORY AS SELECT k, v FROM s")
    past = past_name("s", 80 * SECOND)
    assert [n for n in engine.appenders if n != "s"] == [past]
    assert engine.status()["queries"]["a"]["history_rows"] is None
    start_pasts(engine)
    assert "history_rows" not in engine.status()["queries"]["a"]
    living.push(83)
    engine.maintenance.retain(["s:s", f"s:{past}"])
    third = engine.add_query("c", "CREATE QUERY c FROM HISTORY AS SELECT v FROM s WHERE v < 50")
    assert third.cql != first.cql != second.cql
    start_pasts(engine)
    settle(engine)
    assert living.values("a") == [*range(4, 84)]
    assert living.values("b") == [*range(84)]
    assert living.values("c") == [*range(50)]
    engine.drop_query("a")
    assert past in engine.appenders  # b reads it
    engine.drop_query("b")
    assert past not in engine.appenders
    assert engine.ledger.stream(f"s:{past}") is None


def test_progress_counts_what_is_still_in_the_table(living: Living) -> None:
    engine = living.engine
    living.push(100)
    engine.add_query("q", "CREATE QUERY q FROM HISTORY AS SELECT v FROM s")
    (past,) = (n for n in engine.appenders if n != "s")
    left = [engine.status()["queries"]["q"]["history_rows"]]

    def hook(reached: str) -> None:
        if reached == "ingest.committed":
            left.append(engine.status()["queries"]["q"]["history_rows"])

    faults.set_hook(hook)
    try:
        engine.sources[past].start()
        deadline = time.monotonic() + 60
        while not engine.sources[past].ended and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        faults.set_hook(None)
    assert left[0] is None
    assert left[1:] == [101] * 10  # a live row too; what was brought waits for its reader
    settle(engine)
    assert "history_rows" not in engine.status()["queries"]["q"]


@pytest.mark.parametrize("point", ["ingest.written", "ingest.committed"])
@pytest.mark.parametrize("passed", [0, 4])
def test_a_kill_while_the_past_is_read_changes_nothing(
    living: Living, point: str, passed: int
) -> None:
    living.push(80)
    text = "CREATE QUERY q FROM HISTORY AS SELECT k, sum(v) AS v FROM s GROUP BY k"
    made = living.engine.add_query("q", text).cql
    left = [passed]

    def hook(reached: str) -> None:
        left[0] -= reached == point
        if left[0] < 0:
            raise CrashError(reached)

    (past,) = (n for n in living.engine.appenders if n != "s")
    faults.set_hook(hook)
    try:
        source = living.engine.sources[past]
        source.start()
        deadline = time.monotonic() + 60
        while source.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
        source.stop()
    finally:
        faults.set_hook(None)
    assert source.failure is not None
    living.engine.close()
    living.open()
    assert living.engine.add_query("q", text).cql == made
    start_pasts(living.engine)
    living.push(*range(81, 90))
    totals = {row["k"]: row["v"] for row in rows_of(living.engine, "q")}
    assert totals == {"even": sum(range(0, 90, 2)), "odd": sum(range(1, 90, 2))}


def test_a_folder_that_changes_while_it_is_read_is_told(living: Living, tmp_path: Path) -> None:
    living.push(80)
    living.engine.add_query("q", "CREATE QUERY q FROM HISTORY AS SELECT v FROM s")
    (past,) = (n for n in living.engine.appenders if n != "s")
    source: Any = living.engine.sources[past]
    source._note({"table": str(tmp_path / "past.parquet"), "version": 1, "rows": 5})
    source.start()
    deadline = time.monotonic() + 60
    while source.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "have changed since their reading began" in str(source.failure)


def refused(living: Living, cql: str) -> str:
    with pytest.raises(UsageError) as told:
        living.engine.add_query("q", cql)
    return str(told.value)


def test_it_is_explained_and_previewed_before_it_is_registered(living: Living) -> None:
    living.push(80, 81)
    text = "CREATE QUERY q FROM HISTORY AS SELECT v FROM s WHERE v > 80"
    assert "s.history" in explained(living.engine, living.engine.plan(text))
    assert [row[0] for row in preview_rows(living.engine, text, 10).rows] == [81]


def test_what_cannot_begin_with_history_is_told(living: Living) -> None:
    engine = living.engine
    own = {"source": "push"}
    engine.add_stream(StreamDefinition("plain", COLUMNS, "at", source=own))
    begin = "CREATE QUERY q FROM HISTORY"
    assert "has no row yet" in refused(living, f"{begin} AS SELECT v FROM s")
    assert "stream plain has no history" in refused(living, f"{begin} AS SELECT v FROM plain")
    assert "UNTIL takes an instant" in refused(living, f"{begin} UNTIL 'soon' AS SELECT v FROM s")
    assert engine.queries == {}
    assert engine.ledger.consumers("s:s") == {}
    for number in range(200, 300, 10):
        living.push(*range(number, number + 10))
        engine.maintenance.retain(["s:s"])
    told = refused(living, f"{begin} UNTIL '1970-01-01T00:01:00Z' AS SELECT v FROM s")
    assert "rows of stream s before 1970-01-01T00:04:49.000001Z are gone" in told


@pytest.mark.soak
def test_such_a_query_is_not_replaced(living: Living) -> None:
    living.push(80)
    engine = living.engine
    engine.add_query("q", "CREATE QUERY q FROM HISTORY AS SELECT v FROM s")
    with pytest.raises(UsageError, match="a query begins with history once"):
        engine.add_query("q", "CREATE OR REPLACE QUERY q AS SELECT v + 1 AS v FROM s")


def test_a_row_without_a_time_is_rejected_from_the_past_too(spark: Any, tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": ["a", "b"], "v": pa.array([1, 2], pa.int64()),
            "at": pa.array([None, SECOND], pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    (tmp_path / "past").mkdir()
    pq.write_table(table, tmp_path / "past" / "one.parquet")
    living = Living(spark, tmp_path / "home", {"format": "parquet", "path": str(tmp_path / "past")})
    living.engine.add_query(
        "q", "CREATE QUERY q FROM HISTORY UNTIL '1970-01-01T00:00:05Z' AS SELECT v FROM s"
    )
    start_pasts(living.engine)
    settle(living.engine)
    assert living.values("q") == [2]
    assert living.engine.ledger.counters()[f"rejected:{past_name('s', 5 * SECOND)}"] == 1
    living.engine.close()


JOB = """
[streams.doors]
path    = "doors.csv"
columns = { at = "timestamp", door = "string" }
time    = "at"
options = { header = true }
history = { path = "past/*.parquet" }

[queries.passages]
cql = \"\"\"
CREATE QUERY passages FROM HISTORY UNTIL '2024-05-01' AS
SELECT door, count(*) AS n FROM doors [RANGE 1 DAY SLIDE 1 DAY] GROUP BY door\"\"\"
"""


def test_a_job_begins_with_a_table_of_the_past(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "past").mkdir()
    past = [{"at": f"2024-04-{day}T12:00:00Z", "door": "north"} for day in (29, 30, 30)]
    pq.write_table(pa.Table.from_pylist(past), tmp_path / "past" / "a.parquet")
    twice = "2024-04-30T12:00:00Z,north\n2024-05-01T00:00:00Z,north\n2024-05-01T01:00:00Z,south\n"
    (tmp_path / "doors.csv").write_text(f"at,door\n{twice}")
    (tmp_path / "job.toml").write_text(JOB)
    command = ["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    assert cli.run(command) == 0
    files = sorted((tmp_path / "out" / "passages").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    found = sorted((str(row["ts"])[:10], row["door"], row["n"]) for row in rows)
    assert found == [
        ("2024-04-30", "north", 1),
        ("2024-05-01", "north", 2),
        ("2024-05-02", "north", 1),
        ("2024-05-02", "south", 1),
    ]
    assert cli.run(command) == 0  # it has finished
