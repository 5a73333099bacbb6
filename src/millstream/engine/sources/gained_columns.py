"""Columns that a source has gained since it was opened: rows continue without them, with a notice.

What the first rows have beside the declared columns was left out on purpose. A name that comes
later is news: one notice names it, with the line that would include it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Rows

LOOKED_AT_MAX = 50  # rows of a batch
LINE_BYTES_MAX = 1 << 20


class GainedColumns:
    """What one stream's rows have had so far."""

    def __init__(self, definition: StreamDefinition, say: Callable[[str], None]) -> None:
        self._definition, self._say = definition, say
        self._known: set[str] | None = None  # in lower case; None before the first rows

    def look(self, names: Iterable[str]) -> None:
        """Compares the columns of some rows with those before."""
        found = {name.lower(): name for name in names}
        if self._known is None:
            self._known = {field.name.lower() for field in self._definition.columns} | set(found)
            return
        for lower in sorted(found.keys() - self._known):
            self._known.add(lower)
            self._say(
                f"stream {self._definition.name} has gained a column {found[lower]}, which is not "
                f"declared: rows continue without it; hint: declare it in columns, in a new run"
            )

    def look_at_rows(self, rows: Rows) -> None:
        if isinstance(rows, pa.Table):
            self.look(rows.column_names)
        elif rows:
            step = max(1, len(rows) // LOOKED_AT_MAX)
            looked_at: Sequence[Mapping[str, object]] = [*rows[::step], rows[-1]]
            self.look(name for row in looked_at for name in row)

    def look_at_file(self, path: Path, kind: str) -> None:
        """The same for a file that names its columns; one that cannot be read is the parser's."""
        with suppress(OSError, ValueError, pa.ArrowException):
            if kind == "parquet":
                self.look(pq.read_schema(path).names)
            elif kind == "json":
                with path.open("rb") as file:
                    row = json.loads(file.readline(LINE_BYTES_MAX))
                if isinstance(row, dict):
                    self.look(row)
