"""The keys of a stream's table that make it a reference table: a file or a table elsewhere."""

from collections.abc import Callable, Mapping
from typing import Any

from millstream.language.cql.change_data import VERSION_COLUMNS
from millstream.language.plan.schema import Schema

OP, SINCE = (field.name for field in VERSION_COLUMNS)
FILES_HINT = 'path = "prices.csv", with a header; also JSON lines and Parquet'
FOLLOWING = "1 us"  # silent by nature: its watermark is always that of the others
NOT_OURS = ("time", "op", "lateness", "idle")  # the system's to say
Note = Callable[[tuple[str, ...], str, str], None]


def as_reference(table: Mapping[str, Any], note: Note) -> dict[str, Any]:
    """The table of a stream, with what the system says of it; mistakes are noted."""
    added = {"time": SINCE, "op": OP, "idle": FOLLOWING}
    for key in NOT_OURS:
        if key in table and table[key] != added.get(key):
            note((key,), f"a reference table has no {key}", "a version counts from when it is seen")
    if "key" not in table:
        note((), "a reference table has no key", 'key = "id": the column that identifies a row')
    if ("path" in table) == ("table" in table):
        hint = f'{FILES_HINT}; or table = "public.prices" of PostgreSQL'
        note((), "a reference table is one file, or one table", hint)
    return {**table, **added}


def with_own(columns: Schema, note: Note) -> Schema:
    """The declared columns and those that the system adds."""
    if columns[-len(VERSION_COLUMNS) :] == VERSION_COLUMNS:
        return columns
    for field in columns:
        if field.name.lower() in (OP, SINCE):
            told = f"column {field.name} is one that the system adds to reference tables"
            note(("columns", field.name), told, "leave it out, or give it another name")
    return (*columns, *VERSION_COLUMNS)
