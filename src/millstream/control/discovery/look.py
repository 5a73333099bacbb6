"""A file of rows to what a stream's table says of it: format, options, columns, time, lateness.

The first files and their first rows decide. What remains in doubt becomes a note, which `millstream
init` writes beside the line to change.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millstream.control.definitions.parquet_footer import parquet_columns
from millstream.control.discovery.alphabets import GUESSED
from millstream.control.discovery.cells import (
    columns_of,
    more_types,
    numbers_with_signs,
    one_word_for_nothing,
    thousands,
)
from millstream.control.discovery.column_types import ColumnType
from millstream.control.discovery.dialect import Dialect, dialect_of
from millstream.control.discovery.heading import (
    column_names,
    has_header,
    heading_in_comment,
    title_lines,
)
from millstream.control.discovery.json_shape import field_type, is_array, json_rows, not_rows
from millstream.control.discovery.log_lines import LINES, is_log, times_of
from millstream.control.discovery.text_sample import UTF_8, TextSample, read_sample
from millstream.control.discovery.time_column import TIMES, Seen, time_of
from millstream.control.discovery.times import (
    ROWS_TO_DOUBT,
    Spelling,
    clock_of,
    disorder_us,
    spelling_of,
)
from millstream.control.discovery.zone_column import with_zones
from millstream.core.errors import UsageError
from millstream.language.cql.types import canonical
from millstream.language.plan.schema import Field

ZONE_NOTE = "times without a zone are read as UTC; init --zone Europe/Berlin sets another"
JSON_BEGINS = re.compile(r'\s*(?:\{|\[\s*(?:[]{["]|$))')  # a line of a log begins with [2026 too
SPREADSHEET = re.compile(r"sep=.\r?\n")
RESULT_NAMES = ("ts", "n", "window_start", "window_end")  # that a first query gives anyway
DEPTH_MAX = 6  # of objects in objects in which a time is looked for
KEYS_MAX = 50  # different values of a column to group by
SPREAD_MAX = 0.5  # of the rows that may have a value of their own in such a column


@dataclass(frozen=True, slots=True)
class Found:
    """What a stream's table says, and what else was seen."""

    format: str
    columns: tuple[Field, ...]
    time: str  # empty where no column is a time
    options: Mapping[str, Any] = field(default_factory=dict)
    lateness_us: int = 0
    span_us: int = 0  # from the earliest time that was seen to the latest
    rows: int = 0  # that were looked at
    key: str = ""  # a column of few different texts
    clock: tuple[str, str] | None = None  # a column of times of day, no day; their pattern
    spaced: bool = False  # columns of plain text are apart by spaces
    notes: tuple[str, ...] = ()


def look_at(files: Sequence[Path], kind: str, options: Mapping[str, Any], zone: str = "") -> Found:
    """What the first file that has rows tells; UsageError where none does."""
    problem = "there is no file"
    for path in files:
        if path.stat().st_size == 0:
            problem = f"{path.name} is empty"
            continue
        looks: Mapping[str, Callable[[Path, Mapping[str, Any], str], Found]] = {
            "csv": _csv, "json": _json, "parquet": _parquet, "text": _text,
        }  # fmt: skip
        return looks[kind](path, options, zone)
    raise UsageError(f"nothing to look at: {problem}", hint="give a file that has rows")


def format_by_content(path: Path) -> str:
    """What a file without a telling name holds: parquet, json, csv or text."""
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            return "parquet"
    sample = read_sample(path)
    if JSON_BEGINS.match(sample.text):
        return "json"
    if is_log(sample.lines):
        return "text"
    records = dialect_of(sample).records(sample, 100)
    return "csv" if records and len(records[0]) > 1 else "text"


# -- separated text -------------------------------------------------------------------------------


