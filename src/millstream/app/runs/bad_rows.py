"""Streams whose rows mostly did not count: what to tell, the likely cause, and the line to change.

A run that puts most of a stream aside is done, but not what anybody wanted. The files are looked at
once more, as `millstream init` does, and what they tell is held against what the job declares.
"""

import csv
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from millstream.app.config import Job
from millstream.app.config.first_job import rounded_up, toml
from millstream.control.definitions.stream_table import SHORT_OPTIONS, files_of
from millstream.control.discovery.look import Found, look_at
from millstream.core.errors import BadRowsError, UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field

MOST = 0.5  # of a stream's rows
REASONS_READ = 1_000
UNREADABLE = ("the file breaks off", "the file cannot be read")  # as the parser says it
BROKEN_TOLD_MAX = 10  # files of one stream
LOOK_S = 0.2
REASON_S = 2.0  # for the reason of a rejected row to be written


def warnings_of(job: Job, streams: Mapping[str, Any], out: Path) -> list[dict[str, Any]]:
    """What a summary says of a job's streams; `severe` where most rows did not count."""
    found: list[dict[str, Any]] = []
    for definition in job.streams:
        figures = streams.get(definition.name)
        if figures is None:
            continue
        total = figures["rows"] + figures["late"] + figures["rejected"]
        if total == 0:
            what = f"stream {definition.name} had no rows"
            found.append(_warning(definition, what, *_why_empty(definition), severe=False))
        for file, reason in _broken_files(out / f"{definition.name}.rejected"):
            what = f"file {file} of {definition.name} is damaged or not whole"
            change = "put a whole file in its place and choose an empty output folder"
            found.append(_warning(definition, what, reason, change))
        if figures["rejected"] > MOST * total:
            what = f"{figures['rejected']:,} of {total:,} rows of {definition.name} were rejected"
            cause = f"most often: {_commonest(out / f'{definition.name}.rejected')}"
            change = ", ".join(declared_otherwise(definition)) or "look at columns and options"
            found.append(_warning(definition, what, cause, _at(job, definition, change)))
        if figures["late"] > MOST * total:
            what = f"{figures['late']:,} of {total:,} rows of {definition.name} came late"
            found.append(_warning(definition, what, *_why_late(job, definition)))
    return found


def strict_tick(
    tick: Callable[[], None], figures: Callable[[], Mapping[str, Any]], out: Path
) -> Callable[[], None]:
    """A tick that ends the run at the first row that is rejected or late."""
    looked = 0.0
    seen: float | None = None

    def strictly() -> None:
        nonlocal looked, seen
        tick()
        now = time.monotonic()
        if now - looked < LOOK_S:
            return
        looked = now
        try:
            refuse_bad_rows(figures(), out)
        except BadRowsError as error:
            seen = now if seen is None else seen
            if error.detail or now - seen > REASON_S:
                raise

    return strictly


def refuse_bad_rows(figures: Mapping[str, Any], out: Path) -> None:
    """Raises where a row of any stream was rejected or late."""
    for name, stream in figures["streams"].items():
        for kind in ("rejected", "late"):
            if stream[kind]:
                folder = out / f"{name}.{kind}"
                detail = _commonest(folder) if kind == "rejected" else "older than lateness allows"
                raise BadRowsError(
                    f"a row of stream {name} was {kind}, and the run is strict",
                    detail=detail,
                    hint=f"{folder} has it; the same command without --strict continues",
                )


def _warning(
    definition: StreamDefinition, what: str, cause: str, change: str, *, severe: bool = True
) -> dict[str, Any]:
    return {
        "stream": definition.name, "what": what, "cause": cause, "change": change, "severe": severe,
    }  # fmt: skip


def _at(job: Job, definition: StreamDefinition, change: str) -> str:
    """A change with the place of the stream in its job file."""
    offset, _ = job.text.places.key(("streams", definition.name))
    line, _ = job.text.places.line_column(offset)
    return f"{job.text.shown}:{line}: [streams.{definition.name}]: {change}"


def _why_empty(definition: StreamDefinition) -> tuple[str, str]:
    if "path" not in definition.source:
        return "nothing came", "post or send rows before the end"
    files = files_of(Path(str(definition.source["path"])))
    if not files:
        return "there is no file", "look at path"
    if not any(file.stat().st_size for file in files):
        return f"{files[0].name} is empty", "look at path"
    return f"{files[0].name} has no rows", "look at path, header and options"


def _why_late(job: Job, definition: StreamDefinition) -> tuple[str, str]:
    found = _looked(definition)
    if found is None or not found.lateness_us:
        return "rows are out of order", _at(job, definition, 'raise lateness = "..."')
    needed = rounded_up(found.lateness_us)
    cause = f"rows are out of order by up to {needed}"
    return cause, _at(job, definition, f'lateness = "{needed}"')


