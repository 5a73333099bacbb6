"""Windows of local days and months: `[RANGE 1 MONTH SLIDE 1 MONTH IN 'Europe/Berlin']`.

Days and months of a time zone have no fixed length, so that such a window is not read as lengths of
time but as counts of a unit.
"""

import re
from typing import Literal as OneOf
from zoneinfo import available_timezones

from millstream.core.durations import microseconds
from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.parsing.syntax import CalendarSyntax, CqlSyntaxError, Span

CALENDAR_HINT = (
    "[RANGE 1 DAY SLIDE 1 DAY IN 'Europe/Berlin'], [RANGE 1 MONTH SLIDE 1 MONTH], "
    "[RANGE 7 DAYS SLIDE 1 DAY OFFSET 6 HOURS IN 'Asia/Tokyo']"
)
MONTHS = {"month": 1, "mon": 1, "quarter": 3, "year": 12, "yr": 12, "y": 12}
DAYS = {"day": 1, "d": 1, "week": 7, "w": 7}
COUNT = re.compile(r"^(?:interval\s*)?'?(\d+)'?\s*([a-z]+)'?$", re.IGNORECASE)
ZONE = re.compile(r"\bIN\s+'([^']*)'", re.IGNORECASE)
COUNT_MAX = 100_000  # days or months
DAY_US = 86_400_000_000


def is_calendar(body: str) -> bool:
    """Whether what follows RANGE in brackets goes by a calendar."""
    words = re.findall(r"[a-z]+", re.sub(r"'[^']*/[^']*'", "", body), re.IGNORECASE)
    return ZONE.search(body) is not None or any(_months(word) for word in words)


def calendar_of(body: str, span: Span) -> CalendarSyntax:
    """What follows RANGE in brackets.

    >>> calendar_of("1 MONTH SLIDE 1 MONTH IN 'Europe/Berlin'", Span(0, 0))
    CalendarSyntax(unit='month', length=1, slide=1, zone='Europe/Berlin', offset_us=0)
    """
    found = ZONE.search(body)
    zone = found[1] if found else "UTC"
    rest = ZONE.sub("", body)
    rest, _, offset = _parted(rest, "OFFSET")
    length, _, slide = _parted(rest, "SLIDE")
    if re.search(r"\bALIGN\b", rest, re.IGNORECASE):
        raise CqlSyntaxError("ALIGN in a window of the calendar", span, CALENDAR_HINT)
    if not slide:
        raise CqlSyntaxError("a window of the calendar needs SLIDE", span, CALENDAR_HINT)
    _refuse_zone(zone, span)
    unit, count = _count(length, span)
    slide_unit, slide_count = _count(slide, span)
    if unit != slide_unit:
        raise CqlSyntaxError(
            "a window of months that slides by days, or the reverse", span,
            "give RANGE and SLIDE in the same unit: " + CALENDAR_HINT,
        )  # fmt: skip
    return CalendarSyntax(unit, count, slide_count, zone, _offset(offset, span))


def _parted(text: str, word: str) -> tuple[str, str, str]:
    parts = re.split(rf"\b{word}\b", text, maxsplit=1, flags=re.IGNORECASE)
    return parts[0].strip(), word, parts[1].strip() if len(parts) > 1 else ""


def _months(word: str) -> int | None:
    return MONTHS.get(word.lower()) or MONTHS.get(word.lower().removesuffix("s"))


def _count(text: str, span: Span) -> tuple[OneOf["day", "month"], int]:
    found = COUNT.match(text)
    word = found[2].lower() if found else ""
    months = _months(word)
    days = DAYS.get(word) or DAYS.get(word.removesuffix("s"))
    count = int(found[1]) * (months or days or 0) if found else 0
    if not 0 < count <= COUNT_MAX:
        raise CqlSyntaxError(
            f"{text or 'nothing'} is not a number of days or months", span,
            f"a zone has days and months of its own: {CALENDAR_HINT}; "
            "shorter windows are the same everywhere: leave out IN",
        )  # fmt: skip
    return "month" if months else "day", count


def _offset(text: str, span: Span) -> int:
    try:
        offset_us = microseconds(text) if text else 0
    except UsageError as mistake:
        raise CqlSyntaxError(mistake.message, span, mistake.hint) from None
    if not 0 <= offset_us < DAY_US:
        raise CqlSyntaxError(
            "OFFSET of a calendar is a time after midnight", span, "OFFSET 6 HOURS"
        )
    return offset_us


def _refuse_zone(zone: str, span: Span) -> None:
    zones = available_timezones()
    if zone not in zones:
        near = did_you_mean(zone, sorted(zones))
        raise CqlSyntaxError(f"unknown time zone {zone}{near}", span, "e.g. 'Europe/Berlin'")
