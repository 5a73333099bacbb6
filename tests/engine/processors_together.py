"""Several processors on one Spark session, over a transport in memory: what a cluster does.

A `Cluster` plays the manager and the network. Every message goes through JSON as it would over
HTTP. A processor can be killed at any point and opened again on its home.
"""

import itertools
import json
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engine_runner import arrived, rows_of

from millstream.control.protocol.commands import Host, Prepare
from millstream.control.protocol.records import Peer
from millstream.core.codec import from_json, to_json
from millstream.core.errors import AwayError, MillstreamError, RefusedError
from millstream.engine.ports import DataPlane
from millstream.engine.processor import Processor
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.trains import alone
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import sources_of
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from millstream.language.share.join_orders import by_ways
from millstream.sim.managed.direct_peer import DirectPeer
from millstream.spark.plane import SparkPlane
from millstream.store.moves.records import Extent, Place, SealedRecord
from millstream.store.moves.transfer import Page
from oracle.harness import files_of
from oracle.model import Stream

SETTINGS = EngineSettings(batch_rows=60, step_rows_max=200)
FIRST = "p0"
AUDIT = """
CREATE TABLE IF NOT EXISTS audit (stream, first, last, rows, ts_min, ts_max, watermark);
CREATE TRIGGER IF NOT EXISTS audited AFTER INSERT ON segments BEGIN INSERT INTO audit VALUES
(NEW.stream, NEW.first, NEW.last, NEW.rows, NEW.ts_min, NEW.ts_max, NEW.watermark); END;
"""


class Crash(BaseException):
    """What a test does to a process."""


class CrashPlan:
    """Raises at a point, once; then nobody fails until it is armed again."""

    def __init__(self) -> None:
        self.wanted, self.at = "", ""

    def arm(self, point: str) -> None:
        self.wanted, self.at = point, ""

    def __call__(self, point: str) -> None:
        if point == self.wanted:
            self.at, self.wanted = point, ""
            raise Crash(point)


def through_json(value: Any) -> Any:
    """A record as it arrives over HTTP."""
    if not isinstance(value, Page | Extent | SealedRecord):
        return value
    return from_json(type(value), json.loads(json.dumps(to_json(value))))


class LocalPeer(DirectPeer):
    """A processor as another one reaches it; one that crashes in an answer gives none."""

    def __init__(self, cluster: "Cluster", place: Place) -> None:
        super().__init__(self._asked)
        self._cluster, self._name = cluster, place.processor

    def _asked(self, question: Callable[[Processor], Any]) -> Any:
        target = self._cluster.alive.get(self._name)
        if target is None or self._cluster.unreachable(self._name):
            raise AwayError(f"{self._name} is away")
        try:
            return through_json(question(target))
        except Crash:
            self._cluster.kill(self._name)
            raise AwayError(f"{self._name} is away") from None


