"""Queries that are replaced while rows keep coming: one cut, nothing lost, nothing twice."""

import threading
from itertools import count, pairwise
from pathlib import Path

import pytest

from millstream.core.errors import UsageError
from millstream.engine.changes.switching import tidy
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import CompiledQuery, Step
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import Plan, Source
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from millstream.store import faults
from millstream.store.consumers import subscriber
from millstream.store.delivery import FileSink
from plain_plane import PlainPlane, Read, Rows, write

COLUMNS = (Field("c0", "bigint"),)
SCALE = 1_000_000  # a row's value tells which text made it, and of which row


class CrashError(BaseException):
    pass


def compiled(cql: str) -> CompiledQuery:
    """`SELECT n FROM a` adds n, in two operators; the first is the same for numbers of one ten."""
    number = int(cql.split("SELECT ")[1].split(" FROM", maxsplit=1)[0])
    base = Source("a", COLUMNS)
    first = Operator(f"o:first{number // 10}", "map", base, None, ("s:a",))
    last = Operator(f"o:last{number}", "map", base, None, (first.id,))
    return CompiledQuery(Plan(base, COLUMNS, relation=False), (first, last), last.id)


def compute(step: Step, rows_of: Read) -> tuple[Rows, Rows | None]:
    rows = rows_of(step.new)
    name = step.operator.id
    if name.startswith("o:last"):
        rows = [(ts, value + int(name.removeprefix("o:last")) * SCALE) for ts, value in rows]
        if any(value == 66 * SCALE + 6 for _, value in rows):
            raise ValueError("it broke")
    return rows, None


def opened(home: Path) -> Engine:
    engine = Engine(
        home, PlainPlane(compiled, compute), EngineSettings(batch_rows=50, sharing="exact")
    )
    engine.add_stream(StreamDefinition("a", COLUMNS, "ts", source={"source": "push"}))
    return engine


def came(engine: Engine, number: int) -> None:
    with engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [write(engine.store, [(number, number)])], number)


def text(number: int) -> str:
    return f"CREATE OR REPLACE QUERY q AS SELECT {number} FROM a"


def taken(folder: Path) -> list[int]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    tables = [pq.read_table(file) for file in sorted((folder / "out").glob("*.parquet"))]
    return [value for table in tables for value in table["c0"].to_pylist()]


