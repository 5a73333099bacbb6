"""One event's work on the manager's state: records replaced, messages collected, decisions noted.

Everything a turn does is to a copy: the state it began with stays as it was. Modules of the manager
share one turn for an event; nothing here decides.
"""

from dataclasses import replace
from typing import Any

from millstream.control.manager.state import (
    Above,
    Decision,
    Goals,
    Live,
    Lost,
    ManagerState,
    Move,
    OperatorRecord,
    OutsideStream,
    Processor,
    Promise,
    Query,
    Replication,
    Route,
    StreamRecord,
)
from millstream.control.moves.table import Phase
from millstream.control.protocol.replies import Refusal

Record = (
    Processor | StreamRecord | Query | OperatorRecord | Move | OutsideStream | Promise | Above
    | Goals | Lost | Replication | Route
)  # fmt: skip

REFUSALS_KEPT = 200
MOVES_KEPT = 200


class Turn:
    """A state under revision."""

    def __init__(self, state: ManagerState, now_s: float) -> None:
        self.state = replace(state, now_s=now_s)
        self._copied: set[str] = set()

    @property
    def now_s(self) -> float:
        return self.state.now_s

    # -- records --------------------------------------------------------------------------------

    def _table(self, name: str) -> dict[str, Any]:
        """A mapping of the state that may be written: copied once a turn."""
        if name not in self._copied:
            copied: dict[str, Any] = {name: dict(getattr(self.state, name))}
            self.state = replace(self.state, **copied)
            self._copied.add(name)
        table: dict[str, Any] = getattr(self.state, name)
        return table

    def put(self, record: Record) -> None:
        match record:
            case Processor():
                self._table("processors")[record.id] = record
            case StreamRecord():
                self._table("streams")[record.name] = record
            case Query():
                self._table("queries")[record.name] = record
            case OperatorRecord():
                self._table("operators")[record.id] = record
            case Move():
                self._table("moves")[record.id] = record
            case OutsideStream():
                self._table("outside")[record.id] = record
            case Promise():
                self._table("promises")[record.id] = record
            case Above():
                self._table("above")[record.id] = record
            case Goals():
                self._table("goals")[record.id] = record
            case Lost():
                self._table("lost")[record.id] = record
            case Replication():
                self._table("replications")[record.id] = record
            case Route():
                self._table("routes")[record.id] = record

    def remove(self, table: str, key: str) -> None:
        self._table(table).pop(key, None)

    def query(self, name: str, **changes: Any) -> Query:
        changed = replace(self.state.queries[name], **changes)
        self.put(changed)
        return changed

    def move(self, name: str, **changes: Any) -> Move:
        changed = replace(self.state.moves[name], **changes)
        self.put(changed)
        return changed

    def move_on(self, known: Move, phase: Phase, by: str, why: str = "", **changes: Any) -> Move:
        """A move has reached a phase: who says so, and why where that is not plain."""
        story = known.story.then(phase, by, self.now_s, why)
        return self.move(known.id, story=story, told=frozenset(), **changes)

    def live(self, processor: str, **changes: Any) -> Live:
        known = self.state.live.get(processor, Live())
        changed = replace(known, **changes)
        self._table("live")[processor] = changed
        return changed

    def set(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def in_table(self, table: str, key: str, value: Any) -> None:
        """Of the live half: marks, outbox."""
        self._table(table)[key] = value

    # -- what a person reads --------------------------------------------------------------------

    def count(self) -> int:
        self.set(counter=self.state.counter + 1)
        return self.state.counter

    def decide(
        self,
        kind: str,
        sentence: str,
        reason: str = "",
        *,
        about: tuple[str, str] = ("", ""),
        subjects: tuple[str, ...] = (),
    ) -> Decision:
        """Notes a decision; the log keeps the latest."""
        made = Decision(self.count(), self.now_s, kind, sentence, reason, *about, subjects)
        kept = self.state.settings.decisions_kept
        self.set(decisions=(*self.state.decisions, made)[-kept:])
        return made

    def refuse(self, query: str, refusal: Refusal) -> None:
        """A query that is not taken: nothing of it stays but the reason."""
        self.remove("queries", query)
        self.remove("marks", query)
        refusals = {**self.state.refusals, query: refusal}
        while len(refusals) > REFUSALS_KEPT:
            del refusals[next(iter(refusals))]
        self.set(refusals=refusals)
        reason = "; ".join(p for p in (refusal.detail.strip(), refusal.hint) if p)
        self.decide(
            "refusal", f"query {query} is refused: {refusal.message}", reason,
            about=("query", query),
        )  # fmt: skip

    def tidy_moves(self) -> None:
        """Moves that are over leave, the oldest first."""
        over = [m.id for m in self.state.moves.values() if m.over]
        for name in over[: max(0, len(over) - MOVES_KEPT)]:
            self.remove("moves", name)
