"""The keys of a stream's table that make it a table: `key`, `op`, `format = "debezium"`."""

from collections.abc import Callable, Mapping
from typing import Any

from millstream.core.suggestions import did_you_mean
from millstream.language.cql.change_data import DEBEZIUM, enveloped
from millstream.language.plan.schema import Schema

KEY_HINT = 'key = "id", or several columns: key = ["region", "id"]'
Note = Callable[[tuple[str, ...], str, str], None]


def change_source(table: Mapping[str, Any], columns: Schema, note: Note) -> dict[str, Any]:
    """What the source of a stream of changes says of them; mistakes are noted."""
    key, op = key_of(table.get("key")), table.get("op")
    told = {"envelope": DEBEZIUM} if wrapped(table) else {}
    if "key" in table and not key:
        note(("key",), "key is a column, or a list of columns", KEY_HINT)
    if not key and (told or op is not None):
        what = "a stream of changes" if told else "op"
        note(("op",) if op is not None else (), f"{what} needs a key", KEY_HINT)
    if not key:
        return {}
    names = [f.name for f in columns]
    for name in () if table.get("envelope") else key:
        if name not in names:
            note(("key",), f"key names no column {name}{did_you_mean(name, names)}", "")
    if told:
        op = "op"
    elif op is not None and op not in names:
        note(("op",), f"op names no column {op}{did_you_mean(str(op), names)}", 'op = "op"')
    return {"key": list(key), **({"op": op} if op is not None else {}), **told}


def wrapped(table: Mapping[str, Any]) -> bool:
    """Whether rows come in Debezium's envelope."""
    return DEBEZIUM in (table.get("format"), table.get("envelope"))


def stored_columns(table: Mapping[str, Any], columns: Schema) -> Schema:
    """The columns as rows have them: a table that was read before has its envelope already."""
    return enveloped(columns) if table.get("format") == DEBEZIUM else columns


def key_of(value: object) -> tuple[str, ...]:
    """
    >>> key_of("region, id"), key_of(["id"]), key_of(3)
    (('region', 'id'), ('id',), ())
    """
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(value)
    return ()
