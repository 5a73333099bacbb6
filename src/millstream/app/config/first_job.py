"""A first job file over files that somebody has: streams as they were found, and a query each.

The query counts rows a window, for each value of a column that has few, so that the result is small
whatever the files hold. The window is about a twentieth of the time that the rows span.
"""

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millstream.control.definitions.stream_table import SHORT_OPTIONS, files_of, format_by_name
from millstream.control.discovery.heading import without_marks
from millstream.control.discovery.look import Found, format_by_content, look_at
from millstream.control.discovery.time_column import TIME_WORDS, WORDS_OF_SQL, name_sql
from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.plan.schema import Field

NUMBERS = ("bigint", "double", "decimal", "int", "float", "smallint", "tinyint")
IDENTIFIERS = re.compile(r"(^|_)(id|nr|no|key|zip|plz|code|year|month|port)$|^id", re.IGNORECASE)
WINDOWS = (
    (1, "1 SECOND"), (10, "10 SECONDS"), (60, "1 MINUTE"), (300, "5 MINUTES"), (900, "15 MINUTES"),
    (3600, "1 HOUR"), (21600, "6 HOURS"), (86400, "1 DAY"), (604800, "7 DAYS"),
    (2592000, "30 DAYS"),
)  # fmt: skip
WINDOWS_SHOWN = 20
UNITS = ((86_400_000_000, "days"), (3_600_000_000, "hours"), (60_000_000, "minutes"),
         (1_000_000, "seconds"), (1_000, "ms"), (1, "us"))  # fmt: skip
LINE = 96


@dataclass(frozen=True, slots=True)
class Input:
    """A stream to be: its name, where its files are, and what was found in them."""

    name: str
    path: Path  # a file, a folder or a pattern
    format: str
    named: bool  # the name of the file tells the format
    found: Found


def inputs_of(paths: Sequence[Path], zone: str = "", time: str = "") -> list[Input]:
    """What stands in the files; UsageError where a file cannot be a stream.

    A time that is given is taken as it is; else the files tell it.
    """
    looked = [_looked(path, zone, time) for path in paths]
    inputs: list[Input] = []
    for one in _together(looked):
        taken = {other.name for other in inputs}
        number = 2
        name = one.name
        while name in taken:
            name, number = f"{one.name}_{number}", number + 1
        inputs.append(Input(name, one.path, one.format, one.named, one.found))
    return inputs


def _looked(path: Path, zone: str, time: str) -> Input:
    files = files_of(path)
    if not files:
        raise _no_files(path)
    full = [file for file in files if file.stat().st_size]
    if not full:
        raise UsageError(f"{path} is empty", hint="give a file that has rows")
    path, full, notes = _alike(path, full)
    told = format_by_name(full[0])
    kind = told if told not in (None, "text") else format_by_content(full[0])
    assert kind is not None
    found = look_at(full, kind, {}, zone)
    if time:
        notes.append("lateness is yours to say: the time was given, and not looked at")
        found = replace(found, time=time, lateness_us=0)
    if not found.time:
        raise _no_time(path, found)
    found = replace(found, notes=(*notes, *found.notes))
    return Input(stream_name(path), path, kind, told == kind, found)


def _no_files(path: Path) -> UsageError:
    hint = "give files of rows: csv, tsv, json, ndjson or parquet"
    if not path.exists():
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        near = did_you_mean(path.name, [p.name for p in beside])
        return UsageError(f"no such file or folder: {path}{near}", hint=hint)
    below = next((p for p in sorted(path.rglob("*")) if files_of(p) and p.is_dir()), None)
    if below is not None:
        hint = f"a stream reads one folder: {below}, or files of several folders put into one"
    return UsageError(f"{path} has no files", hint=hint)


def _alike(path: Path, files: list[Path]) -> tuple[Path, list[Path], list[str]]:
    """Of a folder with files of several kinds the kind that most of its rows' files have."""
    kinds = Counter("".join(file.suffixes[-2:]) for file in files if format_by_name(file))
    if not path.is_dir() or not kinds:
        return path, files, []
    most = max(kinds, key=lambda kind: (format_by_name(Path(f"x{kind}")) != "text", kinds[kind]))
    pattern = path / f"*{most}"
    chosen = [file for file in files if file in files_of(pattern)]
    others = [file.name for file in files if file not in chosen]
    if not others:
        return path, files, []
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return pattern, chosen, [f"{others[0]}{more} of the folder is left out: of another kind"]


def _no_time(path: Path, found: Found) -> UsageError:
    names = [f.name for f in found.columns]
    likely = next((n for n in names if TIME_WORDS.search(n)), names[0])
    column = name_sql(likely).replace("`", "\\`")  # a shell would take it for a command
    text = found.format == "text"
    what = f"{path} is plain text: no part of its lines" if text else f"no column of {path}"
    command = f"millstream init {shlex.quote(str(path))} --time"
    if found.spaced:
        file = shlex.quote(str(path))
        return UsageError(
            f"the columns of {path} are apart by spaces",
            hint=f"put commas there: sed -E 's/^ +//; s/ +/,/g' {file} > rows.csv",
        )
    if found.clock:
        name, pattern = found.clock
        time = f"to_timestamp(concat('2026-01-01 ', {name_sql(name)}), 'yyyy-MM-dd {pattern}')"
        time = time.replace("`", "\\`")
        return UsageError(
            f"{what} tells the day: {name} has times of day alone",
            detail=f"columns: {', '.join(names)}",
            hint=f'say which day it is: {command} "{time}"',
        )
    return UsageError(
        f"{what} is a time",
        detail="" if text else f"columns: {', '.join(names)}",
        hint=f"say what it is: {command} \"to_timestamp({column}, 'dd.MM.yyyy HH:mm')\";"
        " rows that have none may share one: --time \"TIMESTAMP '2026-01-01'\"",
    )


