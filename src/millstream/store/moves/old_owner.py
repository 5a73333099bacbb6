"""The old owner of a running operator, or of a base stream: tells what it needs, seals, serves what
it had, forgets.

The seal is one transaction in this ledger and the commit point of a move: sealed at these cursors,
next number n, handed on with the next epoch. Before it, a move is undone by forgetting it. Every
method may be called again; all it knows lies in the ledger.
"""

from collections.abc import Callable, Sequence

from millstream.control.moves.table import COMMITTED, ENDED, RUNNING, Phase, Story
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import Operator, is_base, state_stream
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


def _bases(names: Sequence[str]) -> list[str]:
    """The base streams among what moves."""
    return [name for name in names if is_base(name)]


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
        """The operators among what moves; all of it is this processor's."""
        found = [self.engine.operators[n] for n in names if n in self.engine.operators]
        bases = _bases(names)
        if len(found) + len(bases) != len(names) or any(
            self.ownership.owned(n) is None for n in names
        ):
            raise RefusedError("not_owner", "not all of the operators run here")
        for stream in bases:
            if not self.hosting.enters(stream):
                raise RefusedError("not_owner", f"rows of stream {stream} do not enter here")
            self.hosting.refuse_to_move(stream)
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
                found = self._extent(operators, _bases(names))
                for stream, part in found.inputs.items():
                    if holder(move) not in ledger.consumers(stream):
                        ledger.set_cursor(holder(move), stream, part.first, BEGINNING)
        return found

    def _extent(self, operators: Sequence[Operator], bases: Sequence[str]) -> Extent:
        """Cursors, and the segments that lie behind them as far as they can be reached. Of a base
        stream all that is retained: whoever begins to read it may count on that."""
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
        for stream in bases:
            wanted[stream] = {s.first: s for s in self.ledger.segments(stream)}
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
        cursors = {o.id: self.ledger.cursors(o.id) for o in operators}
        sources = {stream: self.hosting.source_record(stream) for stream in bases}
        return Extent({**cursors, **{stream: {} for stream in bases}}, inputs, sources)

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
        resting, bases = frozenset(names), _bases(names)
        with self.engine.lock:
            self.engine.resting |= resting
            self.engine.pause_operators()
        try:
            for stream in bases:
                self.hosting.rest_source(stream)
            faults.reach("seal.resting")
            # the loop knows the source of a stream by the stream's name
            self._quiesce(resting | {stream.removeprefix("s:") for stream in bases})
            with self.engine.lock:
                record = self._seal(move, tuple(names), to)
        finally:
            with self.engine.lock:
                self.engine.resting -= resting
                self.engine.pause_operators()
            for stream in bases:
                self.hosting.wake_source(stream)
        faults.reach("seal.committed")
        for listener in self.on_sealed:
            listener(move)
        return record

    def _seal(self, move: str, names: tuple[str, ...], to: Place) -> SealedRecord:
        readers = {s for o in self.engine.operators.values() if o.id not in names for s in o.inputs}
        with self.ledger.transaction():
            known = self.ownership.move(move)  # while its last steps ended it may have ended
            if known is not None and known.sealed is not None:
                return known.sealed
            if known is None or known.phase in ENDED:
                raise not_under_way(move)
            operators = self._operators(names)
            record = SealedRecord(
                self._extent(operators, _bases(names)),
                {name: self._handed(name, to, local=name in readers) for name in names},
                {q.name: (q.state, q.reason) for n in names for q in self.engine.queries_of(n)},
            )
            queries = {query for name in names for query in self.ownership.users(name)}
            for name in names:
                self._hand(name, record.streams[name], to, local=name in readers)
            for stream in _bases(names):
                self.hosting.give_source(stream, to)
            for query in queries:
                self.hosting.leave(query)
            self.ownership.move_on(known, Phase.SEALED, self.me, other=to, sealed=record)
        for name in names:
            self.engine.operators.pop(name, None)
        for stream in _bases(names):
            self.hosting.let_go(stream)
        for query in queries:
            self.hosting.refresh(query)
        return record

    def _hand(self, name: str, part: HandedStream, to: Place, *, local: bool) -> None:
        """From here on a stream is another's (inside the transaction of the seal)."""
        ledger = self.ledger
        self.ownership.hand(name, part.next, part.epoch, to)
        ledger.drop_consumer(name)
        for consumer, at in ledger.consumers(name).items():
            has_all = consumer.kind == "processor" and at.next >= part.next
            if consumer.kind == "subscriber" or has_all:
                ledger.drop_cursor(consumer, name)
        for query in self.ownership.users(name):
            self.ownership.unhost(query, name)
        if local:  # its readers go on with a copy of what is made elsewhere
            self.ownership.set_copy(Copy(name, to, part.epoch, 0, part.next, kept=True))

    def _states(self, operator: str) -> dict[str, StateRecord]:
        ledger, states = self.ledger, dict[str, StateRecord]()
        part = 0
        while (state := ledger.stream(state_stream(operator, part))) is not None:
            segments = tuple(as_sent(s) for s in ledger.segments(state["id"]))
            states[state["id"]] = StateRecord(state["columns"], int(state["next"]), segments)
            part += 1
        return states

    def _handed(self, name: str, to: Place, *, local: bool) -> HandedStream:
        """How the new owner goes on with a stream."""
        ledger = self.ledger
        head, owned = ledger.stream(name), self.ownership.owned(name)
        assert head is not None
        assert owned is not None
        places = ledger.consumers(name)
        remotes = {c.name for c in places if c.kind == "processor"}
        counts = ledger.operator_statistics().get(name)
        return HandedStream(
            int(head["next"]),
            owned.epoch + 1,
            head["watermark"],
            head["ts_max"],
            head["rows"],
            self.committed.get(name),
            tuple(sorted((remotes | ({self.me} if local else set())) - {to.processor})),
            {c.name: at for c, at in places.items() if c.kind == "subscriber"},
            ledger.progress(name),
            {} if counts is None else {figure: counts[figure] for figure in STATISTICS},
            self.hosting.rejects(name) if is_base(name) else self._states(name),
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
                    base = is_base(name)
                    dropped = self.hosting.drop_rejects if base else self.hosting.drop_operator
                    gone += dropped(name)
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
