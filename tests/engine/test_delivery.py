"""Results to sinks: exactly once to files, at least once elsewhere; queries that nobody reads."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from small_engines import bag, file_rows, stream

from millstream.core.errors import ResourceError, UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.quota import review, verdict
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.engine.steps.trains import alone
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane
from millstream.spark.sink import SparkSink
from millstream.store import delivery as deliveries
from millstream.store import faults, file_formats
from millstream.store.consumers import subscriber
from millstream.store.delivery import CallbackSink, ConsoleSink, FileSink, Result
from millstream.store.file_formats import write_file

pytestmark = pytest.mark.spark

RESULT = Result("q", "o:x", (Field("n", "int"),))
MOMENT = datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
ALL_TYPES = pa.table(
    {
        "text": pa.array(['a,"b"\nc', None, ""]),
        "number": pa.array([1.5, float("nan"), float("-inf")]),
        "exact": pa.array([Decimal("1.10"), None, Decimal("-2.00")], pa.decimal128(8, 2)),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "struct": pa.array([{"x": MOMENT}, None, {"x": None}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        "blob": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "day": pa.array([date(2020, 1, 2), None, date(1, 1, 1)]),
        "ts": pa.array([MOMENT, MOMENT, None], pa.timestamp("us", tz="UTC")),
    }
)


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(quota_bytes=20_000))
    opened.add_stream(stream("s", {"at": "long", "n": "int"}, source="push"))
    yield opened
    opened.close()


def push(engine: Engine, first: int, count: int) -> None:
    source = engine.sources["s"]
    assert isinstance(source, PushSource)
    rows = [{"at": n, "n": n} for n in range(first, first + count)]
    source.push("p", source.expected("p"), rows)


def settle(engine: Engine) -> None:
    """Steps of operators that are not at rest."""
    for operator in list(engine.operators.values()):
        while operator.id not in engine.paused_operators and engine.runner.run(
            alone(operator), 10**6
        ):
            pass


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_every_type_can_be_written(tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"part.{kind}"
    write_file(ALL_TYPES, target, kind)
    assert [p.name for p in tmp_path.iterdir()] == [target.name]
    if kind == "parquet":
        assert pq.read_table(target).num_rows == 3
    elif kind == "csv":
        options = pa_csv.ParseOptions(newlines_in_values=True)
        found = pa_csv.read_csv(target, parse_options=options)
        assert found.num_rows == 3
        assert found["text"][0].as_py() == 'a,"b"\nc'
        assert json.loads(found["list"][0].as_py()) == [1, None]
    else:
        rows = [json.loads(line) for line in target.read_text().splitlines()]
        assert rows[0]["number"] == 1.5
        assert (rows[1]["number"], rows[2]["number"]) == ("NaN", "-Infinity")
        assert rows[0]["ts"].startswith("2020-01-02 03:04:05.000678")
        assert (rows[0]["exact"], rows[0]["day"], rows[0]["blob"]) == ("1.10", "2020-01-02", "AP8=")


def test_texts_that_are_none_are_marked(tmp_path: Path) -> None:
    broken = pa.array([b"a\xffb", None, b"ok"], pa.binary()).view(pa.string())
    write_file(pa.table({"t": broken}), tmp_path / "x.json", "json")
    rows = [json.loads(line)["t"] for line in (tmp_path / "x.json").read_text().splitlines()]
    assert rows == ["a\ufffdb", None, "ok"]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Draft:
        hex = "full"

    (tmp_path / ".part.json.full").symlink_to("/dev/full")
    monkeypatch.setattr(file_formats.uuid, "uuid4", lambda: Draft)
    big = pa.table({"n": list(range(100_000))})
    with pytest.raises(ResourceError, match="the disk is full"):
        write_file(big, tmp_path / "part.json", "json")
    assert not (tmp_path / "part.json").exists()


def test_files_of_deliveries_that_were_not_committed_are_taken_back(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "parquet")
    table = pa.table({"n": [1]})
    for number in (1, 2, 3):
        sink.deliver(RESULT, number, number, table)
    (tmp_path / ".part-0000000003.parquet.draft").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".keep").touch()
    sink.recover(3)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".keep",
        "notes.txt",
        "part-0000000001-0000000001.parquet",
        "part-0000000002-0000000002.parquet",
    ]
    (aside,) = (tmp_path.parent / f".{tmp_path.name}.uncommitted").iterdir()
    assert aside.name == "part-0000000003-0000000003.parquet.aside"
    with pytest.raises(UsageError, match="unknown output format"):
        FileSink(tmp_path, "xml")


def test_a_delivery_is_bounded(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH_ROWS_MAX", 5)
    engine.add_query("q", "SELECT n FROM s")
    for start in (0, 4, 8, 20):
        push(engine, start, 4 if start < 20 else 9)
        settle(engine)
    delivery = engine.deliver("q", FileSink(tmp_path / "out", "parquet"))
    assert [delivery.advance() for _ in range(5)] == [4, 4, 4, 9, 0]
    assert len(file_rows(tmp_path / "out")) == 21


# -- other sinks ---------------------------------------------------------------------------------


def test_callbacks_and_consoles_get_batches_with_their_id(engine: Engine) -> None:
    engine.add_query("q", "SELECT n FROM s WHERE n < 40")
    seen: list[tuple[int, list[int]]] = []
    lines: list[str] = []
    engine.deliver("q", CallbackSink(lambda t, batch: seen.append((batch, t["n"].to_pylist()))))
    engine.deliver("q", ConsoleSink(lines.append, rows_max=2), consumer="console")
    push(engine, 0, 3)
    settle(engine)
    push(engine, 50, 3)
    settle(engine)
    for delivery in engine.deliveries:
        delivery.advance()
    assert seen == [(2, [0, 1, 2])]
    assert lines[0].startswith("q: n=0, ts=1970-01-01")
    assert lines[2:] == ["q: ... and 1 rows more"]


def test_any_format_that_spark_writes(engine: Engine, spark: Any, tmp_path: Path) -> None:
    """Delivered twice where a crash comes between, told apart by the batch id."""
    engine.add_query("q", "SELECT n FROM s")
    options = {"path": tmp_path / "orc", "note": "{batch}"}
    delivery = engine.deliver("q", SparkSink(spark, "orc", options))
    push(engine, 0, 3)
    settle(engine)

    def crash(point: str) -> None:
        if point == "delivery.written":
            raise KeyboardInterrupt

    faults.set_hook(crash)
    with pytest.raises(KeyboardInterrupt):
        delivery.advance()
    faults.set_hook(None)
    delivery.advance()
    push(engine, 3, 2)
    settle(engine)
    delivery.advance()
    rows = spark.read.orc(str(tmp_path / "orc"))
    assert rows.count() == 8
    unique = rows.dropDuplicates(["batch", "n"]).orderBy("n").collect()
    assert [(r.n, r.batch) for r in unique] == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)]
    with pytest.raises(UsageError, match="no sink of format nonsense"):
        SparkSink(spark, "nonsense").deliver(RESULT, 1, 1, pa.table({"n": [1]}))
    with pytest.raises(UsageError, match="unknown mode"):
        SparkSink(spark, "orc", mode="upsert")


def test_a_sink_that_fails_parks_its_query_and_no_other(engine: Engine, tmp_path: Path) -> None:
    engine.add_query("bad", "SELECT n FROM s WHERE n >= 0")
    engine.add_query("good", "SELECT n FROM s WHERE n >= 1")
    broken, got, notices = [True], [], []

    def take(table: pa.Table, batch: int) -> None:
        if broken[0]:
            raise OSError("the other side hung up")
        got.extend(table["n"].to_pylist())

    failing = engine.deliver("bad", CallbackSink(take))
    engine.deliver("good", FileSink(tmp_path / "good", "parquet"))
    engine.on_notice.append(notices.append)
    push(engine, 0, 3)
    loop = Loop(engine)
    loop.start()
    deadline = 600
    while not (engine.queries["bad"].state == "parked" and file_rows(tmp_path / "good")):
        deadline -= 1
        assert deadline > 0
        loop._stop.wait(0.1)
    assert engine.queries["bad"].reason == "its sink has failed: OSError: the other side hung up"
    assert notices == [f"query bad is parked: {engine.queries['bad'].reason}"]
    broken[0] = False
    failing.retry._after = 0.0
    while engine.queries["bad"].state != "running":
        deadline -= 1
        assert deadline > 0
        loop._stop.wait(0.1)
    loop.stop()
    assert loop.failure is None
    assert got == [0, 1, 2]


# -- queries whose results nobody takes ----------------------------------------------------------


def test_what_becomes_of_a_query_whose_results_lie_about() -> None:
    assert verdict("running", 100, 0, 100) == "run"
    assert verdict("running", 101, 0, 100) == "park"
    assert verdict("running", 101, 999, 100) == "park", "it is parked before it is given up"
    assert verdict("parked", 60, 0, 100) == "park"
    assert verdict("parked", 50, 0, 100) == "run"
    assert verdict("parked", 50, 201, 100) == "fail"
    assert verdict("running", 0, 0, 100, sink_fails=True) == "park"


def test_a_query_whose_results_nobody_takes_is_parked_and_goes_on_without_a_gap(
    engine: Engine, spark: Any, tmp_path: Path
) -> None:
    """The join's tail must stay while it rests, or rows that meet later would be missing."""
    join = "SELECT a.n FROM s [RANGE 3 SECONDS] a JOIN s [RANGE 3 SECONDS] b ON a.n = b.n + 2"
    engine.add_query("lazy", join)
    engine.add_query("eager", "SELECT n FROM s")
    engine.deliver("eager", FileSink(tmp_path / "eager", "parquet"))
    expected = []
    notices: list[str] = []
    for round_ in range(60):
        push(engine, 10 * round_, 10)
        settle(engine)
        engine.maintenance.retain(["s:s"])
        engine.deliveries[0].advance()
        review(engine, notices.append)
        expected += [n for n in range(10 * round_, 10 * round_ + 10) if n >= 2]
        if engine.queries["lazy"].state == "parked":
            break
    else:
        pytest.fail("it was never parked")
    assert "lazy is parked: its results are not taken" in notices[0]
    parked_at = round_
    for round_ in range(parked_at + 1, parked_at + 4):
        push(engine, 10 * round_, 10)
        settle(engine)
        engine.maintenance.retain(["s:s"])
        engine.deliveries[0].advance()
        review(engine, notices.append)
        expected += list(range(10 * round_, 10 * round_ + 10))
    assert len(notices) == 1
    assert len(file_rows(tmp_path / "eager")) == 10 * (parked_at + 4), "the rest goes on"
    engine.close()

    again = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(quota_bytes=20_000))
    again.add_stream(stream("s", {"at": "long", "n": "int"}, source="push"))
    again.add_query("eager", "SELECT n FROM s")
    query = again.add_query("lazy", join)
    assert query.state == "parked", "also after a restart"
    lazy = again.deliver("lazy", FileSink(tmp_path / "lazy", "parquet"))
    while lazy.advance():
        pass
    review(again, notices.append)
    assert notices[1:] == ["query lazy continues"]
    settle(again)
    lazy.advance()
    rows = file_rows(tmp_path / "lazy")
    assert bag([{"n": r["n"]} for r in rows]) == bag([{"n": n} for n in expected])
    again.close()


def test_a_parked_query_is_given_up_before_the_disk_is_full(engine: Engine) -> None:
    engine.add_query("lazy", "SELECT n FROM s")
    engine.add_query("twin", "SELECT n FROM s")
    notices: list[str] = []
    for round_ in range(200):
        push(engine, 10 * round_, 10)
        settle(engine)
        review(engine, notices.append)
        if engine.queries["lazy"].state == "failed":
            break
    assert "parked" in notices[0]
    assert any("lazy has failed: it was parked" in n for n in notices)
    review(engine, notices.append)
    held = engine.ledger.held()
    assert not any(consumer == subscriber("lazy") for consumer, _ in held)


def test_late_and_rejected_rows_that_nobody_takes_are_kept_up_to_the_quota(
    engine: Engine,
) -> None:
    source = engine.sources["s"]
    assert isinstance(source, PushSource)
    for number in range(1, 25):
        source.push("p", number, [{"at": None, "n": number}])
        review(engine)
    kept = engine.ledger.segments("r:s")
    assert 0 < sum(s.size for s in kept) <= 20_000
    assert kept[-1].last == 24
    assert len(kept) < 24
    assert engine.ledger.counters()["rejected:s"] == 24
