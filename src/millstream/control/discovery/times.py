"""How a column of texts or numbers spells points in time, and what they are.

A spelling is one that Spark's cast reads (ISO 8601), a pattern for `to_timestamp`, or a number
since 1970. Whether 3/4/2025 is in March or in April is decided by the values: a day above 12 tells,
else the order that leaves the rows in order of time.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?"
    r"(?P<zone>\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d|[+-]\d\d|[A-Z][A-Za-z]+/[A-Za-z_]+))?)?"
)
REGION = re.compile(r"\s?([A-Z][A-Za-z]+/[A-Za-z_]+)$")
WEEKDAY = re.compile("EEE,? ")  # Spark reads no days of the week: they are cut off
T_BETWEEN = re.compile(r"\d[Tt]\d")  # between a day and a time of it, as ISO 8601 has it
# Names of zones that stand behind times, and their distance from UTC in hours.
ZONES = {
    "GMT": 0, "UTC": 0, "WET": 0, "WEST": 1, "BST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3,
    "MSK": 3, "JST": 9, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6,
    "PST": -8, "PDT": -7,
}  # fmt: skip
ZONE_NAME = re.compile(rf"\b({'|'.join(ZONES)})\b")
NUMBER = re.compile(r"\d{9,19}(?:\.\d+)?")
# A letter of a pattern: what it matches, and what Python's strptime calls it.
PARTS = {
    "yyyy": (r"\d{4}", "%Y"),
    "yy": (r"\d\d", "%y"),
    "EEE": (r"[A-Za-z]{3}", "%a"),
    "MMMM": (r"[A-Za-z]{3,9}", "%B"),
    "MMM": (r"[A-Za-z]{3}", "%b"),
    "MM": (r"\d{1,2}", "%m"),
    "dd": (r"\d{1,2}", "%d"),
    "HH": (r"\d{1,2}", "%H"),
    "hh": (r"\d{1,2}", "%I"),
    "mm": (r"\d\d", "%M"),
    "ss": (r"\d\d", "%S"),
    "SSSSSS": (r"\d{1,6}", "%f"),
    "a": (r"[AaPp][Mm]", "%p"),
    "Z": (r"[+-]\d{4}", "%z"),
    "X": (r"(?:Z|[+-]\d\d(?:\d\d)?)", "%z"),
    "z": (rf"(?:{'|'.join(ZONES)})", "%z"),
}
TOKEN = re.compile("|".join(PARTS))
DATES = (
    "dd.MM.yyyy", "dd.MM.yy", "dd/MM/yyyy", "MM/dd/yyyy", "dd-MM-yyyy", "MM-dd-yyyy", "yyyy/MM/dd",
    "yyyy.MM.dd", "dd-MMM-yyyy", "dd MMM yyyy", "MMM dd, yyyy", "dd/MM/yy", "MM/dd/yy",
    "yyyy-MM-dd", "dd-MMM-yy", "dd MMM yy", "dd/MMM/yyyy", "MMM dd yyyy", "dd MMMM yyyy",
    "MMMM dd, yyyy", "yyyy:MM:dd", "yyyy年MM月dd日",
)  # fmt: skip
CLOCKS = (
    "HH:mm", "HH:mm:ss", "HH:mm:ss.SSSSSS", "HH:mm:ss,SSSSSS", "hh:mm a", "hh:mm:ss a", "hh:mma",
    "hh:mm:ssa", "HH.mm", "HH.mm.ss",
)  # fmt: skip
PATTERNS = (
    *(f"{day} {clock}" for day in DATES for clock in CLOCKS),
    *(f"{day}, {clock}" for day in DATES for clock in CLOCKS),
    *DATES,
    "dd/MMM/yyyy:HH:mm:ss Z",
    "dd MMM yyyy HH:mm:ss Z",
    "EEE, dd MMM yyyy HH:mm:ss Z",  # as mails have it
    "EEE, dd MMM yyyy HH:mm:ss z",
    "EEE MMM dd HH:mm:ss.SSSSSS yyyy",  # as web servers log errors
    "EEE MMM dd HH:mm:ss yyyy",  # as C's ctime and `date` have it
    "EEE MMM dd HH:mm:ss Z yyyy",
    "EEE MMM dd HH:mm:ss z yyyy",
    *(f"{day} {clock} z" for day in ("yyyy-MM-dd", "dd MMM yyyy") for clock in CLOCKS[:4]),
    "yyyyMMdd",
    "yyyyMMddHHmm",
    "yyyyMMddHHmmss",
    "yyyyMMdd HH:mm:ss",
    "yyyyMMdd HHmmss",
    "yyyyMMdd HHmmssX",
    "yyyy-MM",
)
# Since 1970, in units of: how many a second, and Spark's function. From 1990 to 2060.
EPOCHS = (
    (1, "timestamp_seconds({})"),
    (1_000, "timestamp_millis({})"),
    (1_000_000, "timestamp_micros({})"),
    (1_000_000_000, "timestamp_micros({} div 1000)"),
)
HOURS_IN_DIGITS = "yyyyMMddHH"
FIRST_OF_HOURS = "1950"
ROWS_TO_DOUBT = 5  # values from which on one of another kind is a mistake
MOSTLY = 0.8
EARLIEST_S, LATEST_S = 631_152_000, 2_840_140_800


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a column spells times: `sql` makes a timestamp of it, `{}` being the column."""

    sql: str
    kind: str  # iso, day (a date alone), pattern, epoch, clock (a time of day alone)
    zoned: bool = False  # the values say which zone they are in
    pattern: str = ""
    per_second: int = 1
    doubt: str = ""  # what else the values could mean

    def micros(self, value: str) -> int | None:
        """The time of a value in microseconds since 1970; None where it has none."""
        try:
            if self.kind == "epoch":
                whole, _, part = value.partition(".")
                fraction = int(f"{part:0<6}"[:6]) if part else 0
                return int(whole) * 1_000_000 // self.per_second + fraction
            if self.sql == "{}":
                return _iso_micros(value.strip())
            return _micros(_moment(self.pattern, value))
        except (ValueError, OverflowError):
            return None


