"""A Delta table's versions, read without a JVM.

Files that a version has are known from the log; a file never changes. It reports versions whose log
was cleaned up, and files that were vacuumed, as gone.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.core.errors import MillstreamError
from millstream.core.extras import told_where_missing
from millstream.store.machine_failures import shortened
from millstream.store.versioned.versions import Parts, Version, filled

if TYPE_CHECKING:
    from deltalake import DeltaTable

MOVES = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES")  # rows stay as they are
FIRST = 0
ANEW_S = 60.0  # an update does not see that another table is in a table's place


class DeltaVersions:
    """One table in a folder, or behind a URL of an object store."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        with told_where_missing():
            import deltalake  # noqa: PLC0415  (an extra)
        self._library, self._path, self._options = deltalake, path, dict(options)
        self._table: DeltaTable | None = None
        self._opened = 0.0
        self._commits: dict[int, dict[str, Any]] = {}  # what the log told last, by number
        self._seen: dict[int, Any] = {}  # datasets of the last versions, by number

    @property
    def place(self) -> str:
        return f"Delta table {self._path}"

    def look(self) -> str:
        with self._told("cannot be read"):
            if not self._library.DeltaTable.is_deltatable(self._path, self._options):
                raise MillstreamError(f"there is no {self.place}", hint="write it, or correct path")
            if self._table is None or time.monotonic() - self._opened > ANEW_S:
                self._table = self._library.DeltaTable(self._path, storage_options=self._options)
                self._opened = time.monotonic()
            else:
                self._table.update_incremental()
            return str(self._table.metadata().id)

    def newest(self) -> Version:
        return self.version(self._known().version())

    def version(self, number: int) -> Version:
        if number not in self._commits:
            with self._told(f"cannot give version {number}"):
                # asked of an older version the library counts wrongly: so of the newest
                table = self._known()
                told = table.history(max(1, table.version() - number + 1))
            self._commits = {int(one["version"]): one for one in told}
        if number not in self._commits:
            raise MillstreamError(
                f"{self.place} has no version {number}",
                detail=f"its log has {', '.join(map(str, sorted(self._commits)))}",
                hint="name another; keep the log longer when it is cleaned up",
            )
        one = self._commits[number]
        return Version(number, int(one["timestamp"]) * 1000, str(one.get("operation")) in MOVES)

    def after(self, number: int | None) -> Version | None:
        following = FIRST if number is None else number + 1
        if following > self._known().version():
            return None
        return self.version(following)

    def column_names(self, version: Version) -> Sequence[str]:
        return list(self._dataset(version.number).schema.names)

    def count(self, version: Version) -> int:
        with self._told(f"cannot be read at version {version.number}"):
            told = pa.table(self._at(version.number).get_add_actions(flatten=True))
            if "num_records" in told.column_names and not told["num_records"].null_count:
                return sum(told["num_records"].to_pylist())
            return sum(file.count_rows() for file in self._files(version.number).values())

    def rows(self, version: Version, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from self._read(version.number, self._files(version.number), columns)

    def parts(self, before: int | None, version: Version, columns: Sequence[str]) -> Parts:
        now = self._files(version.number)
        then = {} if before is None else self._files(before)
        gained = {path: file for path, file in now.items() if path not in then}
        lost = {path: file for path, file in then.items() if path not in now}
        removed = iter(()) if before is None else self._read(before, lost, columns)
        return Parts(self._read(version.number, gained, columns), removed)

    # -- files ----------------------------------------------------------------------------------

    def _known(self) -> "DeltaTable":
        assert self._table is not None  # `look` was called before
        return self._table

    def _at(self, number: int) -> "DeltaTable":
        return self._library.DeltaTable(self._path, number, storage_options=self._options)

    def _dataset(self, number: int) -> Any:
        if number not in self._seen:
            with self._told(f"cannot be read at version {number}"):
                made = self._at(number).to_pyarrow_dataset()
            self._seen = {**dict(list(self._seen.items())[-1:]), number: made}
        return self._seen[number]

    def _files(self, number: int) -> dict[str, Any]:
        with self._told(f"cannot be read at version {number}"):
            return {file.path: file for file in self._dataset(number).get_fragments()}

    def _read(
        self, number: int, files: Mapping[str, Any], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        schema = self._dataset(number).schema
        there = [name for name in columns if name in schema.names]
        for path in sorted(files):
            with self._told(f"lacks a file of version {number}"):
                for batch in files[path].to_batches(schema=schema, columns=there):
                    yield filled(pa.Table.from_batches([batch]), columns)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (self._library.exceptions.DeltaError, OSError, pa.ArrowException) as error:
            self._table, self._seen = None, {}
            raise MillstreamError(
                f"{self.place} {what}",
                detail=shortened(str(error).strip().split("\n")[0]),
                hint="check the path and its permissions; versions that were vacuumed are gone",
            ) from None
