"""Sources that bring rows by themselves: pushed batches, streaming queries, silent streams."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from small_engines import base_rows, rejected, stream

from millstream.core.errors import MillstreamError, StateError, UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.scheduling.idleness import Standing, follow_others, wanted
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.alarm_look import AlarmLook
from millstream.engine.sources.push_source import GapError, PushSource
from millstream.engine.steps.trains import alone
from millstream.language.plan.windows import BEGINNING
from millstream.spark.ingest.stream_source import StreamSource, decide
from millstream.spark.plane import SparkPlane
from millstream.store import faults

pytestmark = pytest.mark.spark
SECOND = 1_000_000
WAIT_SECONDS = 90.0


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(batch_rows=100))
    yield opened
    opened.close()


def pushed(engine: Engine, name: str = "s", **settings: Any) -> PushSource:
    engine.add_stream(stream(name, source="push", **settings))
    source = engine.sources[name]
    assert isinstance(source, PushSource)
    with engine.ledger.transaction() as ledger:
        ledger.set_cursor("tests", f"s:{name}", 1, BEGINNING)  # keeps the rows for us to look at
    return source


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that other threads do."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


# -- pushed rows ---------------------------------------------------------------------------------


def test_a_batch_counts_once_and_a_gap_is_refused(
    engine: Engine, spark: Any, tmp_path: Path
) -> None:
    source = pushed(engine)
    rows = [{"at": 1, "name": "a", "n": 1}, {"at": 2, "name": "b", "n": 2}]
    assert source.expected("p") == 1
    first = source.push("p", 1, rows)
    assert (first.rows, first.repeated) == (2, False)
    again = source.push("p", 1, rows)
    assert (again.rows, again.repeated) == (0, True)
    with pytest.raises(GapError, match="batch 3 where 2 follows") as refused:
        source.push("p", 3, rows)
    assert refused.value.expected == 2
    source.push("other", 1, [{"at": 3, "name": "c", "n": 3}])
    engine.close()

    reopened = Engine(tmp_path / "home", SparkPlane(spark))
    source = pushed(reopened)
    assert source.push("p", 1, rows).repeated
    assert source.push("p", 2, []).rows == 0
    assert source.expected("p") == 3
    assert [r["c1"] for r in base_rows(reopened, "s")] == ["a", "b", "c"]
    reopened.close()


def test_rows_are_checked_one_by_one(engine: Engine) -> None:
    columns = {
        "at": "timestamp", "n": "int", "price": "decimal(8,2)", "tags": "array<string>",
        "blob": "binary", "day": "date",
    }  # fmt: skip
    source = pushed(engine, "s", columns=columns, time="at")
    good = {
        "at": datetime(2020, 1, 1, tzinfo=UTC), "n": 1, "price": Decimal("1.50"), "tags": ["a"],
        "blob": b"\x00\xff", "day": datetime(2020, 1, 2, tzinfo=UTC).date(),
    }  # fmt: skip
    rows = [
        good,
        good | {"n": "many"},
        good | {"at": None},
        good | {"n": 2**40},
        {"at": "2020-01-01T00:00:01Z"},
        good | {"at": "no time"},
    ]
    answer = source.push("p", 1, rows)
    assert (answer.rows, answer.rejected) == (2, 4)
    assert answer.reasons == (
        (1, "cannot read 'many' as int (column n)"),
        (2, "the time is null"),
        (3, "cannot read 1099511627776 as int (column n)"),
        (5, "cannot read 'no time' as timestamp (column at)"),
    )
    kept = base_rows(engine, "s")[0]
    assert (kept["c1"], kept["c2"], kept["c3"]) == (1, Decimal("1.50"), ["a"])
    assert (kept["c4"], str(kept["c5"])) == (b"\x00\xff", "2020-01-02")
    assert json.loads(rejected(engine, "s")[0][1] or "")["n"] == "many"


def test_batches_that_are_none(engine: Engine) -> None:
    source = pushed(engine)
    for producer, number, rows in (
        ("", 1, []), ("x" * 201, 1, []), ("p", 0, []), ("p", -1, []), ("p", True, []),
        ("p", "1", []), ("p", 1, [[1, 2]]), ("p", 1, ["text"]),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            source.push(producer, number, rows)  # type: ignore[arg-type]
    source.finish()
    assert source.ended
    with pytest.raises(StateError, match="has ended"):
        source.push("p", 1, [])


def test_producers_at_once(engine: Engine) -> None:
    """Every batch once, each producer's in order, whoever is quicker."""
    source = pushed(engine, lateness_us=10**15)

    def produce(name: str) -> None:
        for number in range(1, 6):
            source.push(name, number, [{"at": number, "name": name, "n": number}])

    threads = [threading.Thread(target=produce, args=(n,)) for n in ("p", "q", "r")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = base_rows(engine, "s")
    assert [r["_pos"] for r in rows] == list(range(15))
    for name in ("p", "q", "r"):
        assert [r["c2"] for r in rows if r["c1"] == name] == [1, 2, 3, 4, 5]


def test_a_crash_before_the_commit_and_a_repetition(engine: Engine) -> None:
    """The producer has no answer, repeats, and the batch is there once."""
    source = pushed(engine)

    def crash(point: str) -> None:
        raise KeyboardInterrupt(point)

    for point in ("ingest.written", "ingest.committed"):
        number = source.expected("p")
        faults.set_hook(lambda at, wanted=point: crash(at) if at == wanted else None)
        with pytest.raises(KeyboardInterrupt):
            source.push("p", number, [{"at": number, "name": point, "n": 1}])
        faults.set_hook(None)
        source.push("p", number, [{"at": number, "name": point, "n": 1}])
    assert [r["c1"] for r in base_rows(engine, "s")] == ["ingest.written", "ingest.committed"]


def test_pushed_rows_flow_through_a_running_loop(engine: Engine) -> None:
    source = pushed(engine)
    engine.add_query("q", "SELECT n FROM s WHERE n > 1")
    engine.add_query("c", "SELECT count(*) AS c FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]")
    loop = Loop(engine)
    loop.start()
    source.push("p", 1, [{"at": 1, "n": 1}, {"at": 2, "n": 2}])
    until(lambda: engine.result("q").num_rows == 1)
    source.push("p", 2, [{"at": 11, "n": 3}])
    until(lambda: engine.result("c").num_rows == 1)
    source.finish()
    assert loop.finished.wait(WAIT_SECONDS)
    loop.stop()
    assert loop.failure is None
    assert engine.result("q")["n"].to_pylist() == [2, 3]
    assert engine.result("c")["c"].to_pylist() == [2, 1]


# -- streaming queries ---------------------------------------------------------------------------


def test_what_becomes_of_a_batch() -> None:
    known = {"query": "q", "batch": 4}
    assert decide({}, "q", 0, "s") == "append"
    assert decide(known, "q", 5, "s") == "append"
    assert [decide(known, "q", b, "s") for b in (0, 4)] == ["skip", "skip"]
    for position, query, batch in ((known, "q", 6), (known, "other", 5), ({}, "q", 1)):
        with pytest.raises(StateError, match="does not continue the ledger"):
            decide(position, query, batch, "s")


def rate(name: str = "r", **more: Any) -> Any:
    """Ten rows a batch, their values and times given by Spark alone."""
    options = {"rowsPerBatch": 10, "startTimestamp": 0, "advanceMillisPerBatch": 1000}
    return stream(
        name, {"value": "int", "timestamp": "timestamp"}, "timestamp", source="spark",
        format="rate-micro-batch", options=options, **more,
    )  # fmt: skip


def test_a_streaming_source_is_read_once_across_crashes_and_restarts(
    engine: Engine, spark: Any, tmp_path: Path
) -> None:
    """A crash between our commit and Spark's own: the batch comes again and is passed over."""
    engine.add_stream(rate())
    engine.add_query("q", "SELECT value FROM r WHERE value % 2 = 0")
    reached = []

    def crash(point: str) -> None:
        if point == "ingest.committed":
            reached.append(point)
            if len(reached) == 3:
                raise RuntimeError("crash after our commit")

    faults.set_hook(crash)
    with pytest.raises(MillstreamError, match="crash after our commit"):
        Loop(engine).run()
    faults.set_hook(None)
    engine.close()

    again = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings())
    position = again.ledger.ingest_position("s:r")
    assert position["batch"] == 2
    again.add_stream(rate())
    again.add_query("q", "SELECT value FROM r WHERE value % 2 = 0")
    loop = Loop(again)
    loop.start()
    until(lambda: again.ledger.ingest_position("s:r")["batch"] >= 4)
    loop.stop()
    assert loop.failure is None
    last = again.ledger.ingest_position("s:r")["batch"]
    Loop_until_settled(again)
    values = again.result("q")["value"].to_pylist()
    assert sorted(values) == [v for v in range(10 * (last + 1)) if v % 2 == 0]
    again.close()

    shutil.rmtree(tmp_path / "home" / "checkpoints")
    third = Engine(tmp_path / "home", SparkPlane(spark))
    with pytest.raises(StateError, match="its checkpoint is gone"):
        third.add_stream(rate())
    third.close()


