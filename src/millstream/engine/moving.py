"""The new owner of a running operator: copies, warms up, takes over.

It copies what the operator can still reach, warms up and waits for the seal; then it fetches the
sealed record, commits that it owns the streams, and runs. Every method may be called again and goes
on from what the ledger has, so that a crash anywhere is only a delay. Decides nothing about what
moves where.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from millstream.engine import faults
from millstream.engine.handing import ENDED, ENDED_KEPT, busy, holder
from millstream.engine.hosting import Hosting
from millstream.engine.move_request import MoveRequest
from millstream.engine.ownership import MOVING, Copy, Move, Place, remote
from millstream.engine.receiving import Receiver
from millstream.engine.segments import Segment
from millstream.engine.tails import Lack, lack_of
from millstream.engine.transfer import Peers, RefusedError, segment_of
from millstream.engine.warming import ROUNDS, warm_up
from millstream.errors import MillstreamError
from millstream.plan.windows import BEGINNING
from millstream.share.dataflow import Operator


class NewOwner:
    """The side that takes over; `advance` does what can be done now."""

    def __init__(self, me: str, hosting: Hosting, receiver: Receiver, peers: Peers) -> None:
        self.me, self.hosting, self.receiver, self.peers = me, hosting, receiver, peers
        self.engine, self.ownership = hosting.engine, hosting.ownership
        self.ledger = hosting.ledger
        self.warm: set[str] = set()  # moves for which this process has warmed up
        self.warm_rounds = ROUNDS
        self.cold: dict[str, str] = {}  # operators that could not be tried out, and why
        self.missing: dict[str, int] = {}  # rows, as last seen
        self._expected: dict[str, set[tuple[str, str]]] = {}  # by move, of this process
        # when the old owner last committed a step, and when this processor became the owner
        self.handed_at: dict[str, tuple[float, float]] = {}
        self.on_owner: list[Callable[[str], None]] = []

    def prepare(self, request: MoveRequest) -> None:
        """Begins, or is told again."""
        known = self.ownership.move(request.move)
        if known is not None:
            if known.phase in ENDED:
                raise RefusedError("unknown", f"move {request.move} is {known.phase}")
            return
        with self.engine.lock:
            for text in request.texts:
                self.hosting.chosen(text)
            with self.ledger.transaction():
                for text in request.texts:
                    self.hosting.install(text)
                record = {"request": request.to_json(), "copied": [], "expected": []}
                self.ownership.set_move(request.move, "new", "preparing", record)
        faults.reach("prepare.committed")

    def operators(self, request: MoveRequest) -> dict[str, Operator]:
        return {o.id: o for text in request.texts for o in self.hosting.chosen(text)}

    def advance(self, move: str, wait: float = 0.0) -> bool:
        """Goes on with a move; gives whether anything came of it."""
        known = self.ownership.move(move)
        if known is None or known.role != "new":
            return False
        request = MoveRequest.from_json(known.record["request"])
        match known.phase:
            case "preparing":
                return self._prepare(known, request)
            case "ready":
                return self._await_seal(known, request, wait)
            case "taking":
                return self._take(known, request)
            case _:
                return False

    # -- before the seal ------------------------------------------------------------------------

    def _prepare(self, known: Move, request: MoveRequest) -> bool:
        old = self.peers(request.old)
        needs = old.needs(known.id, request.operators, Place(self.me))
        if self._expect(known, request, needs):
            return True  # sources keep from now on what follows: how far is the old owner now?
        if not self._copy(known, request, needs):
            return False
        if known.id not in self.warm:
            for operator in self.operators(request).values():
                problem = warm_up(self.engine, operator, self.warm_rounds)
                if problem:
                    self.cold[operator.id] = problem
            self.warm.add(known.id)
            faults.reach("prepare.warm")
            return True  # time has passed: look again at what is missing
        old.ready(known.id)
        faults.reach("prepare.told")
        self._set_phase(known, "ready")
        faults.reach("ready.committed")
        return True

    def _expect(self, known: Move, request: MoveRequest, needs: Mapping[str, Any]) -> bool:
        """Lets sources keep the streams that are to be copied; says whether that was news.

        First they keep, then the old owner is asked how far it is: so nothing is merged between
        its position and ours.
        """
        news = False
        for stream, part in needs["inputs"].items():
            if self.ownership.owned(stream) is not None or self.ownership.copy(stream) is not None:
                continue
            source, _, _ = self._origin(stream, part, request)
            if (stream, source.processor) in self._expected.get(known.id, ()):
                continue
            with self.ledger.transaction():
                present = self._present(known)
                entry = [stream, asdict(source)]
                if entry not in present.record["expected"]:
                    record = {**present.record, "expected": [*present.record["expected"], entry]}
                    self.ownership.set_move(known.id, "new", present.phase, record)
            self.receiver.expect(stream, source)
            self._leave_if_undone(known, stream, source)
            self._expected.setdefault(known.id, set()).add((stream, source.processor))
            faults.reach("prepare.expected")
            news = True
        return news

    def _leave_if_undone(self, known: Move, stream: str, source: Place) -> None:
        """Who undid the move while the source was asked could not know that it keeps the stream."""
        with self.ledger.transaction():
            present = self.ownership.move(known.id)
            if present is not None and present.phase == known.phase:
                return
            self._part_from(stream, source)
        self.receiver.say_farewells()

    def _origin(
        self, stream: str, part: Mapping[str, Any], request: MoveRequest
    ) -> tuple[Place, int, int]:
        """From whom a copy is pulled, with which epoch, from which number on.

        Where the old owner pulls it, because our position is its position; where that is this
        processor itself, which had the stream once, from whoever has had it after us.
        """
        source, epoch, following = Place(**part["source"]), part["epoch"], part["next"]
        if source.processor == request.old.processor:
            source = request.old
        if source.processor == self.me:
            after = [h for h in self.ownership.handed(stream) if h.next >= following]
            later = [h for h in after if h.epoch > epoch]
            if later:
                chosen = min(later, key=lambda h: (h.next, h.epoch))
                return chosen.to, chosen.epoch, chosen.next
        return source, epoch, following

    def _present(self, known: Move) -> Move:
        """The move as it is now (in a transaction); refused where it has ended meanwhile."""
        present = self.ownership.move(known.id)
        if present is None or present.phase != known.phase:
            raise RefusedError("undone", f"move {known.id} has changed meanwhile")
        return present

    def _set_phase(self, known: Move, phase: str, **more: Any) -> None:
        with self.ledger.transaction():
            present = self._present(known)
            self.ownership.set_move(known.id, "new", phase, {**present.record, **more})

    def _copy(self, known: Move, request: MoveRequest, needs: Mapping[str, Any]) -> bool:
        """Fetches what is missing of every stream; gives whether nothing is."""
        missing = 0
        complete = True
        for stream, part in sorted(needs["inputs"].items()):
            copy = self.ownership.copy(stream)
            if copy is not None and copy.next is None:
                complete = False  # it is for others here, and begins where they are to begin
                continue
            segments = [segment_of(stream, s) for s in part["segments"]]
            cursors = [c[stream][0] for c in needs["cursors"].values() if stream in c]
            self._hold(known, stream, min((s.first for s in segments), default=part["next"]))
            lack = self._lack(known.id, stream, segments, cursors)
            complete = complete and not lack.waiting
            missing += lack.rows
            self._fetch(known, request, stream, lack, part)
        self.missing[known.id] = 0 if complete else max(missing, 1)
        for stream in needs["inputs"]:
            if self.ownership.copy(stream) is not None:
                self.receiver.pull(stream)
        return complete

    def _hold(self, known: Move, stream: str, first: int) -> None:
        if holder(known.id) not in self.ledger.consumers(stream):
            with self.ledger.transaction() as ledger:
                self._present(known)
                ledger.set_cursor(holder(known.id), stream, first, BEGINNING)
            faults.reach("prepare.held")

    def _lack(
        self, move: str, stream: str, segments: Sequence[Segment], cursors: Sequence[int]
    ) -> Lack:
        owned, copy = self.ownership.owned(stream), self.ownership.copy(stream)
        head = self.ledger.stream(stream)
        position = copy.next if copy is not None else None
        if owned is not None:
            position = int(head["next"]) if head else 1
        others = [
            n
            for name, (n, _) in self.ledger.consumers(stream).items()
            if not name.startswith(MOVING)
        ]
        return lack_of(
            segments,
            self.ledger.segments(stream),
            cursors=cursors,
            position=position,
            passed=min(others, default=1 << 62),
        )

    def _fetch(
        self, known: Move, request: MoveRequest, stream: str, lack: Lack, part: Mapping[str, Any]
    ) -> None:
        """Copies segments from the old owner; where there was no copy yet, there is one then."""
        fresh = self.ownership.owned(stream) is None and self.ownership.copy(stream) is None
        if not lack.fetch and not fresh:
            return
        with self.receiver.downloaded(lack.fetch, self.peers(request.old)) as (size, stored):
            faults.reach("prepare.written")
            with self.ledger.transaction() as ledger:
                self._present(known)
                present = ledger.segments(stream)
                if any(s not in present for s in lack.replaced):
                    raise busy(f"stream {stream} has changed meanwhile")
                gone = ledger.replace(lack.replaced, None) if lack.replaced else []
                ledger.adopt(stored, past=not fresh)
                ledger.count(f"copied_bytes:{stream}", size)
                if fresh:
                    self._begin_copy(known.id, stream, self._origin(stream, part, request))
        self.hosting.remove(gone)
        faults.reach("prepare.copied")

    def _begin_copy(self, move: str, stream: str, origin: tuple[Place, int, int]) -> None:
        """From now on the stream is pulled, from where the old owner is (in a transaction)."""
        place, epoch, following = origin
        self.ownership.set_copy(Copy(stream, place, epoch, 0, following, kept=False))
        known = self.ownership.move(move)
        assert known is not None
        copied = [*known.record["copied"], stream]
        self.ownership.set_move(move, "new", known.phase, {**known.record, "copied": copied})
        self.ledger.change(
            "UPDATE streams SET next = max(next, ?) WHERE id = ?", (following, stream)
        )

    # -- after the seal -------------------------------------------------------------------------

    def _await_seal(self, known: Move, request: MoveRequest, wait: float) -> bool:
        record = self.peers(request.old).sealed(known.id, wait)
        if record is None:
            return False
        self._set_phase(known, "taking", sealed=record)
        faults.reach("take.recorded")
        return True

    def take_over(self, move: str) -> None:
        """Asks for the sealed record and takes over as far as that is possible now."""
        known = self.ownership.move(move)
        if known is None or known.phase in ENDED:
            raise RefusedError("unknown", f"move {move} is not under way here")
        while self.advance(move):
            pass

    def _take(self, known: Move, request: MoveRequest) -> bool:
        record = known.record["sealed"]
        operators = self.operators(request)
        if not self._copy(known, request, record) or not self._caught_up(request, record):
            return False
        old = self.peers(request.old)
        wanted = [
            segment_of(name, s)
            for part in record["streams"].values()
            for name, state in part["states"].items()
            for s in state["segments"]
        ]
        with self.receiver.downloaded(wanted, old) as (_, states):
            faults.reach("take.written")
            with self.engine.lock:
                with self.ledger.transaction():
                    gone = self._own(known, request, record, states)
                self.handed_at |= {
                    name: (part["committed"], time.time())
                    for name, part in record["streams"].items()
                    if part["committed"] is not None
                }
                for text in request.texts:
                    self.hosting.run(text)
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

    def _caught_up(self, request: MoveRequest, record: Mapping[str, Any]) -> bool:
        """Pulls until every cursor lies within what is here; says whether it does."""
        least = {
            stream: max(c[stream][0] for c in record["cursors"].values() if stream in c)
            for stream in record["inputs"]
            if any(stream in c for c in record["cursors"].values())
        }
        for name, part in record["streams"].items():
            if self.ownership.copy(name) is not None:
                least[name] = part["next"]  # all that the old owner made comes first
        for stream, following in least.items():
            while (copy := self.ownership.copy(stream)) is not None:
                if copy.next is not None and copy.next >= following:
                    break
                if not self.receiver.pull(stream):
                    return False
        return True

    def _own(
        self,
        known: Move,
        request: MoveRequest,
        record: Mapping[str, Any],
        states: Sequence[Segment],
    ) -> list[str]:
        """One transaction: owner of the streams, at the sealed cursors, from the sealed number."""
        ledger = self.ledger
        gone: list[str] = []
        for name, part in record["streams"].items():
            self.ownership.drop_copy(name)
            self.ownership.forget_former_life(name, part["epoch"])
            self.ownership.own(name, part["epoch"], part["next"])
            ledger.set_head(name, part["next"], part["watermark"], part["ts_max"], part["rows"])
            for stream, (following, watermark) in record["cursors"][name].items():
                ledger.set_cursor(name, stream, following, watermark)
            ledger.set_statistics(name, part["progress"], part["statistics"])
            for state, told in part["states"].items():
                gone += ledger.drop_stream(state)
                ledger.add_stream(state, "state")
                ledger.set_columns(state, told["columns"])
                ledger.adopt([s for s in states if s.stream == state])
                ledger.set_head(state, told["next"], BEGINNING, BEGINNING, 0)
            present = ledger.consumers(name)
            # those of the sealed record: who has left since the move was asked for is not in it
            for consumer in set(part["consumers"]) - {self.me}:
                if remote(consumer) not in present:
                    ledger.set_cursor(remote(consumer), name, part["next"], BEGINNING)
            for subscriber, (following, watermark) in part["subscribers"].items():
                ledger.set_cursor(subscriber, name, following, watermark)
        for text in request.texts:
            self.hosting.install(text)
            self.hosting.register(text)
            state = record["queries"].get(text.query)
            if state is not None:
                ledger.set_query_state(text.query, *state)
        ledger.drop_consumer(holder(known.id))
        self._part(known)
        slim = {"request": known.record["request"], "copied": [], "expected": [], "sealed": {}}
        self.ownership.set_move(known.id, "new", "owner", slim)
        return gone

    # -- ends -----------------------------------------------------------------------------------

    def complete(self, move: str) -> None:
        known = self.ownership.move(move)
        if known is None or known.phase in ENDED:
            return
        if known.phase != "owner":
            raise busy(f"move {move} is not taken over yet")
        with self.ledger.transaction():
            self.ownership.set_move(move, "new", "done", known.record)
            self.ownership.forget_ended(ENDED, ENDED_KEPT)
        faults.reach("complete.committed")

    def undo(self, move: str) -> None:
        """Forgets the copy, once the old owner has said that it will not seal."""
        known = self.ownership.move(move)
        if known is None:
            with self.ledger.transaction():
                self.ownership.set_move(move, "new", "undone", {"request": None})
            return
        if known.phase in ENDED:
            return
        if known.phase in ("taking", "owner"):
            raise RefusedError("sealed", f"move {move} is sealed")
        request = MoveRequest.from_json(known.record["request"])
        self.peers(request.old).undo(move)
        faults.reach("undo.asked")
        gone: list[str] = []
        with self.engine.lock, self.ledger.transaction() as ledger:
            known = self.ownership.move(move)  # more may have been copied while we asked
            assert known is not None
            if known.phase in ENDED:
                return
            ledger.drop_consumer(holder(move))
            for stream in known.record["copied"]:
                copy = self.ownership.copy(stream)
                if copy is not None and not copy.kept and self.hosting.unread(stream):
                    self.ownership.drop_copy(stream)
                    gone += self.hosting.reset_stream(stream)
            for text in request.texts:
                self.hosting.leave(text.query)
            self._part(known)
            over = {"request": known.record["request"], "copied": [], "expected": []}
            self.ownership.set_move(move, "new", "undone", over)
            self.ownership.forget_ended(ENDED, ENDED_KEPT)
        self.hosting.remove(gone)
        self.receiver.say_farewells()
        self._forget(move)
        faults.reach("undo.committed")

    def _forget(self, move: str) -> None:
        """What this process remembered of a move that is over."""
        self.warm.discard(move)
        self.missing.pop(move, None)
        self._expected.pop(move, None)

    def _part(self, known: Move) -> None:
        """Leaves sources that were asked to keep a stream and are not needed (in a transaction)."""
        for stream, told in known.record["expected"]:
            self._part_from(stream, Place(**told))

    def _part_from(self, stream: str, place: Place) -> None:
        copy = self.ownership.copy(stream)
        if copy is None or copy.source.processor != place.processor:
            self.ownership.leave(stream, place)
