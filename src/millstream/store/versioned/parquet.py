"""A file or folder of Parquet as a table with one version: the files as they are now.

The version's number is a digest of the files' names, sizes and times: files that change while they
are read are told as another version.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.core.errors import MillstreamError
from millstream.store.machine_failures import shortened
from millstream.store.versioned.versions import Parts, Version, filled

ROWS = 100_000  # in memory at a time
GLOB = "*?["
HIDDEN = ("_", ".")


class ParquetVersions:
    """The files of one path: a file, a folder with all that is below it, or a pattern."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[Path] = []

    @property
    def place(self) -> str:
        return f"Parquet table {self._path}"

    def look(self) -> str:
        with self._told("cannot be read"):
            self._files = self._found()
        if not self._files:
            raise MillstreamError(
                f"there is no {self.place}", detail="no file there ends in .parquet",
                hint="write it, or correct path",
            )  # fmt: skip
        return self._path

    def newest(self) -> Version:
        facts = [(str(f), (stat := f.stat()).st_size, stat.st_mtime_ns) for f in self._files]
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=7).digest()
        newest = max(written for _, _, written in facts)
        return Version(int.from_bytes(digest, "big"), newest // 1000)

    def version(self, number: int) -> Version:
        now = self.newest()
        if now.number != number:
            raise MillstreamError(
                f"files of {self.place} have changed since their reading began",
                hint="let writers add files before it is read, or use a Delta or Iceberg table; "
                "drop the queries that begin with it and register them again",
            )
        return now

    def after(self, number: int | None) -> Version | None:
        return self.newest() if number is None else None

    def count(self, version: Version) -> int:
        with self._told("cannot be read"):
            return sum(pq.read_metadata(file).num_rows for file in self._files)

    def column_names(self, version: Version) -> Sequence[str]:
        with self._told("cannot be read"):
            schemas = [pq.read_schema(file) for file in self._files]
        return list(dict.fromkeys(name for schema in schemas for name in schema.names))

    def rows(self, version: Version, columns: Sequence[str]) -> Iterator[pa.Table]:
        for path in self._files:
            with self._told(f"has a file that cannot be read: {path.name}"):
                file = pq.ParquetFile(path)
                there = [name for name in columns if name in file.schema_arrow.names]
                for batch in file.iter_batches(ROWS, columns=there):
                    yield filled(pa.Table.from_batches([batch]), columns)

    def parts(self, before: int | None, version: Version, columns: Sequence[str]) -> Parts:
        return Parts(self.rows(version, columns), iter(()))

    def _found(self) -> list[Path]:
        path = Path(self._path)
        if path.is_file():
            return [path]
        if path.is_dir():
            found = [p for p in path.rglob("*.parquet") if p.is_file()]
            return sorted(p for p in found if not _hidden(p.relative_to(path)))
        if not any(sign in self._path for sign in GLOB):
            return []
        return sorted(p for p in path.parent.glob(path.name) if p.is_file() and not _hidden(p))

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise MillstreamError(
                f"{self.place} {what}",
                detail=shortened(str(error).strip().split("\n")[0]),
                hint="check the path, its permissions and its files",
            ) from None


def _hidden(path: Path) -> bool:
    return any(part.startswith(HIDDEN) for part in path.parts[-1:])
