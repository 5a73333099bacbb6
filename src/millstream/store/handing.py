"""The old owner of a running operator: tells what it needs, seals, serves what it had, forgets.

The seal is one transaction in this ledger and the commit point of a move: sealed at these cursors,
next number n, handed on with the next epoch. Before it, a move is undone by forgetting it. Every
method may be called again; all it knows lies in the ledger.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from millstream.engine.hosting import Hosting
from millstream.plan.windows import BEGINNING
from millstream.share.dataflow import Operator, state_stream
from millstream.spark.operators import LOGIC, SELF_READING
from millstream.store import faults
from millstream.store.ownership import MOVING, REMOTE, Copy, Move, Place, remote
from millstream.store.segments import Segment
from millstream.store.transfer import RefusedError, segment_json

ENDED = ("done", "undone")
ENDED_KEPT = 200  # records of moves that have ended, so that late messages are known as such
SUBSCRIBER = "q:"


def holder(move: str) -> str:
    """The consumer that holds streams for a move."""
    return f"{MOVING}{move}"


def busy(text: str) -> RefusedError:
    """Not now: ask again."""
    return RefusedError("busy", text)


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

    def needs(self, move: str, names: Sequence[str], to: Place) -> dict[str, Any]:
        """What a new owner has to have; from now on it is kept for it."""
        with self.engine.lock:
            known = self.ownership.move(move)
            if known is not None and known.phase in ("sealed", *ENDED):
                raise RefusedError(known.phase, f"move {move} is {known.phase} here")
            operators = self._operators(names)
            with self.ledger.transaction() as ledger:
                if known is None:
                    record = {"operators": list(names), "to": asdict(to)}
                    self.ownership.set_move(move, "old", "serving", record)
                found = self._extent(operators)
                for stream, part in found["inputs"].items():
                    first = min((s["first"] for s in part["segments"]), default=part["next"])
                    if holder(move) not in ledger.consumers(stream):
                        ledger.set_cursor(holder(move), stream, first, BEGINNING)
        return found

    def _extent(self, operators: Sequence[Operator]) -> dict[str, Any]:
        """Cursors, and the segments that lie behind them as far as they can be reached."""
        inputs: dict[str, dict[str, Any]] = {}
        wanted: dict[str, dict[int, Segment]] = {}
        for operator in operators:
            marks = self.engine.runner.marks(operator)
            for stream in operator.inputs:
                following, _ = self.ledger.cursor(operator.id, stream)
                for s in self.ledger.segments(stream):
                    reached = s.rows and LOGIC[operator.kind].reachable(operator, s, marks)
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
            inputs[stream] = {
                "segments": [segment_json(found[first]) for first in sorted(found)],
                "next": following,
                "source": asdict(source),
                "epoch": epoch,
            }
        return {
            "cursors": {o.id: self.ledger.cursors(o.id) for o in operators},
            "inputs": inputs,
        }

    def _own_rows(self, operator: Operator, wanted: dict[str, dict[int, Segment]]) -> None:
        """Its own output, where it reads that back or subscribers have yet to read it."""
        places = self.ledger.consumers(operator.id).items()
        readers = [n for name, (n, _) in places if name.startswith(SUBSCRIBER)]
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
                raise RefusedError("unknown", f"move {move} is not under way here")
            if known.phase == "serving":
                self.ownership.set_move(move, "old", "ready", known.record)

    def seal(self, move: str, names: Sequence[str], to: Place) -> dict[str, Any]:
        """The commit point: from here on the operators are another's."""
        known = self.ownership.move(move)
        if known is None:
            raise RefusedError("unknown", f"move {move} is not under way here")
        if known.phase in ("sealed", "done"):
            return dict(known.record["sealed"])
        if known.phase != "ready":
            raise busy(f"the new owner is not ready for move {move}")
        resting = frozenset(names)
        with self.engine.lock:
            self.engine.resting |= resting
            self.engine.pause_operators()
        try:
            faults.reach("seal.resting")
            self._quiesce(resting)
            with self.engine.lock:
                record = self._seal(known, tuple(names), to)
        finally:
            with self.engine.lock:
                self.engine.resting -= resting
                self.engine.pause_operators()
        faults.reach("seal.committed")
        for listener in self.on_sealed:
            listener(move)
        return record

    def _seal(self, known: Move, names: tuple[str, ...], to: Place) -> dict[str, Any]:
        readers = {s for o in self.engine.operators.values() if o.id not in names for s in o.inputs}
        with self.ledger.transaction() as ledger:
            present = self.ownership.move(known.id)  # while its last steps ended it may have ended
            if present is not None and present.phase in ("sealed", "done"):
                return dict(present.record["sealed"])
            if present is None or present.phase != "ready":
                raise RefusedError("unknown", f"move {known.id} is not under way here any more")
            operators = self._operators(names)
            record = self._extent(operators)
            record["streams"] = {
                o.id: self._stream_record(o, to, local=o.id in readers) for o in operators
            }
            record["queries"] = {
                q.name: [q.state, q.reason]
                for n in names for q in self.engine.queries_of(n)
            }  # fmt: skip
            queries = {query for name in names for query in self.ownership.users(name)}
            for operator in operators:
                part = record["streams"][operator.id]
                self.ownership.hand(operator.id, part["next"], part["epoch"], to)
                ledger.drop_consumer(operator.id)
                for name, (following, _) in ledger.consumers(operator.id).items():
                    has_all = name.startswith(REMOTE) and following >= part["next"]
                    if name.startswith(SUBSCRIBER) or has_all:
                        ledger.drop_cursor(name, operator.id)
                for query in self.ownership.users(operator.id):
                    self.ownership.unhost(query, operator.id)
                if operator.id in readers:  # they go on with a copy of what is made elsewhere
                    copy = Copy(operator.id, to, part["epoch"], 0, part["next"], kept=True)
                    self.ownership.set_copy(copy)
            for query in queries:
                self.hosting.leave(query)
            self.ownership.set_move(
                known.id, "old", "sealed", {**present.record, "to": asdict(to), "sealed": record}
            )
        for name in names:
            self.engine.operators.pop(name, None)
        for query in queries:
            self.hosting.refresh(query)
        sealed = self.ownership.move(known.id)
        assert sealed is not None
        return dict(sealed.record["sealed"])

    def _stream_record(self, operator: Operator, to: Place, *, local: bool) -> dict[str, Any]:
        """How the new owner goes on with a stream."""
        ledger = self.ledger
        head, owned = ledger.stream(operator.id), self.ownership.owned(operator.id)
        assert head is not None
        assert owned is not None
        places = ledger.consumers(operator.id)
        remotes = {n.removeprefix(REMOTE) for n in places if n.startswith(REMOTE)}
        states: dict[str, Any] = {}
        part = 0
        while (state := ledger.stream(state_stream(operator.id, part))) is not None:
            segments = ledger.segments(state["id"])
            states[state["id"]] = {
                "columns": state["columns"],
                "next": int(state["next"]),
                "segments": [segment_json(s) for s in segments],
            }
            part += 1
        statistics = ledger.operator_statistics().get(operator.id)
        return {
            "next": int(head["next"]),
            "epoch": owned.epoch + 1,
            "committed": self.committed.get(operator.id),
            "watermark": head["watermark"],
            "ts_max": head["ts_max"],
            "rows": head["rows"],
            "consumers": sorted((remotes | ({self.me} if local else set())) - {to.processor}),
            "subscribers": {n: p for n, p in places.items() if n.startswith(SUBSCRIBER)},
            "progress": ledger.progress(operator.id),
            "statistics": {} if statistics is None else {
                k: statistics[k] for k in ("rows_in", "rows_out", "steps", "seconds", "shared")
            },
            "states": states,
        }  # fmt: skip

    def sealed(self, move: str) -> dict[str, Any] | None:
        """The sealed record; None before the seal."""
        known = self.ownership.move(move)
        if known is None or known.phase == "undone":
            raise RefusedError("unknown", f"move {move} is not under way here")
        found = known.record.get("sealed")
        return None if found is None else dict(found)

    def taken(self, move: str) -> None:
        """The new owner has all of it: what was kept for the move may go."""
        self._end(move, "sealed", "taken.committed")

    def complete(self, move: str) -> None:
        """The same, and the move is over."""
        self._end(move, "done", "complete.committed")

    def _end(self, move: str, phase: str, point: str) -> None:
        known = self.ownership.move(move)
        if known is None or known.phase in ENDED:
            return
        if known.phase != "sealed":
            raise RefusedError("busy", f"move {move} is not sealed")
        gone: list[str] = []
        names = list(known.record["operators"])
        streams = set(known.record["sealed"]["inputs"]) | set(names)
        with self.engine.lock, self.ledger.transaction() as ledger:
            ledger.drop_consumer(holder(move))
            for name in names:
                if self.ownership.owned(name) is None:
                    gone += self.hosting.drop_operator(name)
                    ledger.drop_cursor(remote(known.record["to"]["processor"]), name)
            record = known.record if phase == "sealed" else {
                "operators": names, "to": known.record["to"], "sealed": {}
            }  # fmt: skip
            self.ownership.set_move(move, "old", phase, record)
            self.ownership.forget_ended(ENDED, ENDED_KEPT)
        faults.reach(point)
        self.hosting.remove(gone)
        for stream in sorted(streams):
            self.hosting.tidy(stream)

    def undo(self, move: str) -> None:
        """Before the seal: as if nothing had been. After it: refused."""
        with self.ledger.transaction() as ledger:
            known = self.ownership.move(move)
            if known is not None and known.phase in ("sealed", "done"):
                raise RefusedError("sealed", f"move {move} is sealed here")
            ledger.drop_consumer(holder(move))
            record = {} if known is None else dict(known.record)
            self.ownership.set_move(move, "old", "undone", record)
            self.ownership.forget_ended(ENDED, ENDED_KEPT)
        faults.reach("undo.committed")
