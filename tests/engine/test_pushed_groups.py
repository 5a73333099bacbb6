"""Pushed batches that are committed together: who waits for whom, and what a crash leaves."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pushing_process
import pytest
from pushing_process import PRODUCERS, batch, door, stored
from test_hosting import compiled
from test_hosting import compute as added

from millstream.core.errors import StateError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import Step
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import GapError, PushSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.arrivals.appending import Appended
from millstream.store.streams import Streams
from plain_plane import PlainPlane, Read, Rows

WAIT_SECONDS = 60.0


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    opened = Streams(tmp_path / "home", local_disk=True)
    yield opened
    faults.set_hook(None)
    opened.close()


class Gate:
    """Holds the first commit at a point, until all others have come."""

    def __init__(self, point: str = "ingest.written") -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self._point = point
        faults.set_hook(self._hook)

    def _hook(self, point: str) -> None:
        if point == self._point and not self.reached.is_set():
            self.reached.set()
            assert self.open.wait(WAIT_SECONDS)


def together(
    source: PushSource, first: Callable[[], Any], *calls: Callable[[], Any]
) -> tuple[Any, list["Future[Any]"]]:
    """The first call commits; the others come meanwhile, one after the other."""
    gate = Gate()
    with ThreadPoolExecutor(len(calls) + 1) as pool:
        begun = pool.submit(first)
        assert gate.reached.wait(WAIT_SECONDS)
        others = []
        for place, call in enumerate(calls):
            others.append(pool.submit(call))
            while len(source._queue) <= place and not others[-1].done():
                pass
        gate.open.set()
    return begun.result(), others


def test_batches_that_come_at_once_are_one_segment_and_one_commit(streams: Streams) -> None:
    source = door(streams)
    rows = {
        "q": [{"at": 5, "who": "q", "n": 1}, {"at": 1, "who": "q", "n": 2}],
        "r": [{"who": "r"}, {"at": 6, "who": "r", "n": 3}],
        "s": [{"at": 4, "who": "s", "n": 4}],
    }
    commits = []
    streams.ledger.on_publish.append(commits.append)
    first, others = together(
        source,
        lambda: source.push("p", 1, batch("p", 2)),
        *(lambda who=who: source.push(who, 1, rows[who]) for who in rows),
    )
    assert first.rows == 3
    q, r, s = (o.result() for o in others)
    assert (q.rows, q.late, q.rejected, q.reasons) == (1, 1, 0, ())
    assert (r.rows, r.late, r.rejected, r.reasons) == (1, 0, 1, ((0, "the time is null"),))
    assert (s.rows, s.late, s.rejected) == (0, 1, 0), "others' rows made it late"
    assert len(commits) == 2, "one for the first, one for all others"
    assert [seg.rows for seg in streams.ledger.segments("s:s")] == [3, 2]
    assert stored(streams)["_pos"].to_pylist() == [0, 1, 2, 3, 6]
    assert [source.expected(who) for who in PRODUCERS] == [2, 2, 2, 2]


def test_numbers_within_a_group(streams: Streams) -> None:
    source = door(streams)

    def pushed(who: str, number: int | None) -> Callable[[], Appended]:
        return lambda: source.push(who, number, batch(who, 1))

    numbers = [("p", 2), ("p", 2), ("p", 4), ("p", None), ("q", None), ("q", None)]
    _, others = together(source, pushed("p", 1), *(pushed(*n) for n in numbers))
    second, again, gap, following, one, two = others
    assert not second.result().repeated
    assert again.result().repeated
    with pytest.raises(GapError, match="batch 4 where 3 follows"):
        gap.result()
    assert [o.result().rows for o in (following, one, two)] == [3, 3, 3]
    assert (source.expected("p"), source.expected("q")) == (4, 3)
    assert stored(streams).num_rows == 15


def test_a_stream_that_ends_meanwhile_takes_nothing_more(streams: Streams) -> None:
    source = door(streams)
    with source.appender.lock, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(source.push, "p", 1, batch("p", 1))
        while not source._queue:
            pass
        source.finish()
        source.appender.lock.release()
        try:
            with pytest.raises(StateError, match="has ended"):
                waiting.result()
        finally:
            source.appender.lock.acquire()


@pytest.mark.parametrize("point", ["ingest.written", "ingest.committed"])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_a_failed_commit_is_told_to_all_of_its_group(
    streams: Streams, point: str, kind: type[BaseException]
) -> None:
    """Nobody is acknowledged; who repeats has his rows once."""
    source = door(streams)
    met: list[str] = []

    def fail(reached: str) -> None:
        if reached == point:
            met.append(reached)
            if len(met) == 2:
                raise kind(point)

    gate = Gate()
    with ThreadPoolExecutor(3) as pool:
        begun = pool.submit(source.push, "p", 1, batch("p", 1))
        assert gate.reached.wait(WAIT_SECONDS)
        others = [pool.submit(source.push, who, 1, batch(who, 1)) for who in ("q", "r")]
        while len(source._queue) < 2:
            pass
        met += [point] if point == "ingest.written" else []  # the first has passed that one
        faults.set_hook(fail)
        gate.open.set()
        assert begun.result().rows == 3
        problems = [o.exception() for o in others]
    faults.set_hook(None)
    assert kind in map(type, problems)
    assert {type(p) for p in problems} <= {kind, StateError}
    again = [source.push(who, 1, batch(who, 1)) for who in ("q", "r")]
    assert [a.repeated for a in again] == [point == "ingest.committed"] * 2
    assert Counter(stored(streams)["c1"].to_pylist()) == {"p": 3, "q": 3, "r": 3}


@pytest.mark.parametrize("point", ["ingest.written", "ingest.committed"])
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, point: str) -> None:
    told = subprocess.run(
        [sys.executable, pushing_process.__file__, str(tmp_path / "home"), point, "6"],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert told.returncode == -9, told.stderr
    acknowledged = [line.split() for line in told.stdout.splitlines()]
    assert acknowledged
    streams = Streams(tmp_path / "home", local_disk=True)
    source = door(streams, lateness_us=10**15)
    last = {who: max((int(n) for w, n in acknowledged if w == who), default=0) for who in PRODUCERS}
    for who in PRODUCERS:
        assert last[who] < source.expected(who) <= last[who] + 2, "at most one is unanswered"
        source.push(who, last[who] + 1, batch(who, last[who] + 1))
    counts = Counter(zip(*(stored(streams)[c].to_pylist() for c in ("c1", "c0")), strict=True))
    assert counts == {(who, n): 3 for who in PRODUCERS for n in range(1, last[who] + 2)}
    streams.close()


def test_no_step_and_no_query_is_waited_for(tmp_path: Path) -> None:
    """A push is acknowledged while an operator is in a step, and while the engine is locked."""
    begun, end = threading.Event(), threading.Event()

    def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
        begun.set()
        assert end.wait(WAIT_SECONDS)
        return added(step, read)

    engine = Engine(
        tmp_path, PlainPlane(compiled, compute), EngineSettings(sharing="exact", slots=1)
    )
    engine.add_stream(StreamDefinition("a", (Field("c0", "bigint"),), "ts", source={}))
    source = engine.sources["a"]
    assert isinstance(source, PushSource)
    engine.add_query("q", "1", from_beginning=True)
    loop = Loop(engine)
    loop.start()
    source.push("p", 1, [{"ts": 1, "c0": 1}])
    assert begun.wait(WAIT_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(source.push, "p", 2, [{"ts": 2, "c0": 2}])
        assert beside.result(WAIT_SECONDS).rows == 1
        with engine.lock:  # as while a query is compiled
            assert pool.submit(engine.congested).result(WAIT_SECONDS) is False
            beside = pool.submit(source.push, "p", 3, [{"ts": 3, "c0": 3}])
            assert beside.result(WAIT_SECONDS).rows == 1
    assert not loop.settled.is_set()
    end.set()
    assert loop.settled.wait(WAIT_SECONDS)
    assert engine.result("q")["c0"].to_pylist() == [2, 3, 4]
    loop.stop()
    engine.close()


def test_a_stream_that_is_declared_again_knows_no_producer(tmp_path: Path) -> None:
    """Numbers of a stream that was forgotten would swallow the first batches of the new one."""
    engine = Engine(tmp_path, PlainPlane())
    for _ in range(2):
        engine.add_stream(StreamDefinition("a", (Field("c0", "bigint"),), "ts", source={}))
        source = engine.sources["a"]
        assert isinstance(source, PushSource)
        assert not source.push("p", 1, [{"ts": 1, "c0": 1}]).repeated
        engine.hosting.forget("a")
    engine.close()
