"""Processors over HTTP whose operators are plain Python: everything but Spark is the real thing.

Rows (time, value) enter stream `a` at the first processor. Query `qN` adds N to each value and sums
what it has seen, so that its result depends on the state that a move carries over. Every operator
says that it takes a fixed share of the time, however fast this machine is.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.control.protocol.commands import Host
from millstream.edge.peers.balancing import BalanceSettings
from millstream.edge.processor import app as processor_app
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.ports import CompiledQuery, Step
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.reports import StepReport
from millstream.engine.steps.trains import alone
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import Plan, Source
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import Operator
from plain_plane import PlainPlane, Read, Rows, reaching, read, write

STREAM = StreamDefinition(
    "a", (Field("ts", "timestamp"), Field("c0", "bigint")), "ts", 0, source={"source": "push"}
)
STEP_ROWS = 100
SHARE = 0.06  # of a processor's time that an operator says it takes
OPEN: list["PlainCluster"] = []  # clusters of the present test


def compiled(cql: str) -> CompiledQuery:
    """A text is a number; the same text has the same operators everywhere."""
    base = Source("a", STREAM.columns)
    added = Operator(f"o:add{cql}", "map", base, None, ("s:a",))
    summed = Operator(f"o:sum{cql}", "interval", base, None, (added.id,))
    return CompiledQuery(Plan(base, base.columns, relation=False), (added, summed), summed.id)


def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
    (source,) = step.inputs.values()
    rows, name = read(source.new), step.operator.id
    if step.operator.kind == "map":
        return [(ts, value + int(name.removeprefix("o:add"))) for ts, value in rows], None
    kept = read(step.states[0])
    total, result = kept[0][1] if kept else 0, []
    for ts, value in rows:
        total += value
        result.append((ts, total))
    return result, [(0, total)]


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
                        engine.runner.run(alone(operator), STEP_ROWS)
            now = time.monotonic()
            for name in list(engine.operators):
                report = StepReport(
                    name, 0, 0, 0, 0, SHARE * (now - told), 0.0, 0, now, now, collected=True
                )
                for listener in engine.on_step:
                    listener(report)
            told = now


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
        server = ProcessorServer(
            name,
            self.folder / name,
            PlainPlane(compiled, compute),
            settings,
            EngineSettings(slots=1),
        )
        processor = server.processor
        processor.new_owner.warm_rounds = 0
        server.start()
        if not processor.ownership.declared():
            processor.hosting.declare(STREAM, ingest=name == self.names[0])
        self.alive[name] = server
        return server

    def close(self, name: str) -> None:
        self.alive.pop(name).stop()

    def deploy(self, query: int, name: str) -> None:
        operators = tuple(o.id for o in compiled(str(query)).operators)
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
            ledger.publish("s:a", [write(engine.store, rows)], mark)

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
                return Counter(read(engine.store, engine.ledger.segments(stream)))
        return Counter()

    def loads(self) -> dict[str, float]:
        found = {}
        for name, server in self.alive.items():
            assert server.balancing is not None
            found[name] = server.balancing.node.own.load
        return found


@contextmanager
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kinds of operators without plans, for as long as a test lasts."""
    monkeypatch.setattr(processor_app, "ExecutionEngine", PlainEngine)
    with reaching(monkeypatch, map=None, interval=None):
        yield
    while OPEN:
        cluster = OPEN.pop()
        for name in list(cluster.alive):
            cluster.close(name)