def _together(looked: Sequence[Input]) -> list[Input]:
    """Files that a shell has listed and that are alike become one stream again."""
    kept: list[Input] = []
    for one in looked:
        alike = [o for o in looked if _shape(o) == _shape(one)]
        pattern = one.path.parent / f"*{''.join(one.path.suffixes)}"
        whole = {o.path.absolute() for o in alike} == {p.absolute() for p in files_of(pattern)}
        if len(alike) == 1 or not whole:
            kept.append(one)
        elif one is alike[0]:
            folder = one.path.absolute().parent.name
            kept.append(Input(_plain(folder), pattern, one.format, one.named, one.found))
    return kept


def _shape(one: Input) -> tuple[Any, ...]:
    found = one.found
    options = tuple(sorted(found.options.items(), key=str))
    return one.path.parent, one.path.suffixes, one.format, found.columns, found.time, options


def stream_name(path: Path) -> str:
    """A name that queries can write without quotes.

    >>> stream_name(Path("data/2025 orders.csv.gz")), stream_name(Path("logs/*.csv"))
    ('s_2025_orders', 'logs')
    >>> stream_name(Path("order.csv"))
    's_order'
    """
    pattern = any(sign in path.name for sign in "*?[") and not path.exists()
    bare = path.absolute().parent if pattern else path
    return _plain(bare.name.split(".")[0] or bare.name)


def _plain(text: str) -> str:
    name = re.sub(r"\W+", "_", without_marks(text), flags=re.ASCII).strip("_").lower() or "rows"
    return f"s_{name}" if name[0].isdigit() or name in WORDS_OF_SQL else name


def job_text(inputs: Sequence[Input], target: Path, command: str) -> str:
    """The text of the job file that is to stand at `target`."""
    base = target.absolute().parent
    lines = [f"# Written by `{command}`. Run it:", f"#   {run_command(target)}", ""]
    for one in inputs:
        lines += [*_stream(one, base), ""]
    for one in inputs:
        lines += [*_query(one), ""]
    return "\n".join(lines)


def run_command(target: Path) -> str:
    return f"millstream run {target} --out {target.with_suffix('')}-results --format csv"


def _stream(one: Input, base: Path) -> list[str]:
    found = one.found
    lines = [f"# {found.rows:,} rows were looked at", *(f"# {note}" for note in found.notes)]
    lines.append(f"[streams.{one.name}]")
    pairs: dict[str, str] = {"path": toml(os.path.relpath(one.path.absolute(), base))}
    if not one.named:
        pairs["format"] = toml(one.format)
    options = dict(found.options)
    for key, option in SHORT_OPTIONS.items():
        if option in options:
            pairs[key] = toml(options.pop(option))
    if options:
        pairs["options"] = _table(options)
    columns = _table({f.name: f.type for f in found.columns})
    apart = len(columns) > LINE
    if not apart:
        pairs["columns"] = columns
    pairs["time"] = toml(found.time)
    if found.lateness_us:
        pairs["lateness"] = f"{toml(rounded_up(found.lateness_us))}  # as rows are out of order"
    width = max(len(key) for key in pairs)
    lines += [f"{key:<{width}} = {value}" for key, value in pairs.items()]
    if apart:
        lines += ["", f"[streams.{one.name}.columns]"]
        lines += [f"{_key(f.name)} = {toml(f.type)}" for f in found.columns]
    return lines


def _query(one: Input) -> list[str]:
    found = one.found
    window = _window(found.span_us)
    key = name_sql(found.key) if found.key else ""
    figures = ["count(*) AS n"]
    if number := _number(found.columns, found.time):
        figures.append(f"avg({name_sql(number)}) AS {_plain(f'avg_{number}')}")
    name = _plain(f"{one.name}_by_{found.key}" if found.key else f"{one.name}_over_time")
    select = ", ".join([*([key] if key else []), "window_start", *figures])
    text = [
        f"SELECT {select}",
        f"FROM {one.name} [RANGE {window} SLIDE {window}]",
        *([f"GROUP BY {key}"] if key else []),
    ]
    return [f"[queries.{name}]", 'cql = """', *text, '"""']


def _window(span_us: int) -> str:
    wanted = span_us / 1_000_000 / WINDOWS_SHOWN
    return next((text for seconds, text in WINDOWS if seconds >= wanted), WINDOWS[-1][1])


def _number(columns: Sequence[Field], time: str) -> str:
    """The last column of numbers that neither names something nor is the time."""
    fitting = [
        f.name
        for f in columns
        if f.type.startswith(NUMBERS) and not IDENTIFIERS.search(f.name) and f.name not in time
    ]
    return fitting[-1] if fitting else ""


def rounded_up(length_us: int) -> str:
    """A length of time that is no shorter, in a unit that people read.

    >>> rounded_up(90_000_000), rounded_up(1_500_000), rounded_up(86_400_000_000)
    ('2 minutes', '2 seconds', '1 day')
    """
    size, unit = next((s, u) for s, u in UNITS if length_us >= s)
    count = -(-length_us // size)
    return f"{count} {unit.removesuffix('s') if count == 1 and len(unit) > 2 else unit}"


def _table(values: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{_key(k)} = {toml(v)}" for k, v in values.items()) + " }"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


def toml(value: Any) -> str:
    """A value as TOML spells it; JSON's escapes are among TOML's.

    >>> toml("a\\tb"), toml(True)
    ('"a\\\\tb"', 'true')
    """
    return json.dumps(value, ensure_ascii=False)
