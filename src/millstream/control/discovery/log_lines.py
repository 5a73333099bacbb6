"""Lines of a log: each has a time at its beginning, or, as those of web servers, in brackets.

The system log of Unix tells no year: that of the file's last change stands for it.

Such a file is plain text with one column, `value`, and a time that is cut out of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.control.discovery.times import ZONES, Spelling, spelling_of

LINES = 2000  # that are looked at
MOSTLY = 0.8  # of the lines must have a time: others are the rest of the one before
NAMES = "|".join(sorted(ZONES, key=len, reverse=True))
LEADING = re.compile(
    r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{3,9})?)?"
    rf"(?: ?(?:Z|[+-]\d\d:?\d\d))?)(?=[\s|\]])(?! (?:{NAMES})\b)"
)
# A day alone, as in a table of fixed width; where an hour follows, it is not alone.
LEADING_DAY = re.compile(r"(\d{4}[-/]\d\d[-/]\d\d)(?=[ \t|])(?!\s+\d{1,2}[:.h]\d\d)")
BRACKETED = re.compile(r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]")
# Times anywhere in a line. Without a backslash: Spark reads these patterns as well.
MINUTES = ":[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?"
ISO = f"[0-9]{{4}}[-/.][0-9]{{2}}[-/.][0-9]{{2}}[T ][0-9]{{2}}{MINUTES}"
WITHIN = tuple(
    re.compile(pattern)
    for pattern in (
        f"{ISO} ({NAMES})(?![A-Za-z])",
        f"{ISO}(Z|[+-][0-9]{{2}}:?[0-9]{{2}}| [+-][0-9]{{4}})?",
        f"[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [0-9]{{2}} [0-9]{{2}}{MINUTES} [0-9]{{4}}",
        f"[0-9]{{1,2}}([-/. ])([0-9]{{1,2}}|[A-Z][a-z]{{2}})[-/. ][0-9]{{4}} [0-9]{{1,2}}{MINUTES}"
        "( [AaPp][Mm])?( [+-][0-9]{4})?",
    )
)
SYSTEM_LOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) ")
# A comma in the text of a line looks like one between two columns: before thousandths, after a time
# in brackets, and after one that words follow, unless they are a part of it.
TEXT_AFTER_TIME = re.compile(
    r"\[[^]]*\d\d:\d\d[^]]*\]|\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?"
    rf"(?:,\d{{3}}\s|(?:[.,]\d{{3,6}})? +(?!(?:[AaPp][Mm]|{NAMES})\b|[A-Z][A-Za-z]+/)[A-Za-z\[])"
)
IN_BRACKETS = "substring_index(substring_index(value, ']', 1), '[', -1)"  # the first ones


@dataclass(frozen=True, slots=True)
class LineTimes:
    """The times of lines: how to cut one out, and how it is spelt."""

    sql: str
    spelling: Spelling
    micros: tuple[int, ...]


def is_log(lines: Sequence[str]) -> bool:
    """Whether lines would be taken apart at a comma of their text.

    >>> is_log(["2024-03-30 12:00:00,123 INFO started"]), is_log(["2024-03-30 12:00:00,123,7"])
    (True, False)
    >>> is_log(["2024/03/30 12:00:00 no disk, sorry"]), is_log(["2024-03-30 12:00:00 PM,7"])
    (True, False)
    """
    seen = lines[:LINES]
    logged = sum(bool(TEXT_AFTER_TIME.match(line)) for line in seen)
    return bool(seen) and logged >= MOSTLY * len(seen)


def times_of(lines: Sequence[str], year: int) -> LineTimes | None:
    """Where most lines have a time and all spell it alike; the year is for those that tell none.

    >>> times_of(["2024-03-30 12:00:00,123 INFO started"], 2024).sql
    "to_timestamp(substr(value, 1, 23), 'yyyy-MM-dd HH:mm:ss,SSSSSS')"
    >>> times_of(['h - - [30/Mar/2024:12:00:00 +0100] "GET /"'], 2024).spelling.zoned
    True
    >>> times_of(["Mar  1 12:00:00 host sshd[1]: hello"], 2024).sql[:40]
    "to_timestamp(concat('2024 ', regexp_repl"
    >>> times_of(["2024-03-30  BER  7", "2024-03-31  BER  8"], 2024).sql
    'to_timestamp(substr(value, 1, 10))'
    >>> times_of(["hello", "world"], 2024)
    """
    seen = lines[:LINES]
    return (
        _cut_out(seen, LEADING)
        or _cut_out(seen, BRACKETED, IN_BRACKETS)
        or _within(seen)
        or _system_log(seen, year)
        or _cut_out(seen, LEADING_DAY)
    )


def _cut_out(lines: Sequence[str], pattern: re.Pattern[str], cut: str = "") -> LineTimes | None:
    """Times that `cut` takes out of a line; without it they stand at its beginning."""
    found = [m[1] for line in lines if (m := (pattern.search if cut else pattern.match)(line))]
    lengths = {len(text) for text in found}
    if len(found) < max(1, MOSTLY * len(lines)) or (not cut and len(lengths) != 1):
        return None
    spelling = spelling_of(found)
    if spelling is None:
        return None
    value = cut or f"substr(value, 1, {lengths.pop()})"
    sql = spelling.sql.format(value) if spelling.sql != "{}" else f"to_timestamp({value})"
    micros = [spelling.micros(text) for text in found]
    return LineTimes(sql, spelling, tuple(m for m in micros if m is not None))


def _within(lines: Sequence[str]) -> LineTimes | None:
    """A time anywhere in a line, as in `level=info time=2024-03-30T12:00:00Z`."""
    for pattern in WITHIN:
        found = [match[0] for line in lines if (match := pattern.search(line))]
        spelling = spelling_of(found) if len(found) >= max(1, MOSTLY * len(lines)) else None
        if spelling is None or spelling.kind == "day":
            continue
        micros = [spelling.micros(text) for text in found]
        cut = f"regexp_extract(value, '{pattern.pattern}', 0)"
        sql = spelling.sql.format(cut) if spelling.sql != "{}" else f"to_timestamp({cut})"
        return LineTimes(sql, spelling, tuple(m for m in micros if m is not None))
    return None


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
