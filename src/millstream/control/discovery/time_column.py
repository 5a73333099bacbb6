"""Which column is the time of its rows, and the expression that makes a timestamp of it."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from millstream.control.discovery.column_types import ColumnType
from millstream.control.discovery.times import clock_of, joined
from millstream.language.plan.sql_text import quoted

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TIME_WORDS = re.compile(
    r"time|date|stamp|zeit|datum|fecha|heure|created|occurred|when|epoch|(^|_)(ts|at|day)(_|$)",
    re.IGNORECASE,
)
OTHER_TIMES = re.compile(r"birth|geburt|expir|valid|due|updat|deliver|end", re.IGNORECASE)
PARTS_OF_TIME = ("year", "month", "day", "hour", "minute", "second")
YEARS = range(1500, 2500)
DAY_OF_YEAR = ("doy", "day_of_year", "dayofyear", "yday", "jday", "julian_day")
DAY = 3  # parts of a time that is told without doubt
# Days since 1899-12-30, as spreadsheets count them: of the years 1954 to 2119.
MIDNIGHT = re.compile(r"24:00")
HOURS_AND_MINUTES = re.compile(r"(?:[01]?\d|2[0-3]):[0-5]\d")
SERIALS = range(20_000, 80_000)
SERIAL_1970 = 25_569
TIMES = ("timestamp", "timestamp_ntz", "date")
# Words that are no names of columns where they stand alone in an expression.
WORDS_OF_SQL = frozenset((
    "all", "and", "any", "array", "as", "asc", "between", "by", "case", "cast", "cross", "date",
    "desc", "distinct", "else", "end", "exists", "extract", "false", "for", "from", "full", "group",
    "having", "if", "in", "inner", "interval", "into", "is", "join", "lateral", "left", "like",
    "limit", "map", "natural", "not", "null", "on", "or", "order", "outer", "over", "partition",
    "range", "right", "row", "rows", "select", "set", "slide", "some", "struct", "table", "then",
    "time", "timestamp", "to", "true", "unbounded", "union", "using", "values", "when", "where",
    "window", "with",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """A column as it was found, with the texts of its values."""

    name: str
    type: ColumnType
    values: Sequence[str]


def name_sql(name: str) -> str:
    """A column in an expression: in backquotes where it could be something else.

    >>> name_sql("at"), name_sql("order date"), name_sql("Order")
    ('at', '`order date`', '`Order`')
    """
    plain = IDENTIFIER.fullmatch(name) and name.lower() not in WORDS_OF_SQL
    return name if plain else quoted(name)


def expression(column: Seen) -> str:
    if column.type.type.startswith("inner"):
        return ".".join(name_sql(part) for part in column.name.split("."))
    return name_sql(column.name)


def time_of(seen: Sequence[Seen]) -> tuple[str, list[int], list[str], bool]:
    """The expression of the likeliest time, the times that were seen, notes, whether zoned."""
    candidates = [(s, *_likelihood(index, s)) for index, s in enumerate(seen) if s.type.times]
    candidates = [c for c in candidates if c[1] > 0]
    if not candidates:
        in_parts = _in_parts(seen)
        return in_parts if in_parts[0] else _serial(seen)
    chosen = max(candidates, key=lambda c: (c[1], c[2]))[0]
    spelling = chosen.type.times
    assert spelling is not None
    sql, values = expression(chosen), chosen.values
    if spelling.sql == "{}" and chosen.type.type in TIMES:
        sql = chosen.name  # a column by its name, which needs no quotes
    clock = _clock_beside(seen, chosen) if spelling.kind == "day" else None
    if clock and ends_at_24(_present(clock)):
        return _with_hours_to_24(chosen, clock)
    if clock:
        digits = digits_of_clock(clock.values)
        pattern = "HHmmss"[:digits] if digits else clock_of(_present(clock))
        spelling = joined(spelling, pattern)
        day = sql if chosen.type.type == "string" else f"CAST({sql} AS STRING)"
        time = name_sql(clock.name)
        if digits:
            time = f"lpad({time}, {digits}, '0')"
        sql = f"concat({day}, ' ', {time})"
        clocks = [v.strip().zfill(digits) for v in clock.values]
        values = [f"{a} {b}" for a, b in zip(chosen.values, clocks, strict=False)]
    elif chosen.type.type.endswith("string") and spelling.kind == "epoch":
        sql = f"CAST({sql} AS {'DOUBLE' if any('.' in v for v in values) else 'BIGINT'})"
    elif chosen.type.type.endswith("bigint") and spelling.kind != "epoch":
        sql = f"CAST({sql} AS STRING)"
    elif chosen.type.type.endswith("string") and spelling.sql == "{}":
        sql = f"to_timestamp({sql})"
    times = [t for t in map(spelling.micros, values) if t is not None]
    notes = [f"{spelling.doubt}: look at the first results"] if spelling.doubt else []
    others = [c[0].name for c in candidates if c[0] is not chosen]
    if others:
        notes.append(f"the time could also be {', '.join(others)}")
    return spelling.sql.format(sql), times, notes, spelling.zoned


def _in_parts(seen: Sequence[Seen]) -> tuple[str, list[int], list[str], bool]:
    """A time whose year, month, day and so on are columns of their own."""
    numbers = {s.name.lower(): s for s in seen if s.type.type == "bigint"}
    found = [numbers[name] for name in PARTS_OF_TIME if name in numbers]
    if not found or [s.name.lower() for s in found] != list(PARTS_OF_TIME[: len(found)]):
        return "", [], [], True
    if not all(int(v) in YEARS for v in _present(found[0])):
        return "", [], [], True
    if len(found) == 1 and (days := next((s for n in DAY_OF_YEAR if (s := numbers.get(n))), None)):
        return _day_of_year(found[0], days)
    first = ["1"] * (DAY - len(found))  # of January, or of the month
    missing = [*first, *["0"] * (len(PARTS_OF_TIME) - len(found) - len(first))]
    sql = f"make_timestamp({', '.join([*(name_sql(s.name) for s in found), *missing])})"
    times = []
    for parts in zip(*(s.values for s in found), strict=False):
        with suppress(ValueError):  # no day of the calendar: the run rejects it
            moment = datetime(*(int(part) for part in (*parts, *first)), tzinfo=UTC)  # type: ignore[misc, arg-type]
            times.append(int(moment.timestamp()) * 1_000_000)
    return sql, times, [], False


def _day_of_year(year: Seen, day: Seen) -> tuple[str, list[int], list[str], bool]:
    sql = f"make_timestamp({name_sql(year.name)}, 1, 1, 0, 0, 0)"
    sql = f"timestampadd(DAY, {name_sql(day.name)} - 1, {sql})"
    times = []
    for y, d in zip(year.values, day.values, strict=False):
        with suppress(ValueError):
            moment = datetime(int(y), 1, 1, tzinfo=UTC) + timedelta(days=int(d) - 1)
            times.append(int(moment.timestamp()) * 1_000_000)
    return sql, times, [], False


def _serial(seen: Sequence[Seen]) -> tuple[str, list[int], list[str], bool]:
    """A time that a spreadsheet has written as the number of a day."""
    for column in seen:
        numbers = column.type.type in ("bigint", "double") and TIME_WORDS.search(column.name)
        days = [float(v) for v in _present(column)] if numbers else []
        if days and all(int(day) in SERIALS for day in days):
            name = name_sql(column.name)
            sql = f"timestamp_seconds(round(({name} - {SERIAL_1970}) * 86400))"
            times = [round((day - SERIAL_1970) * 86400) * 1_000_000 for day in days]
            note = f"{column.name} is read as days since 1899-12-30, as spreadsheets count them"
            return sql, times, [note], False
    return "", [], [], True


def _present(column: Seen) -> list[str]:
    return [value.strip() for value in column.values if value.strip()]


def _likelihood(index: int, column: Seen) -> tuple[float, int]:
    """How likely a column is the time of its rows; 0 where it is none."""
    spelling = column.type.times
    assert spelling is not None
    named = bool(TIME_WORDS.search(column.name))
    missing = sum(not value.strip() for value in column.values)
    score = {"iso": 4.0, "pattern": 4.0, "epoch": 3.0, "day": 2.0}.get(spelling.kind, 1.0)
    number = column.type.type.removeprefix("inner ") in ("bigint", "double")
    if number and not named:
        times = [t for t in map(spelling.micros, column.values) if t is not None]
        steps = list(pairwise(times)) if len(set(times)) > 1 else []
        rising, falling = sum(a <= b for a, b in steps), sum(a >= b for a, b in steps)
        if not steps or max(rising, falling) < 0.9 * len(steps):
            return 0.0, 0
        score -= 1.5
    if missing:
        score -= 3.5 if missing > 0.1 * len(column.values) else 1.0
    if OTHER_TIMES.search(column.name):
        score -= 1.2
    return max(score + named * 0.5, 0.1), -index


def _clock_beside(seen: Sequence[Seen], day: Seen) -> Seen | None:
    """A column of times of day that goes with one of dates."""
    for column in seen:
        present = _present(column)
        if column is day or not present:
            continue
        if column.type.type == "string" and (clock_of(present) or ends_at_24(present)):
            return column
        if TIME_WORDS.search(column.name) and digits_of_clock(present):
            return column
    return None


def ends_at_24(values: Sequence[str]) -> bool:
    """Whether times of day call midnight 24:00, as meters do: the end of the day before.

    >>> ends_at_24(["23:00", "24:00"]), ends_at_24(["23:00", "00:00"]), ends_at_24(["24:30"])
    (True, False, False)
    """
    last = [value for value in values if MIDNIGHT.fullmatch(value)]
    others = [value for value in values if not MIDNIGHT.fullmatch(value)]
    return bool(last) and all(HOURS_AND_MINUTES.fullmatch(value) for value in others)


def _with_hours_to_24(day: Seen, clock: Seen) -> tuple[str, list[int], list[str], bool]:
    """A date and a time of day in two columns, midnight being the end of its day."""
    spelling = day.type.times
    assert spelling is not None
    name = name_sql(clock.name)
    hours = f"CAST(substring_index({name}, ':', 1) AS INT)"
    minutes = f"CAST(substring_index({name}, ':', -1) AS INT)"
    begin = spelling.sql.format(expression(day))
    times = []
    for date, text in zip(day.values, clock.values, strict=False):
        at = spelling.micros(date)
        hour, _, minute = text.strip().partition(":")
        if at is not None and hour.isdecimal() and minute.isdecimal():
            times.append(at + (int(hour) * 60 + int(minute)) * 60_000_000)
    return f"timestampadd(MINUTE, 60 * {hours} + {minutes}, {begin})", times, [], False


def digits_of_clock(values: Sequence[str]) -> int:
    """How many digits times of day have that are digits alone, 220000 or 2200; 0 if they are none.

    >>> digits_of_clock(["91500", "220000"]), digits_of_clock(["915"]), digits_of_clock(["9960"])
    (6, 4, 0)
    """
    present = [value.strip() for value in values if value.strip()]
    if not present or not all(value.isdecimal() for value in present):
        return 0
    longest = max(map(len, present))
    digits = 6 if longest in (5, 6) else 4 if longest in (3, 4) else 0
    padded = [value.zfill(digits) for value in present]
    pattern = "%H%M%S"[:digits]
    try:
        for value in padded if digits else ():
            datetime.strptime(value, pattern)
    except ValueError:
        return 0
    return digits
