"""Lines of a log: each has a time at its beginning, or, as those of web servers, in brackets.

The system log of Unix tells no year: that of the file's last change stands for it.

Such a file is plain text with one column, `value`, and a time that is cut out of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.control.discovery.times import Spelling, spelling_of

LINES = 2000  # that are looked at
MOSTLY = 0.8  # of the lines must have a time: others are the rest of the one before
BRACKETED = re.compile(r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]")
LEADING = re.compile(
    r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{3,6})?(?:Z|[+-]\d\d:?\d\d)?)(?=[\s|\]])"
)
# Without a backslash: Spark reads it as well.
WITHIN = re.compile(
    "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    "([.][0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
SYSTEM_LOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) ")
# A comma before thousandths looks like one between two columns.
THOUSANDTHS = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d,\d{3}\s")
IN_BRACKETS = "substring_index(substring_index(value, ']', 1), '[', -1)"  # the first ones


@dataclass(frozen=True, slots=True)
class LineTimes:
    """The times of lines: how to cut one out, and how it is spelt."""

    sql: str
    spelling: Spelling
    micros: tuple[int, ...]


def is_log(lines: Sequence[str]) -> bool:
    """Whether lines would be taken apart at the comma of their thousandths.

    >>> is_log(["2024-03-30 12:00:00,123 INFO started"]), is_log(["2024-03-30 12:00:00,123,7"])
    (True, False)
    """
    seen = lines[:LINES]
    return bool(seen) and sum(bool(THOUSANDTHS.match(line)) for line in seen) >= MOSTLY * len(seen)


def times_of(lines: Sequence[str], year: int) -> LineTimes | None:
    """Where most lines have a time and all spell it alike; the year is for those that tell none.

    >>> times_of(["2024-03-30 12:00:00,123 INFO started"], 2024).sql
    "to_timestamp(substr(value, 1, 23), 'yyyy-MM-dd HH:mm:ss,SSSSSS')"
    >>> times_of(['h - - [30/Mar/2024:12:00:00 +0100] "GET /"'], 2024).spelling.zoned
    True
    >>> times_of(["Mar  1 12:00:00 host sshd[1]: hello"], 2024).sql[:40]
    "to_timestamp(concat('2024 ', regexp_repl"
    >>> times_of(["hello", "world"], 2024)
    """
    seen = lines[:LINES]
    for pattern, cut in ((LEADING, ""), (BRACKETED, IN_BRACKETS)):
        matches = [pattern.match(line) if not cut else pattern.search(line) for line in seen]
        found = [match[1] for match in matches if match]
        lengths = {len(text) for text in found}
        if len(found) < MOSTLY * len(seen) or (not cut and len(lengths) != 1):
            continue
        spelling = spelling_of(found)
        if spelling is not None:
            value = cut or f"substr(value, 1, {lengths.pop()})"
            sql = spelling.sql.format(value) if spelling.sql != "{}" else f"to_timestamp({value})"
            micros = [spelling.micros(text) for text in found]
            return LineTimes(sql, spelling, tuple(m for m in micros if m is not None))
    return _within(seen) or _system_log(seen, year)


def _within(lines: Sequence[str]) -> LineTimes | None:
    """A time of ISO 8601 anywhere in a line, as in `level=info time=2024-03-30T12:00:00Z`."""
    found = [match[0] for line in lines if (match := WITHIN.search(line))]
    spelling = spelling_of(found) if len(found) >= max(1, MOSTLY * len(lines)) else None
    if spelling is None or spelling.sql != "{}":
        return None
    micros = [spelling.micros(text) for text in found]
    sql = f"to_timestamp(regexp_extract(value, '{WITHIN.pattern}', 0))"
    return LineTimes(sql, spelling, tuple(m for m in micros if m is not None))


def _system_log(lines: Sequence[str], year: int) -> LineTimes | None:
    found = [f"{year} {match[1]}" for line in lines if (match := SYSTEM_LOG.match(line))]
    if not found or len(found) < MOSTLY * len(lines):
        return None
    pattern = "yyyy MMM d HH:mm:ss"
    one_space = "regexp_replace(substr(value, 1, 15), ' +', ' ')"
    sql = f"to_timestamp(concat('{year} ', {one_space}), '{pattern}')"
    note = f"the lines have no year: {year} is that of the file's last change"
    spelling = Spelling(sql, "pattern", pattern=pattern, doubt=note)
    micros = [spelling.micros(re.sub(" +", " ", text)) for text in found]
    return LineTimes(sql, spelling, tuple(m for m in micros if m is not None))
