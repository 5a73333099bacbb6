"""The way of a row through a whole engine, with nothing but plain Python behind the ports."""

import time
from pathlib import Path
from typing import Any

import pytest
from test_hosting import compiled
from test_hosting import compute as added

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import Step
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.alarm_look import AlarmLook
from millstream.engine.sources.push_source import GapError, PushSource
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.delivery import CallbackSink
from plain_plane import PlainPlane, Read, Rows

COLUMNS = (Field("c0", "bigint"),)
# operators without plans cannot tell what they have in common
SETTINGS = EngineSettings(batch_rows=4, sharing="exact")


class CrashError(BaseException):
    """The end of a process."""


def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
    """Additions; who adds 0 cannot bear a 13."""
    if step.operator.id.endswith("+0") and any(v == 13 for _, v in read(step.new)):
        raise ValueError("13 is not a good number")
    return added(step, read)


def opened(home: Path, **source: Any) -> Engine:
    engine = Engine(home, PlainPlane(compiled, compute), SETTINGS)
    engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source=source))
    return engine


def listening(engine: Engine, query: str, cql: str) -> list[int]:
    """Registers a query from the beginning; gives the values that its sink has taken."""
    taken: list[int] = []
    engine.add_query(query, cql, from_beginning=True)
    engine.deliver(query, CallbackSink(lambda table, _: taken.extend(table["c0"].to_pylist())))
    return taken


def files(folder: Path, *parts: Rows) -> str:
    folder.mkdir()
    for number, rows in enumerate(parts):
        (folder / f"{number}.csv").write_text("".join(f"{ts},{v}\n" for ts, v in rows))
    return str(folder)


def test_files_through_two_queries_to_their_sinks(tmp_path: Path) -> None:
    rows = [(n, n) for n in range(10)]
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", rows[:6], rows[6:]))
    one, two = listening(engine, "one", "1"), listening(engine, "two", "1+2")
    Loop(engine).run()
    assert one == [n + 1 for n in range(10)]
    assert two == [n + 3 for n in range(10)]
    assert engine.status()["streams"]["a"]["ended"]
    engine.close()


@pytest.mark.parametrize("point", ["ingest.committed", "step.evaluated", "step.written",
                                   "step.committed", "delivery.committed"])  # fmt: skip
def test_a_crash_anywhere_repeats_and_loses_nothing(point: str, tmp_path: Path) -> None:
    path = files(tmp_path / "in", [(n, n) for n in range(10)])
    met = []

    def crash(reached: str) -> None:
        met.append(reached)
        if met.count(point) == 2:
            faults.set_hook(None)
            raise CrashError(point)

    engine = opened(tmp_path / "home", path=path)
    before = listening(engine, "q", "1")
    faults.set_hook(crash)
    with pytest.raises(CrashError):
        Loop(engine).run()
    engine.close()
    again = opened(tmp_path / "home", path=path)
    after = listening(again, "q", "1")
    Loop(again).run()
    assert before + after == [n + 1 for n in range(10)]
    again.close()


def test_a_query_fails_alone_with_its_row(tmp_path: Path) -> None:
    path = files(tmp_path / "in", [(n, n) for n in range(20)])
    engine = opened(tmp_path / "home", path=path)
    good, bad = listening(engine, "good", "1"), listening(engine, "bad", "0+1")
    Loop(engine).run()
    assert engine.queries["good"].state == "running"
    assert good == [n + 1 for n in range(20)]
    query = engine.queries["bad"]
    assert query.state == "failed"
    assert query.reason == "13 is not a good number; row 13 of a: c0=13"
    assert bad == [n + 1 for n in range(len(bad))]
    assert len(bad) <= 13
    engine.close()


def test_alarms_are_told_when_they_begin_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", [(n, n) for n in range(20)]))
    look = AlarmLook(engine, "local")
    assert look.rows() == []
    listening(engine, "good", "1")
    listening(engine, "bad", "0+1")
    Loop(engine).run()
    assert engine.in_step == set(), "nobody is at work any more"
    (row,) = look.rows()
    told = (row["state"], row["severity"], row["kind"], row["subject"], row["queries"])
    assert told == ("raised", "error", "failed", "bad", "bad")
    assert "13 is not a good number" in row["sentence"]
    assert look.rows() == [], "once"
    engine.drop_query("bad")
    assert [(r["state"], r["subject"]) for r in look.rows()] == [("ended", "bad")]
    engine.close()
    again = opened(tmp_path / "again", path=files(tmp_path / "late", [(1, 1)]))
    listening(again, "waits", "1")
    again.ingests["a"].advance()
    ahead = AlarmLook(again, "local")
    monkeypatch.setattr("time.time", lambda now=time.time: now() + 120)
    standing = [("stalled", "waits"), ("pressure", "s:a+1")]
    assert [(r["kind"], r["subject"]) for r in ahead.rows()] == standing
    again.in_step.add("s:a+1")
    assert [r["kind"] for r in ahead.rows()] == ["delay", "stalled"], "it works: only behind"
    again.close()


def test_a_loop_that_cannot_choose_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", [(1, 1)]))
    listening(engine, "q", "1")
    loop = Loop(engine)
    monkeypatch.setattr(loop.scheduler, "choose", lambda busy: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    engine.close()


def test_pushed_rows_are_numbered_and_rejected_with_a_reason(tmp_path: Path) -> None:
    engine = opened(tmp_path, source="push")
    taken = listening(engine, "q", "1")
    source = engine.sources["a"]
    assert isinstance(source, PushSource)
    answer = source.push("p", 1, [{"ts": 1, "c0": 5}, {"ts": 2, "c0": -1}, {"ts": 3, "c0": 6}])
    assert (answer.rows, answer.rejected, answer.reasons) == (2, 1, ((1, "a negative value"),))
    assert source.push("p", 1, [{"ts": 1, "c0": 5}]).repeated
    with pytest.raises(GapError):
        source.push("p", 3, [])
    source.finish()
    Loop(engine).run()
    assert taken == [6, 7]
    engine.close()


def test_rows_about_the_system_need_no_parser(tmp_path: Path) -> None:
    engine = Engine(tmp_path, PlainPlane())
    known = Catalog().stream("sys.moves")
    engine.add_stream(
        StreamDefinition(known.name, known.columns, known.time, source={"source": "push"})
    )
    source = engine.sources["sys.moves"]
    assert isinstance(source, PushSource)
    row = {"at": 5, "operator": "o:1", "kind": "map", "processor": "p1", "direction": "in"}
    assert source.push("manager", 1, [row]).rows == 1
    engine.close()


def test_a_beginning_that_is_gone_is_told(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", [(n, n) for n in range(10)]))
    notices: list[str] = []
    engine.on_notice.append(notices.append)
    first = listening(engine, "first", "1")
    Loop(engine).run()
    assert (len(first), notices) == (10, [])
    later = listening(engine, "later", "2")
    Loop(engine).run()
    assert later == []
    (told,) = notices
    assert told.startswith("query later: rows before 1970-01-01T00:00:00.000010Z are gone")
    engine.close()
