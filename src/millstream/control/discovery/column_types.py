"""The type of a column from its texts, as Spark names it, and the text that stands for no value."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.control.discovery.times import Spelling, mostly_times

WHOLE = re.compile(r"[-+]?(?:0|[1-9]\d*)")
BIGINT_DIGITS, DECIMAL_DIGITS = 18, 38
REAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
LEADING_ZERO = re.compile(r"[-+]?0\d")
COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+")  # 1.234,56
WHOLE_OR_COMMA = re.compile(rf"{COMMA.pattern}|{WHOLE.pattern}|[-+]?\d{{1,3}}(?:\.\d{{3}})+")
GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")  # 1,234.56
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")
BOOLEANS = ("true", "false")
NO_VALUES = ("NULL", "null", "NA", "N/A", "n/a", "NaN", "nan", "-", "\\N", "None", "none", "?")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """What a column of texts holds."""

    type: str
    no_value: str = ""  # the text that stands for none, beside the empty one
    comma: bool = False  # decimals have a comma
    times: Spelling | None = None


def column_type(values: Sequence[str]) -> ColumnType:
    """The narrowest type that all values have; `string` fits everything.

    >>> column_type(["1", "22", ""]).type, column_type(["1", "2.5"]).type, column_type(["007"]).type
    ('bigint', 'double', 'string')
    >>> column_type(["1", "NA"])
    ColumnType(type='bigint', no_value='NA', comma=False, times=None)
    """
    present = [value.strip() for value in values if value.strip()]
    words = {value for value in present if value in NO_VALUES}
    if len(words) == 1:
        (word,) = words
        rest = _typed([value for value in present if value != word])
        if rest.type != "string":
            return ColumnType(rest.type, word, rest.comma, rest.times)
    return _typed(present)


def whole_type(values: Sequence[object]) -> str:
    """The type that keeps every digit of whole numbers.

    >>> whole_type(["1", "-9223372036854775808"]), whole_type([2**63]), whole_type(["9" * 39])
    ('bigint', 'decimal(38,0)', 'string')
    """
    digits = max(len(str(value).lstrip("+-")) for value in values)
    if digits <= BIGINT_DIGITS or all(-(2**63) <= int(str(v)) < 2**63 for v in values):
        return "bigint"
    return f"decimal({DECIMAL_DIGITS},0)" if digits <= DECIMAL_DIGITS else "string"


def all_thousands(values: Sequence[str]) -> bool:
    """Whether commas may stand before three digits alone, as between thousands.

    >>> all_thousands(["12,000", "7"]), all_thousands(["12,5"]), all_thousands(["0,125"])
    (True, False, False)
    """
    present = [value.strip() for value in values if value.strip()]
    return all(THOUSANDS.fullmatch(value) or WHOLE.fullmatch(value) for value in present)


def _typed(values: Sequence[str]) -> ColumnType:
    if not values:
        return ColumnType("string")
    times = mostly_times(values)
    if times is not None and times.kind in ("iso", "day") and times.sql == "{}":
        return ColumnType("timestamp" if times.kind == "iso" else "date", times=times)
    if all(WHOLE.fullmatch(value) for value in values):
        return ColumnType(whole_type(values), times=times)
    if times is not None and times.kind != "epoch":
        return ColumnType("string", times=times)
    if not any(LEADING_ZERO.match(value) for value in values):
        if all(REAL.fullmatch(value) for value in values):
            return ColumnType("double", times=times)
        if all(WHOLE_OR_COMMA.fullmatch(value) for value in values):
            scale = max(len(value.partition(",")[2]) for value in values)
            return ColumnType(f"decimal(18,{min(scale, 9)})", comma=True)
        pairs = [(GROUPED.fullmatch(v), v) for v in values]
        if any(g for g, _ in pairs) and all(g or REAL.fullmatch(v) for g, v in pairs):
            scale = max(len(value.partition(".")[2]) for value in values)
            return ColumnType(f"decimal(18,{min(scale, 9)})")
    if all(value.lower() in BOOLEANS for value in values):
        return ColumnType("boolean")
    return ColumnType("string")