def _moment(pattern: str, value: str) -> datetime:
    """What a value spells by a pattern; ValueError where it does not."""
    value = value.strip()
    if pattern.endswith("z") or " z " in pattern:
        value = ZONE_NAME.sub(lambda name: f"{ZONES[name[1]]:+03d}00", value)
    if T_BETWEEN.search(value):
        value = value.replace("T", " ").replace("t", " ")
    return datetime.strptime(value, _strptime(pattern))


def _iso_micros(value: str) -> int:
    """A time of ISO 8601, perhaps with the name of a region behind it."""
    if region := REGION.search(value):
        local = datetime.fromisoformat(value[: region.start()])
        try:
            return _micros(local.replace(tzinfo=ZoneInfo(region[1])))
        except ZoneInfoNotFoundError:
            raise ValueError(f"{region[1]} is not a time zone") from None
    return _micros(datetime.fromisoformat(re.sub(r"\s?(UTC|GMT)$", "Z", value)))


def spelling_of(values: Sequence[str]) -> Spelling | None:
    """How all these values spell times; None where they do not.

    >>> spelling_of(["31.12.2025 14:05", "1.1.2026 9:07"]).sql
    "to_timestamp({}, 'd.M.yyyy H:mm')"
    >>> spelling_of(["1735654000123"]).sql
    'timestamp_millis({})'
    >>> spelling_of(["2025-12-31T14:05:00Z"]).sql, spelling_of(["hello"])
    ('{}', None)
    """
    if not values:
        return None
    if found := _iso(values):
        return found
    if _all(NUMBER, values) and (found := _hours_in_digits(values) or _epoch(values)):
        return found
    if all(T_BETWEEN.search(value) for value in values):
        found = _pattern([T_BETWEEN.sub(_blank, value) for value in values])
        return found and replace(found, sql=found.sql.format("replace({}, 'T', ' ')"))
    return _pattern(values)


def _blank(between: re.Match[str]) -> str:
    return f"{between[0][0]} {between[0][2]}"


def mostly_times(values: Sequence[str]) -> Spelling | None:
    """How nearly all of these values spell times: a bad row or two are rejected by the run.

    >>> mostly_times(["2025-01-01"] * 9 + ["no day"]).kind, mostly_times(["2025-01-01", "no day"])
    ('day', None)
    """
    found = spelling_of(values)
    if found is not None or len(values) < ROWS_TO_DOUBT:
        return found
    guess = next((g for value in values[:ROWS_TO_DOUBT] if (g := spelling_of([value]))), None)
    if guess is None or guess.kind == "epoch":
        return None
    fitting = [value for value in values if guess.micros(value) is not None]
    return spelling_of(fitting) if len(fitting) >= MOSTLY * len(values) else None


def clock_of(values: Sequence[str]) -> str:
    """The pattern of times of day alone; empty where the values are none."""
    fitting = [c for c in CLOCKS if values and _fits(c, values)]
    return _padded(fitting[0], values) if fitting else ""


def joined(day: Spelling, clock: str) -> Spelling:
    """A date and a time of day in two columns: `{}` is their text with a space between."""
    pattern = f"{day.pattern or 'yyyy-MM-dd'} {clock}"
    return Spelling(f"to_timestamp({{}}, '{pattern}')", "pattern", pattern=pattern)


def disorder_us(times: Iterable[int]) -> int:
    """How much older than the greatest time before it a row can be.

    >>> disorder_us([5, 7, 4, 9])
    3
    """
    greatest, most = None, 0
    for time in times:
        greatest = time if greatest is None else max(greatest, time)
        most = max(most, greatest - time)
    return most


