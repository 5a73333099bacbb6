"""The messages of PostgreSQL's logical replication (`pgoutput`, version 1) as changes of one table.

A transaction is a beginning, changes and an end; before the first change of a table comes what its
columns are. Values are texts, as the server writes them.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millstream.core.errors import MillstreamError

EPOCH_US = 946_684_800_000_000  # the server counts from the year 2000
INSERTED, UPDATED, DELETED, READ = "c", "u", "d", "r"  # as Debezium calls them
UNCHANGED = object()  # a large value that an update has left as it is: it is not sent
Values = dict[str, Any]  # by column: a text, None, or UNCHANGED


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction did to one row; a deleted one has the values that tell it."""

    op: str
    values: Values


@dataclass(frozen=True, slots=True)
class Begun:
    committed_us: int


@dataclass(frozen=True, slots=True)
class Ended:
    lsn: int  # where the log goes on after it


@dataclass(frozen=True, slots=True)
class Columns:
    """What columns the table has now."""

    names: tuple[str, ...]


Event = Begun | Ended | Columns | Change


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, code: str) -> Any:
        values = struct.unpack_from(">" + code, self._content, self._at)
        self._at += struct.calcsize(">" + code)
        return values[0] if len(values) == 1 else values

    def text(self) -> str:
        end = self._content.index(b"\0", self._at)
        found = self._content[self._at : end].decode()
        self._at = end + 1
        return found

    def part(self, length: int) -> bytes:
        self._at += length
        return self._content[self._at - length : self._at]


class Messages:
    """Reads the messages of a slot in order. `key` are the columns that tell rows apart."""

    def __init__(self, table: str, key: tuple[str, ...]) -> None:
        self._table, self._key = table, key
        self._columns: dict[int, tuple[str, ...]] = {}

    def events(self, content: bytes) -> Iterator[Event]:
        """What one message says; nothing where it says nothing of the table."""
        data = _Bytes(content)
        kind = data.take("c")
        if kind == b"B":
            _, moment, _ = data.take("qqi")
            yield Begun(moment + EPOCH_US)
        elif kind == b"C":
            _, _, end, _ = data.take("bqqq")
            yield Ended(end)
        elif kind == b"R":
            yield self._relation(data)
        elif kind in (b"I", b"U", b"D"):
            yield from self._change(kind, data)
        elif kind == b"T":
            raise MillstreamError(
                f"table {self._table} was truncated",
                detail="the log does not say which rows it had",
                hint="begin in a new folder; DELETE instead of TRUNCATE can be followed",
            )

    def _relation(self, data: _Bytes) -> Columns:
        number = data.take("i")
        data.text(), data.text()
        _, count = data.take("bh")
        names = []
        for _ in range(count):
            data.take("b")
            names.append(data.text())
            data.take("ii")
        self._columns[number] = tuple(names)
        return Columns(tuple(names))

    def _change(self, kind: bytes, data: _Bytes) -> Iterator[Change]:
        names = self._columns[data.take("i")]
        part = data.take("c")
        old: Values | None = None
        if part in (b"K", b"O"):
            old = self._values(names, data)
            part = data.take("c") if kind == b"U" else b""
        if kind == b"D":
            assert old is not None  # a table whose deletes tell nothing is refused at the start
            yield Change(DELETED, old)
            return
        new = self._values(names, data)
        if old is not None:
            new = {n: old.get(n) if v is UNCHANGED else v for n, v in new.items()}
            if any(old[name] != new[name] for name in self._key if name in old):
                yield Change(DELETED, old)
        self._refuse_unchanged(new)
        yield Change(INSERTED if kind == b"I" else UPDATED, new)

    def _values(self, names: tuple[str, ...], data: _Bytes) -> Values:
        found: Values = {}
        for name in names[: data.take("h")]:
            kind = data.take("c")
            if kind == b"t":
                found[name] = data.part(data.take("i")).decode()
            else:
                found[name] = UNCHANGED if kind == b"u" else None
        return found

    def _refuse_unchanged(self, values: Values) -> None:
        for name, value in values.items():
            if value is UNCHANGED:
                raise MillstreamError(
                    f"an update of table {self._table} leaves out the large value of {name}",
                    detail="the log has only what has changed",
                    hint=f"ALTER TABLE {self._table} REPLICA IDENTITY FULL, then begin in a new "
                    "folder",
                )
