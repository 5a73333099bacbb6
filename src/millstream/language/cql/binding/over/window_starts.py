"""Where a window begins that is not a fixed length before its end, as an expression over it."""

from millstream.language.cql.literals import interval, string
from millstream.language.plan.expressions import Call, Cast, Expr, Literal, Time
from millstream.language.plan.windows import Calendar, Grouping, Sliding


def beginning(grouping: Grouping) -> Expr | None:
    """`window_start` of windows that cumulate or go by a calendar; None for all others."""
    match grouping:
        case Sliding(length, _, offset, cumulates=True):
            return _of_cumulating(length, offset)
        case Calendar():
            return _of_calendar(grouping)
        case _:
            return None


def _of_cumulating(length: int, offset: int) -> Expr:
    """The last multiple of the length before the end."""
    last = Call("-", (Call("unix_micros", (Time(),)), _long(1)))
    left = Call("pmod", (Call("-", (last, _long(offset))), _long(length)))
    return Call("timestamp_micros", (Call("-", (last, left)),))


def _of_calendar(window: Calendar) -> Expr:
    """So many days or months before the end, by the zone's clock."""
    zone = string(window.zone)
    local: Expr = Call("from_utc_timestamp", (Time(), zone))
    if window.offset:
        local = Call("-", (local, interval(window.offset)))
    back = "add_months" if window.unit == "month" else "date_add"
    date = Call(back, (Cast(local, "date"), Literal(str(-window.length), "int")))
    begun: Expr = Cast(date, "timestamp")
    if window.offset:
        begun = Call("+", (begun, interval(window.offset)))
    return Call("to_utc_timestamp", (begun, zone))


def _long(value: int) -> Literal:
    return Literal(f"{value}L", "bigint")
