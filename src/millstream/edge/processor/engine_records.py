"""What commands carry, as the engine has it, and what the engine has, as replies carry it."""

from typing import Any

from millstream.control.protocol.replies import CompiledOperator, MoveRecord, Sealed, SealedStream
from millstream.language.share.dataflow import Operator
from millstream.language.share.groups import candidate
from millstream.store.moves.records import Move, SealedRecord

TYPE_BYTES = {"boolean": 1, "byte": 1, "short": 2, "int": 4, "float": 4, "date": 4}


def row_bytes(operator: Operator) -> int:
    """About how many bytes a row of its output takes."""
    return 8 + sum(width(f.type) for f in operator.node.schema)


def properties_of(operator: Operator) -> dict[str, Any]:
    """The class of operators with which it could run in one job: what it costs depends on that."""
    found = candidate(operator)
    return {"family": found.family} if found is not None else {}


def compiled_operator(operator: Operator) -> CompiledOperator:
    """An operator as a manager is told of it."""
    o = operator
    return CompiledOperator(o.id, o.kind, o.label, o.inputs, row_bytes(o), properties_of(o))


def sealed_reply(record: SealedRecord) -> Sealed:
    cursors = record.extent.cursors
    return Sealed(
        {
            name: SealedStream(part.next, part.epoch, {s: n for s, (n, _) in cursors[name].items()})
            for name, part in record.streams.items()
        }
    )


def move_record(move: Move) -> MoveRecord:
    return MoveRecord(move.role, move.phase, move.operators, move.other.processor)


def width(kind: str) -> int:
    """About how many bytes a value takes in a row.

    >>> width("int"), width("string"), width("decimal(10,2)")
    (4, 16, 8)
    """
    return TYPE_BYTES.get(kind, 16 if kind in ("string", "binary") else 8)