def check_cuts(values: list[int], rows: int, texts: list[int]) -> None:
    """Every row once and in order, made by one text after another."""
    assert [v % SCALE for v in values] == list(range(1, rows + 1))
    made = [v // SCALE for v in values]
    assert list(dict.fromkeys(made)) == texts
    assert sum(a != b for a, b in pairwise(made)) == len(texts) - 1


def test_rows_come_all_the_time_and_each_is_of_one_text(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home")
    engine.add_query("q", "SELECT 11 FROM a")
    engine.deliver("q", FileSink(tmp_path / "out", "parquet"))
    engine.add_query("beside", "SELECT 12 FROM a")
    loop, enough, numbers = Loop(engine), threading.Event(), count(1)
    last = 0

    def feed() -> None:
        nonlocal last
        while not enough.is_set():
            last = next(numbers)
            came(engine, last)
            loop.wake()
            enough.wait(0.001)

    feeding = threading.Thread(target=feed, daemon=True)
    loop.start()
    feeding.start()
    for number in (13, 25, 26, 31):
        begun = last
        engine.add_query("q", text(number))
        waited = threading.Event()
        for _ in range(3_000):
            if not engine.replacements.candidate_of("q") and last > begun + 5:
                break
            waited.wait(0.01)
        assert engine.queries["q"].stream == f"o:last{number}", loop.failure
    enough.set()
    feeding.join()
    loop.wake()
    assert loop.settled.wait(60)
    loop.stop()
    assert loop.failure is None
    check_cuts(taken(tmp_path), last, [11, 13, 25, 26, 31])
    assert engine.fences == {}
    assert {*engine.operators} == {"o:first1", "o:last12", "o:first3", "o:last31"}
    beside = engine.ledger.stream("o:last12")
    assert beside is not None
    assert beside["rows"] == last
    engine.close()


@pytest.mark.parametrize("point", [*faults.REPLACE_POINTS, "step.committed", "delivery.written"])
@pytest.mark.parametrize("attached", [True, False])
def test_a_crash_leaves_one_or_the_other(tmp_path: Path, point: str, attached: bool) -> None:
    """`attached`: a sink is there when the query is replaced, or only after a restart."""
    engine = opened(tmp_path / "home")
    engine.add_query("q", "SELECT 11 FROM a")
    if attached:
        engine.deliver("q", FileSink(tmp_path / "out", "parquet"))
    came(engine, 1)
    settle(engine)
    faults.set_hook(lambda reached: crash() if reached == point else None)
    try:
        engine.add_query("q", text(25))
        settle(engine)
        met = False
    except CrashError:
        met = True
    finally:
        faults.set_hook(None)
    assert met or point in ("delivery.written", "replace.tidied")
    engine.close()
    again = opened(tmp_path / "home")
    known = again.ledger.query("q")
    assert known is not None
    again.add_query("q", known["cql"])
    again.deliver("q", FileSink(tmp_path / "out", "parquet"))
    again.add_query("q", text(25))  # as a script that runs again would
    settle(again)
    came(again, 2)
    settle(again)
    check_cuts(taken(tmp_path), 2, [11, 25])
    assert list(again.queries) == ["q"]
    assert {*again.operators} == {"o:first2", "o:last25"}
    tidy(again)
    assert again.ledger.stream("o:last11") is None
    again.drop_query("q")
    assert again.ledger.consumers_of("subscriber") == {}
    again.close()


def crash() -> None:
    faults.set_hook(None)
    raise CrashError


def settle(engine: Engine) -> None:
    loop = Loop(engine)
    loop.start()
    assert loop.settled.wait(60)
    loop.stop()
    if loop.failure is not None:
        raise loop.failure


def test_a_text_that_breaks_leaves_the_old_one(tmp_path: Path) -> None:
    said: list[str] = []
    engine = opened(tmp_path / "home")
    engine.on_notice.append(said.append)
    engine.add_query("q", "SELECT 11 FROM a")
    engine.deliver("q", FileSink(tmp_path / "out", "parquet"))
    for number in (1, 2):
        came(engine, number)
    engine.add_query("q", text(66))
    for number in (3, 4, 5, 6):
        came(engine, number)
    settle(engine)
    came(engine, 7)
    settle(engine)
    assert any("query q is not replaced and stays as it was" in line for line in said)
    assert list(engine.queries) == ["q"]
    check_cuts(taken(tmp_path), 7, [11])
    engine.close()


def test_a_reader_that_is_behind_gets_the_old_rows_first(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home")
    engine.add_query("q", "SELECT 11 FROM a")
    for number in (1, 2):
        came(engine, number)
        settle(engine)
    engine.add_query("q", text(25))
    settle(engine)
    with pytest.raises(UsageError, match="has had this text before"):
        engine.add_query("q", text(11))
    came(engine, 3)
    settle(engine)
    engine.deliver("q", FileSink(tmp_path / "out", "parquet"), consumer=subscriber("q"))
    settle(engine)
    check_cuts(taken(tmp_path), 3, [11, 25])
    tidy(engine)
    assert engine.ledger.stream("o:last11") is None
    engine.add_query("q", text(11))  # what it gave then has been read
    settle(engine)
    assert engine.queries["q"].stream == "o:last11"
    engine.close()


def test_what_would_happen_is_told_before(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home")
    engine.add_query("q", "SELECT 11 FROM a")
    for number in (1, 2):
        came(engine, number)
    settle(engine)
    near = engine.foretell(text(12))
    assert near is not None
    assert len(near.kept) == len(near.again) == len(near.ended) == 1
    assert near.again[0].rows == 0  # what the first one gave has been read and is gone
    assert near.seconds is not None
    assert near.lines()[0].startswith("query q would be replaced: 1 operators stay, 1 are computed")
    far = engine.foretell("SELECT 25 FROM a", "q")
    assert far is not None
    assert (len(far.kept), len(far.again), len(far.ended)) == (0, 2, 2)
    assert far.rows == 1  # the newest rows of a base stream stay
    assert engine.foretell("SELECT 25 FROM a") is None
    assert list(engine.queries) == ["q"]
    assert not engine.replacements.waits
    engine.close()


def test_the_last_word_counts_and_a_drop_ends_it(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home")
    engine.add_query("q", "SELECT 11 FROM a")
    for number in (25, 31):
        engine.add_query("q", text(number))
    assert engine.replacements.candidate_of("q") == "q.next"
    came(engine, 1)
    settle(engine)
    assert engine.queries["q"].stream == "o:last31"
    assert list(engine.queries) == ["q"]
    engine.add_query("q", text(25))
    engine.drop_query("q")
    assert engine.queries == {}
    assert engine.operators == {}
    engine.close()
