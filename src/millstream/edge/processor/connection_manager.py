"""The connection manager of a processor: what a manager says, carried out one by one.

Every command is idempotent; an envelope that was overtaken by a later one is refused as stale, by
the greatest (epoch, number) that the ledger has, unless its epoch is nonsense. Which manager's
memory last changed something here is kept, and told in the inventory. It answers
quickly: what takes time, such as the copying of a move, goes on in a thread of its own (D-CAPE,
section 4.3 and table 4.1).
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from millstream.control.definitions.qos_table import quality_of, schedule_of
from millstream.control.moves.table import ENDED, RUNNING, UNDER_WAY, Phase
from millstream.control.protocol.commands import (
    QUESTIONS,
    Acquaint,
    Compile,
    Complete,
    Configure,
    Connect,
    Declare,
    Disconnect,
    Expect,
    Forget,
    Hold,
    Host,
    KeepReplicas,
    Prepare,
    Progress,
    Release,
    Report,
    Reset,
    Seal,
    StartStream,
    Stop,
    TakeFrom,
    TakeInventory,
    TakeOver,
    Undo,
    Unexpect,
    Unhost,
)
from millstream.control.protocol.envelope import MANAGER, Envelope, Message, PlaceTree
from millstream.control.protocol.records import NOWHERE, UNTOLD, Peer, Told
from millstream.control.protocol.replies import (
    Compiled,
    Done,
    Expected,
    Held,
    HostedQuery,
    Inventory,
    Progressed,
    Refusal,
    Replicas,
    Reply,
    Reported,
    StreamMark,
)
from millstream.core.errors import InternalError, MillstreamError, UsageError
from millstream.decide.schedule.settings import ScheduleSettings
from millstream.edge.http.access import refusal
from millstream.edge.processor.engine_records import (
    compiled_operator,
    move_record,
    sealed_reply,
)
from millstream.edge.processor.query_instructions import ToldQueries
from millstream.edge.telemetry.spans import command_span
from millstream.engine.sources.entrances import TABLE, definition_of, keep_table
from millstream.language.plan.nodes import sources_of
from millstream.language.share.dataflow import base_stream
from millstream.store.machine_failures import first_line
from millstream.store.moves.old_owner import not_under_way
from millstream.store.moves.records import Place

if TYPE_CHECKING:
    from millstream.edge.peers.move_driver import MoveDriver
    from millstream.edge.peers.peers import PeerDirectory
    from millstream.edge.processor.execution_engine import ExecutionEngine
    from millstream.edge.processor.statistics_gatherer import StatisticsGatherer
    from millstream.edge.processor.stream_receiver import StreamReceiver
    from millstream.engine.processor import Processor

SEEN = "manager"  # where the ledger keeps the greatest (epoch, number), and whose it is
LED_BY = "led_by"  # ... lineage and revision of the manager that last changed something
EPOCH_FIRST_MAX = 10**9  # of a manager that was never heard before
EPOCH_STEP_MAX = 10**6  # that a manager's epoch may grow at once: one message is not the end
OTHERS_MAX = 8
OF_TEXTS = (Compile, Host, Declare)  # what clients have written is in them
NO_LINEAGE = "-"  # of who asks and leads nobody


class KeepsReplicas(Protocol):
    """Who has copies of homes."""

    def keep(self, command: KeepReplicas) -> Replicas: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that commands reach."""

    processor: "Processor"
    engine: "ExecutionEngine"
    statistics: "StatisticsGatherer"
    receiver: "StreamReceiver"
    peers: "PeerDirectory"
    moves: "MoveDriver"
    stop: Callable[[], None]
    place: Callable[[PlaceTree], Reply]
    clock: Callable[[], float] = time.monotonic
    begin_again: Callable[[], None] = lambda: None  # as `stop`, and the process begins again
    replicas: "KeepsReplicas | None" = None