def _csv(path: Path, given: Mapping[str, Any], zone: str) -> Found:
    options = {str(k).lower(): v for k, v in given.items()}
    named_encoding = str(options.get("encoding", options.get("charset", "")))
    sample = read_sample(path, named_encoding)
    if word := SPREADSHEET.match(sample.text):
        raise UsageError(
            f"the first line of {path.name} ({word[0].strip()}) is a word to spreadsheets, no row",
            hint=f"take it away: tail -n +2 {path.name} > rows.csv",
        )
    dialect = _dialect(sample, options)
    records = dialect.records(sample)
    if not records:
        raise UsageError(f"{path.name} has no rows", hint="give a file that has rows")
    named = options.get("header")
    skipped = title_lines(records) if named is None else 0
    header = not skipped and has_header(records) if named is None else str(named).lower() == "true"
    heading = heading_in_comment(sample, dialect, records) if not header else records[0]
    if skipped:
        heading, records = records[skipped - 1], records[skipped - 1 :]
    width = max(len(record) for record in records[: 50 if header or skipped else 1000])
    if heading:
        width = len(heading) if heading[-1].strip() else len(heading) - 1
    names = column_names(heading or [f"c{i + 1}" for i in range(width)])[:width]
    # Files that were put together have their header in the middle as well.
    body = [r for r in records[1:] if r != heading] if header or skipped else records
    if not body:
        raise UsageError(f"{path.name} has a header and no rows", hint="give a file with rows")
    notes = _notes_on_lines(skipped)
    if not named_encoding and sample.encoding in GUESSED:
        notes.append(f"the text is taken for {sample.encoding} by its letters: look at it")
    seen = columns_of(names, body)
    if len(body) > ROWS_TO_DOUBT and more_types(below := columns_of(names, body[1:]), seen):
        seen = below
        notes.append("the line below the names is not a row like the others: it is rejected")
    notes += numbers_with_signs(seen)
    seen = one_word_for_nothing(thousands(seen, dialect.separator))
    told: dict[str, Any] = _csv_options(sample, dialect, header, seen)
    found = _found("csv", seen, {**told, **given}, zone, len(body))
    return replace(found, notes=(*notes, *found.notes))


def _notes_on_lines(skipped: int) -> list[str]:
    if not skipped:
        return []
    return [f"the first {skipped} lines are not rows and are rejected; the last of them has names"]


def _dialect(sample: TextSample, options: Mapping[str, Any]) -> Dialect:
    found = dialect_of(sample)
    separator = str(options.get("sep", options.get("delimiter", found.separator)))
    quote = str(options.get("quote", found.quote))[:1] or found.quote
    separator = separator.replace("\\t", "\t")[:1]
    return Dialect(separator, quote, found.backslash, found.comment, found.spaced)


