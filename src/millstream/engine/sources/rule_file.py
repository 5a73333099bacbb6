"""A file of rules as a table: whatever it says is what holds, from when somebody has seen it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, json, parquet

from millstream.core.errors import UsageError
from millstream.language.cql.rule_tables import REMOVED, SINCE

READERS = {
    "csv": csv.read_csv,
    "json": json.read_json,
    "parquet": parquet.read_table,
}
Rule = Mapping[str, Any]


def rules_in(path: Path, format_: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a file, by the declared columns that it has."""
    try:
        table: pa.Table = READERS[format_](path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"cannot read the rules in {path}", detail=str(error)) from None
    missing = [name for name in names[:1] if name not in table.column_names]
    if missing:
        raise UsageError(
            f"the rules in {path} have no column {missing[0]}",
            hint=f"its columns are {', '.join(table.column_names)}",
        )
    found: list[dict[str, Any]] = table.select(
        [name for name in names if name in table.column_names]
    ).to_pylist()
    return found


def changes(
    present: Mapping[Any, Rule], wanted: Sequence[Rule], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows that make a table of rules another one.

    >>> changes({"a": {"rule": "a", "low": 1}}, [{"rule": "b", "low": 2}], ["rule", "low"])
    [{'rule': 'b', 'low': 2}, {'rule': 'a', 'removed': True}]
    """
    key = names[0]
    listed = {row[key]: {name: row.get(name) for name in names} for row in wanted}
    known = {name: {n: v for n, v in row.items() if n != SINCE} for name, row in present.items()}
    new = [row for name, row in listed.items() if known.get(name) != row]
    return [*new, *({key: name, REMOVED: True} for name in known if name not in listed)]
