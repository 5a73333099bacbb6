"""Several processors on one Spark session, over a transport in memory: what a cluster does.

A `Cluster` plays the manager and the network. Every message goes through JSON as it would over
HTTP. A processor can be killed at any point and opened again on its home.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine_runner import arrived, rows_of

from millstream.cql.catalog import StreamDefinition
from millstream.engine.engine import EngineSettings
from millstream.engine.hosting import HostedText
from millstream.engine.moving import MoveRequest
from millstream.engine.ownership import Place
from millstream.engine.processor import Processor
from millstream.engine.transfer import Page, PeerAwayError, RefusedError
from millstream.errors import MillstreamError
from millstream.plan.schema import Field
from millstream.share.dataflow import result_stream
from oracle.harness import files_of
from oracle.model import Stream

SETTINGS = EngineSettings(batch_rows=60, step_rows_max=200)
FIRST = "p0"


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


class LocalPeer:
    """A processor as another one reaches it."""

    def __init__(self, cluster: "Cluster", place: Place) -> None:
        self._cluster, self._name = cluster, place.processor

    @property
    def _target(self) -> Processor:
        found = self._cluster.alive.get(self._name)
        if found is None:
            raise PeerAwayError(f"{self._name} is away")
        return found

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page:
        page = self._target.distributor.page(stream, after, consumer, epoch)
        return Page.from_json(through_json(page.to_json()))

    def fetch(self, stream: str, first: int, last: int) -> Iterator[bytes]:
        with self._target.distributor.open(stream, first, last) as file:
            while chunk := file.read(1 << 16):
                yield chunk

    def acknowledge(self, stream: str, consumer: str, following: int) -> None:
        self._target.distributor.acknowledge(stream, consumer, following)

    def expect(self, stream: str, consumer: str) -> tuple[int, int]:
        return self._target.distributor.expect(stream, consumer)

    def unexpect(self, stream: str, consumer: str) -> None:
        self._target.distributor.unexpect(stream, consumer)

    def needs(self, move: str, operators: tuple[str, ...], to: Place) -> Mapping[str, Any]:
        return dict(through_json(self._target.old_owner.needs(move, operators, to)))

    def sealed(self, move: str, wait: float) -> Mapping[str, Any] | None:
        found = self._target.old_owner.sealed(move)
        return None if found is None else dict(through_json(found))

    def ready(self, move: str) -> None:
        self._target.old_owner.ready(move)

    def taken(self, move: str) -> None:
        self._target.old_owner.taken(move)

    def undo(self, move: str) -> None:
        self._target.old_owner.undo(move)


class Cluster:
    """Processors p0, p1, ...; base streams enter at p0."""

    def __init__(
        self, spark: Any, folder: Path, count: int, settings: EngineSettings = SETTINGS
    ) -> None:
        self.spark, self.folder, self.settings = spark, folder, settings
        self.names = [f"p{i}" for i in range(count)]
        self.alive: dict[str, Processor] = {}
        self.where: dict[str, str] = {}  # operator -> processor
        self.texts: dict[str, HostedText] = {}
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.moves = 0
        self._analyzer: Any = None
        for name in self.names:
            self.open(name)

    def open(self, name: str) -> Processor:
        opened = Processor(
            name, self.folder / name, self.spark, lambda place: LocalPeer(self, place),
            self.settings,
        )  # fmt: skip
        if self._analyzer is not None:
            opened.engine.analyzer = self._analyzer  # types do not change; asking again is slow
        self._analyzer = opened.engine.analyzer
        opened.restore()
        self.alive[name] = opened
        return opened

    def kill(self, name: str) -> None:
        """The process is gone; its home stays."""
        self.alive.pop(name).engine.close()

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
        plan, _ = first.hosting.compile(cql, None)
        bases = sorted({f"s:{s}" for s in _sources(plan)})
        marks = first.hosting.hold(query, bases)
        start = max(m.watermark for m in marks.values())
        plan, operators = first.hosting.compile(cql, start)
        for operator in operators:
            self.inputs[operator.id] = operator.inputs
            if operator.id not in self.where:
                self.where[operator.id] = place(operator.id)
        groups: dict[str, list[str]] = {}
        for operator in operators:
            groups.setdefault(self.where[operator.id], []).append(operator.id)
        result = result_stream(plan)
        for name, chosen in groups.items():
            text = HostedText(query, cql, start, tuple(chosen), result in chosen)
            self.alive[name].hosting.host(text)
        self.texts[query] = HostedText(query, cql, start, tuple(o.id for o in operators))
        for operator in operators:
            for stream in operator.inputs:
                self.link(stream, self.where[operator.id])
        first.hosting.release(query, bases)

    def owner(self, stream: str) -> str:
        return self.where.get(stream, FIRST)

    def link(self, stream: str, to: str) -> None:
        owner = self.owner(stream)
        if owner != to:
            _, epoch = self.alive[owner].distributor.expect(stream, to)
            self.alive[to].receiver.connect(stream, Place(owner), epoch)

    def request(self, operators: Sequence[str], to: str) -> MoveRequest:
        """Asks for a move of operators that are together."""
        self.moves += 1
        (old,) = {self.where[o] for o in operators}
        texts = []
        for text in self.texts.values():
            chosen = tuple(o for o in text.operators if o in operators)
            if chosen:
                _, compiled = self.any().hosting.compile(text.cql, text.start)
                result = compiled[-1].id in chosen
                texts.append(HostedText(text.query, text.cql, text.start, chosen, result))
        reading = {s for o in operators for s in self.inputs[o]} - set(operators)
        inputs = {s: (Place(self.owner(s)), 0) for s in reading}
        consumers = {
            o: tuple(sorted({self.where[r] for r, i in self.inputs.items() if o in i} - {to}))
            for o in operators
        }
        return MoveRequest(f"m{self.moves:04d}", tuple(texts), inputs, Place(old), consumers)

    def any(self) -> Processor:
        return next(iter(self.alive.values()))

    def move(self, operators: Sequence[str], to: str, between: Callable[[], None]) -> None:
        """A whole move, with work going on between its steps."""
        request = self.request(operators, to)
        old, new = request.old.processor, to
        self.alive[new].new_owner.prepare(request)
        for _ in range(200):
            if self.alive[new].ownership.move(request.move).phase == "ready":
                break
            between()
        else:
            raise AssertionError(f"{request.move} is never ready")
        self.alive[old].old_owner.seal(request.move, request.operators, Place(new))
        for operator in operators:
            self.where[operator] = new
        for _ in range(200):
            self.alive[new].new_owner.take_over(request.move)
            if self.alive[new].ownership.move(request.move).phase == "owner":
                break
            between()
        else:
            raise AssertionError(f"{request.move} is never taken over")
        self.alive[old].old_owner.complete(request.move)
        self.alive[new].new_owner.complete(request.move)

    # -- work -----------------------------------------------------------------------------------

    def exchange(self) -> bool:
        worked = [p.exchange() for p in list(self.alive.values())]
        return any(worked)

    def steps(self, chance: random.Random | None = None) -> bool:
        """One step of every operator, or of some of them."""
        worked = False
        for processor in list(self.alive.values()):
            engine = processor.engine
            for operator in list(engine.operators.values()):
                if chance is not None and chance.random() < 0.5:
                    continue
                if engine.runner.run(operator, engine.settings.step_rows_max) is not None:
                    worked = True
                    engine.maintenance.retain(operator.inputs)
        return worked

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

    def rows(self, query: str) -> list[dict[str, Any]]:
        text = self.texts[query]
        where = self.where[text.operators[-1]]
        return rows_of(self.alive[where].engine, query)


def _sources(plan: Any) -> Iterable[str]:
    from millstream.plan.nodes import sources_of  # noqa: PLC0415

    return {s.stream for s in sources_of(plan.root)}


class ClusterRunner:
    """Runs queries like `EngineRunner`, their operators spread over several processors."""

    def __init__(
        self,
        spark: Any,
        folder: Path,
        count: int,
        seed: int,
        disturb: Callable[[Cluster, random.Random], None] | None = None,
    ) -> None:
        self.spark, self.folder, self.count, self.seed = spark, folder, count, seed
        self.disturb = disturb
        self._runs = 0

    def run(
        self,
        streams: Sequence[Stream],
        queries: Mapping[str, str],
        batches: Mapping[str, Sequence[int]],
    ) -> dict[str, list[dict[str, Any]]]:
        self._runs += 1
        chance = random.Random(self.seed)
        cluster = Cluster(self.spark, self.folder / f"cluster-{self._runs}", self.count)
        cluster.declare(streams)
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
        results = {name: cluster.rows(name) for name in queries}
        cluster.close()
        return results


__all__ = ["FIRST", "Cluster", "ClusterRunner", "MillstreamError", "RefusedError"]
