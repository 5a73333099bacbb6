"""The key `history` of a stream's table: the table that has its past, which queries may begin with.

Opens nothing: whether the table is there is found out when a query begins with it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.control.definitions.versioned_table import (
    DELTA,
    ICEBERG,
    placed,
    versioned_source,
)
from millstream.core.suggestions import did_you_mean

PARQUET = "parquet"
FORMATS = (PARQUET, DELTA, ICEBERG)
KEYS = ("format", "path", "table", "options", "version")
HINT = (
    'history = { path = "past/*.parquet" }, { format = "delta", path = "tables/past" } or '
    '{ format = "iceberg", table = "shop.past", options = { ... } }'
)
Note = Callable[[tuple[str, ...], str, str], None]


def history_source(history: Any, base: Path, note: Note) -> dict[str, Any]:
    """What the table says, with paths that mean the same anywhere; mistakes are noted."""
    if not isinstance(history, Mapping):
        note(("history",), "history is a table", HINT)
        return {}
    for key in history:
        if key not in KEYS:
            told = f"unknown key {key}{did_you_mean(key, KEYS)}"
            note(("history", key), told, f"one of {', '.join(KEYS)}")
    named = str(history.get("format", _format_at(history, base)))
    if named not in FORMATS:
        told = f"unknown format {named!r} of a history{did_you_mean(named, FORMATS)}"
        note(("history", "format"), told, f"one of {', '.join(FORMATS)}")
        return {}

    def noted(path: tuple[str, ...], message: str, hint: str) -> None:
        note(("history", *path), message, hint)

    if named != PARQUET:
        options = history.get("options", {})
        options = options if isinstance(options, Mapping) else {}
        return {"format": named, **versioned_source(named, history, options, base, noted)}
    for key in ("table", "options", "version"):
        if key in history:
            noted((key,), f"a history in Parquet has no {key}", "remove it")
    path = history.get("path")
    if not isinstance(path, str) or not path.strip():
        noted((), "the history has no path", HINT)
        return {}
    return {"format": PARQUET, "path": placed(path, base)}


def _format_at(history: Mapping[str, Any], base: Path) -> str:
    """What a history without a format is: a folder may show that it is a Delta table."""
    path = history.get("path")
    if "table" in history:
        return ICEBERG
    if isinstance(path, str) and "://" not in path and (base / path / "_delta_log").is_dir():
        return DELTA
    return PARQUET
