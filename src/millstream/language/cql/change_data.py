"""Streams of changes: rows that insert, update and delete the rows of a table, told by a key.

A column says what a row does (`op`); without one every row is its key's new row. In Debezium's
envelope the row lies in `after`, that of a delete in `before`. A stream's source says all this, so
that it goes wherever the declaration goes.

A reference table is what a file or a table elsewhere holds, as changes with times of ours. The
system adds `op` to it and `since`, the event time from which a row counts. The first version counts
from the beginning, for queries too that begin later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.language.plan.schema import Field, Schema

DEBEZIUM = "debezium"
ENVELOPE_TIME = "timestamp_millis(ts_ms)"
# What `op` says, in any case of its letters; a row that says nothing inserts or updates.
UPSERTED = (
    "", "c", "create", "i", "insert", "r", "read", "snapshot", "u", "update", "upsert", "+", "+i",
    "+u",
)  # fmt: skip
DELETED = ("d", "delete", "-d", "-")
REFERENCE = "reference"  # the source of a reference table
VERSION_COLUMNS = (Field("op", "string"), Field("since", "timestamp"))
REPLACED = ("-u",)  # the row before an update, which comes as a row of its own
KNOWN = frozenset((*UPSERTED, *DELETED, *REPLACED))


@dataclass(frozen=True, slots=True)
class ChangeData:
    """How the rows of a stream change a table."""

    key: tuple[str, ...]
    op: str | None = None
    envelope: bool = False  # rows lie in `after` and `before`


def change_data_of(source: Mapping[str, Any]) -> ChangeData | None:
    """What a stream's source says; None for a stream of plain rows.

    >>> change_data_of({"key": ["id"], "op": "op"})
    ChangeData(key=('id',), op='op', envelope=False)
    """
    key = source.get("key")
    if not key:
        return None
    return ChangeData(tuple(key), source.get("op"), source.get("envelope") == DEBEZIUM)


def op_column(told: ChangeData | None, columns: Sequence[Field]) -> int | None:
    """The place of the column that says what a row does; None where nothing does.

    >>> op_column(ChangeData(("id",), "What"), (Field("id", "int"), Field("what", "string")))
    1
    """
    if told is None or told.op is None:
        return None
    names = [f.name.lower() for f in columns]
    return names.index(told.op.lower()) if told.op.lower() in names else None


def enveloped(columns: Sequence[Field]) -> Schema:
    """The columns of Debezium's envelope around rows with these."""
    row = f"struct<{','.join(f'{f.name}:{f.type}' for f in columns)}>"
    return (
        Field("before", row), Field("after", row), Field("op", "string"), Field("ts_ms", "bigint"),
    )  # fmt: skip


def is_reference_table(source: Mapping[str, Any]) -> bool:
    return source.get("source") == REFERENCE


def values_of(columns: Schema) -> Schema:
    """The columns of a reference table that are its own."""
    return columns[: -len(VERSION_COLUMNS)]
