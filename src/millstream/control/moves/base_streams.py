"""Base streams as what moves: who has them, what is said of them, what keeps them where they are.

Where rows of a stream enter moves as an operator does, under its id `s:NAME`. Here is what differs:
its record, and the kinds of sources that cannot go. Decides nothing.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from millstream.control.manager.state import ManagerState, OperatorRecord, StreamRecord
from millstream.control.manager.turn import Turn

PREFIX = "s:"
STAY = {"spark": "the checkpoint of its Spark source lies there"}  # kinds that cannot move, and why


def record_of(state: ManagerState, name: str) -> OperatorRecord | StreamRecord | None:
    """The record of what moves under a name; None where nobody knows it."""
    if name.startswith(PREFIX):
        return state.streams.get(name.removeprefix(PREFIX))
    return state.operators.get(name)


def label_of(state: ManagerState, name: str) -> str:
    """What people call it."""
    record = record_of(state, name)
    if isinstance(record, StreamRecord):
        return f"stream {record.name}"
    return record.label or name if record is not None else name


def kind_of(stream: StreamRecord) -> str:
    """The kind of a stream's source, as declared."""
    return str(stream.table.get("source") or ("file" if "path" in stream.table else "push"))


def objection(state: ManagerState, stream: StreamRecord, target: str) -> str:
    """Why a base stream cannot move; empty if it can."""
    if (why := STAY.get(kind_of(stream))) is not None:
        return f"stream {stream.name} stays at {stream.processor}: {why}"
    for end in (stream.processor, target):
        if state.processors[end].properties.get("kind") == "manager":
            return f"rows of stream {stream.name} cannot move into or out of a manager's cluster"
    return ""


def gone(state: ManagerState, names: Iterable[str], used: Iterable[str]) -> list[str]:
    """What nobody needs any more of what moves."""
    wanted = {*used, *(s.id for s in state.streams.values() if not s.forgotten)}
    return [name for name in names if name not in wanted]


def tables(state: ManagerState, names: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """The declarations of the base streams among what moves."""
    records = (record_of(state, name) for name in names)
    return tuple(dict(r.table) for r in records if isinstance(r, StreamRecord))


def settle(turn: Turn, name: str, processor: str, epoch: int) -> None:
    """What moved has another owner."""
    record = record_of(turn.state, name)
    if isinstance(record, StreamRecord):
        turn.put(replace(record, processor=processor, epoch=max(epoch, record.epoch)))
    elif record is not None:
        turn.put(replace(record, processor=processor, epoch=epoch))