def test_a_stopped_source_is_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches its query may be slow, and uses the ledger, which is closed next."""
    plain = StreamSource._watch

    def slow(source: StreamSource, query: Any) -> None:
        plain(source, query)
        time.sleep(1.0)

    monkeypatch.setattr(StreamSource, "_watch", slow)
    engine.add_stream(rate())
    loop = Loop(engine)
    loop.start()
    until(lambda: "batch" in engine.ledger.ingest_position("s:r"))
    loop.stop()
    assert not [t for t in threading.enumerate() if t.name == "millstream-source"]
    assert loop.failure is None


def Loop_until_settled(engine: Engine) -> None:  # noqa: N802  (reads as what it does)
    """Steps only, without the sources."""
    worked = True
    while worked:
        worked = any(
            engine.runner.run(alone(operator), 100_000) is not None
            for operator in list(engine.operators.values())
        )


def test_a_checkpoint_that_is_ahead_of_the_ledger_is_refused(
    engine: Engine, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "home" / "checkpoints" / "r"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "7"}')
    (checkpoint / "commits" / "3").touch()
    with pytest.raises(StateError, match="its checkpoint is at batch 3"):
        engine.add_stream(rate())


def test_files_by_a_streaming_query_to_their_end(engine: Engine, tmp_path: Path) -> None:
    """available_now reads what is there, in as many batches as asked for, and ends."""
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(3):
        bad = "x,y,z\n" if i == 1 else ""
        (folder / f"{i}.csv").write_text(f"{2 * i},a,{i}\n{bad}{2 * i + 1},b,{i}\n")
    source = {"source": "spark", "format": "csv", "path": folder, "trigger": "available_now"}
    engine.add_stream(stream("f", **source, options={"maxFilesPerTrigger": 1}, lateness_us=10**9))
    engine.add_query("q", "SELECT at, n FROM f")
    engine.add_query("c", "SELECT count(*) AS c FROM f [RANGE 1 MINUTE SLIDE 1 MINUTE]")
    Loop(engine).run()
    assert sorted(engine.result("q")["at"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    assert engine.result("c")["c"].to_pylist() == [6]
    assert [record for _, record in rejected(engine, "f")] == ["x,y,z"]
    source_of = engine.sources["f"]
    assert isinstance(source_of, StreamSource)
    assert source_of.ended


def test_streaming_sources_that_cannot_work(engine: Engine) -> None:
    wrong = [
        (stream("a", source="spark"), "has no format"),
        (stream("b", source="spark", format="nonsense"), "no source of format nonsense"),
        (stream("c", source="spark", format="rate"), "the source has no column at"),
        (rate("d", trigger="hourly"), "unknown trigger"),
        (stream("e", source="carrier pigeon"), "unknown source"),
        (stream("f", source="file"), "has no path"),
    ]
    for definition, message in wrong:
        with pytest.raises(UsageError, match=message):
            engine.add_stream(definition)


# -- silent streams ------------------------------------------------------------------------------


def test_whom_a_silent_stream_follows() -> None:
    def follow(a: Standing, **others: Standing) -> int | None:
        return wanted({"a": a, **others}, {"a": sorted(others)}).get("a")

    silent = Standing(5, 5, silent=True)
    assert follow(silent, b=Standing(9, 9), c=Standing(7, 7)) == 7
    assert follow(silent, b=Standing(9, 9), c=Standing(4, 4)) is None
    assert follow(Standing(5, 5), b=Standing(9, 9)) is None
    assert follow(silent, b=Standing(9, 9), c=Standing(6, 6, silent=True)) == 9
    assert follow(silent, b=Standing(9, 9), c=Standing(BEGINNING, BEGINNING)) is None
    assert follow(silent, b=Standing(2**63 - 1, 20, ended=True)) == 21
    assert follow(Standing(5, 5, ended=True, silent=True), b=Standing(9, 9)) is None


def test_a_silent_stream_does_not_hold_up_the_others(
    engine: Engine, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = pushed(engine, "quiet", idle_us=SECOND)
    busy = pushed(engine, "busy")
    unrelated = pushed(engine, "unrelated")
    cql = "SELECT n FROM quiet UNION ALL SELECT n FROM busy"
    engine.add_query("q", f"SELECT count(*) AS c FROM ({cql}) x [RANGE 5 SECONDS SLIDE 5 SECONDS]")
    quiet.push("p", 1, [{"at": 1, "n": 1}])
    busy.push("p", 1, [{"at": 12, "n": 2}])
    unrelated.push("p", 1, [{"at": 2, "n": 3}])
    Loop_until_settled(engine)
    assert engine.result("q").num_rows == 0
    now = quiet.silent_since()
    look = AlarmLook(engine, "local")
    with monkeypatch.context() as later:
        later.setattr("time.monotonic", lambda: now + 120)
        (alarm,) = look.rows()
    assert (alarm["kind"], alarm["subject"], alarm["queries"]) == ("silent", "quiet", "q")
    assert follow_others(engine, now + 0.9) == []  # not yet silent
    busy.push("p", 2, [{"at": 13, "n": 4}])
    assert follow_others(engine, now + 5) == ["quiet"]
    assert follow_others(engine, now + 5) == []
    assert [(r["kind"], r["state"]) for r in look.rows()] == [("silent", "ended")]
    Loop_until_settled(engine)
    assert engine.result("q")["c"].to_pylist() == [1]
    late = quiet.push("p", 2, [{"at": 12, "n": 5}, {"at": 13, "n": 6}])
    assert (late.rows, late.late) == (1, 1)
    engine.close()
    again = Engine(tmp_path / "home", SparkPlane(spark))
    row = again.ledger.stream("s:quiet")
    assert row is not None
    assert row["watermark"] == 13 * SECOND, "it is durable"
    again.close()


def test_the_loop_lets_silent_streams_follow(engine: Engine) -> None:
    quiet = pushed(engine, "quiet", idle_us=SECOND // 10)
    busy = pushed(engine, "busy")
    engine.add_query(
        "q", "DSTREAM(SELECT a.n AS n FROM busy [RANGE 1 SECOND] a JOIN quiet [RANGE 1 SECOND] b"
        " ON a.n = b.n)",
    )  # fmt: skip
    quiet.push("p", 1, [{"at": 1, "n": 1}])
    busy.push("p", 1, [{"at": 1, "n": 1}, {"at": 10, "n": 2}])
    loop = Loop(engine)
    loop.start()
    until(lambda: engine.result("q").num_rows == 1)
    loop.stop()
    assert loop.failure is None


def test_a_query_dropped_in_the_middle_of_its_step_hurts_nobody(engine: Engine) -> None:
    source = pushed(engine)
    for name in ("kept", "dropped"):
        engine.add_query(name, f"SELECT n, '{name}' AS w FROM s")
    dropped = engine.queries["dropped"].stream

    def drop(point: str) -> None:
        if point == "step.written" and "dropped" in engine.queries:
            working = [o for o in loop._busy if o == dropped]
            if working:
                engine.drop_query("dropped")

    loop = Loop(engine)
    faults.set_hook(drop)
    loop.start()
    try:
        for number in range(1, 4):
            source.push("p", number, [{"at": number, "n": number}])
            until(lambda n=number: engine.result("kept").num_rows == n)  # type: ignore[misc]
        source.finish()
        assert loop.finished.wait(WAIT_SECONDS)
    finally:
        loop.stop()
        faults.set_hook(None)
    assert loop.failure is None
    assert "dropped" not in engine.queries
    assert engine.ledger.stream(dropped) is None
