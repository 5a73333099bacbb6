"""The old owner of a running operator: tells what it needs, seals, serves what it had, forgets.

The seal is one transaction in this ledger and the commit point of a move: sealed at these cursors,
next number n, handed on with the next epoch. Before it, a move is undone by forgetting it. Every
method may be called again; all it knows lies in the ledger.
"""

from collections.abc import Callable, Sequence

from millstream.control.moves.table import COMMITTED, ENDED, RUNNING, Phase, Story
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import Operator, state_stream
from millstream.store import faults
from millstream.store.consumers import holder, remote
from millstream.store.ledger import STATISTICS
from millstream.store.moves.hosted import Hosting
from millstream.store.moves.ownership import Copy
from millstream.store.moves.records import (
    Extent,
    HandedStream,
    InputExtent,
    Move,
    Place,
    SealedRecord,
    StateRecord,
    as_sent,
)
from millstream.store.moves.transfer import RefusedError
from millstream.store.reach import SELF_READING, marks, reachable
from millstream.store.segments import Segment


def busy(text: str) -> RefusedError:
    """Not now: ask again."""
    return RefusedError("busy", text)


def not_under_way(move: str) -> RefusedError:
    return RefusedError("unknown", f"move {move} is not under way here")


class OldOwner:
    """The side that hands over. `quiesce` waits until none of the operators is in a step."""

    def __init__(
        self, me: str, hosting: Hosting, quiesce: Callable[[frozenset[str]], None]
    ) -> None:
        self.me, self.hosting, self._quiesce = me, hosting, quiesce
        self.engine, self.ownership = hosting.engine, hosting.ownership
        self.ledger = hosting.ledger
        self.committed: dict[str, float] = {}  # when operators last committed a step here
        self.on_sealed: list[Callable[[str], None]] = []

    def _operators(self, names: Sequence[str]) -> list[Operator]:
        found = [self.engine.operators[n] for n in names if n in self.engine.operators]
        if len(found) != len(names) or any(self.ownership.owned(n) is None for n in names):
            raise RefusedError("not_owner", "not all of the operators run here")
        return found

    def needs(self, move: str, names: Sequence[str], to: Place) -> Extent:
        """What a new owner has to have; from now on it is kept for it."""
        with self.engine.lock:
            known = self.ownership.move(move)
            if known is not None and known.phase not in RUNNING:
                raise RefusedError(known.phase, f"move {move} is {known.phase} here")
            operators = self._operators(names)
            with self.ledger.transaction() as ledger:
                if known is None:
                    fresh = Move(move, "old", Story(), tuple(names), to)
                    self.ownership.move_on(fresh, Phase.PREPARING, self.me)
                found = self._extent(operators)
                for stream, part in found.inputs.items():
                    if holder(move) not in ledger.consumers(stream):
                        ledger.set_cursor(holder(move), stream, part.first, BEGINNING)
        return found

    def _extent(self, operators: Sequence[Operator]) -> Extent:
        """Cursors, and the segments that lie behind them as far as they can be reached."""
        inputs: dict[str, InputExtent] = {}
        wanted: dict[str, dict[int, Segment]] = {}
        for operator in operators:
            at = marks(self.ledger, operator)
            for stream in operator.inputs:
                following, _ = self.ledger.cursor(operator.id, stream)
                for s in self.ledger.segments(stream):
                    reached = s.rows and reachable(operator, s, at)
                    if s.last >= following or reached:
                        wanted.setdefault(stream, {})[s.first] = s
                wanted.setdefault(stream, {})
            self._own_rows(operator, wanted)
        for stream, found in wanted.items():
            head = self.ledger.stream(stream)
            assert head is not None
            owned, copy = self.ownership.owned(stream), self.ownership.copy(stream)
            source, epoch, following = Place(self.me), 0, int(head["next"])
            if owned is not None:
                epoch = owned.epoch
            elif copy is not None:
                source, epoch = copy.source, copy.epoch
                following = copy.next or following
            segments = tuple(as_sent(found[first]) for first in sorted(found))
            inputs[stream] = InputExtent(segments, following, source, epoch)
        return Extent({o.id: self.ledger.cursors(o.id) for o in operators}, inputs)

    def _own_rows(self, operator: Operator, wanted: dict[str, dict[int, Segment]]) -> None:
        """Its own output, where it reads that back or subscribers have yet to read it."""
        places = self.ledger.consumers(operator.id).items()
        readers = [at.next for consumer, at in places if consumer.kind == "subscriber"]
        everything = operator.kind in SELF_READING
        if not readers and not everything:
            return
        found = wanted.setdefault(operator.id, {})
        for s in self.ledger.segments(operator.id):
            if (everything and s.rows) or (readers and s.last >= min(readers)):
                found[s.first] = s

    def ready(self, move: str) -> None:
        """The new owner has what it needs and is warm."""
        with self.ledger.transaction():
            known = self.ownership.move(move)
            if known is None or known.phase in ENDED:
                raise not_under_way(move)
            if known.phase is Phase.PREPARING:
                self.ownership.move_on(known, Phase.READY, known.other.processor)

    def seal(self, move: str, names: Sequence[str], to: Place) -> SealedRecord:
        """The commit point: from here on the operators are another's."""
        known = self.ownership.move(move)
        if known is None:
            raise not_under_way(move)
        if known.sealed is not None:
            return known.sealed
        if known.phase is not Phase.READY:
            raise busy(f"the new owner is not ready for move {move}")
        resting = frozenset(names)
        with self.engine.lock:
            self.engine.resting |= resting
            self.engine.pause_operators()
        try:
            faults.reach("seal.resting")
            self._quiesce(resting)
            with self.engine.lock:
                record = self._seal(move, tuple(names), to)
        finally:
            with self.engine.lock:
                self.engine.resting -= resting
                self.engine.pause_operators()
        faults.reach("seal.committed")
        for listener in self.on_sealed:
            listener(move)
        return record

    def _seal(self, move: str, names: tuple[str, ...], to: Place) -> SealedRecord:
        readers = {s for o in self.engine.operators.values() if o.id not in names for s in o.inputs}
        with self.ledger.transaction() as ledger:
            known = self.ownership.move(move)  # while its last steps ended it may have ended
            if known is not None and known.sealed is not None:
                return known.sealed
            if known is None or known.phase in ENDED:
                raise not_under_way(move)
            operators = self._operators(names)
            record = SealedRecord(
                self._extent(operators),
                {o.id: self._handed(o, to, local=o.id in readers) for o in operators},
                {q.name: (q.state, q.reason) for n in names for q in self.engine.queries_of(n)},
            )
            queries = {query for name in names for query in self.ownership.users(name)}
            for operator in operators:
                part = record.streams[operator.id]
                self.ownership.hand(operator.id, part.next, part.epoch, to)
                ledger.drop_consumer(operator.id)
                for consumer, at in ledger.consumers(operator.id).items():
                    has_all = consumer.kind == "processor" and at.next >= part.next
                    if consumer.kind == "subscriber" or has_all:
                        ledger.drop_cursor(consumer, operator.id)
                for query in self.ownership.users(operator.id):
                    self.ownership.unhost(query, operator.id)
                if operator.id in readers:  # they go on with a copy of what is made elsewhere
                    copy = Copy(operator.id, to, part.epoch, 0, part.next, kept=True)
                    self.ownership.set_copy(copy)
            for query in queries:
                self.hosting.leave(query)
            self.ownership.move_on(known, Phase.SEALED, self.me, other=to, sealed=record)
        for name in names:
            self.engine.operators.pop(name, None)
        for query in queries:
            self.hosting.refresh(query)
        return record

    def _handed(self, operator: Operator, to: Place, *, local: bool) -> HandedStream:
        """How the new owner goes on with a stream."""
        ledger = self.ledger
        head, owned = ledger.stream(operator.id), self.ownership.owned(operator.id)
        assert head is not None
        assert owned is not None
        places = ledger.consumers(operator.id)
        remotes = {c.name for c in places if c.kind == "processor"}
        states: dict[str, StateRecord] = {}
        part = 0
        while (state := ledger.stream(state_stream(operator.id, part))) is not None:
            segments = tuple(as_sent(s) for s in ledger.segments(state["id"]))
            states[state["id"]] = StateRecord(state["columns"], int(state["next"]), segments)
            part += 1
        counts = ledger.operator_statistics().get(operator.id)
        return HandedStream(
            int(head["next"]),
            owned.epoch + 1,
            head["watermark"],
            head["ts_max"],
            head["rows"],
            self.committed.get(operator.id),
            tuple(sorted((remotes | ({self.me} if local else set())) - {to.processor})),
            {c.name: at for c, at in places.items() if c.kind == "subscriber"},
            ledger.progress(operator.id),
            {} if counts is None else {name: counts[name] for name in STATISTICS},
            states,
        )

    def sealed(self, move: str) -> SealedRecord | None:
        """The sealed record; None before the seal."""
        known = self.ownership.move(move)
        if known is None or known.phase in ENDED:
            raise not_under_way(move)
        return known.sealed

    def taken(self, move: str) -> None:
        """The new owner has all of it: what was kept for the move may go."""
        self._end(move, Phase.OWNED, "taken.committed")

    def complete(self, move: str) -> None:
        """The same, and the move is over."""
        self._end(move, Phase.DONE, "complete.committed")

    def _end(self, move: str, phase: Phase, point: str) -> None:
        gone: list[str] = []
        with self.engine.lock, self.ledger.transaction() as ledger:
            known = self.ownership.move(move)
            if known is None or known.phase in ENDED:
                return
            if known.sealed is None:
                raise busy(f"move {move} is not sealed")
            streams = {*known.sealed.extent.inputs, *known.operators}
            ledger.drop_consumer(holder(move))
            for name in known.operators:
                if self.ownership.owned(name) is None:
                    gone += self.hosting.drop_operator(name)
                    ledger.drop_cursor(remote(known.other.processor), name)
            if known.phase is Phase.SEALED:
                known = self.ownership.move_on(known, Phase.OWNED, known.other.processor)
            if phase is Phase.DONE:
                self.ownership.move_on(known, phase, self.me, sealed=None)
        faults.reach(point)
        self.hosting.remove(gone)
        for stream in sorted(streams):
            self.hosting.tidy(stream)

    def undo(self, move: str) -> None:
        """Before the seal: as if nothing had been. After it: refused."""
        with self.ledger.transaction() as ledger:
            known = self.ownership.move(move) or Move(move, "old", Story(), (), Place(""))
            if known.phase in (*COMMITTED, Phase.DONE):
                raise RefusedError("sealed", f"move {move} is sealed here")
            ledger.drop_consumer(holder(move))
            if known.phase is not Phase.UNDONE:
                self.ownership.move_on(known, Phase.UNDONE, self.me)
        faults.reach("undo.committed")