def declared_otherwise(definition: StreamDefinition) -> list[str]:
    """Lines of a stream's table that its files contradict, as they should be."""
    found = _looked(definition)
    if found is None:
        return []
    declared = {str(k).lower(): v for k, v in dict(definition.source.get("options") or {}).items()}
    lines = []
    for key, option in SHORT_OPTIONS.items():
        if option in found.options and str(declared.get(option)) != str(found.options[option]):
            lines.append(f"{key} = {toml(found.options[option])}")
    rest = {k: v for k, v in found.options.items() if k not in SHORT_OPTIONS.values()}
    if other := {k: v for k, v in rest.items() if declared.get(k.lower()) != v}:
        pairs = ", ".join(f"{key} = {toml(value)}" for key, value in other.items())
        lines.append(f"options = {{ {pairs} }}")
    return lines + _columns_otherwise(definition, found)


def _columns_otherwise(definition: StreamDefinition, found: Found) -> list[str]:
    names = [f.name.lower() for f in definition.columns]
    found = _named_alike(found, definition)
    seen = {f.name.lower(): f for f in found.columns}
    if len(names) != len(seen) and found.format == "csv":
        pairs = ", ".join(f"{f.name} = {toml(f.type)}" for f in found.columns)
        return [f"columns = {{ {pairs} }}"]
    lines = [
        f"columns.{field.name} = {toml(seen[field.name.lower()].type)}"
        for field in definition.columns
        if field.name.lower() in seen and _narrower(field.type, seen[field.name.lower()].type)
    ]
    if set(names) == set(seen) and found.time and _plain(found.time) != _plain(definition.time):
        lines.append(f"time = {toml(found.time)}")
    return lines


def _named_alike(found: Found, definition: StreamDefinition) -> Found:
    """What was found in a file without a header, under the names that the job gives by position."""
    given = [f.name for f in definition.columns]
    if found.options.get("header") or found.format != "csv" or len(given) != len(found.columns):
        return found
    names = {f.name: name for f, name in zip(found.columns, given, strict=True)}
    columns = tuple(Field(names[f.name], f.type) for f in found.columns)
    time = re.sub(r"\bc\d+\b", lambda match: names.get(match[0], match[0]), found.time)
    return replace(found, columns=columns, time=time)


def _narrower(declared: str, seen: str) -> bool:
    """Whether a declared type cannot hold what was seen."""
    order = ("tinyint", "smallint", "int", "bigint", "float", "double", "string")
    if declared in order and seen in order:
        return order.index(declared) < order.index(seen) and seen in ("double", "string")
    return declared not in (seen, "string") and not declared.startswith("decimal")


def _plain(sql: str) -> str:
    return sql.replace("`", "").replace(" ", "").lower()


def _looked(definition: StreamDefinition) -> Found | None:
    source = definition.source
    if source.get("source", "file") != "file" or source.get("format") not in ("csv", "json"):
        return None
    try:
        return look_at(files_of(Path(str(source["path"]))), str(source["format"]), {})
    except (UsageError, OSError):
        return None


def _commonest(folder: Path) -> str:
    """The reason that most of the first rejected rows have; empty where none is written."""
    reasons: Counter[str] = Counter()
    for file in sorted(folder.glob("part-*")) if folder.is_dir() else ():
        reasons.update(_reasons(file))
        if sum(reasons.values()) >= REASONS_READ:
            break
    return reasons.most_common(1)[0][0] if reasons else ""


def _broken_files(folder: Path) -> list[tuple[str, str]]:
    """Files that nobody can read to their end, and why: one rejected row stands for each."""
    found: dict[str, str] = {}
    for part in sorted(folder.glob("part-*")) if folder.is_dir() else ():
        for row in _rows(part, ["file", "reason"]):
            if str(row["reason"]).startswith(UNREADABLE):
                found.setdefault(str(row["file"]), str(row["reason"]))
    return sorted(found.items())[:BROKEN_TOLD_MAX]


def _reasons(file: Path) -> list[str]:
    return [str(row["reason"]) for row in islice(_rows(file, ["reason"]), REASONS_READ)]


def _rows(file: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    """Rejected rows as they were written, in the sink's format."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415

        for batch in pq.ParquetFile(file).iter_batches(columns=names):
            yield from batch.to_pylist()
        return
    with file.open(encoding="utf-8", newline="") as text:
        yield from map(json.loads, text) if file.suffix == ".json" else csv.DictReader(text)
