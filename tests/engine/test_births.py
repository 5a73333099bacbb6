"""Queries that come and go while live rows come and the past is read: each has every row once."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.engine.changes import history
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import CompiledQuery, Step
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.tables import history_source
from millstream.language.cql.binding.binder import NO_INSTANT
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.histories import born, past_name
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.nodes import Plan, Source
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from millstream.sim.managed.plain_plane import PlainCompiler
from millstream.store.delivery import CallbackSink
from plain_plane import PlainPlane, Read, Rows, arrived

COLUMNS = (Field("c0", "bigint"),)
PAST, ALL = 600, 1000  # numbers of the table; and of all, the last of them live


class Compiler(PlainCompiler):
    """Operators of a reader of its own are nobody else's."""

    def compile(self, cql: str, catalog: Catalog, start: int, reader: str = "") -> CompiledQuery:
        return compiled(cql, reader)


class Plane(PlainPlane):
    """Its parser takes what a table of the past gives: numbers, which are times as well."""

    def __init__(self) -> None:
        super().__init__(compute=compute)
        self.compiler = Compiler(compiled)

    def row_parser(self, definition: StreamDefinition) -> Any:
        def table(rows: Any, producer: str) -> pa.Table:
            numbers = rows["c0"].to_pylist()
            return arrived([(n, n) for n in numbers], producer)

        return table


def compiled(cql: str, reader: str = "") -> CompiledQuery:
    """`... > n`: all numbers, by an operator that queries with the same n share."""
    history, kind = parse_query(cql).history, f"{cql.rsplit(maxsplit=1)[-1]}{reader}"
    live = Source("a", COLUMNS)
    if history is None:
        operator = Operator(f"o:live {kind}", "map", live, None, ("s:a",))
        return CompiledQuery(Plan(live, COLUMNS, relation=False), (operator,), operator.id)
    until = NO_INSTANT if history.until_us is None else history.until_us
    root = born(live, until)
    inputs = (f"s:{past_name('a', until)}", "s:a")
    operator = Operator(f"o:{until} {kind}", "map", root, None, inputs)
    return CompiledQuery(Plan(root, COLUMNS, relation=False), (operator,), operator.id)


def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
    if step.operator.id.startswith("o:live"):
        return read(step.new), None
    until = int(step.operator.id.removeprefix("o:").partition(" ")[0])
    past, live = (step.inputs[stream].new for stream in step.operator.inputs)
    return [*read(past), *(row for row in read(live) if row[0] >= until)], None


def opened(folder: Path, past: Path, **settings: Any) -> Engine:
    engine = Engine(folder, Plane(), EngineSettings(batch_rows=7, **settings))
    source = {"source": "push", "history": {"format": "parquet", "path": str(past)}}
    engine.add_stream(StreamDefinition("a", COLUMNS, "ts", source=source))
    return engine


class Life:
    """Queries with what their readers took, and live rows that follow each other."""

    def __init__(self, engine: Engine, following: int) -> None:
        self.engine, self.following = engine, following
        self.taken: dict[str, Counter[int]] = {}

    def listen(self, name: str) -> None:
        counted = self.taken[name] = Counter()
        sink = CallbackSink(lambda table, _: counted.update(table["c0"].to_pylist()))
        self.engine.deliver(name, sink)

    def push(self, count: int) -> None:
        rows = [(n, n) for n in range(self.following, min(ALL, self.following + count))]
        self.following += len(rows)
        if rows:
            self.engine.appenders["a"].append(arrived(rows, "p"), {})
            self.engine.arrived("a")

    def drop_one(self, chance: random.Random) -> None:
        gone = chance.choice([n for n in self.taken if n != "always"])
        self.engine.drop_query(gone)
        del self.taken[gone]

    def run_to_the_end(self, loop: Loop) -> None:
        while self.following < ALL:
            self.push(11)
        self.engine.appenders["a"].finish()
        self.engine.arrived("a")
        deadline = time.monotonic() + 60
        while not loop.finished.wait(0.1) and time.monotonic() < deadline:
            assert loop.failure is None, loop.failure
        loop.stop()


