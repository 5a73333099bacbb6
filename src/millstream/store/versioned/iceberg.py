"""An Iceberg table's snapshots on its main branch, read without a JVM.

A snapshot is a set of files, each perhaps with files of deletes. Snapshots that have expired are
told as gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.core.errors import MillstreamError
from millstream.store.versioned.catalog import IcebergCatalog
from millstream.store.versioned.versions import Parts, Version

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

File = tuple[str, tuple[str, ...]]  # a file of rows, and those of its deletes


class IcebergVersions:
    """One table of a catalog."""

    def __init__(self, name: str, written: Mapping[str, Any], used: Mapping[str, Any]) -> None:
        self._name, self._catalog = name, IcebergCatalog(written, used)
        self._table: Table | None = None

    @property
    def place(self) -> str:
        return f"Iceberg table {self._name}"

    def look(self) -> str:
        with self._catalog.told(f"{self.place} cannot be read"):
            if self._table is None:
                self._table = self._catalog.open().load_table(self._name)
            else:
                self._table = self._table.catalog.load_table(self._name)
            return str(self._table.metadata.table_uuid)

    def newest(self) -> Version | None:
        found = self._known().current_snapshot()
        return None if found is None else _version(found)

    def version(self, number: int) -> Version:
        return _version(self._snapshot(number))

    def after(self, number: int | None) -> Version | None:
        """Goes back from the newest to the one that follows."""
        at = self._known().current_snapshot()
        if at is None or at.snapshot_id == number:
            return None
        while at.parent_snapshot_id is not None and at.parent_snapshot_id != number:
            before = self._known().snapshot_by_id(at.parent_snapshot_id)
            if before is None:
                if number is None:
                    break  # those before have expired: it begins with the oldest that is there
                raise self._gone(number)
            at = before
        if number is not None and at.parent_snapshot_id is None:
            raise self._gone(number)
        return _version(at)

    def column_names(self, version: Version) -> Sequence[str]:
        with self._catalog.told(f"{self.place} cannot be read"):
            scan = self._known().scan(snapshot_id=version.number)
            return list(scan.projection().column_names)

    def count(self, version: Version) -> int:
        tasks = self._files(version.number).values()
        return sum(int(task.file.record_count) for task in tasks)

    def rows(self, version: Version, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from self._read(version.number, list(self._files(version.number).values()), columns)

    def parts(self, before: int | None, version: Version, columns: Sequence[str]) -> Parts:
        now = self._files(version.number)
        then = {} if before is None else self._files(before)
        gained = [task for file, task in now.items() if file not in then]
        lost = [task for file, task in then.items() if file not in now]
        removed = iter(()) if before is None else self._read(before, lost, columns)
        return Parts(self._read(version.number, gained, columns), removed)

    # -- files ----------------------------------------------------------------------------------

    def _known(self) -> "Table":
        assert self._table is not None  # `look` was called before
        return self._table

    def _snapshot(self, number: int) -> "Snapshot":
        found = self._known().snapshot_by_id(number)
        if found is None:
            raise self._gone(number)
        return found

    def _gone(self, number: int) -> MillstreamError:
        return MillstreamError(
            f"{self.place} no longer leads on from snapshot {number}",
            detail="it has expired, or the table was rolled back behind it",
            hint="begin in a new run, and let snapshots expire later",
        )

    def _files(self, number: int) -> "dict[File, FileScanTask]":
        self._snapshot(number)
        with self._catalog.told(f"{self.place} cannot be read at snapshot {number}"):
            tasks = self._known().scan(snapshot_id=number).plan_files()
            found = {}
            for task in tasks:
                deletes = tuple(sorted(d.file_path for d in task.delete_files))
                found[task.file.file_path, deletes] = task
            return dict(sorted(found.items()))

    def _read(
        self, number: int, tasks: "Sequence[FileScanTask]", columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """Rows of some files; columns that this version has not are NULL."""
        with self._catalog.told(f"{self.place} lacks a file of snapshot {number}"):
            from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415  (an extra)
            from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415

            table = self._known()
            schema = table.scan(snapshot_id=number).projection()
            there = [name for name in columns if name in schema.column_names]
            scan = ArrowScan(table.metadata, table.io, schema.select(*there), AlwaysTrue())
            for task in tasks:  # one after the other: the library would read all at once
                for batch in scan.to_record_batches([task]):
                    rows = pa.Table.from_batches([batch])
                    for name in columns:
                        if name not in there:
                            rows = rows.append_column(name, pa.nulls(rows.num_rows))
                    yield rows.select([*columns])


def _version(snapshot: "Snapshot") -> Version:
    operation = snapshot.summary.operation.value if snapshot.summary is not None else ""
    return Version(snapshot.snapshot_id, snapshot.timestamp_ms * 1000, operation == "replace")
