"""Engines, streams and rows for tests of the data plane."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.engine.engine import Engine
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field

COLUMNS = {"at": "long", "name": "string", "n": "int"}


def stream(
    name: str,
    columns: Mapping[str, str] | None = None,
    time: str = "timestamp_seconds(at)",
    **settings: Any,
) -> StreamDefinition:
    """A declaration; settings other than lateness, idle and max_ahead describe the source."""
    fields = tuple(Field(n, t) for n, t in (columns or COLUMNS).items())
    own = {k: settings.pop(k) for k in ("lateness_us", "idle_us", "max_ahead_us") if k in settings}
    return StreamDefinition(name, fields, time, source=settings, **own)


def base_rows(engine: Engine, name: str) -> list[dict[str, Any]]:
    """The accepted rows of a base stream that are still retained, by position."""
    rows = [
        row
        for segment in engine.ledger.segments(f"s:{name}")
        if segment.rows
        for row in engine.store.read(segment).to_pylist()
    ]
    return sorted(rows, key=lambda row: row["_pos"])


def rejected(engine: Engine, name: str) -> list[tuple[str, str | None]]:
    """Reason and record of each rejected row."""
    return [
        (row["c0"], row["c1"])
        for segment in engine.ledger.segments(f"r:{name}")
        if segment.rows
        for row in engine.store.read(segment).to_pylist()
    ]


def bag(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset."""
    return Counter(tuple(row.values()) for row in rows)


def file_rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of a folder of Parquet files."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    files = sorted(folder.glob("*.parquet")) if folder.is_dir() else []
    return [row for file in files for row in pq.read_table(file).to_pylist()]
