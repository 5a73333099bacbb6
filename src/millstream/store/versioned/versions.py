"""What a table with versions tells whoever reads it: which versions, their rows, what differs.

Two neighbouring versions share most files. What differs is in the files that only one of them has:
rows of new files were added, unless rows of files that went were the same. Decides nothing about
what becomes of the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import MillstreamError
from millstream.store.sinks.net_changes import NET, net_changes

REWRITTEN_MAX = 5_000_000  # rows of rewritten files are compared in memory
OP = "op"


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a table."""

    number: int  # as its library counts it
    moment_us: int  # when it was committed
    moved: bool = False  # files were put together anew; the rows are those of the version before


@dataclass(frozen=True, slots=True)
class Parts:
    """Rows of the files that only the newer of two versions has, and of those that went."""

    added: Iterator[pa.Table]
    removed: Iterator[pa.Table]


class VersionedTable(Protocol):
    """One table elsewhere. Trouble comes as a `MillstreamError`."""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    def look(self) -> str:
        """Sees what is there by now; gives what no other table in this place would have."""
        ...

    def newest(self) -> Version | None:
        """The version that holds now; None for a table that never had rows."""
        ...

    def version(self, number: int) -> Version:
        """One by its number; trouble where it is gone."""
        ...

    def after(self, number: int | None) -> Version | None:
        """The one that follows, or the first; None where there is none yet."""
        ...

    def column_names(self, version: Version) -> Sequence[str]: ...

    def count(self, version: Version) -> int:
        """How many rows a version has, from what is written about its files."""
        ...

    def rows(self, version: Version, columns: Sequence[str]) -> Iterator[pa.Table]:
        """All rows of a version, a piece at a time."""
        ...

    def parts(self, before: int | None, version: Version, columns: Sequence[str]) -> Parts:
        """What a version has, and what it no longer has, of the one before it."""
        ...


def filled(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows of older files with the columns that these have not, which are NULL."""
    for name in columns:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select([*columns])


def refuse_missing(table: VersionedTable, version: Version, columns: Sequence[str]) -> None:
    """Refuses a version that lacks a declared column."""
    there = table.column_names(version)
    for name in columns:
        if name not in there:
            raise MillstreamError(
                f"{table.place} has no column {name}",
                detail=f"version {version.number} has {', '.join(there)}",
                hint="declare the columns that it has, in a new run",
            )


def added_rows(
    table: VersionedTable, before: int | None, version: Version, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Rows that a version has added; trouble where it has also changed or taken away some."""
    parts = table.parts(before, version, columns)
    removed = _whole(table, version, parts.removed)
    if removed is None:
        yield from parts.added
        return
    net = _net(table, version, parts, removed)
    if pc.any(pc.less(net[NET], 0)).as_py():
        raise MillstreamError(
            f"version {version.number} of {table.place} changes rows or takes rows away",
            detail="a stream without a key can only gain rows",
            hint='declare key = ["id"], which makes the stream the table\'s changes; in a new run',
        )
    yield _times(net)


def changed_rows(
    table: VersionedTable,
    before: int | None,
    version: Version,
    columns: Sequence[str],
    key: Sequence[str],
) -> Iterator[tuple[str, pa.Table]]:
    """What a version makes of the one before: rows that went (`d`), rows as they are now (`u`),
    rows that are new (`c`), in this order. Rows that are only added are not compared with others.
    """
    parts = table.parts(before, version, columns)
    removed = _whole(table, version, parts.removed)
    if removed is None:
        for piece in parts.added:
            yield "c", piece
        return
    net = _net(table, version, parts, removed)
    plus = net.filter(pc.greater(net[NET], 0))
    minus = net.filter(pc.less(net[NET], 0))
    new, old = _keys(plus, key), _keys(minus, key)
    if len(set(new)) < len(new) or pc.any(pc.greater(plus[NET], 1)).as_py():
        raise MillstreamError(
            f"version {version.number} of {table.place} has two rows with one key",
            detail=f"the key is {', '.join(key)}",
            hint="name all columns in key that identify a row, in a new run",
        )
    known, now = set(old), set(new)
    yield "d", _chosen(minus, [k not in now for k in old])
    yield "u", _chosen(plus, [k in known for k in new])
    yield "c", _chosen(plus, [k not in known for k in new])


def _whole(table: VersionedTable, version: Version, pieces: Iterator[pa.Table]) -> pa.Table | None:
    """Pieces as one table that fits in memory; None where there is no row."""
    found, count = [], 0
    for piece in pieces:
        found.append(piece)
        count += piece.num_rows
        if count > REWRITTEN_MAX:
            raise MillstreamError(
                f"version {version.number} of {table.place} rewrites too many rows at once",
                detail=f"more than {REWRITTEN_MAX}, which are compared in memory",
                hint="let its writers change less at once, or smaller files; begin in a new run",
            )
    return pa.concat_tables(found, promote_options="permissive") if count else None


def _net(table: VersionedTable, version: Version, parts: Parts, removed: pa.Table) -> pa.Table:
    """Rows with how often they were added; negative: taken away."""
    added = _whole(table, version, parts.added)
    signed = [removed.append_column(OP, pa.repeat("-", removed.num_rows))]
    if added is not None:
        signed.append(added.append_column(OP, pa.repeat("+", added.num_rows)))
    return net_changes(pa.concat_tables(signed, promote_options="permissive"))


def _times(net: pa.Table) -> pa.Table:
    """Each row as often as it was added."""
    times = net[NET].to_pylist()
    places = [place for place, count in enumerate(times) for _ in range(count)]
    return net.drop_columns([NET]).take(pa.array(places, pa.int64()))


def _keys(rows: pa.Table, key: Sequence[str]) -> list[str]:
    return [repr(tuple(row.values())) for row in rows.select([*key]).to_pylist()]


def _chosen(rows: pa.Table, flags: list[bool]) -> pa.Table:
    return rows.drop_columns([NET]).filter(pa.array(flags, pa.bool_()))
