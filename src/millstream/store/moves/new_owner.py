"""The new owner of a running operator, or of a base stream: copies, warms up, takes over.

It copies what the operator can still reach, warms up and waits for the seal; then it fetches the
sealed record, commits that it owns the streams, and runs. Of a base stream it first sees whether it
can read the source, and takes its position in the commit that makes it the owner. Every method may
be called again and goes on from what the ledger has, so that a crash anywhere is only a delay.
Decides nothing about what moves where.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from millstream.control.moves.table import COMMITTED, ENDED, Phase, Story
from millstream.control.protocol.commands import Prepare
from millstream.core.errors import MillstreamError
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import Operator, is_base
from millstream.store import faults
from millstream.store.consumers import holder, remote, subscriber
from millstream.store.moves.copying import Copying, still_under_way
from millstream.store.moves.hosted import Hosting
from millstream.store.moves.old_owner import busy, not_under_way
from millstream.store.moves.receiving import Receiver
from millstream.store.moves.records import Move, Place, SealedRecord
from millstream.store.moves.transfer import Peers, RefusedError
from millstream.store.segments import Segment

KIND_ASIDE = {"l:": "late", "r:": "rejected"}  # of a base stream, what went aside
WARM_ROUNDS = 2  # the second one runs on code that the first one generated


class NewOwner:
    """The side that takes over; `advance` does what can be done now."""

    def __init__(self, me: str, hosting: Hosting, receiver: Receiver, peers: Peers) -> None:
        self.me, self.hosting, self.receiver, self.peers = me, hosting, receiver, peers
        self.engine, self.ownership = hosting.engine, hosting.ownership
        self.ledger = hosting.ledger
        self.warm: set[str] = set()  # moves for which this process has warmed up
        self._tried: set[str] = set()  # ... whose sources it could read
        self.warm_rounds = WARM_ROUNDS
        self.cold: dict[str, str] = {}  # operators that could not be tried out, and why
        self.copying = Copying(me, hosting, receiver, peers)
        # when the old owner last committed a step, and when this processor became the owner
        self.handed_at: dict[str, tuple[float, float]] = {}
        self.on_owner: list[Callable[[str], None]] = []

    def prepare(self, request: Prepare) -> None:
        """Begins, or is told again."""
        known = self.ownership.move(request.move)
        if known is not None:
            if known.phase in ENDED:
                raise RefusedError("unknown", f"move {request.move} is {known.phase}")
            return
        old = Place(request.old.processor, request.old.url)
        with self.engine.lock:
            for text in request.hosts:
                self.hosting.chosen(text)
            self.hosting.expect_source(request.streams)
            with self.ledger.transaction():
                for text in request.hosts:
                    self.hosting.install(text)
                fresh = Move(request.move, "new", Story(), request.operators, old, request)
                self.ownership.move_on(fresh, Phase.PREPARING, self.me)
        faults.reach("prepare.committed")

    def operators(self, request: Prepare) -> dict[str, Operator]:
        return {o.id: o for text in request.hosts for o in self.hosting.chosen(text)}

    def advance(self, move: str, wait: float = 0.0) -> bool:
        """Goes on with a move; gives whether anything came of it."""
        known = self.ownership.move(move)
        if known is None or known.role != "new" or known.request is None:
            return False
        match known.phase:
            case Phase.PREPARING:
                return self._prepare(known, known.request)
            case Phase.READY:
                return self._await_seal(known, wait)
            case Phase.SEALED:
                return self._take(known, known.request)
            case _:
                return False

    # -- before the seal ------------------------------------------------------------------------

    def _prepare(self, known: Move, request: Prepare) -> bool:
        old = self.peers(known.other)
        needs = old.needs(known.id, known.operators, Place(self.me))
        if known.id not in self._tried:
            for table in request.streams:
                self.hosting.try_source(table, needs.sources[f"s:{table['name']}"])
            self._tried.add(known.id)
        if self.copying.expect(known, needs):
            return True  # sources keep from now on what follows: how far is the old owner now?
        if not self.copying.copy(known, needs):
            return False
        if known.id not in self.warm:
            for operator in self.operators(request).values():
                problem = self.hosting.warm_up(operator, self.warm_rounds)
                if problem:
                    self.cold[operator.id] = problem
            self.warm.add(known.id)
            faults.reach("prepare.warm")
            return True  # time has passed: look again at what is missing
        old.ready(known.id)
        faults.reach("prepare.told")
        with self.ledger.transaction():
            present = still_under_way(self.ownership, known)
            self.ownership.move_on(present, Phase.READY, self.me)
        faults.reach("ready.committed")
        return True

    # -- after the seal -------------------------------------------------------------------------

    def _await_seal(self, known: Move, wait: float) -> bool:
        record = self.peers(known.other).sealed(known.id, wait)
        if record is None:
            return False
        with self.ledger.transaction():
            present = still_under_way(self.ownership, known)
            by = known.other.processor
            self.ownership.move_on(present, Phase.SEALED, by, sealed=record)
        faults.reach("take.recorded")
        return True

    def take_over(self, move: str) -> None:
        """Asks for the sealed record and takes over as far as that is possible now."""
        known = self.ownership.move(move)
        if known is None or known.phase in ENDED:
            raise not_under_way(move)
        while self.advance(move):
            pass

    def _take(self, known: Move, request: Prepare) -> bool:
        record = known.sealed
        assert record is not None
        operators = self.operators(request)
        if not self.copying.copy(known, record.extent) or not self._caught_up(record):
            return False
        old = self.peers(known.other)
        wanted = [
            segment
            for part in record.streams.values()
            for state in part.states.values()
            for segment in state.segments
        ]
        with self.receiver.downloaded(wanted, old) as (_, states):
            faults.reach("take.written")
            with self.engine.lock:
                with self.ledger.transaction():
                    gone = self._own(known, request, record, states)
                self.handed_at |= {
                    name: (part.committed, time.time())
                    for name, part in record.streams.items()
                    if part.committed is not None
                }
                for text in request.hosts:
                    self.hosting.run(text)
                for stream in record.extent.sources:
                    self.hosting.open_taken(stream)
        for listener in self.on_owner:
            listener(known.id)
        faults.reach("take.committed")
        self.hosting.remove(gone)
        self.receiver.say_farewells()
        self._forget(known.id)
        for name in operators:
            self.hosting.tidy(name)
        with suppress(MillstreamError):  # `complete` says so again
            old.taken(known.id)
        faults.reach("take.told")
        return True

    def _caught_up(self, record: SealedRecord) -> bool:
        """Pulls until every cursor lies within what is here; says whether it does."""
        least = {
            stream: max(cursors)
            for stream in record.extent.inputs
            if (cursors := record.extent.cursors_on(stream))
        }
        for name, part in record.streams.items():
            if self.ownership.copy(name) is not None:
                least[name] = part.next  # all that the old owner made comes first
        for stream, following in least.items():
            while (copy := self.ownership.copy(stream)) is not None:
                if copy.next is not None and copy.next >= following:
                    break
                if not self.receiver.pull(stream):
                    return False
        return True

    def _own(
        self, known: Move, request: Prepare, record: SealedRecord, states: Sequence[Segment]
    ) -> list[str]:
        """One transaction: owner of the streams, at the sealed cursors, from the sealed number."""
        ledger = self.ledger
        gone: list[str] = []
        for name, part in record.streams.items():
            self.ownership.drop_copy(name)
            self.ownership.forget_former_life(name, part.epoch)
            self.ownership.own(name, part.epoch, part.next)
            ledger.set_head(name, part.next, part.watermark, part.ts_max, part.rows)
            for stream, at in record.extent.cursors[name].items():
                ledger.set_cursor(name, stream, *at)
            if not is_base(name):
                ledger.set_statistics(name, part.progress, part.statistics)
            for state, told in part.states.items():
                gone += ledger.drop_stream(state)
                ledger.add_stream(state, KIND_ASIDE.get(state[:2], "state"))
                ledger.set_columns(state, told.columns)
                ledger.adopt([s for s in states if s.stream == state])
                ledger.set_head(state, told.next, BEGINNING, BEGINNING, 0)
                for reader, at in told.consumers.items():
                    ledger.set_cursor(remote(reader), state, *at)
            present = ledger.consumers(name)
            # those of the sealed record: who has left since the move was asked for is not in it
            for consumer in set(part.consumers) - {self.me}:
                if remote(consumer) not in present:
                    ledger.set_cursor(remote(consumer), name, part.next, BEGINNING)
            for query, at in part.subscribers.items():
                ledger.set_cursor(subscriber(query), name, *at)
        for table in request.streams:
            self.hosting.take_source(table, record.extent.sources[f"s:{table['name']}"])
        for text in request.hosts:
            self.hosting.install(text)
            self.hosting.register(text)
            condition = record.queries.get(text.query)
            if condition is not None:
                ledger.set_query_state(text.query, *condition)
                self.hosting.settle(text.query)  # the old owner may not have heard of a pause
        ledger.drop_consumer(holder(known.id))
        self.copying.part(known)
        self.ownership.move_on(
            known, Phase.OWNED, self.me, request=None, copied=(), expected=(), sealed=None
        )
        return gone

    # -- ends -----------------------------------------------------------------------------------

    def complete(self, move: str) -> None:
        known = self.ownership.move(move)
        if known is None or known.phase in ENDED:
            return
        if known.phase is not Phase.OWNED:
            raise busy(f"move {move} is not taken over yet")
        with self.ledger.transaction():
            self.ownership.move_on(known, Phase.DONE, self.me)
        faults.reach("complete.committed")

    def undo(self, move: str, *, lost: bool = False) -> None:
        """Forgets the copy, once the old owner has said that it will not seal, or is lost."""
        known = self.ownership.move(move)
        if known is None:
            unheard = Move(move, "new", Story(), (), Place(""))
            with self.ledger.transaction():
                self.ownership.move_on(unheard, Phase.UNDONE, self.me)
            return
        if known.phase in ENDED:
            return
        if known.phase is Phase.OWNED or (known.phase in COMMITTED and not lost):
            raise RefusedError("sealed", f"move {move} is sealed")
        if not lost:
            self.peers(known.other).undo(move)
        faults.reach("undo.asked")
        gone: list[str] = []
        with self.engine.lock, self.ledger.transaction() as ledger:
            known = self.ownership.move(move)  # more may have been copied while we asked
            assert known is not None
            if known.phase in ENDED:
                return
            if lost:  # from any phase: there is nobody left who could go forward
                if known.phase is Phase.OWNED:
                    return
                known = replace(known, story=Story())
            ledger.drop_consumer(holder(move))
            for stream in known.copied:
                copy = self.ownership.copy(stream)  # none where it was ended since: its rows stayed
                wanted = copy is not None and copy.kept
                made_here = self.ownership.owned(stream) is not None
                if not wanted and not made_here and self.hosting.unread(stream):
                    self.ownership.drop_copy(stream)
                    gone += self.receiver.streams.reset(stream)
            for text in known.request.hosts if known.request is not None else ():
                self.hosting.leave(text.query)
            self.copying.part(known)
            self.ownership.move_on(
                known, Phase.UNDONE, self.me, request=None, copied=(), expected=()
            )
        self.hosting.remove(gone)
        self.receiver.say_farewells()
        self._forget(move)
        faults.reach("undo.committed")

    def _forget(self, move: str) -> None:
        """What this process remembered of a move that is over."""
        self.warm.discard(move)
        self._tried.discard(move)
        self.copying.forget(move)