@pytest.mark.parametrize("seed", range(4))
def test_each_query_has_every_number_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_source, "AHEAD_ROWS", 40)
    chance = random.Random(seed)
    numbers = list(range(PAST))
    chance.shuffle(numbers)
    pq.write_table(pa.table({"c0": pa.array(numbers, pa.int64())}), tmp_path / "past.parquet")
    engine = opened(tmp_path / "home", tmp_path / "past.parquet")
    life = Life(engine, 300)  # the first live number: the table has some of those after it as well
    engine.add_query("always", "CREATE QUERY always AS SELECT c0 FROM a WHERE c0 > 0")
    life.listen("always")
    loop = Loop(engine)
    loop.start()
    life.push(20)
    for turn in range(12):
        life.push(chance.randrange(40))
        if life.following < PAST:  # later the table would not reach to what is still there
            text = f"FROM HISTORY AS SELECT c0 FROM a WHERE c0 > {chance.randrange(3)}"
            engine.add_query(f"q{turn}", f"CREATE QUERY q{turn} {text}")
            life.listen(f"q{turn}")
        if chance.random() < 0.3 and len(life.taken) > 3:
            life.drop_one(chance)
        time.sleep(chance.random() * 0.1)
    life.run_to_the_end(loop)
    assert life.taken.pop("always") == Counter(range(300, ALL))
    assert len(life.taken) > 3
    for name, found in life.taken.items():
        query = engine.queries[name]
        assert found == Counter(range(ALL)), (name, query.cql, query.state, query.reason)
    pasts = [name for name in engine.appenders if name != "a"]
    read_by = {s for o in engine.operators.values() for s in o.inputs}
    assert {f"s:{name}" for name in pasts} <= read_by  # those of dropped queries are gone
    engine.close()


def test_equal_queries_over_a_kept_history_have_all_of_it_each(tmp_path: Path) -> None:
    """Also one that comes when the first has given and let go of what they would share."""
    engine = Engine(tmp_path / "home", Plane(), EngineSettings(batch_rows=7))
    kept = StreamDefinition("a", COLUMNS, "ts", source={"source": "push"}, retain_us=10**6)
    engine.add_stream(kept)
    life = Life(engine, 0)
    life.push(100)
    loop = Loop(engine)
    loop.start()
    for name in ("first", "second", "third"):
        text = f"CREATE QUERY {name} AS SELECT c0 FROM a WHERE c0 > 0"
        engine.add_query(name, text, from_beginning=True)
        life.listen(name)
        deadline = time.monotonic() + 30
        while sum(life.taken[name].values()) < life.following and time.monotonic() < deadline:
            time.sleep(0.02)
        life.push(10)
    life.run_to_the_end(loop)
    assert {
        name: found == Counter(range(ALL)) for name, found in life.taken.items()
    } == dict.fromkeys(("first", "second", "third"), True)
    first, second, third = (engine.queries[n].stream for n in ("first", "second", "third"))
    assert len({first, second, third}) == 3
    engine.close()
    again = Engine(tmp_path / "home", Plane(), EngineSettings(batch_rows=7))
    again.add_stream(kept)
    text = "CREATE QUERY second AS SELECT c0 FROM a WHERE c0 > 0"
    assert again.add_query("second", text).stream == second
    again.close()


def test_a_failed_reader_does_not_hold_the_others_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_source, "AHEAD_ROWS", 40)
    monkeypatch.setattr(history_source, "CONGESTED_S", 0.01)
    table = pa.table({"c0": pa.array(range(PAST), pa.int64())})
    pq.write_table(table, tmp_path / "past.parquet")
    engine = opened(tmp_path / "home", tmp_path / "past.parquet")
    for name, kind in (("paused", 1), ("runs", 2)):
        text = f"CREATE QUERY {name} FROM HISTORY UNTIL '1970-01-01T00:00:00.000500Z' AS SELECT"
        engine.add_query(name, f"{text} c0 FROM a WHERE c0 > {kind}")
    engine.pause_query("paused", True, "a test")
    found: Counter[int] = Counter()
    engine.deliver("runs", CallbackSink(lambda t, _: found.update(t["c0"].to_pylist())))
    loop = Loop(engine)
    loop.start()
    deadline = time.monotonic() + 60
    while sum(found.values()) < 500 and time.monotonic() < deadline:
        time.sleep(0.02)
    loop.stop()
    assert found == Counter(range(500))
    assert engine.status()["queries"]["paused"]["history_rows"] == 500
    engine.close()


def test_live_rows_do_not_wait_for_who_reads_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query over a kept history is far behind as it begins: that is no reason to push less."""
    monkeypatch.setattr(history, "LOOK_S", 0.0)
    settings = EngineSettings(batch_rows=7, backlog_rows_max=100)
    engine = Engine(tmp_path / "home", Plane(), settings)
    kept = StreamDefinition("a", COLUMNS, "ts", source={"source": "push"}, retain_us=10**6)
    engine.add_stream(kept)
    engine.appenders["a"].append(arrived([(n, n) for n in range(500)], "p"), {})
    assert not engine.congested()
    engine.add_query("q", "CREATE QUERY q AS SELECT c0 FROM a WHERE c0 > 0", from_beginning=True)
    assert engine.status()["queries"]["q"]["history_rows"] == 500
    assert not engine.congested()
    engine.add_query("r", "CREATE QUERY r AS SELECT c0 FROM a WHERE c0 > 1")
    engine.appenders["a"].append(arrived([(n, n) for n in range(500, 700)], "p"), {})
    assert engine.congested()  # r began now, and is behind all the same
    engine.close()
