"""Files to tables of declared columns, times and reasons, in order, with bounded memory.

Spark parses. Small files are parsed together and collected; large ones are written by the executors
into a staging folder and read back piece by piece. A file that breaks off gives the rows before the
break and one rejected row that tells of it; a file that cannot be read at all gives only that row.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import DataType, StringType, StructField, StructType, _parse_datatype_string

from millstream.core.errors import UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.sql_text import quoted
from millstream.spark.collecting import readable, write_parquet
from millstream.spark.failures import read_failure, result_too_large
from millstream.spark.ingest.declared_columns import (
    CORRUPT,
    LOST,
    SURPLUS,
    converted,
    event_time,
    valid_text,
    values_of,
    with_time,
)
from millstream.spark.ingest.parquet_columns import (
    FileColumns,
    UnreadableError,
    check_columns,
    columns_of,
)
from millstream.spark.ingest.reader_options import (
    reader_options,
    refuse_other_encoding,
    whole_files,
)
from millstream.spark.ingest.text_times import as_written, option, refuse_fallback
from millstream.spark.session import beside
from millstream.spark.versions import arrow_type
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW
from millstream.store.arrivals.file_source import (
    NUMBER,
    cells_most,
    expanded_size,
    gone,
    header_problem,
)
from millstream.store.arrivals.malformed import CsvForm, csv_reason, json_reason
from millstream.store.machine_failures import disk_full, first_line

STAGE_BYTES_MIN = 64 << 20  # a file above this is parsed into a staging folder by the executors
PIECE_BYTES = 32 << 20  # of a staged file that are in memory at once, about
PIECE_ROWS_MAX = 262_144
PEEK_LINES = 50
NESTED = ("array", "map", "struct")


class SparkFileParser:
    """`engine.ports.FileParser`: files to tables of declared columns, times and reasons."""

    def __init__(
        self, definition: StreamDefinition, spark: SparkSession, kind: str, staging: Path
    ) -> None:
        self.definition, self.kind, self.staging = definition, kind, staging
        self.spark = beside(spark)
        # Spark has no type for nanoseconds: they are read as numbers and converted
        self.spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        self.options = {str(k): v for k, v in dict(definition.source.get("options") or {}).items()}
        # Spark takes few encodings by itself; Java knows those of many countries
        self.spark.conf.set("spark.sql.legacy.javaCharsets", "true")
        self.form = CsvForm.of(self.options)
        self._whole: dict[Path, bool] = {}  # files that are not read line by line
        self.schema = self._schema()
        self.time = event_time(definition, self.spark)

    def check(self, files: Sequence[Path]) -> None:
        """Mistakes in the declaration that show without reading much."""
        name, columns = self.definition.name, self.definition.columns
        if self.kind == "text" and [f.type for f in columns] != ["string"]:
            raise UsageError(
                f"stream {name}: a text file has one column, of type string",
                hint='columns = { line = "string" }',
            )
        if self.kind in ("csv", "json"):
            refuse_fallback(name, self.options)
            for path in files:
                refuse_other_encoding(name, path, self.options)
        if self.kind == "csv":
            for field in columns:
                if field.type.startswith(NESTED):
                    raise UsageError(f"stream {name}: a CSV file has no column of {field.type}")
            for path in files:
                if problem := header_problem(path, self.definition):
                    raise UsageError(
                        f"stream {name}, file {path.name}: {problem}",
                        hint="declare the columns in the order of the file",
                    )
        if self.kind == "parquet":
            check_columns(files, self.definition)

    def pieces(self, files: Sequence[Path], numbers: Sequence[int]) -> Iterator[pa.Table]:
        """All rows of the files, in order."""
        wanted = [(p, n) for p, n in zip(files, numbers, strict=True) if self._size(p) > 0]
        if self.kind == "parquet":
            for columns, group in groupby(wanted, key=lambda file: self._parquet(file[0])):
                if isinstance(columns, str):
                    yield from (self._unreadable(p, n, columns, 0) for p, n in group)
                else:
                    yield from self._read(list(group), columns)
        elif self.kind == "text":
            yield from self._read(wanted, None) if wanted else ()
        else:
            self._whole = {p: whole_files(self.kind, p, self.options) for p, _ in wanted}
            for _, group in groupby(wanted, key=lambda file: self._whole[file[0]]):
                yield from self._read(list(group), None)

    def _size(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise gone(self.definition.name, str(path)) from None

    def _parquet(self, path: Path) -> FileColumns | str:
        """Where a Parquet file has the columns, or why it cannot be read."""
        try:
            return columns_of(path, self.definition)
        except UnreadableError as problem:
            return str(problem)

    # -- reading --------------------------------------------------------------------------------

    def _read(
        self, files: list[tuple[Path, int]], columns: FileColumns | None
    ) -> Iterator[pa.Table]:
        if len(files) == 1 and expanded_size(files[0][0]) >= STAGE_BYTES_MIN:
            yield from self._stage(*files[0], columns)
            return
        if columns is not None and (plain := self._as_they_are(files)) is not None:
            yield from plain
            return
        try:
            table = self._frame([p for p, _ in files], columns).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            self._raise_unless_of_a_file(error, files)
            for path, number in files:
                if len(files) > 1:
                    yield from self._read([(path, number)], columns)
                elif isinstance(error, AnalysisException):
                    yield self._unreadable(path, number, first_line(error), 0)
                else:
                    yield from self._stage(path, number, columns)
            return
        yield self._shaped(table, files, 0)

    def _as_they_are(self, files: Sequence[tuple[Path, int]]) -> list[pa.Table] | None:
        """Parquet files that hold just what is declared: nothing to convert, no job to run.

        None where a type differs or the time is an expression: then Spark converts.
        """
        at = self.definition.time_column
        if at is None or self.definition.columns[at].type != "timestamp":
            return None
        names = [f.name for f in self.definition.columns]
        types = [self.schema.field(f"c{i}").type for i in range(len(names))]
        tables = []
        for path, number in files:
            try:
                found = pq.read_schema(path)
                if [found.field(n).type if n in found.names else None for n in names] != types:
                    return None
                table = pq.read_table(path, columns=names)
            except (pa.ArrowException, OSError):
                return None  # Spark says what is wrong with it
            rows = table.num_rows
            nothing = pa.nulls(rows, pa.string())
            columns = [
                *(table[n] for n in names),
                pc.cast(table[names[at]], pa.int64()),
                nothing,
                nothing,
                pa.array([path.name] * rows, pa.string()),
                pa.array(np.arange(rows, dtype=np.int64)),
                pa.array(np.full(rows, number, np.int64)),
            ]
            tables.append(pa.table(columns, self.schema.names).cast(self.schema))
        return tables

    def _stage(self, path: Path, number: int, columns: FileColumns | None) -> Iterator[pa.Table]:
        """A file parsed by the executors into a folder and read back piece by piece."""
        folder = self.staging / str(number)
        problem = ""
        try:
            parts = write_parquet(self._frame([path], columns), folder)
        except (PySparkException, Py4JJavaError) as error:
            self._raise_unless_of_a_file(error, [(path, number)])
            problem = first_line(error)
            parts = write_parquet(self._frame([path], columns, broken=True), folder)
        row = 0
        for part in parts:
            file = pq.ParquetFile(part)
            for batch in file.iter_batches(batch_size=_rows_of_a_piece(file.metadata)):
                yield self._shaped(pa.Table.from_batches([batch]), [(path, number)], row)
                row += batch.num_rows
        shutil.rmtree(folder, ignore_errors=True)
        if problem:
            yield self._unreadable(path, number, problem, row)

    def _raise_unless_of_a_file(self, error: Exception, files: Sequence[tuple[Path, int]]) -> None:
        """Returns where a file is to blame, or only the size of the result."""
        for path, _ in files:
            if not path.exists():
                raise gone(self.definition.name, str(path)) from None
        if full := disk_full(error):
            raise full from error
        if result_too_large(error):
            return
        text = str(error)
        misused = "IllegalArgumentException" in text or "[INVALID_" in text
        if self.kind != "parquet" and (misused or isinstance(error, AnalysisException)):
            raise UsageError(
                f"stream {self.definition.name} cannot be read with these options",
                detail=first_line(error),
                hint="options are those of Spark's reader for this format",
            ) from None
        if not read_failure(error) and not isinstance(error, AnalysisException):
            raise error

    def _frame(
        self, files: Sequence[Path], parquet: FileColumns | None, *, broken: bool = False
    ) -> DataFrame:
        paths = [readable(p) for p in files]
        reader = self.spark.read.format(self.kind)
        reader = reader.options(**reader_options(self.kind, self.options))
        if self._whole.get(files[0]):
            reader = reader.option("multiLine", "true")
        if broken:
            reader = reader.option("ignoreCorruptFiles", "true")
        columns = self.definition.columns
        path = "input_file_name() AS _path"
        nothing = "CAST(NULL AS STRING)"
        if parquet is not None:
            data = reader.schema(parquet.schema).load(paths)
            data = converted(data, self.definition, parquet.values, path)
            more = [f"{nothing} AS _corrupt", "'' AS _surplus", f"{LOST} AS _lost", "_path"]
            return with_time(data, self.definition, self.time, more)
        if self.kind == "text":
            data = reader.load(paths).selectExpr(f"value AS {quoted(columns[0].name)}", path)
            more = [f"{nothing} AS _corrupt", "'' AS _surplus", f"{nothing} AS _lost", "_path"]
            return with_time(data, self.definition, self.time, more)
        data, surplus = self._marked(reader, files, paths)
        more = [
            f"{valid_text(CORRUPT)} AS _corrupt",
            f"{surplus} AS _surplus",
            f"{nothing} AS _lost",
            path,
        ]
        return with_time(data, self.definition, self.time, more)

    def _marked(
        self, reader: DataFrameReader, files: Sequence[Path], paths: list[str]
    ) -> tuple[DataFrame, str]:
        """CSV or JSON with corrupt rows marked, and SQL of what stands in cells too many."""
        columns = self.definition.columns
        declared = [_parse_datatype_string(f.type) for f in columns]
        types = [as_written(type_, self.kind, self.options) for type_ in declared]
        fields = [StructField(f.name, t) for f, t in zip(columns, types, strict=True)]
        extra = 0
        if self.kind == "csv":
            extra = max(0, cells_most(files[0], self.options, PEEK_LINES) - len(columns))
        more = [f"{SURPLUS}{i}" for i in range(extra)]
        fields += [StructField(name, StringType()) for name in (*more, CORRUPT)]
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
        data = reader.schema(StructType(fields)).load(paths)
        if types != declared:
            data = self._with_times(data, types, more)
        return data, f"concat_ws('', {', '.join(more)})" if more else "''"

    def _with_times(
        self, data: DataFrame, types: Sequence[DataType], more: Sequence[str]
    ) -> DataFrame:
        """Timestamps made of what is written; a row that loses one counts as corrupt."""
        names = [quoted(f.name) for f in self.definition.columns]
        values = values_of(self.definition, types, option(self.options, "timeZone"))
        record = f"to_json(struct({', '.join(names)}))"
        if self.kind == "csv":
            texts = ", ".join(f"CAST({n} AS STRING) AS {n}" for n in names)
            record = f"to_csv(struct({texts}), {self.form.sql_options()})"
        rows = converted(
            data, self.definition, values, *more, f"{CORRUPT} AS _marked", f"{record} AS _record"
        )
        corrupt = f"coalesce(_marked, IF({LOST} IS NULL, NULL, _record)) AS {CORRUPT}"
        return rows.selectExpr(*names, *more, corrupt)

    # -- shape ----------------------------------------------------------------------------------

    def _schema(self) -> pa.Schema:
        fields = [
            pa.field(f"c{i}", arrow_type(_parse_datatype_string(f.type)))
            for i, f in enumerate(self.definition.columns)
        ]
        texts = [pa.field(name, pa.string()) for name in (REASON, RECORD, FILE)]
        numbers = [pa.field(name, pa.int64()) for name in (ROW, NUMBER)]
        return pa.schema([*fields, pa.field("_ts", pa.int64()), *texts, *numbers])

    def _shaped(
        self, table: pa.Table, files: Sequence[tuple[Path, int]], first_row: int
    ) -> pa.Table:
        """Adds file and row of each row, in order of files, and the reasons of bad ones."""
        if len(files) == 1:
            place = np.zeros(table.num_rows, np.int64)
        else:
            place = _places(table["_path"], [p for p, _ in files])
            order = np.argsort(place, kind="stable")
            table, place = table.take(pa.array(order)), place[order]
        starts = np.searchsorted(place, np.arange(len(files)))
        rows = np.arange(table.num_rows) - starts[place] + first_row
        names = pa.array([p.name for p, _ in files], pa.string())
        numbers = np.array([n for _, n in files], np.int64)
        columns = [
            *(table[f"c{i}"] for i in range(len(self.definition.columns))),
            table["_ts"],
            self._reasons(table),
            table["_corrupt"],
            names.take(pa.array(place)),
            pa.array(rows, pa.int64()),
            pa.array(numbers[place], pa.int64()),
        ]
        return pa.table(columns, self.schema.names).cast(self.schema)

    def _reasons(self, table: pa.Table) -> pa.Array:
        suspicious = pc.or_(
            pc.or_(pc.is_valid(table["_corrupt"]), pc.not_equal(table["_surplus"], "")),
            pc.is_valid(table["_lost"]),
        )
        flags = np.asarray(pc.fill_null(suspicious, False).combine_chunks())
        reasons = np.full(table.num_rows, None, object)
        for index in np.flatnonzero(flags):
            reasons[index] = self._reason(table, int(index))
        return pa.array(reasons, pa.string())

    def _reason(self, table: pa.Table, row: int) -> str | None:
        columns = self.definition.columns
        if (lost := table["_lost"][row].as_py()) is not None:
            return str(lost)
        corrupt, surplus = table["_corrupt"][row].as_py(), table["_surplus"][row].as_py()
        if corrupt is None:
            return "more columns than declared" if surplus.strip() else None
        values = [table[f"c{i}"][row] for i in range(len(columns))]
        known = [v if v.is_valid else None for v in values]
        if self.kind == "json":
            return json_reason(corrupt, known, columns)
        return csv_reason(corrupt, known, surplus, self.form, columns)

    def _unreadable(self, path: Path, number: int, problem: str, row: int) -> pa.Table:
        """One rejected row that stands for what nobody can read of a file."""
        what = "the file cannot be read" if row == 0 else f"the file breaks off after row {row}"
        values: dict[str, Any] = dict.fromkeys(self.schema.names)
        values |= {REASON: f"{what}: {problem}", FILE: path.name, ROW: row, NUMBER: number}
        return pa.Table.from_pylist([values], self.schema)


def _rows_of_a_piece(metadata: pq.FileMetaData) -> int:
    """How many rows of a staged file may be in memory at once."""
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    fitting = int(metadata.num_rows) * PIECE_BYTES // max(1, int(size))
    return max(1, min(PIECE_ROWS_MAX, fitting))


def _places(paths: pa.ChunkedArray, files: Sequence[Path]) -> np.ndarray[Any, Any]:
    """For each row, which of the files it came from; Spark spells paths as escaped URIs, whole and
    without `..`.

    >>> told = pa.chunked_array([["file:///a/2.csv", "file:///a/1.csv"]])
    >>> _places(told, [Path("/b/../a/1.csv"), Path("/a/2.csv")]).tolist()
    [1, 0]
    """
    known = {os.path.abspath(p): i for i, p in enumerate(files)}
    encoded = paths.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    numbers = np.array([known[_bare(uri)] for uri in encoded.dictionary.to_pylist()], np.int64)
    places: np.ndarray[Any, Any] = numbers[np.asarray(encoded.indices)]
    return places


def _bare(uri: str) -> str:
    """A path without scheme and escapes.

    >>> _bare("file:///a%20b/c%2520.csv")
    '/a b/c%20.csv'
    """
    path = uri.removeprefix("file:")
    while path.startswith("//"):
        path = path[1:]
    return unquote(path)
