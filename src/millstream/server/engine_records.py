"""What commands carry, as the engine has it, and what the engine has, as replies carry it."""

from pathlib import Path
from typing import Any

from millstream.config.stream_table import StreamReader
from millstream.control.commands import Declare, Host
from millstream.control.replies import MoveRecord, Sealed, SealedStream
from millstream.cql.catalog import StreamDefinition
from millstream.engine.hosting import HostedText
from millstream.errors import UsageError
from millstream.share.dataflow import Operator
from millstream.share.groups import candidate
from millstream.store.move_request import MoveRequest
from millstream.store.ownership import Move

TYPE_BYTES = {"boolean": 1, "byte": 1, "short": 2, "int": 4, "float": 4, "date": 4}


def row_bytes(operator: Operator) -> int:
    """About how many bytes a row of its output takes."""
    return 8 + sum(width(f.type) for f in operator.node.schema)


def properties_of(operator: Operator) -> dict[str, Any]:
    """The class of operators with which it could run in one job: what it costs depends on that."""
    found = candidate(operator)
    return {"family": found.family} if found is not None else {}


def text_of(host: Host) -> HostedText:
    return HostedText(host.query, host.cql, host.start, tuple(host.operators), host.result)


def sealed_reply(record: dict[str, Any]) -> Sealed:
    return Sealed(
        {
            name: SealedStream(
                part["next"],
                part["epoch"],
                {s: place[0] for s, place in record["cursors"][name].items()},
            )
            for name, part in record["streams"].items()
        }
    )


def move_record(move: Move) -> MoveRecord:
    if move.role == "old":
        phase = "sealed" if move.phase == "sealed" else "serving"
        return MoveRecord("old", phase, tuple(move.record["operators"]), _taker(move))
    request = MoveRequest.from_json(move.record["request"])
    return MoveRecord("new", move.phase, request.operators, request.old.processor)


def _taker(move: Move) -> str:
    return str(move.record["to"]["processor"])


def width(kind: str) -> int:
    """About how many bytes a value takes in a row.

    >>> width("int"), width("string"), width("decimal(10,2)")
    (4, 16, 8)
    """
    return TYPE_BYTES.get(kind, 16 if kind in ("string", "binary") else 8)


def definition_of(command: Declare) -> StreamDefinition:
    """The stream of a declaration; where rows do not enter, its source does not matter."""
    table = dict(command.stream)
    name = table.pop("name", None)
    if not isinstance(name, str) or not name:
        raise UsageError("a declared stream needs a name")
    if not command.ingest:
        for key in ("path", "format", "options", "rate", "follow", "trigger"):
            table.pop(key, None)
        table["source"] = "push"
    reader = StreamReader(name, table, Path("/"))
    definition = reader.definition()
    if definition is None:
        first = reader.mistakes[0]
        raise UsageError(f"stream {name}: {first.message}", hint=first.hint)
    return definition
