"""Moves that a processor leads itself, and its part in those that others lead.

`control/moves/handover.py` says what comes next; this carries it out, one move at a time, in a
thread. A processor is engaged in one move at a time; an abandoned engagement lapses. After a
restart, sealed moves continue and others are undone, from the ledger alone. It ignores moves that a
manager leads.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.control.moves.handover import (
    Disengage,
    Engage,
    Handover,
    PeerCommand,
    Say,
    noted,
    resumed,
    said,
)
from millstream.control.moves.table import ARRIVING, COMMITTED, ENDED, RUNNING, UNDER_WAY, Phase
from millstream.control.protocol.commands import Complete, Prepare, Progress, Seal, Undo
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Done, Progressed, Refusal, Reply
from millstream.core.errors import MillstreamError
from millstream.decide.balance.running import RunningFragment
from millstream.edge.views.running_view import hosts_of, sources_of
from millstream.store.machine_failures import first_line

if TYPE_CHECKING:
    from millstream.edge.peers.peer_book import PeerBook
    from millstream.edge.processor.connection_manager import ConnectionManager
    from millstream.engine.processor import Processor

PREFIX = "b-"  # of moves without a manager
LOST_SECONDS = 15.0  # after which its leader is asked whether a move still goes on
ASK_SECONDS = (0.1, 2.0)  # between questions how far a move is


@dataclass(frozen=True, slots=True)
class Engagement:
    move: str
    since_s: float
    until_s: float
    load: float


class PeerMoves:
    """One processor's hand-overs; `free` says whether it may take part in moves of its peers."""

    def __init__(
        self,
        processor: "Processor",
        connections: "ConnectionManager",
        book: "PeerBook",
        url: Callable[[], str],
        say: Callable[[str], None],
        objection: Callable[[], str],
    ) -> None:
        self.processor, self.connections, self.book = processor, connections, book
        self._url, self._say, self._objection = url, say, objection
        self._lock = threading.Lock()
        self._engaged: Engagement | None = None
        self._thread: threading.Thread | None = None
        self._current: Handover | None = None
        self._stopping = threading.Event()
        self._count = 0
        self.on_end: list[Callable[[Handover], None]] = []

    @property
    def leaving(self) -> frozenset[str]:
        """Operators that this processor is handing over."""
        current = self._current
        return frozenset(current.prepare.operators) if current is not None else frozenset()

    # -- engagement -----------------------------------------------------------------------------

    @property
    def engaged(self) -> Engagement | None:
        with self._lock:
            return self._present()

    def _present(self) -> Engagement | None:
        known = self._engaged
        return known if known is not None and known.until_s > time.monotonic() else None

    def engage(self, move: str, load: float, lease_s: float = 180.0) -> Reply:
        """At most one move at a time, as giver, taker or bystander; said again, it goes on."""
        problem = self._objection()
        if problem:
            return Refusal("led", problem)
        with self._lock:
            known = self._present()
            now_s = time.monotonic()
            if known is not None and known.move == move:
                self._engaged = replace(known, until_s=now_s + lease_s)
                return Done()
            # A processor leads one move at a time: a new one of the same leader ends the old one.
            if known is not None and leader_of(known.move) != leader_of(move):
                return Refusal("engaged", f"it takes part in move {known.move}")
            other = self._under_way() - {move}
            if other:
                return Refusal("engaged", f"move {min(other)} is under way")
            self._engaged = Engagement(move, now_s, now_s + lease_s, load)
        return Done()

    def disengage(self, move: str) -> Reply:
        with self._lock:
            if self._engaged is not None and self._engaged.move == move:
                self._engaged = None
        return Done()

    def _under_way(self) -> set[str]:
        """Moves that the ledger has, on either side, of any leader."""
        ownership = self.processor.ownership
        found = (*ownership.moves("new", ARRIVING), *ownership.moves("old", RUNNING))
        return {move.id for move in found}

    # -- what others say ------------------------------------------------------------------------

    def receive(self, command: PeerCommand) -> Reply:
        match command:
            case Engage(move, load, lease_s):
                return self.engage(move, load, lease_s)
            case Disengage(move):
                return self.disengage(move)
            case Prepare():
                known = self.engaged
                if known is None or known.move != command.move:
                    return Refusal("not_engaged", "it has not been asked to take part")
                return self.connections.tried(command)
            case Progress() | Undo() | Complete():
                return self.connections.tried(command)

    def operators_of(self, move: str) -> tuple[str, ...]:
        """What came, or comes, with a move."""
        known = self.processor.ownership.move(move)
        return known.operators if known is not None else ()

    # -- own moves ------------------------------------------------------------------------------

    def begin(
        self, fragments: Sequence[RunningFragment], target: str, load: float, arriving: float
    ) -> str:
        """Hands fragments over to another processor; says why not, or nothing."""
        operators = {name for fragment in fragments for name in fragment.names}
        inputs = {s for fragment in fragments for s in fragment.inputs} - operators
        sources = sources_of(self.processor, inputs)
        consumers = self.processor.engine.ledger.consumers
        near = {self.processor.id, target, *(name for name, _ in sources.values())}
        for name in operators:
            near |= {c.name for c in consumers(name) if c.kind == "processor"}
        urls = {name: self.book.url_of(name) for name in near - {self.processor.id}}
        unknown = [name for name, url in urls.items() if url is None]
        if unknown:
            return f"the address of {min(unknown)} is unknown"
        urls[self.processor.id] = self._url()
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return "another move is under way"
            self._count += 1
            move = f"{PREFIX}{self.processor.id}-{self.processor.engine.ledger.epoch}-{self._count}"
            prepare = Prepare(
                move,
                hosts_of(self.processor, operators),
                {s: Peer(name, str(urls[name]), epoch) for s, (name, epoch) in sources.items()},
                Peer(self.processor.id, self._url()),
            )
            peer = Peer(target, str(urls[target]))
            chosen = Handover(
                prepare, self.processor.id, peer, tuple(sorted(near)), load, arriving,
                begun_s=time.time(),
            )  # fmt: skip
            self._run(chosen)
        return ""

    def _run(self, move: Handover) -> None:
        self._current = move
        self._thread = threading.Thread(
            target=self._lead, args=(move,), name=f"millstream-{move.id}", daemon=True
        )
        self._thread.start()

    def _lead(self, move: Handover) -> None:
        patience = ASK_SECONDS[0]
        while not self._stopping.is_set() and (now := said(move)) is not None:
            try:
                reply = self._carried_out(now)
            except Exception as error:  # as if nobody had answered: it is said again
                if self._stopping.is_set():
                    return  # ledger and client are closed by now
                self._say(f"move {move.id}: {type(error).__name__}: {first_line(error)}")
                reply = None
            after = noted(move, now.command, reply, time.time())
            if after == move or isinstance(now.command, Progress):
                self._stopping.wait(patience)
                patience = min(patience * 1.3, ASK_SECONDS[1])
            if after.phase != move.phase:
                patience = ASK_SECONDS[0]
            self._current = move = after
        self._current = None
        if not self._stopping.is_set():
            for listener in self.on_end:
                listener(move)

    def _carried_out(self, now: Say) -> Reply | None:
        if now.to != self.processor.id:
            assert not isinstance(now.command, Seal)
            return self.book.ask(now.to, now.command)
        if isinstance(now.command, Seal):
            return self.connections.tried(now.command)
        return self.receive(now.command)

    # -- after a restart ------------------------------------------------------------------------

    def sweep(self) -> None:
        """Moves without a leader: sealed ones go on, others are undone."""
        self._leave_the_lost()  # may take a while: what goes on is looked at after it
        current = self._current.id if self._current is not None else ""
        idle = self._thread is None or not self._thread.is_alive()
        ownership, failures = self.processor.ownership, self.connections.moves.failures
        for move in ownership.moves("new", RUNNING):
            if move.id.startswith(PREFIX) and move.id in failures:
                with suppress(MillstreamError):
                    self.processor.new_owner.undo(move.id)
        mine = [m for m in ownership.moves("old", UNDER_WAY) if m.id.startswith(PREFIX)]
        for move in mine:
            if move.phase in RUNNING and move.id != current:
                with suppress(MillstreamError):
                    self.processor.old_owner.undo(move.id)
        sealed = [m for m in mine if m.phase in COMMITTED and m.id != current]
        if sealed and idle:
            move, to = sealed[0], sealed[0].other
            peer = Peer(to.processor, self.book.url_of(to.processor) or to.url or "-")
            with self._lock:
                self._run(resumed(move.id, move.operators, self.processor.id, peer, move.story))

    def _leave_the_lost(self) -> None:
        """Ends an engagement whose leader knows nothing of the move any more."""
        known = self.engaged
        if known is None or time.monotonic() - known.since_s < LOST_SECONDS:
            return
        leader = leader_of(known.move)
        if leader != self.processor.id:
            reply = self.book.ask(leader, Progress(known.move))
            if isinstance(reply, Progressed) and reply.phase in (Phase.REQUESTED, *ENDED):
                self.disengage(known.move)

    def stop(self) -> None:
        self._stopping.set()
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()


def leader_of(move: str) -> str:
    """The processor that leads a move.

    >>> leader_of("b-p-1-7-2")
    'p-1'
    """
    return move.removeprefix(PREFIX).rsplit("-", 2)[0]
