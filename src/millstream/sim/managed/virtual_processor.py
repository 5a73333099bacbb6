"""A processor in virtual time: production code over stand-ins for clock, network, rows and threads.

Ledger, ownership, copies, both sides of a move, hosting, steps and the connection manager are the
real ones, over a home in a folder. What their threads do goes on in `work`, a round at a time: rows
come in, copies are pulled, moves advance, operators make steps. A crash falls between two rounds or
messages: the next process opens the home as it was left.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from millstream.control.moves.table import ARRIVING
from millstream.control.protocol.commands import QUESTIONS, Host, Join, KeepReplicas, Report
from millstream.control.protocol.envelope import Envelope, Message, PlaceTree
from millstream.control.protocol.replies import Refusal, Reply, Reported
from millstream.control.recovery.replication import ADOPTED_BY
from millstream.core.errors import AwayError, MillstreamError, RefusedError
from millstream.edge.peers.move_driver import MoveDriver
from millstream.edge.peers.peers import PeerDirectory
from millstream.edge.processor.connection_manager import Parts
from millstream.edge.processor.execution_engine import ExecutionEngine
from millstream.edge.processor.statistics_gatherer import StatisticsGatherer
from millstream.edge.processor.stream_receiver import StreamReceiver
from millstream.engine.processor import Processor
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.trains import alone
from millstream.language.share.dataflow import base_stream
from millstream.sim.managed.direct_peer import DirectHome, DirectPeer
from millstream.sim.managed.observed import ObservedConnections, Publications
from millstream.sim.managed.plain_plane import arrived, read
from millstream.sim.managed.plan_plane import PlanPlane
from millstream.store.moves.ownership import Copy, Owned
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import FollowedByDigest
from millstream.store.replicas.keeper import ReplicaKeeper
from millstream.store.segments import Segment

SEGMENT_ROWS = 3
AT_ONCE = (Report, KeepReplicas)  # figures, and who follows: whoever asks may hear it early
INGEST_S = 1.0  # between two segments of a source
SETTINGS = EngineSettings(step_rows_max=4 * SEGMENT_ROWS)
Rows = tuple[str, ...]


class Surroundings(Protocol):
    """The world around virtual processors."""

    folder: Path  # with their homes
    plane: PlanPlane

    def peer(self, me: str, url: str) -> Processor:
        """The processor at an address; raises AwayError where it cannot be reached from here."""

    def unheard(self) -> bool:
        """Whether the answer of somebody who did as asked gets lost."""

    def gap(self, what: str) -> None:
        """Called when a copy cannot go on."""

    def begun(self, stream: str) -> None:
        """Called when an operator is hosted that was nowhere."""

    def published(
        self, stream: str, epoch: int, number: int, rows: Rows, maker: "VirtualProcessor"
    ) -> None:
        """Called after every commit of a segment by its stream's owner."""

    def follow(self, owner: str) -> None:
        """Lets those who keep a copy of a home, and can be reached from it, take what is new."""

    def adopted(self, heir: str, name: str, home: Path) -> None:
        """Called when a home is to be run by who has the copy."""

    def ended(self, heir: str, name: str) -> None:
        """Called when whoever runs it there is to end: another has it by now."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""

    def rows(self, stream: str) -> int:
        """How many rows a source has by now."""

    def changes(self) -> int:
        """Another number whenever anything may have changed for anybody."""

    def changes_at(self, processor: str) -> int:
        """... for those who ask a processor."""


class VirtualProcessor:
    """One home, and the process that has it open."""

    def __init__(
        self, name: str, surroundings: Surroundings, home: Path | None = None, heir: str = ""
    ) -> None:
        self.name, self.around, self.heir = name, surroundings, heir
        self.home = home or surroundings.folder / name
        self.starts = 1
        self.alone = False  # it reaches nobody
        self.replaced = False  # another has taken its place, and what it meets does not count
        self.carried_out: list[str] = []
        self._open()

    def _open(self) -> None:
        around = self.around
        peers = PeerDirectory(lambda url, _: DirectPeer(self._asking(url)))
        self.processor = Processor(self.name, self.home, around.plane, peers, SETTINGS)
        self.processor.log.hasten = lambda _: None if self.alone else around.follow(self.name)
        self.keeper = ReplicaKeeper(
            self.name, self.home, self.processor.log, self._home_of(peers),
            lambda name, home: around.adopted(self.name, name, home),
            lambda name: around.ended(self.name, name),
        )  # fmt: skip
        self.processor.new_owner.warm_rounds = 0
        self.ownership, self.ledger = self.processor.ownership, self.processor.engine.ledger
        self.processor.restore()
        engine = ExecutionEngine(self.processor, print)
        statistics = StatisticsGatherer(self.processor, engine)
        self.moves = Moves(self.processor, statistics.notice, lambda: None)
        parts = Parts(
            self.processor, engine, statistics, Receiving(self.processor, statistics.notice), peers,
            self.moves, self._stop, _place_nothing, around.now, replicas=self.keeper,
        )  # fmt: skip
        self.connections = Connections(parts, self)
        self.version = 0
        self._entered: dict[str, float] = {}  # when rows of a source last came
        self._asked: dict[str, tuple[Copy, int]] = {}  # in vain: for a copy, at a source
        self._settled = -1  # when a round last came to nothing
        Publications(self.processor, self._made)
        self.up = True

    def _stop(self) -> None:
        self.up = False

    def close(self) -> None:
        self.keeper.close()
        self.processor.close()

    @property
    def url(self) -> str:
        at = f"{self.name}@{self.heir}" if self.heir else self.name
        return f"virtual://{at}/{self.starts}"

    def restart(self, *, moved: bool = False) -> Join:
        """Opens the home again, perhaps at another address."""
        self.close()
        self.starts += moved
        self._open()
        return self.join()

    def join(self) -> Join:
        lives_with: dict[str, Any] = {ADOPTED_BY: self.heir} if self.heir else {}
        return Join(self.name, self.url, self.ledger.epoch, lives_with)

    def operators(self) -> set[str]:
        return {o for operators in self.ownership.hosted().values() for o in operators}

    def owned(self) -> dict[str, int]:
        """The streams that are made here, with their epochs."""
        return {o.stream: o.epoch for o in self.ownership.all_owned()}

    def _asking(self, url: str) -> Callable[[Callable[[Processor], Any]], Any]:
        def ask(question: Callable[[Processor], Any]) -> Any:
            other = self._reached(url)
            try:
                answer = question(other)
            finally:
                other.log.demand()  # nothing is told that could be undone, a refusal neither
            if self.around.unheard():
                if isinstance(answer, FollowedByDigest):
                    answer.close()
                raise AwayError(f"no answer came from {url}")
            return answer

        return ask

    def _reached(self, url: str) -> Processor:
        if self.alone:
            raise AwayError(f"no server answers at {url}")
        return self.around.peer(self.name, url)

    def _home_of(self, peers: PeerDirectory) -> Callable[[Place], DirectHome]:
        def reach(place: Place) -> DirectHome:
            url = peers.url_of(place)
            return DirectHome(lambda question: question(self._reached(url)))

        return reach

    # -- control --------------------------------------------------------------------------------

    def take(self, envelope: Envelope, answer: Callable[[tuple[Reply, ...]], None]) -> None:
        """A message whose answer is known at once, or never comes."""
        replies = self.control(envelope)
        if not all(isinstance(message, AT_ONCE) for message in envelope.messages):
            try:
                self.processor.log.demand()
            except AwayError:
                return
        answer(replies)

    def control(self, envelope: Envelope) -> tuple[Reply, ...]:
        if not all(isinstance(message, QUESTIONS) for message in envelope.messages):
            self._settled = -1
        return tuple(self.connections.receive(envelope))

    def report(self, command: Report) -> Reported:
        """Counts alone: a clock's figures differ from run to run."""
        self.version = max(self.version, command.since) + 1
        known = self.ledger.operator_statistics()
        figures = {
            o: {"rows_out": float(known[o]["rows_out"]) if o in known else 0.0}
            for o in self.operators()
        }
        return Reported(self.version, figures, {}, {}, {"load": 0.1})

    # -- what goes on without a manager ---------------------------------------------------------

    def work(self) -> None:
        """A round: rows come in, copies are pulled, moves advance, operators make steps."""
        changes = self.around.changes()
        if changes == self._settled:
            return
        quiet = self._ingest()
        self.processor.receiver.say_farewells()
        quiet &= not self.ownership.farewells()
        quiet &= all([self._pull(copy) for copy in self.ownership.copies()])  # noqa: C419
        for move in self.ownership.moves("new", ARRIVING):
            quiet &= self.moves.turn(move.id) not in ("on", "away")
        quiet &= self._steps()
        quiet &= self._follow()
        if quiet and changes == self.around.changes():
            self._settled = changes

    def _ingest(self) -> bool:
        """Rows of sources that were started, a segment a second; says whether all are in."""
        now, quiet = self.around.now(), True
        for name in self.processor.engine.sources:
            done = int(self.ledger.ingest_position(base_stream(name)).get("pos", 0))
            fresh = range(done + 1, min(done + SEGMENT_ROWS, self.around.rows(name)) + 1)
            if not fresh:
                continue
            quiet = False
            if now >= self._entered.get(name, 0.0) + INGEST_S:
                self._entered[name] = now
                rows = arrived([(n, f"{name}{n}") for n in fresh], name)
                self.processor.engine.appenders[name].append(rows, {})
        return quiet

    def _follow(self) -> bool:
        """Copies of others' homes grow."""
        news = 0
        for name in list(self.keeper.replicas):
            with suppress(MillstreamError):
                news += self.keeper.turn(name)
        return not news

    def _pull(self, copy: Copy) -> bool:
        """Takes over what is new; who had nothing new answers when something has changed there."""
        asked = (copy, self.around.changes_at(copy.source.processor))
        if self._asked.get(copy.stream) == asked:
            return True
        try:
            if self.processor.receiver.pull(copy.stream):
                return False
            self._asked[copy.stream] = asked
        except AwayError:
            return False
        except RefusedError as refusal:
            if refusal.code == "gap" and not self.replaced:
                self.around.gap(f"{self.name}: {refusal.message}")
        except MillstreamError:
            pass
        return True

    def _steps(self) -> bool:
        engine, quiet = self.processor.engine, True
        for operator in list(engine.operators.values()):
            if operator.id in engine.paused_operators:
                continue
            if engine.runner.run(alone(operator), SETTINGS.step_rows_max) is not None:
                engine.maintenance.retain(operator.inputs)
                quiet = False
        return quiet

    def _made(self, owned: Owned, segments: Sequence[Segment]) -> None:
        for segment in segments:
            rows = tuple(row for _, row in read(self.processor.engine.store, [segment]))
            self.around.published(owned.stream, owned.epoch, segment.first, rows, self)


class Connections(ObservedConnections):
    """Reports counts alone, and says which operators have come to life."""

    def __init__(self, parts: Parts, home: VirtualProcessor) -> None:
        super().__init__(parts, home.around.plane, home.carried_out)
        self._home = home

    def perform(self, command: Message) -> Reply:
        if isinstance(command, Report):
            return self._home.report(command)
        before = self._home.owned()
        reply = super().perform(command)
        for operator in command.operators if isinstance(command, Host) else ():
            if operator not in before:
                self._home.around.begun(operator)
        return reply


class Moves(MoveDriver):
    """Without threads: `turn` is called in every round."""

    def look(self) -> None:
        return None


class Receiving(StreamReceiver):
    """The same for copies."""

    def look(self) -> None:
        return None


def _place_nothing(_: PlaceTree) -> Reply:
    return Refusal("unknown", "nobody places together here")