def _csv_options(
    sample: TextSample, dialect: Dialect, header: bool, seen: Sequence[Seen]
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if dialect.separator != ",":
        options["sep"] = dialect.separator
    if header:
        options["header"] = True
    if sample.encoding != UTF_8:
        options["encoding"] = sample.encoding
    if dialect.quote != '"':
        options["quote"] = dialect.quote
    if dialect.backslash:
        options["escape"] = "\\"
    if dialect.comment:
        options["comment"] = dialect.comment
    if word := next((s.type.no_value for s in seen if s.type.no_value), ""):
        options["nullValue"] = word
    values = [v for s in seen if s.type.type != "string" or s.type.times for v in s.values]
    if dialect.spaced or any(v[:1].isspace() for v in values):
        options["ignoreLeadingWhiteSpace"] = True
    if any(v[-1:].isspace() for v in values):
        options["ignoreTrailingWhiteSpace"] = True
    if any(s.type.comma for s in seen):
        options["locale"] = "de-DE"
    return options


# -- other formats --------------------------------------------------------------------------------


def _json(path: Path, given: Mapping[str, Any], zone: str) -> Found:
    encoding = next((str(v) for k, v in given.items() if str(k).lower() == "encoding"), "")
    sample = read_sample(path, encoding)
    rows = json_rows(sample, path.name)
    names = list(dict.fromkeys(name for row in rows for name in row))
    seen = []
    for name in names:
        values = [row.get(name) for row in rows]
        type_ = field_type(values)
        texts = [str(v) for v in values if isinstance(v, str | int | float)]
        present = [t for t in texts if t.strip()]
        times = (
            spelling_of(present) if type_ in ("timestamp", "string", "bigint", "double") else None
        )
        seen.append(Seen(name, ColumnType(type_, times=times), texts))
        if type_.startswith("struct") and "." not in name and not times:
            seen += _inner_times(name, values)
    options: dict[str, Any] = {}
    if sample.encoding != UTF_8:
        if sample.encoding.startswith("UTF") and not is_array(sample.text):
            raise UsageError(
                f"{path.name} is {sample.encoding} with an object a line, which Spark cannot read",
                hint=f"iconv -f {sample.encoding} -t UTF-8 {path.name} > rows.ndjson",
            )
        options["encoding"] = sample.encoding
    found = _found("json", seen, {**options, **given}, zone, len(rows))
    if not found.time and len(rows) == 1:
        raise not_rows(sample, path.name)
    return found


def _text(path: Path, given: Mapping[str, Any], zone: str) -> Found:
    lines = read_sample(path).lines
    columns = (Field("value", "string"),)
    found = times_of(lines, datetime.fromtimestamp(path.stat().st_mtime, UTC).year)
    if found is None:
        spaced = len({len(line.split()) for line in lines[1:LINES]} - {0, 1}) == 1
        return Found("text", columns, "", given, rows=len(lines), spaced=spaced)
    time, notes = found.sql, [found.spelling.doubt] if found.spelling.doubt else []
    if len(found.micros) < min(len(lines), LINES):
        notes.append("lines without a time of their own are rejected")
    if not found.spelling.zoned:
        if zone:
            time = f"to_utc_timestamp({time}, '{zone}')"
        else:
            notes.append(ZONE_NOTE)
    span = max(found.micros) - min(found.micros)
    late = disorder_us(found.micros)
    return Found("text", columns, time, given, late, span, len(lines), notes=tuple(notes))


def _inner_times(name: str, values: Sequence[Any], depth: int = 1) -> list[Seen]:
    """Times some levels down: `meta.at`. They are no columns of their own."""
    found = []
    objects = [v for v in values if isinstance(v, dict)]
    for inner in dict.fromkeys(key for value in objects for key in value):
        if "." in inner:
            continue  # that is no path
        texts = [str(v[inner]) for v in objects if isinstance(v.get(inner), str | int | float)]
        times = spelling_of([t for t in texts if t.strip()])
        if not times and depth < DEPTH_MAX:
            found += _inner_times(f"{name}.{inner}", [v.get(inner) for v in objects], depth + 1)
        if times:
            type_ = ColumnType(f"inner {field_type([v.get(inner) for v in objects])}", times=times)
            found.append(Seen(f"{name}.{inner}", type_, texts))
    return found


def _parquet(path: Path, given: Mapping[str, Any], zone: str) -> Found:
    import pyarrow.parquet as pq  # noqa: PLC0415  (the footer alone does for a declared stream)

    columns = parquet_columns([path])
    file = pq.ParquetFile(path)
    batch = next(file.iter_batches(batch_size=20_000), None)
    seen: list[Seen] = []
    strange: list[str] = []
    for index, column in enumerate(columns):
        values = [] if batch is None else batch.column(index).to_pylist()
        texts = [
            str(v) for v in values if isinstance(v, str | int | float) or hasattr(v, "isoformat")
        ]
        plain = column.type in (*TIMES, "string", "bigint", "double")
        times = spelling_of(texts) if plain and texts else None
        if column.type in TIMES and not texts:  # there are no rows yet
            times = Spelling("{}", "iso", zoned=column.type == "timestamp")
        try:
            type_ = canonical(column.type)
        except UsageError:
            strange.append(f"{column.name} is left out: nothing can be done with its type")
            continue
        seen.append(Seen(column.name, ColumnType(type_, times=times), texts))
    found = _found("parquet", seen, given, zone, 0 if batch is None else batch.num_rows)
    return replace(found, notes=(*strange, *found.notes))


# -- time -----------------------------------------------------------------------------------------


def _found(
    kind: str, seen: Sequence[Seen], options: Mapping[str, Any], zone: str, rows: int
) -> Found:
    columns = tuple(Field(s.name, s.type.type) for s in seen if not s.type.type.startswith("inner"))
    time, times, notes, zoned = time_of(seen)
    made = dict(options)
    if time and not zoned:
        beside = None if zone else with_zones(time, times, seen)
        if beside is not None:
            time, times = beside
        elif zone and time in (s.name for s in seen) and kind != "parquet":
            made["timeZone"] = zone
        elif zone:
            time = f"to_utc_timestamp({time}, '{zone}')"
        else:
            notes.append(ZONE_NOTE)
    span = max(times) - min(times) if times else 0
    key = _key(seen, rows)
    clocks = ((s.name, _clock(s)) for s in seen if not time)
    clock = next((c for c in clocks if c[1]), None)
    late = disorder_us(times)
    return Found(kind, columns, time, made, late, span, rows, key, clock, notes=tuple(notes))


def _clock(column: Seen) -> str:
    """The pattern of a column of times of day; empty where it is none."""
    present = [v.strip() for v in column.values[:100] if v.strip()]
    return clock_of(present) if column.type.type == "string" else ""


def _key(seen: Sequence[Seen], rows: int) -> str:
    """A column of few different texts, to group a first query by."""
    fitting = []
    for column in seen:
        present = [v for v in column.values if v.strip()]
        different = len(set(present))
        text = column.type.type == "string" and column.type.times is None
        text = text and column.name.lower() not in RESULT_NAMES
        if (
            text
            and not _clock(column)
            and 1 < different <= max(KEYS_MAX, 1)
            and different <= max(2, rows * SPREAD_MAX)
        ):
            fitting.append((abs(different - 6), column.name))
    return min(fitting)[1] if fitting else ""
