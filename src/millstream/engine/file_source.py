"""Files as a source: csv, json, parquet, text; one file, or a folder in order of name.

Spark parses; malformed rows are told apart with a reason. Which files there are, in which order
and with what content, is recorded in the ledger when they are first seen, so that a run that is
started again reads the same input or says that it has changed.
"""

import csv
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from millstream.cql.catalog import StreamDefinition
from millstream.engine.appending import FILE, REASON, RECORD, ROW
from millstream.errors import StateError, UsageError
from millstream.plan.sql_text import quoted

FORMATS = ("csv", "json", "parquet", "text")
BY_EXTENSION = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".txt": "text", ".log": "text",
}  # fmt: skip
CORRUPT = "_corrupt_record"
GROUP_BYTES_MAX = 16 << 20  # small files are parsed together up to this size
STAGE_BYTES_MIN = 64 << 20  # a file above this is parsed into a staging folder by the executors
PEEK_LINES = 50
HASHED_WHOLE_MAX = 64 << 20


def format_of(definition: StreamDefinition, files: Sequence[Path] = ()) -> str:
    """The declared format, else by extension."""
    named = definition.source.get("format")
    if named:
        if named not in FORMATS:
            raise UsageError(
                f"stream {definition.name} has unknown format {named!r}",
                hint=f"one of {', '.join(FORMATS)}",
            )
        return str(named)
    path = Path(str(definition.source.get("path", "")))
    for candidate in (path, *files):
        kind = BY_EXTENSION.get(candidate.suffix.lower())
        if kind:
            return kind
    raise UsageError(
        f"stream {definition.name} has no format and none can be told from its path",
        hint=f'add format = "csv" (or {", ".join(FORMATS[1:])})',
    )


def list_files(definition: StreamDefinition) -> list[Path]:
    """The files of a stream in order of name; hidden ones and folders are passed over."""
    path = Path(str(definition.source["path"]))
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [p for p in path.iterdir() if p.is_file() and p.name[0] not in "._"]
        return sorted(found, key=lambda p: p.name)
    raise UsageError(
        f"stream {definition.name}: there is no file or folder {path}",
        hint="paths are relative to the job file",
    )


def identity(path: Path) -> str:
    """Size and a digest of the content; of very large files, of both ends."""
    size = path.stat().st_size
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        if size <= HASHED_WHOLE_MAX:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        else:
            digest.update(file.read(1 << 20))
            file.seek(-(1 << 20), os.SEEK_END)
            digest.update(file.read())
    return f"{size}:{digest.hexdigest()}"


