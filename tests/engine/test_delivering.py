"""Quick results go together with one commit; slow and failing ones hold up nobody."""

from pathlib import Path

import pyarrow as pa
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