class ConnectionManager:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.processor = parts.processor
        self.moves = parts.moves
        self._told = ToldQueries(parts.processor.engine.ledger)
        self.properties: dict[str, Any] = {}
        self._started_with = parts.processor.engine.settings.schedule
        self._goals = False  # whether a manager has any for what runs here
        self._schedule: Mapping[str, Any] = {}  # a manager's
        self.on_acquainted: list[Callable[[dict[str, str]], None]] = []  # name to URL
        self.heard = threading.Event()  # a manager has asked something
        self.heard_s = 0.0  # when it last did
        self._lock = threading.Lock()
        self._last: tuple[int, int] | None = None  # the greatest (epoch, number), once read
        self._leader = ""  # its lineage
        self._heard_from: dict[str, float] = {}  # by lineage: when a manager was last followed

    # -- envelopes ------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> list[Reply]:
        """Carries out a message; gives a reply for each of its commands.

        A member that leads for the time of a deployment is followed as a manager is, but it is
        none: whoever asks how long ago one was heard does not mean it.
        """
        if envelope.sender == MANAGER:
            self.heard.set()
            self.heard_s = self.parts.clock()
        if envelope.to != self.processor.id:
            refused = Refusal("not_me", f"this is processor {self.processor.id}")
            return [refused for _ in envelope.messages]
        if not self._plausible(envelope.epoch):
            refused = Refusal("mistake", f"no manager has epoch {envelope.epoch}")
            return [refused for _ in envelope.messages]
        if envelope.number == 0:
            if envelope.epoch < self._seen()[0] or self._other(envelope):
                return [self._stale(envelope) for _ in envelope.messages]
            self._note_leader(envelope)
            return [self._answer(c, envelope.lineage) for c in envelope.messages]
        with self._lock:
            if (envelope.epoch, envelope.number) < self._seen() or self._other(envelope):
                return [self._stale(envelope) for _ in envelope.messages]
            self._see(envelope)
            self._note_leader(envelope)
            return [self._answer(c, envelope.lineage) for c in envelope.messages]

    def _plausible(self, epoch: int) -> bool:
        """Whether a manager may have this epoch: it grows by one with each of its lives."""
        seen = self._seen()[0]
        return epoch <= (seen + EPOCH_STEP_MAX if seen else EPOCH_FIRST_MAX)

    def _other(self, envelope: Envelope) -> bool:
        """Whether two managers that do not know of each other came to the same epoch."""
        same = envelope.epoch == self._seen()[0]
        named = bool(self._leader and envelope.lineage)  # who does not say is believed
        return same and named and self._leader != envelope.lineage

    def _note_leader(self, envelope: Envelope) -> None:
        lineage = envelope.lineage
        if not lineage or envelope.sender != MANAGER:
            return
        self._heard_from.pop(lineage, None)
        self._heard_from[lineage] = self.parts.clock()
        while len(self._heard_from) > OTHERS_MAX:
            del self._heard_from[next(iter(self._heard_from))]

    def _stale(self, envelope: Envelope) -> Refusal:
        others = [at for name, at in list(self._heard_from.items()) if name != envelope.lineage]
        ago = self.parts.clock() - max(others) if others else None
        seen = self._seen()[0]
        return Refusal(
            "stale", "a later message of a manager has been here", epoch=seen, other_s=ago,
            outranks=self._other(envelope) and envelope.lineage > self._leader,
        )  # fmt: skip

    @property
    def epoch_seen(self) -> int:
        """The greatest epoch of those that have led this processor."""
        return self._seen()[0]

    def answered(self, question: Message) -> Reply:
        """What another processor asks, whoever leads."""
        if isinstance(question, TakeInventory):
            return self._inventory(NO_LINEAGE)
        return self.tried(question)

    def _answer(self, command: Message, lineage: str) -> Reply:
        if isinstance(command, TakeInventory):
            return self._inventory(lineage)
        return self.tried(command)

    def _seen(self) -> tuple[int, int]:
        if self._last is None:  # only this process writes it
            epoch, number, *leader = (self.processor.engine.ledger.meta(SEEN) or "0 0").split()
            self._last, self._leader = (int(epoch), int(number)), "".join(leader)
        return self._last

    def _see(self, envelope: Envelope) -> None:
        epoch, number = envelope.epoch, envelope.number
        ledger = self.processor.engine.ledger
        changes = any(not isinstance(m, (*QUESTIONS, PlaceTree)) for m in envelope.messages)
        leader = f"{envelope.lineage} {envelope.revision}"
        leads = changes and ledger.meta(LED_BY) != leader
        if (epoch, number) != self._seen() or leads:
            with ledger.transaction():
                ledger.set_meta(SEEN, f"{epoch} {number} {envelope.lineage}")
                if leads:
                    ledger.set_meta(LED_BY, leader)
            self._last, self._leader = (epoch, number), envelope.lineage

    def tried(self, command: Message) -> Reply:
        """Carries one command out; a refusal is a reply.

        A text that meets a fault of ours, or of Spark's, stops only what was asked with it: others
        come in the same message, and it would be sent again and again.
        """
        try:
            return self.perform(command)
        except MillstreamError as error:
            return refusal(error)
        except Exception as error:
            machine = self.processor.engine.plane.machine
            gone = machine is not None and machine.gone() is not None
            if gone or not isinstance(command, OF_TEXTS):
                raise
            told = f"{type(error).__name__}: {first_line(error)}"
            self.parts.statistics.notice(f"error: a {command.do} has failed: {told}")
            hint = "this is a bug in Millstream: please report it with the text"
            return refusal(InternalError("the text cannot be used here", detail=told, hint=hint))

    # -- commands -------------------------------------------------------------------------------

    def perform(self, command: Message) -> Reply:
        with command_span(command):
            self._told.note(command, self._seen())
            return self._performed(command)

    def _performed(self, command: Message) -> Reply:
        hosting, distributor = self.processor.hosting, self.processor.distributor
        match command:
            case Declare():
                definition = definition_of(command.stream, ingest=command.ingest)
                hosting.declare(definition, ingest=command.ingest)
                self._keep_table(command)
            case StartStream():
                hosting.start_stream(command.stream)
                self.parts.engine.wake()
            case Forget():
                hosting.forget(command.stream)
                with self.processor.engine.ledger.transaction() as ledger:
                    ledger.drop_meta(TABLE + command.stream)
            case Compile():
                return self._compiled(command)
            case Hold():
                marks = hosting.hold(command.query, command.streams)
                return Held({s: StreamMark(**asdict(m)) for s, m in marks.items()})
            case Release():
                hosting.release(command.query, command.streams)
            case Host():
                hosting.host(command)
                self.parts.engine.wake()
            case Unhost():
                hosting.unhost(command.query, command.operators)
            case Expect():
                following, epoch = distributor.expect(command.stream, command.consumer, ahead=True)
                return Expected(following, epoch)
            case Unexpect():
                distributor.unexpect(command.stream, command.consumer)
            case Connect():
                self._connect(command)
            case TakeFrom():
                self._take_from(command)
            case Disconnect():
                self.processor.receiver.disconnect(command.stream)
                hosting.tidy(command.stream)
            case Configure():
                self._configure(command)
            case Acquaint():
                self._acquaint(command)
            case Report():
                return Reported(**self.parts.statistics.report(command.since))
            case TakeInventory():
                return self._inventory(self._led_by()[0])
            case Reset():
                self.processor.reset()
            case PlaceTree():
                return self.parts.place(command)
            case KeepReplicas():
                if self.parts.replicas is None:
                    raise UsageError("this processor keeps no copies of homes")
                self._learn_addresses(command)
                return self.parts.replicas.keep(command)
            case Stop(again):
                (self.parts.begin_again if again else self.parts.stop)()
            case _:
                return self._move(command)
        return Done()

    def _move(self, command: Message) -> Reply:
        """The commands of a move."""
        old, new = self.processor.old_owner, self.processor.new_owner
        match command:
            case Prepare():
                for peer in (command.old, *command.inputs.values()):
                    self._place(peer)
                new.prepare(command)
                self.moves.look()
            case Progress():
                return self._progress(command.move)
            case Seal():
                to = self._place(command.to)
                record = old.seal(command.move, command.operators, to)
                self.parts.receiver.look()
                return sealed_reply(record)
            case TakeOver():
                if command.old is not None:
                    self._place(command.old)
                known = self.processor.ownership.move(command.move)
                if known is None or known.phase in ENDED:
                    raise not_under_way(command.move)
                self.moves.look()
            case Undo():
                self._undo(command)
            case Complete():
                known = self.processor.ownership.move(command.move)
                if known is not None:
                    (old if known.role == "old" else new).complete(command.move)
            case _:
                raise UsageError(f"unknown command {command.do}")
        return Done()

    def _undo(self, command: Undo) -> None:
        known = self.processor.ownership.move(command.move)
        if known is not None and known.role == "old":
            self.processor.old_owner.undo(command.move)
        else:
            self.processor.new_owner.undo(command.move, lost=command.lost)

    def _connect(self, command: Connect) -> None:
        place = self._place(command.source)
        self.processor.receiver.connect(command.stream, place, command.source.epoch)
        self.parts.receiver.look()

    def _take_from(self, command: TakeFrom) -> None:
        relay = None if command.relay is None else self._place(command.relay)
        self.processor.receiver.take_from(command.stream, relay)

    def _place(self, peer: Peer) -> Place:
        self.parts.peers.learn(peer.processor, peer.url)
        return Place(peer.processor, peer.url)

    def _progress(self, move: str) -> Progressed:
        known = self.processor.ownership.move(move)
        if known is None:
            return Progressed(Phase.REQUESTED)
        if known.role == "old":
            return Progressed(known.phase)
        failed = self.moves.failures.get(move, "") if known.phase in RUNNING else ""
        new, behind = self.processor.new_owner, self.processor.receiver.behind
        missing = new.copying.missing.get(move, 0) + sum(behind.get(s, 0) for s in known.copied)
        return Progressed(known.phase, missing, move in new.warm, failed)

    def _compiled(self, command: Compile) -> Compiled:
        compiled = self.processor.hosting.compile(command.cql, None)
        if not any(t.cql == command.cql for t in self.processor.hosting.texts().values()):
            self.processor.engine.check_new(compiled)
        plan = compiled.plan
        ways = self.processor.hosting.ways.others(compiled)
        sources = sorted({base_stream(s.stream) for s in sources_of(plan.root)})
        return Compiled(
            tuple(map(compiled_operator, compiled.operators)),
            compiled.stream,
            tuple((f.name, f.type) for f in plan.columns),
            plan.relation,
            tuple(sources),
            by_start=True,
            ways=tuple(map(compiled_operator, ways)),
        )

    def _configure(self, command: Configure) -> None:
        engine = self.processor.engine
        if command.quality is not None:
            quality = quality_of(command.quality, list(engine.queries))
            if quality != engine.settings.quality:
                engine.settings_changed(quality=quality)
        if command.quality is not None or command.schedule is not None:
            self._reschedule(command)
        if command.properties is not None:
            self.properties.update(command.properties)
        if command.statistics is not None:
            self.parts.statistics.wanted = frozenset(command.statistics) or None

    def _reschedule(self, command: Configure) -> None:
        """As it was told; else, where there are goals, by them; else as it was started."""
        if command.quality is not None:
            self._goals = bool(command.quality)
        if command.schedule is not None:
            self._schedule = command.schedule
        wanted = self._started_with
        if self._schedule:
            wanted = schedule_of(self._schedule)
        elif self._goals:
            wanted = ScheduleSettings()  # who has goals has the selector as well
        if wanted != self.processor.engine.settings.schedule:
            self.parts.engine.configure(schedule=wanted)

    def _acquaint(self, command: Acquaint) -> None:
        peers = {peer.processor: peer.url for peer in command.peers}
        for name, url in peers.items():
            self.parts.peers.learn(name, url)
        for listener in self.on_acquainted:
            listener(peers)

    def _led_by(self) -> tuple[str, int]:
        lineage, _, revision = (self.processor.engine.ledger.meta(LED_BY) or "").rpartition(" ")
        return lineage, int(revision or 0)

    def _keep_table(self, command: Declare) -> None:
        """As it was told; where a stream has come since, what came with it stays."""
        ledger, stream = self.processor.engine.ledger, str(command.stream["name"])
        declared = self.processor.ownership.declared()[stream]
        if declared.ingest is command.ingest or ledger.meta(TABLE + stream) is None:
            with ledger.transaction():
                keep_table(ledger, command.stream, ingest=command.ingest)

    def _tables(self) -> dict[str, dict[str, Any]]:
        rows = self.processor.engine.ledger.rows(
            "SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", (len(TABLE), TABLE)
        )
        return {r["key"].removeprefix(TABLE): json.loads(r["value"]) for r in rows}

    def _learn_addresses(self, command: KeepReplicas) -> None:
        """Who follows whom may be said long before anything else."""
        followed = (home.owner for home in command.homes if home.role == "follow")
        for peer in (*command.followers, *followed):
            if peer.url != NOWHERE:
                self.parts.peers.learn(peer.processor, peer.url)

    def _inventory(self, lineage: str) -> Inventory:
        """What is here; to a manager that has changed nothing here yet, with the declarations."""
        led_by, revision = self._led_by()
        ownership = self.processor.ownership
        declared = ownership.declared()
        told = self._told.hosted()
        expected: dict[str, list[str]] = {}
        ledger = self.processor.engine.ledger
        for consumer, streams in ledger.consumers_of("processor").items():
            for stream in streams:
                expected.setdefault(stream, []).append(consumer)
        return Inventory(
            {name: d.ingest for name, d in declared.items()},
            tuple(name for name, d in declared.items() if d.started),
            {
                query: _hosted(text, told.get(query, UNTOLD))
                for query, text in self.processor.hosting.texts().items()
            },
            {o.stream: o.epoch for o in ownership.all_owned()},
            {q: tuple(streams) for q, streams in ledger.consumers_of("deployment").items()},
            {stream: tuple(sorted(names)) for stream, names in expected.items()},
            {
                c.stream: Peer(c.source.processor, c.source.url or NOWHERE, c.epoch)
                for c in ownership.copies()
            },
            {
                m.id: move_record(m)
                for role in ("old", "new")
                for m in ownership.moves(role, UNDER_WAY)
            },
            {
                h.stream: Peer(h.to.processor, h.to.url or NOWHERE, h.epoch)
                for h in ownership.handed_on()
            },
            relays={
                stream: Peer(p.processor, p.url)
                for stream, p in self.processor.receiver.relays().items()
            },
            led_by=led_by,
            revision=revision,
            tables=self._tables() if led_by != lineage else {},
            dropped=self._told.dropped() if led_by != lineage else {},
        )


def _hosted(text: Host, told: Told) -> HostedQuery:
    return HostedQuery(
        text.cql,
        text.start,
        text.operators,
        text.result,
        text.restarts,
        text.ways,
        text.pauses,
        told,
    )
