"""A column that names the zone of each row's time: a region, a distance from UTC, or `CET`."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

from millstream.control.discovery.time_column import Seen, name_sql
from millstream.control.discovery.times import ZONES

ZONE_WORDS = re.compile(r"zone|offset|(^|_)(tz|utc)(_|$)", re.IGNORECASE)
DISTANCE = re.compile(r"([+-])(\d\d):?(\d\d)")
SECOND_US = 1_000_000


def with_zones(
    sql: str, times: Sequence[int], seen: Sequence[Seen]
) -> tuple[str, list[int]] | None:
    """A time without a zone, read in the zone that another column names; None where none does.

    >>> from millstream.control.discovery.column_types import ColumnType
    >>> zone = Seen("tz", ColumnType("string"), ["EST", "EDT"])
    >>> with_zones("at", [0, 0], [zone])
    ("to_utc_timestamp(at, CASE tz WHEN 'EDT' THEN '-04:00' WHEN 'EST' THEN '-05:00' END)", \
[18000000000, 14400000000])
    >>> with_zones("at", [0], [Seen("time_zone", ColumnType("string"), ["Europe/Berlin"])])
    ('to_utc_timestamp(at, time_zone)', [-3600000000])
    """
    for column in seen:
        zones = [value.strip() for value in column.values]
        named = column.type.type == "string" and ZONE_WORDS.search(column.name)
        if not named or not zones or not all(map(is_zone, zones)):
            continue
        name = name_sql(column.name)
        if any(zone in ZONES for zone in zones):
            cases = " ".join(f"WHEN '{z}' THEN '{_distance(z)}'" for z in sorted(set(zones)))
            name = f"CASE {name} {cases} END"
        moved = times
        if len(zones) == len(times):  # else some rows have no time: the order is a guess anyway
            moved = [_in_utc(at, zone) for at, zone in zip(times, zones, strict=True)]
        return f"to_utc_timestamp({sql}, {name})", list(moved)
    return None


@cache
def is_zone(text: str) -> bool:
    """Whether a text names a zone.

    >>> [is_zone(t) for t in ("Europe/Berlin", "+02:00", "CEST", "Z", "Mars/Base", "north", "")]
    [True, True, True, True, False, False, False]
    """
    if text in ZONES or text == "Z" or DISTANCE.fullmatch(text):
        return True
    try:
        return "/" in text and ZoneInfo(text) is not None
    except (ValueError, OSError, KeyError):
        return False


def _distance(zone: str) -> str:
    """A zone as Spark reads it whatever the day: names as distances."""
    return f"{ZONES[zone]:+03d}:00" if zone in ZONES else zone


def _in_utc(at: int, zone: str) -> int:
    """A time that was read as UTC, in microseconds, as its zone means it."""
    if zone in ZONES:
        return at - ZONES[zone] * 3600 * SECOND_US
    if found := DISTANCE.fullmatch(zone):
        sign, hours, minutes = found.groups()
        distance = int(hours) * 3600 + int(minutes) * 60
        return at - (distance if sign == "+" else -distance) * SECOND_US
    if zone == "Z":
        return at
    local = datetime.fromtimestamp(at // SECOND_US, UTC).replace(tzinfo=ZoneInfo(zone))
    return round(local.timestamp()) * SECOND_US + at % SECOND_US
