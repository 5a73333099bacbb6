"""Do two multisets of rows agree? Integers, decimals, texts exactly, doubles within 1e-9.

NaN equals NaN, null equals null. Booleans are not numbers here, and a double is not an integer:
a column of the wrong kind is a difference.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

TOLERANCE = 1e-9
SHOWN = 10  # rows of each kind in a message
SMALL = 80  # input rows that a message still prints
PLAIN = {int, str, Decimal, type(None)}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Values = tuple[Any, ...]


def microseconds(moment: datetime) -> int:
    """A time as whole microseconds since the epoch; without a zone it is UTC.

    >>> microseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999))
    -1
    """
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that are missing from, and rows that are too many in, the actual result."""

    missing: list[Values]
    extra: list[Values]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)


def difference(
    expected: Iterable[Mapping[str, Any]],
    actual: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
) -> Difference:
    """Compares two results over the given columns; other columns do not count.

    >>> difference([{"a": 1.0}], [{"a": 1.0 + 1e-12}], ["a"])
    Difference(missing=[], extra=[])
    >>> difference([{"a": 1}, {"a": 1}], [{"a": 1}, {"a": 2}], ["a"])
    Difference(missing=[(1,)], extra=[(2,)])
    """
    expected_values = _values(expected, columns)
    actual_values = _values(actual, columns)
    if _kinds(expected_values) | _kinds(actual_values) <= PLAIN:
        return _plain_difference(expected_values, actual_values)
    wanted, found = _by_exact_part(expected_values), _by_exact_part(actual_values)
    missing: list[Values] = []
    extra: list[Values] = []
    for key in wanted.keys() | found.keys():
        left, right = _unmatched(wanted.get(key, []), found.get(key, []))
        missing += left
        extra += right
    return Difference(sorted(missing, key=_order), sorted(extra, key=_order))


def _plain(value: Any) -> Any:
    return microseconds(value) if isinstance(value, datetime) else value


def _exact(value: Any) -> tuple[str, Any]:
    """What must agree exactly; of a double only that it is one."""
    match value:
        case None:
            return ("null", None)
        case bool():
            return ("boolean", value)
        case float():
            return ("double", "nan" if math.isnan(value) else None)
        case int() | Decimal():
            return ("exact", value)
        case _:
            return (type(value).__name__, value)


def _values(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[Values]:
    return [tuple(_plain(row[name]) for name in columns) for row in rows]


def _kinds(rows: Iterable[Values]) -> set[type]:
    return {type(value) for row in rows for value in row}


def _plain_difference(expected: list[Values], actual: list[Values]) -> Difference:
    """Without doubles and booleans, equality is Python's own."""
    wanted, found = Counter(expected), Counter(actual)
    return Difference(
        sorted((wanted - found).elements(), key=_order),
        sorted((found - wanted).elements(), key=_order),
    )


def _by_exact_part(rows: Iterable[Values]) -> dict[Values, list[Values]]:
    groups: dict[Values, list[Values]] = defaultdict(list)
    for values in rows:
        groups[tuple(map(_exact, values))].append(values)
    return groups


def _unmatched(expected: list[Values], actual: list[Values]) -> tuple[list[Values], list[Values]]:
    """Rows that agree in all but their doubles: pairs in sorted order, then whatever fits."""
    if len(expected) > 1 or len(actual) > 1:
        expected, actual = sorted(expected, key=_order), sorted(actual, key=_order)
    if len(expected) == len(actual) and all(map(_close, expected, actual)):
        return [], []
    missing = []
    rest = actual
    for row in expected:
        fit = next((n for n, candidate in enumerate(rest) if _close(row, candidate)), None)
        if fit is None:
            missing.append(row)
        else:
            rest = rest[:fit] + rest[fit + 1 :]
    return missing, rest


def _close(one: Values, other: Values) -> bool:
    return all(
        math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(one, other, strict=True)
        if isinstance(a, float) and not math.isnan(a)
    )


def _order(values: Values) -> tuple[tuple[str, Any], ...]:
    """Any total order: nulls, then kinds by name, NaN after all doubles."""
    keys: list[tuple[str, Any]] = []
    for value in values:
        kind, exact = _exact(value)
        if kind == "double":
            keys.append((kind, math.inf) if exact == "nan" else (kind, value))
        else:
            keys.append((kind, 0 if exact is None else exact))
    return tuple(keys)


def report(
    found: Difference,
    columns: Sequence[str],
    *,
    cql: str,
    sql: str,
    inputs: Mapping[str, Sequence[tuple[Any, ...]]],
) -> str:
    """A difference as a person reads it: query, rows, and the input when it is small."""
    lines = [f"query     {cql}", f"columns   {', '.join(columns)}"]
    for label, rows in (("missing", found.missing), ("extra", found.extra)):
        lines.append(f"{label:9} {len(rows)} rows")
        lines += [f"          {row}" for row in rows[:SHOWN]]
        if len(rows) > SHOWN:
            lines.append(f"          … and {len(rows) - SHOWN} more")
    if sum(map(len, inputs.values())) <= SMALL:
        for name, arrived in inputs.items():
            lines.append(f"input     {name}: {len(arrived)} rows in order of arrival")
            lines += [f"          {row}" for row in arrived]
    lines.append(f"oracle    {sql}")
    return "\n".join(lines)
