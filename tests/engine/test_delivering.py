"""Quick results go together with one commit; slow and failing ones hold up nobody."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from test_loop_without_spark import files, listening, opened

from millstream.engine import delivering
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.steps.trains import Trains
from millstream.store import faults
from millstream.store.delivery import CallbackSink, Delivery

ROWS = [(n, n) for n in range(4)]


def worked(engine: Engine) -> Loop:
    """Rows are read and processed; nothing is handed over yet."""
    engine.ingests["a"].advance()
    for _ in range(3):
        for unit in Trains(engine).units():
            engine.runner.run(unit, 100)
    return Loop(engine)


def three(tmp_path: Path) -> tuple[Loop, list[list[int]]]:
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", ROWS))
    taken = [listening(engine, f"q{n}", str(n)) for n in (1, 2, 3)]
    return worked(engine), taken


def test_quick_results_share_one_commit(tmp_path: Path) -> None:
    loop, taken = three(tmp_path)
    due = loop.delivering.due(())
    assert len(due) == 3
    assert loop.delivering.due({str(due[0].consumer)}) == due[1:]
    met: list[str] = []
    faults.set_hook(met.append)
    try:
        loop.delivering.run(due)
    finally:
        faults.set_hook(None)
    assert met.count("delivery.written") == 3
    assert met.count("delivery.committed") == 1
    assert taken == [[v + n for _, v in ROWS] for n in (1, 2, 3)]
    assert loop.delivering.due(()) == []
    loop.engine.close()


def test_a_slow_result_goes_alone(tmp_path: Path) -> None:
    loop, _ = three(tmp_path)
    first, second, third = loop.delivering.due(())
    loop.delivering._seconds[second] = 2 * delivering.QUICK_S
    assert loop.delivering.due(()) == [first, third]
    assert loop.delivering.due({str(first.consumer), str(third.consumer)}) == [second]
    loop.engine.close()


def test_no_commit_waits_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are quick, together they are not."""
    monkeypatch.setattr(delivering, "TOGETHER_S", 1.5 * delivering.QUICK_S)
    loop, _ = three(tmp_path)
    first, second, third = loop.delivering.due(())
    loop.delivering._seconds |= dict.fromkeys((first, second, third), delivering.QUICK_S)
    assert loop.delivering.due(()) == [first, second]
    assert loop.delivering.due(()) == [third, first]
    loop.engine.close()


def test_a_sink_that_fails_leaves_the_others_their_rows(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", ROWS))
    one = listening(engine, "q1", "1")

    def refuse(table: pa.Table, number: int) -> None:
        raise ValueError("no room")

    engine.add_query("bad", "2", from_beginning=True)
    bad: Delivery = engine.deliver("bad", CallbackSink(refuse))
    two = listening(engine, "q3", "3")
    loop = worked(engine)
    loop.delivering.run(loop.delivering.due(()))
    assert (one, two) == ([v + 1 for _, v in ROWS], [v + 3 for _, v in ROWS])
    assert "no room" in bad.problem
    assert bad.pending()
    assert not [d for d in engine.deliveries if d is not bad and d.pending()]
    engine.close()


def test_a_reader_that_does_not_come_back_stops_its_query_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "PATIENCE_S", 0.2)
    enough, stuck = threading.Event(), []
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", [(n, n) for n in range(40)]))
    good = listening(engine, "good", "1")
    for name in ("hung", "stuck"):  # more than there are slots, with the good one

        def hang(table: pa.Table, _: int) -> None:
            enough.wait()
            stuck.extend(table["c0"].to_pylist())

        engine.add_query(name, "2" if name == "hung" else "3", from_beginning=True)
        engine.deliver(name, CallbackSink(hang))
    loop = Loop(engine)
    loop.start()
    try:
        within(lambda: len(good) == 40 and _states(engine) == PARKED)
        assert "it has not returned for 0.2 s" in engine.queries["hung"].reason
        enough.set()
        within(lambda: len(stuck) == 80)
        assert sorted(stuck) == sorted([n + 2 for n in range(40)] + [n + 3 for n in range(40)])
        within(lambda: set(_states(engine).values()) == {"running"})
    finally:
        loop.stop()
        engine.close()


PARKED = {"good": "running", "hung": "parked", "stuck": "parked"}


def _states(engine: Engine) -> dict[str, str]:
    return {q.name: q.state for q in engine.queries.values()}


def within(true: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)
