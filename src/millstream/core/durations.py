"""Lengths of time as people write them: `2min`, `10 seconds`, `1h30m`, `INTERVAL '1' MINUTE`.

Everything becomes whole microseconds. Months and years are refused: their length depends on when
they begin, and a window has one length.
"""

import re
from difflib import get_close_matches
from fractions import Fraction

from millstream.core.errors import UsageError

UNITS_US = {
    **dict.fromkeys(("us", "usec", "usecs", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000_000),
}
CALENDAR_UNITS = frozenset(
    {"mon", "mons", "month", "months", "y", "yr", "yrs", "year", "years", "quarter", "quarters"}
)
CALENDAR_HINT = "months and years have no fixed length; give days, e.g. 30 DAYS"
SHAPE_HINT = "write a number and a unit, e.g. 10 SECONDS, 2min, 500ms, 1h30m"
LONGEST_TEXT = 200  # characters
LONGEST_US = 2**62  # what leaves room to add a time
_PART = re.compile(r"([-+]?\d+(?:\.\d+)?|[-+]?\.\d+)\s*([^\W\d]+)", re.UNICODE)


def microseconds(text: str) -> int:
    """The length of a duration.

    >>> microseconds("2min"), microseconds("INTERVAL '1' MINUTE"), microseconds("1.5 s")
    (120000000, 60000000, 1500000)
    """
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{text[:50]}... is not a length of time", hint=SHAPE_HINT)
    bare = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    bare = bare.replace("'", " ").replace('"', " ").strip()
    if re.fullmatch(r"[-+]?0+", bare):  # zero needs no unit
        return 0
    parts = _PART.findall(bare)
    if not parts or _PART.sub("", bare).replace(",", "").strip():
        raise UsageError(f"{text.strip() or 'nothing'} is not a length of time", hint=SHAPE_HINT)
    total = sum((Fraction(number) * _unit(unit) for number, unit in parts), Fraction(0))
    if total.denominator != 1:
        raise UsageError(f"{text.strip()} is finer than a microsecond", hint="round it")
    if abs(total) > LONGEST_US:
        raise UsageError(f"{text.strip()} is too long", hint="leave it out for no limit")
    return int(total)


def _unit(word: str) -> int:
    unit = word.lower()
    if unit in CALENDAR_UNITS:
        raise UsageError(f"a length of time in {unit} is not supported", hint=CALENDAR_HINT)
    if unit not in UNITS_US:
        near = get_close_matches(unit, UNITS_US, 1, cutoff=0.75)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown unit of time {word}{meant}", hint=SHAPE_HINT)
    return UNITS_US[unit]
