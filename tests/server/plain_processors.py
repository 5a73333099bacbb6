"""Processors over HTTP whose operators are plain Python: everything but Spark is the real thing.

Rows (time, value) enter stream `a` at the first processor. Query `qN` adds N to each value and sums
what it has seen, so that its result depends on the state that a move carries over. Every operator
says that it takes a fixed share of the time, however fast this machine is.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from millstream.control.commands import Host
from millstream.cql.catalog import StreamDefinition
from millstream.engine import hosting
from millstream.engine.engine import EngineSettings
from millstream.engine.steps import StepReport
from millstream.plan.nodes import Source
from millstream.plan.schema import Field
from millstream.plan.windows import BEGINNING, FOREVER
from millstream.server import processor_app
from millstream.server.balancing import BalanceSettings
from millstream.server.processor_app import ProcessorServer, ProcessorSettings
from millstream.share.dataflow import state_stream
from millstream.spark.operators import LOGIC
from millstream.store import moving
from millstream.store.segments import EMPTY, Segment

COLUMNS = StructType([StructField(n, LongType()) for n in ("_ts", "c0")]).json()
STREAM = StreamDefinition(
    "a", (Field("ts", "timestamp"), Field("c0", "bigint")), "ts", 0, source={"source": "push"}
)
SHARE = 0.06  # of a processor's time that an operator says it takes
Rows = list[tuple[int, int]]
OPEN: list["PlainCluster"] = []  # clusters of the present test


@dataclass(frozen=True)
class PlainOperator:
    """Looks like an operator to everything but a step."""

    id: str
    kind: Any
    add: int
    inputs: tuple[str, ...]
    core: Any = None
    node: Any = None


class PlainLogic:
    def reachable(self, operator: Any, segment: Segment, marks: Mapping[str, int]) -> bool:
        return False


def compiled(cql: str, start: int | None) -> tuple[Any, tuple[PlainOperator, ...]]:
    """A text is a number; the same text has the same operators everywhere."""
    added = PlainOperator(f"o:add{cql}", "map", int(cql), ("s:a",))
    summed = PlainOperator(f"o:sum{cql}", "interval", 0, (added.id,))
    plan = SimpleNamespace(result=summed.id, relation=False, root=Source("a", STREAM.columns))
    return plan, (added, summed)


def expected(rows: Sequence[tuple[int, int]], query: int) -> Counter[tuple[int, int]]:
    total, found = 0, []
    for ts, value in rows:
        total += value + query
        found.append((ts, total))
    return Counter(found)


class PlainEngine:
    """Runs steps of operators in Python, one at a time."""

    def __init__(self, processor: Any, say: Any) -> None:
        self.processor, self.loop, self.fenced = processor, None, threading.Event()
        self.busy_seconds, self.steps = 0.0, 0
        self._stopping, self._stepping = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        processor.quiesce = self._quiesce

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def wake(self) -> None:
        pass

    def costs(self, operators: Any) -> dict[str, tuple[float, float]]:
        """None is known: how busy operators keep the processor is what they need."""
        del operators
        return {}

    def _quiesce(self, operators: frozenset[str]) -> None:
        del operators
        with self._stepping:
            return

    def _run(self) -> None:
        engine, told = self.processor.engine, time.monotonic()
        while not self._stopping.wait(0.02):
            for operator in list(engine.operators.values()):
                with self._stepping:
                    if operator.id in engine.operators and operator.id not in engine.resting:
                        self._step(operator)
            now = time.monotonic()
            for name in list(engine.operators):
                report = StepReport(
                    name, 0, 0, 0, 0, SHARE * (now - told), 0.0, 0, now, now, collected=True
                )
                for listener in engine.on_step:
                    listener(report)
            told = now

    def _step(self, operator: Any) -> None:
        engine, ledger = self.processor.engine, self.processor.engine.ledger
        (source,) = operator.inputs
        following, before = ledger.cursor(operator.id, source)
        new = [s for s in ledger.segments(source) if s.last >= following][:5]
        if not new:
            return
        rows, after = read(engine, new), max(before, new[-1].watermark)
        state: Rows | None = None
        if operator.kind == "map":
            result = [(ts, value + operator.add) for ts, value in rows]
        else:
            kept = read(engine, ledger.segments(state_stream(operator.id)))
            total, result = kept[0][1] if kept else 0, []
            for ts, value in rows:
                total += value
                result.append((ts, total))
            state = [(0, total)]
        written = write(engine, result)
        kept_state = None if state is None else write(engine, state)
        with ledger.transaction():
            if kept_state is not None:
                name = state_stream(operator.id)
                engine.runner.removals.add(ledger.replace(ledger.segments(name), None))
                ledger.publish(name, [kept_state], BEGINNING)
            ledger.publish(operator.id, [written], after)
            ledger.set_cursor(operator.id, source, new[-1].last + 1, after)
            ledger.record_step(operator.id, {}, len(rows), len(result), 0.0)


def read(engine: Any, segments: Sequence[Segment]) -> Rows:
    found: Rows = []
    for segment in segments:
        if segment.rows:
            table = engine.store.read(segment)
            found += zip(table["_ts"].to_pylist(), table["c0"].to_pylist(), strict=True)
    return found


def write(engine: Any, rows: Rows) -> Any:
    if not rows:
        return EMPTY
    return engine.store.write(pa.table({"_ts": [r[0] for r in rows], "c0": [r[1] for r in rows]}))


class PlainCluster:
    """Processors p0, p1, ... that balance with each other; no manager."""

    def __init__(self, folder: Path, count: int, balance: BalanceSettings) -> None:
        self.folder, self.balance = folder, balance
        self.names = [f"p{n}" for n in range(count)]
        self.alive: dict[str, ProcessorServer] = {}
        self.rows: Rows = []
        OPEN.append(self)
        for name in self.names:
            self.open(name)

    def open(self, name: str) -> ProcessorServer:
        """Starts a processor; one that was there before goes on from its home."""
        urls = tuple(server.url for server in self.alive.values())
        balance = BalanceSettings(
            peers=urls, window_s=self.balance.window_s, round_s=self.balance.round_s,
            manager_silence_s=self.balance.manager_silence_s,
        )  # fmt: skip
        settings = ProcessorSettings(balance=balance)
        server = ProcessorServer(name, self.folder / name, None, settings, EngineSettings(slots=1))
        processor = server.processor
        processor.hosting.compile = compiled  # type: ignore[method-assign,assignment]
        processor.new_owner.warm_rounds = 0
        ledger = processor.engine.ledger

        def install(operator: Any) -> None:
            for stream in (operator.id, state_stream(operator.id)):
                ledger.add_stream(stream, "state" if "#" in stream else operator.kind)
                ledger.set_columns(stream, COLUMNS)

        processor.engine.runner.install = install  # type: ignore[method-assign]
        if not processor.ownership.declared():
            with ledger.transaction():
                ledger.add_stream("s:a", "base")
                ledger.set_columns("s:a", COLUMNS)
            processor.hosting.declare(STREAM, ingest=name == self.names[0])
        server.start()
        self.alive[name] = server
        return server

    def close(self, name: str) -> None:
        self.alive.pop(name).stop()

    def deploy(self, query: int, name: str) -> None:
        operators = tuple(o.id for o in compiled(str(query), 0)[1])
        self.alive[name].processor.hosting.host(
            Host(f"q{query}", str(query), 0, operators, result=True)
        )

    def feed(self, count: int) -> None:
        start = len(self.rows)
        new = [(10 * (start + n), (start + n) % 7) for n in range(count)]
        self.rows += new
        self._publish(new, new[-1][0])

    def finish(self) -> None:
        self._publish([], FOREVER)

    def _publish(self, rows: Rows, mark: int) -> None:
        engine = self.alive[self.names[0]].processor.engine
        with engine.ledger.transaction() as ledger:
            ledger.publish("s:a", [write(engine, rows)], mark)

    def owners(self) -> dict[str, list[tuple[int, str]]]:
        """By operator: who says that it has it, with its epoch."""
        found: dict[str, list[tuple[int, str]]] = {}
        for name, server in self.alive.items():
            for owned in server.processor.ownership.all_owned():
                if owned.stream.startswith("o:"):
                    found.setdefault(owned.stream, []).append((owned.epoch, name))
        return found

    def ended(self, queries: Sequence[int]) -> bool:
        """Whether every result has seen the end of the stream."""
        for query in queries:
            marks = [
                s.processor.engine.ledger.stream(f"o:sum{query}")
                for s in self.alive.values()
                if s.processor.ownership.owned(f"o:sum{query}") is not None
            ]
            if len(marks) != 1 or marks[0] is None or marks[0]["watermark"] != FOREVER:
                return False
        return True

    def results(self, query: int) -> Counter[tuple[int, int]]:
        """Rows kept for subscribers: those that nobody has read move with their operator."""
        stream = f"o:sum{query}"
        for server in self.alive.values():
            if server.processor.ownership.owned(stream) is not None:
                engine = server.processor.engine
                return Counter(read(engine, engine.ledger.segments(stream)))
        return Counter()

    def loads(self) -> dict[str, float]:
        found = {}
        for name, server in self.alive.items():
            assert server.balancing is not None
            found[name] = server.balancing.node.own.load
        return found


@contextmanager
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kinds of operators without Spark, for as long as a test lasts."""
    for kind in ("map", "interval"):
        monkeypatch.setitem(LOGIC, kind, PlainLogic())
    monkeypatch.setattr(hosting, "result_stream", lambda plan: plan.result)
    monkeypatch.setattr(processor_app, "ExecutionEngine", PlainEngine)
    monkeypatch.setattr(processor_app, "capacity", lambda _: {}, raising=False)
    monkeypatch.setattr(moving, "warm_up", lambda *_: "")
    monkeypatch.setattr(hosting.Hosting, "_add_stream", lambda *_, **__: None)
    yield
    while OPEN:
        cluster = OPEN.pop()
        for name in list(cluster.alive):
            cluster.close(name)