def verify_unchanged(stream: str, recorded: Sequence[tuple[str, str]]) -> None:
    """Refuses to go on over input that differs from what was read before."""
    for path, known in recorded:
        if not Path(path).exists():
            raise StateError(
                f"stream {stream}: {path} was part of this run and is gone",
                hint="put it back, or choose an empty output folder for a new run",
            )
        if identity(Path(path)) != known:
            raise StateError(
                f"stream {stream}: {path} has changed since this run began",
                hint="choose an empty output folder for a new run",
            )


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows of some files in order, with where each came from."""

    table: pa.Table


class FileParser:
    """Turns files into tables of declared columns, times and reasons."""

    def __init__(self, definition: StreamDefinition, spark: SparkSession, kind: str) -> None:
        self.definition, self.kind = definition, kind
        # without ANSI a value that cannot be converted becomes null instead of ending the job
        self.spark = spark.newSession()
        self.spark.conf.set("spark.sql.ansi.enabled", "false")
        self.options = {str(k): v for k, v in dict(definition.source.get("options") or {}).items()}

    def parse(self, files: Sequence[Path], numbers: Sequence[int]) -> pa.Table:
        """All rows of the files, in order; unreadable files give one rejected row each."""
        tables = []
        wanted = [(p, n) for p, n in zip(files, numbers, strict=True) if p.stat().st_size > 0]
        if self.kind == "parquet":
            for path, number in wanted:
                problem = _parquet_problem(path)
                tables.append(
                    self._unreadable(path, number, problem)
                    if problem
                    else self._collect([path], [number])
                )
        elif wanted:
            tables.append(self._collect([p for p, _ in wanted], [n for _, n in wanted]))
        return pa.concat_tables(tables, promote_options="permissive") if tables else self._empty()

    def _collect(self, files: Sequence[Path], numbers: Sequence[int]) -> pa.Table:
        try:
            table = self._frame(files).toArrow()
        except PySparkException as error:
            if len(files) == 1:
                return self._unreadable(files[0], numbers[0], _first_line(error))
            parts = [self._collect([p], [n]) for p, n in zip(files, numbers, strict=True)]
            return pa.concat_tables(parts, promote_options="permissive")
        return self._shaped(table, files, numbers)

    def _frame(self, files: Sequence[Path]) -> DataFrame:
        paths = [str(p) for p in files]
        reader = self.spark.read.format(self.kind).options(**self.options)
        columns = self.definition.columns
        if self.kind == "parquet":
            data = reader.load(paths)
            return self._selected(data, [quoted(f.name) for f in columns], casts=True)
        if self.kind == "text":
            data = reader.load(paths).withColumnRenamed("value", columns[0].name)
            return self._selected(data, [quoted(columns[0].name)])
        fields = [StructField(f.name, _parse_datatype_string(f.type)) for f in columns]
        extra = self._extra_columns(files) if self.kind == "csv" else 0
        fields += [StructField(f"_extra{i}", StringType()) for i in range(extra)]
        fields.append(StructField(CORRUPT, StringType()))
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
        data = reader.schema(StructType(fields)).load(paths)
        surplus = (
            f"concat_ws('', {', '.join(f'_extra{i}' for i in range(extra))})" if extra else "''"
        )
        return self._selected(data, [quoted(f.name) for f in columns], surplus=surplus)

    def _selected(
        self, data: DataFrame, columns: list[str], *, casts: bool = False, surplus: str = "''"
    ) -> DataFrame:
        types = [f.type for f in self.definition.columns]
        values = columns
        lost = "NULL"
        if casts:
            values = [f"try_cast({c} AS {t})" for c, t in zip(columns, types, strict=True)]
            checks = [
                f"WHEN {c} IS NOT NULL AND try_cast({c} AS {t}) IS NULL THEN "
                f"concat('cannot read ', CAST({c} AS STRING), ' as {t}')"
                for c, t in zip(columns, types, strict=True)
            ]
            lost = f"CASE {' '.join(checks)} END"
        corrupt = CORRUPT if CORRUPT in data.columns else "CAST(NULL AS STRING)"
        texts = [f"{v} AS c{i}" for i, v in enumerate(values)]
        texts += [
            f"unix_micros(CAST(({self.definition.time_sql()}) AS TIMESTAMP)) AS _ts",
            f"{corrupt} AS _corrupt",
            f"{surplus} AS _surplus",
            f"{lost} AS _lost",
            "_metadata.file_path AS _path",
        ]
        return data.selectExpr(*texts)

    def _extra_columns(self, files: Sequence[Path]) -> int:
        """How many more columns the first lines have than were declared: often empty ones."""
        separator = str(self.options.get("sep", self.options.get("delimiter", ",")))
        if len(separator) != 1:
            return 0
        declared, most = len(self.definition.columns), 0
        with files[0].open(encoding="utf-8", errors="replace", newline="") as file:
            lines = [line for _, line in zip(range(PEEK_LINES), file, strict=False)]
        try:
            for row in csv.reader(lines, delimiter=separator):
                most = max(most, len(row))
        except csv.Error:
            return 0
        return max(0, most - declared)

    def _shaped(self, table: pa.Table, files: Sequence[Path], numbers: Sequence[int]) -> pa.Table:
        """Adds file and row of each row, in order of files, and the reasons of bad ones."""
        by_uri = {_plain(p): n for p, n in zip(map(str, files), range(len(files)), strict=True)}
        paths = table["_path"].to_pylist() if len(files) > 1 else None
        if paths is None:
            place = np.zeros(table.num_rows, np.int64)
        else:
            place = np.array([by_uri[_plain(p)] for p in paths], np.int64)
            order = np.argsort(place, kind="stable")
            table, place = table.take(pa.array(order)), place[order]
        starts = np.searchsorted(place, np.arange(len(files)))
        row = np.arange(table.num_rows) - starts[place] if table.num_rows else place
        file_numbers = np.array(numbers, np.int64)[place] if table.num_rows else place
        names = [f"c{i}" for i in range(len(self.definition.columns))]
        reasons = self._reasons(table)
        labels = np.array([p.name for p in files], object)[place] if table.num_rows else place
        return pa.table(
            [
                *(table[n] for n in names),
                table["_ts"],
                reasons,
                table["_corrupt"],
                pa.array(labels, pa.string()),
                pa.array(row, pa.int64()),
                pa.array(file_numbers, pa.int64()),
            ],
            [*names, "_ts", REASON, RECORD, FILE, ROW, "_number"],
        )

    def _reasons(self, table: pa.Table) -> pa.Array:
        suspicious = pc.or_(
            pc.or_(pc.is_valid(table["_corrupt"]), pc.not_equal(table["_surplus"], "")),
            pc.is_valid(table["_lost"]),
        )
        flags = np.asarray(pc.fill_null(suspicious, False).combine_chunks())
        reasons = np.full(table.num_rows, None, object)
        for index in np.flatnonzero(flags):
            row = int(index)
            corrupt = table["_corrupt"][row].as_py()
            if corrupt is not None:
                reasons[row] = self._why_corrupt(corrupt)
            elif table["_lost"][row].as_py() is not None:
                reasons[row] = table["_lost"][row].as_py()
            else:
                reasons[row] = "more columns than declared"
        return pa.array(reasons, pa.string())

    def _why_corrupt(self, record: str) -> str:
        if self.kind != "csv":
            return "malformed JSON, or a value of another type than declared"
        separator = str(self.options.get("sep", self.options.get("delimiter", ",")))
        try:
            cells = next(csv.reader([record], delimiter=separator[:1]), [])
        except csv.Error:
            return "malformed CSV"
        declared = self.definition.columns
        if len(cells) < len(declared):
            return f"{len(cells)} columns where {len(declared)} are declared"
        for cell, field in zip(cells, declared, strict=False):
            if not _looks_like(cell, field.type):
                return f"cannot read {cell[:40]!r} as {field.type} (column {field.name})"
        return "malformed CSV, or a value of another type than declared"

    def _unreadable(self, path: Path, number: int, problem: str) -> pa.Table:
        """One rejected row that stands for a file nobody can read."""
        schema = self._empty().schema
        row: dict[str, Any] = dict.fromkeys(schema.names)
        row |= {REASON: f"the file cannot be read: {problem}", FILE: path.name, ROW: 0}
        row |= {"_number": number}
        return pa.Table.from_pylist([row], schema)

    def _empty(self) -> pa.Table:
        from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

        fields = [
            pa.field(f"c{i}", to_arrow_type(_parse_datatype_string(f.type), timezone="UTC"))
            for i, f in enumerate(self.definition.columns)
        ]
        fields += [pa.field("_ts", pa.int64()), pa.field(REASON, pa.string())]
        fields += [pa.field(RECORD, pa.string()), pa.field(FILE, pa.string())]
        fields += [pa.field(ROW, pa.int64()), pa.field("_number", pa.int64())]
        return pa.schema(fields).empty_table()

    def stage(self, path: Path, number: int, folder: Path) -> Iterator[pa.Table]:
        """A large file, parsed by the executors into a folder and read back piece by piece."""
        self._frame([path]).write.mode("overwrite").parquet(str(folder))
        row = 0
        for part in sorted(folder.glob("part-*.parquet")):
            for batch in pq.ParquetFile(part).iter_batches(batch_size=262_144):
                table = self._shaped(pa.Table.from_batches([batch]), [path], [number])
                shifted = pc.add(table[ROW], row)
                at = table.schema.get_field_index(ROW)
                yield table.set_column(at, ROW, shifted)
                row += table.num_rows


def _plain(path: str) -> str:
    """A path as Spark's metadata or Python spells it, without scheme and escapes."""
    from urllib.parse import unquote  # noqa: PLC0415

    bare = path.removeprefix("file:")
    while bare.startswith("//"):
        bare = bare[1:]
    return unquote(bare)


def _parquet_problem(path: Path) -> str:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        return str(error).split("\n")[0]
    return ""


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]


def _looks_like(cell: str, type_: str) -> bool:
    if cell == "" or type_ == "string":
        return True
    try:
        if type_ in ("tinyint", "smallint", "int", "bigint"):
            int(cell)
        elif type_ in ("float", "double") or type_.startswith("decimal"):
            float(cell)
        elif type_ == "boolean":
            return cell.strip().lower() in ("true", "false")
    except ValueError:
        return False
    return True