class Cluster:
    """Processors p0, p1, ...; base streams enter at p0."""

    def __init__(
        self, plane: DataPlane, folder: Path, count: int, settings: EngineSettings = SETTINGS
    ) -> None:
        # one for all: types do not change, and asking again is slow
        self.plane, self.folder, self.settings = plane, folder, settings
        self.names = [f"p{i}" for i in range(count)]
        self.alive: dict[str, Processor] = {}
        self.where: dict[str, str] = {}  # operator -> processor
        self.texts: dict[str, Host] = {}
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.moves = 0
        self.losing: random.Random | None = None  # loses one message in ten
        self.orders: random.Random | None = None  # takes any way to compute a join
        self.ways: dict[str, tuple[str, ...]] = {}
        for name in self.names:
            self.open(name)

    def make(self, name: str) -> Processor:
        peers = partial(LocalPeer, self)
        return Processor(name, self.folder / name, self.plane, peers, self.settings)

    def open(self, name: str) -> Processor:
        opened = self.make(name)
        opened.new_owner.warm_rounds = 0
        with sqlite3.connect(self.folder / name / "ledger.db") as db:
            db.executescript(AUDIT)
        opened.restore()
        self.alive[name] = opened
        return opened

    def unreachable(self, name: str) -> bool:
        return self.losing is not None and self.losing.random() < 0.1

    def kill(self, name: str) -> None:
        """The process is gone; its home stays."""
        found = self.alive.pop(name, None)
        if found is not None:
            found.engine.close()

    def revive(self) -> None:
        for name in self.names:
            if name not in self.alive:
                self.open(name)

    def guarded(self, name: str, work: Callable[[Processor], Any]) -> Any:
        """Something that a processor does by itself; it may crash, or not be there."""
        found = self.alive.get(name)
        if found is None:
            return None
        try:
            return work(found)
        except Crash:
            self.kill(name)
            return None

    def close(self) -> None:
        for name in list(self.alive):
            self.kill(name)

    # -- what a manager does --------------------------------------------------------------------

    def declare(self, streams: Sequence[Stream]) -> None:
        for stream in streams:
            columns = (Field("ts", "timestamp"), *(Field(c.name, c.type) for c in stream.columns))
            definition = StreamDefinition(
                stream.name, columns, "ts", stream.lateness, source={"source": "push"}
            )
            for name in self.names:
                self.alive[name].hosting.declare(definition, ingest=name == FIRST)
            self.alive[FIRST].hosting.start_stream(stream.name)

    def deploy(self, query: str, cql: str, place: Callable[[str], str]) -> None:
        """Registers a query; `place` says where each of its operators runs."""
        first = self.alive[FIRST]
        bases = self.bases(first.hosting.compile(cql, None).plan)
        marks = first.hosting.hold(query, bases)
        start = max(m.watermark for m in marks.values())
        operators = self.chosen(first, cql, start)
        for operator in operators:
            self.inputs[operator.id] = operator.inputs
            if operator.id not in self.where:
                self.where[operator.id] = place(operator.id)
        groups: dict[str, list[str]] = {}
        for operator in operators:
            groups.setdefault(self.where[operator.id], []).append(operator.id)
        result = operators[-1].id
        for name, chosen in groups.items():
            text = Host(query, cql, start, tuple(chosen), result in chosen, ways=self.told(chosen))
            self.alive[name].hosting.host(text)
        self.texts[query] = Host(query, cql, start, tuple(o.id for o in operators))
        for operator in operators:
            for stream in operator.inputs:
                self.link(stream, self.where[operator.id])
        first.hosting.release(query, bases)

    def chosen(self, first: Processor, cql: str, start: int) -> tuple[Operator, ...]:
        """A query's operators, producers first: the usual ones, or by ways that chance chooses."""
        compiled = first.hosting.compile(cql, start)
        if self.orders is None:
            return compiled.operators
        others = first.hosting.ways.others(compiled)
        usual = {o.id for o in compiled.operators}
        for name in sorted({o.id for o in (*others, *compiled.operators)} - self.inputs.keys()):
            ways = [o.inputs for o in (*others, *compiled.operators) if o.id == name]
            self.inputs[name] = self.orders.choice(ways)
            if len(ways) > 1 or name not in usual:
                self.ways[name] = self.inputs[name]
        meant = by_ways(compiled.operators, others, self.inputs, (compiled.stream,))
        for name in self.inputs.keys() - meant.keys() - self.where.keys():
            del self.inputs[name]
            self.ways.pop(name, None)
        return tuple(meant.values())

    def told(self, operators: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {o: self.ways[o] for o in operators if o in self.ways}

    def bases(self, plan: Any) -> list[str]:
        return sorted({f"s:{source.stream}" for source in sources_of(plan.root)})

    def owner(self, stream: str) -> str:
        return self.where.get(stream, FIRST)

    def link(self, stream: str, to: str) -> None:
        owner = self.owner(stream)
        if owner != to:
            _, epoch = self.alive[owner].distributor.expect(stream, to)
            self.alive[to].receiver.connect(stream, Place(owner), epoch)

    def request(self, operators: Sequence[str], to: str) -> Prepare:
        """Asks for a move of operators that are together."""
        self.moves += 1
        (old,) = {self.where[o] for o in operators}
        texts = []
        for text in self.texts.values():
            chosen = tuple(o for o in text.operators if o in operators)
            if chosen:
                compiled = self.any().hosting.compile(text.cql, text.start)
                result = compiled.stream in chosen
                ways = self.told(chosen)
                texts.append(Host(text.query, text.cql, text.start, chosen, result, ways=ways))
        reading = {s for o in operators for s in self.inputs[o]} - set(operators)
        inputs = {s: Peer(self.owner(s), "-") for s in reading}
        return Prepare(f"m{self.moves:04d}", tuple(texts), inputs, Peer(old, "-"))

    def any(self) -> Processor:
        return next(iter(self.alive.values()))

    def move(
        self,
        operators: Sequence[str],
        to: str,
        between: Callable[[], None],
        *,
        undo_at: str | None = None,
    ) -> bool:
        """A whole move, with work going on between its steps; gives whether it came about."""
        request = self.request(operators, to)
        old, move = request.old.processor, request.move
        for _ in range(400):
            self.revive()
            try:
                phase = self._turn(request, old, to, undo_at)
            except MillstreamError:
                phase = ""  # away or not now: asked again
            if phase in ("done", "undone"):
                return phase == "done"
            between()
        sides = [(n, p.ownership.move(move)) for n, p in self.alive.items()]
        raise AssertionError(f"{move} comes to no end: {sides}")

    def _turn(self, request: Prepare, old: str, new: str, undo_at: str | None) -> str:
        """What a manager says next, going by what both sides have in their ledgers."""
        move = request.move
        mine, theirs = (self.alive[n].ownership.move(move) for n in (new, old))
        phase = mine.phase if mine is not None else ""
        if theirs is not None and theirs.phase in ("sealed", "owned", "done"):
            for operator in request.operators:
                self.where[operator] = new
        if undo_at is not None and phase == undo_at:
            self.guarded(new, lambda p: p.new_owner.undo(move))
        elif phase == "":
            self.guarded(new, lambda p: p.new_owner.prepare(request))
        elif phase == "ready" and (theirs is None or theirs.phase in ("preparing", "ready")):
            self.guarded(old, lambda p: p.old_owner.seal(move, request.operators, Place(new)))
        elif phase in ("ready", "sealed"):
            self.guarded(new, lambda p: p.new_owner.take_over(move))
        elif phase == "owned":
            self.guarded(old, lambda p: p.old_owner.complete(move))
            if old in self.alive and self.alive[old].ownership.move(move).phase == "done":
                self.guarded(new, lambda p: p.new_owner.complete(move))
        return phase

    # -- work -----------------------------------------------------------------------------------

    def exchange(self) -> bool:
        return any([bool(self.guarded(n, lambda p: p.exchange())) for n in self.names])  # noqa: C419

    def steps(self, chance: random.Random | None = None) -> bool:
        """One step of every operator, or of some of them."""
        worked = False
        for processor in [self.alive[n] for n in self.names if n in self.alive]:
            engine = processor.engine
            for operator in list(engine.operators.values()):
                if chance is not None and chance.random() < 0.5:
                    continue
                if processor.id not in self.alive:
                    break
                if self.guarded(processor.id, lambda p, o=operator: self.step(p, o)):
                    worked = True
                    if processor.id in self.alive:
                        engine.maintenance.retain(operator.inputs)
        return worked

    def step(self, processor: Processor, operator: Operator) -> bool:
        engine = processor.engine
        return engine.runner.run(alone(operator), engine.settings.step_rows_max) is not None

    def compact(self) -> None:
        for processor in self.alive.values():
            for row in processor.engine.ledger.streams():
                processor.engine.maintenance.compact(row["id"])

    def settle(self) -> None:
        while True:
            worked = self.exchange()
            if not self.steps() and not worked:
                return
            self.compact()

    def check_numbers(self) -> None:
        """Every number of a stream means the same everywhere, and none was passed over."""
        seen: dict[str, dict[int, tuple[Any, ...]]] = {}
        for name in self.names:
            with sqlite3.connect(self.folder / name / "ledger.db") as db:
                for stream, first, *facts in db.execute(
                    "SELECT * FROM audit WHERE first = last AND stream NOT LIKE '%#%'"
                ):
                    known = seen.setdefault(stream, {}).setdefault(first, tuple(facts))
                    assert known == tuple(facts), (stream, first)
        for stream, where in self.where.items():
            head = self.alive[where].engine.ledger.stream(stream)
            assert head is not None
            assert sorted(seen.get(stream, {})) == list(range(1, head["next"])), stream
        for processor in self.alive.values():
            ledger = processor.engine.ledger
            assert set(processor.engine.store.files()) == ledger.named_files()
            for row in ledger.streams():
                held = ledger.segments(row["id"])
                assert all(s.last < t.first for s, t in itertools.pairwise(held)), row["id"]

    def rows(self, query: str) -> list[dict[str, Any]]:
        text = self.texts[query]
        where = self.where[text.operators[-1]]
        return rows_of(self.alive[where].engine, query)


class ClusterRunner:
    """Runs queries like `EngineRunner`, their operators spread over several processors."""

    def __init__(
        self,
        spark: Any,
        folder: Path,
        count: int,
        seed: int,
        disturb: Callable[[Cluster, random.Random], None] | None = None,
        *,
        any_order: bool = False,
    ) -> None:
        self.plane, self.folder, self.count, self.seed = SparkPlane(spark), folder, count, seed
        self.disturb, self.any_order = disturb, any_order
        self._runs = 0

    def run(
        self,
        streams: Sequence[Stream],
        queries: Mapping[str, str],
        batches: Mapping[str, Sequence[int]],
    ) -> dict[str, list[dict[str, Any]]]:
        self._runs += 1
        chance = random.Random(self.seed)
        cluster = Cluster(self.plane, self.folder / f"cluster-{self._runs}", self.count)
        cluster.declare(streams)
        cluster.orders = random.Random(self.seed) if self.any_order else None
        for name, cql in queries.items():
            cluster.deploy(name, cql, lambda _: chance.choice(cluster.names))
        tables = {s.name: files_of(s, batches[s.name]) for s in streams}
        for number in range(max((len(t) for t in tables.values()), default=0)):
            for name, parts in tables.items():
                if number < len(parts):
                    appender = cluster.alive[FIRST].engine.appenders[name]
                    appender.append(arrived(parts[number]), {})
            cluster.exchange()
            cluster.steps(chance)
            if self.disturb is not None:
                self.disturb(cluster, chance)
        for appender in cluster.alive[FIRST].engine.appenders.values():
            appender.finish()
        cluster.settle()
        cluster.check_numbers()
        results = {name: cluster.rows(name) for name in queries}
        cluster.close()
        return results


__all__ = ["FIRST", "Cluster", "ClusterRunner", "MillstreamError", "RefusedError"]