def _iso(values: Sequence[str]) -> Spelling | None:
    matches = [ISO.fullmatch(value.strip()) for value in values]
    if not all(matches):
        return None
    lengths = {len(value.strip()) for value in values}
    if lengths == {10}:
        return Spelling("{}", "day", pattern="yyyy-MM-dd")
    return Spelling("{}", "iso", zoned=all(m and m["zone"] for m in matches))


def _hours_in_digits(values: Sequence[str]) -> Spelling | None:
    """2025123114 is an hour as weather services write it: as seconds it would be in 2034.

    >>> spelling_of(["2025123114", "2025123115"]).sql, spelling_of(["1735654000"]).sql
    ("to_timestamp({}, 'yyyyMMddHH')", 'timestamp_seconds({})')
    """
    fits = _fits(HOURS_IN_DIGITS, values) and all(v.strip() > FIRST_OF_HOURS for v in values)
    sql = f"to_timestamp({{}}, '{HOURS_IN_DIGITS}')"
    return Spelling(sql, "pattern", pattern=HOURS_IN_DIGITS) if fits else None


def _epoch(values: Sequence[str]) -> Spelling | None:
    numbers = [int(value.partition(".")[0]) for value in values]
    for per_second, sql in EPOCHS:
        fits = all(EARLIEST_S <= n // per_second <= LATEST_S for n in numbers)
        if fits and (per_second == 1 or not any("." in v for v in values)):
            return Spelling(sql, "epoch", zoned=True, per_second=per_second)
    return None


def _pattern(values: Sequence[str]) -> Spelling | None:
    fitting = [pattern for pattern in PATTERNS if _fits(pattern, values)]
    if not fitting:
        return None
    best = fitting[0]
    doubt = ""
    if len(fitting) > 1:
        best, other = _least_disorder(fitting[:2], values)
        doubt = f"the values also fit {_padded(other, values)}"
    shown = _padded(best, values)
    kind = "pattern" if "mm" in best else "day"
    sql = f"to_timestamp({{}}, '{shown}')"
    if day := WEEKDAY.match(shown):
        sql = f"to_timestamp(substr({{}}, {day.end() + 1}), '{shown[day.end() :]}')"
    return Spelling(sql, kind, bool(re.search("[ZXz]", best)), shown, doubt=doubt)


def _least_disorder(patterns: Sequence[str], values: Sequence[str]) -> tuple[str, str]:
    def disorder(pattern: str) -> int:
        read = Spelling("", "pattern", pattern=pattern).micros
        return disorder_us(time for time in map(read, values) if time is not None)

    first, second = patterns
    american = second.endswith("a")  # who writes 2:05 PM writes the month first
    better = disorder(second) < disorder(first)
    tie = disorder(second) == disorder(first)
    return (second, first) if better or (tie and american) else (first, second)


def _fits(pattern: str, values: Sequence[str]) -> bool:
    if not _all(_regex(pattern), values):
        return False
    read = Spelling("", "pattern", pattern=pattern).micros
    return all(read(value) is not None for value in values)


def _all(regex: re.Pattern[str], values: Sequence[str]) -> bool:
    return all(regex.fullmatch(value.strip()) for value in values)


def _regex(pattern: str) -> re.Pattern[str]:
    return _made(pattern, lambda token: PARTS[token][0], re.escape)


def _made(pattern: str, part: Callable[[str], str], rest: Callable[[str], str]) -> re.Pattern[str]:
    text, at = "", 0
    for token in TOKEN.finditer(pattern):
        text += rest(pattern[at : token.start()]) + part(token[0])
        at = token.end()
    return re.compile(text + rest(pattern[at:]))


def _strptime(pattern: str) -> str:
    """A pattern of Spark's as one of Python's.

    >>> _strptime("d.M.yyyy H:mm")
    '%d.%m.%Y %H:%M'
    """
    for short in ("d", "M", "H", "h"):
        pattern = re.sub(f"(?<!{short}){short}(?!{short})", short * 2, pattern)
    return TOKEN.sub(lambda token: PARTS[token[0]][1], pattern)


def _padded(pattern: str, values: Sequence[str]) -> str:
    """The pattern with single letters where not all values have two digits.

    One letter of a pattern reads one digit or two; two letters read two.
    """
    tokens = list(TOKEN.finditer(pattern))
    regex = _made(pattern, lambda token: f"({PARTS[token][0]})", re.escape)
    short = set()
    for value in values:
        found = regex.fullmatch(value.strip())
        for token, text in zip(tokens, found.groups() if found else (), strict=False):
            if len(text) == 1 and token[0] in ("dd", "MM", "HH", "hh"):
                short.add(token[0])
    return TOKEN.sub(lambda token: token[0][0] if token[0] in short else token[0], pattern)


def _micros(moment: datetime) -> int:
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)
