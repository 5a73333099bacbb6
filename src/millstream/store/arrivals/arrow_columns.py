"""Values of one column as the declared type, by Arrow: only where that means what Spark means.

Pushed rows are JSON to Spark: whatever a program hands over, its parser reads the JSON of it. Here
is said for which values of which type Arrow gives the very same, and how. Any other value is
unclear: its row goes to Spark, which reads it or says why it cannot. So nothing is rejected here.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Column = tuple[pa.Array, Flags | None]  # values, and which of them are unclear
UTC = frozenset({"UTC", "Etc/UTC", "Z", "+00:00", "GMT"})  # names of a zone without an offset
TEXT_BYTES_MAX = 1 << 20  # longer texts may meet a limit of the JSON parser
OFFSET_MAX = timedelta(hours=18)  # Java knows no greater one
SECONDS_MAX = 9_000_000_000_000  # beyond it microseconds may not fit
DAY_US = 86_400_000_000
# years 1 to 9999, all that Python has dates for
TIME_MIN, TIME_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
DATE = r"[12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
CLOCK = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"
ZONE = r"(Z|[+-](0\d|1[0-7]):[0-5]\d)"
FAILURES = (pa.ArrowException, OverflowError, ValueError, TypeError)
INTEGERS = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
}  # fmt: skip
NUMPY_INTEGERS = (np.int8, np.int16, np.int32, np.int64)


class UnclearError(ValueError):
    """Values that Arrow may read otherwise than Spark."""


@dataclass(frozen=True, slots=True)
class Way:
    """How values of some Python types become a column."""

    kinds: frozenset[type]
    make: Callable[[Sequence[Any]], Column]

    def takes(self, value: Any) -> bool:
        """Whether a value alone is clear."""
        if value is None:
            return True
        if type(value) not in self.kinds:
            return False
        try:
            _, unclear = self.make([value])
        except FAILURES:
            return False
        return unclear is None or not unclear[0]


class DeclaredType:
    """One declared type; `known` says whether Arrow has a way for it at all."""

    def __init__(self, type_: str, zone: str) -> None:
        self._utc = zone in UTC
        self.arrow = _arrow_type(type_, zone)
        self.known = self.arrow is not None
        self._ways = self._ways_of(type_) if self.known else ()
        self._name = type_

    def of_values(self, values: Sequence[Any]) -> Column:
        """Python values; NULL is None."""
        kinds = set(map(type, values))
        kinds.discard(type(None))
        way = next((w for w in self._ways if kinds <= w.kinds), None)
        if way is not None:
            try:
                return way.make(values)
            except FAILURES:
                pass  # one of them is unclear
        else:
            way = next((w for w in self._ways if kinds & w.kinds), self._ways[0])
        unclear = np.array([not way.takes(value) for value in values], bool)
        array, more = way.make([None if bad else v for v, bad in zip(values, unclear, strict=True)])
        return array, unclear if more is None else unclear | more

    def of_column(self, column: pa.ChunkedArray) -> Column:
        """A column that is Arrow's already: as it is where its type says the same."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            column.validate(full=True)
            if (made := self._cast(column)) is not None:
                return made
        except FAILURES:
            pass
        return self.of_values(column.to_pylist())

    def _cast(self, column: pa.ChunkedArray) -> Column | None:
        given, wanted, types = column.type, self.arrow, pa.types
        if types.is_null(given):
            return pa.nulls(len(column), wanted), None
        same = given == wanted
        if self._name in INTEGERS:
            same = types.is_integer(given)
        elif self._name == "double":
            same = given in (pa.float64(), pa.float32()) or types.is_integer(given)
        elif self._name == "float" and types.is_float64(given):
            return _floats(column.combine_chunks())
        elif self._name == "string":
            same = types.is_large_string(given) or same
        elif self._name == "timestamp":
            zone = given.tz if types.is_timestamp(given) else ""
            same = zone in UTC or (zone is None and self._utc)
        elif self._name.startswith("decimal"):
            same = types.is_decimal(given)
        if not same:
            return None
        array = column.cast(wanted).combine_chunks()
        return self._checked(array)

    def _checked(self, array: pa.Array) -> Column:
        """Cast values that are still not what Python would have said of them."""
        if self._name == "string":
            return _short(array), None
        if self._name == "binary":
            return array, _flags(pc.equal(pc.binary_length(array), 0))
        if self._name == "timestamp":
            micros = array.cast(pa.int64())
            span = pc.min_max(micros).as_py()
            if span["min"] is not None and not TIME_MIN <= span["min"] <= span["max"] <= TIME_MAX:
                raise UnclearError
        return array, None

    def _ways_of(self, type_: str) -> tuple[Way, ...]:
        def plain(values: Sequence[Any]) -> Column:
            return pa.array(values, self.arrow), None

        if type_ in INTEGERS:
            return (Way(frozenset({int, *NUMPY_INTEGERS}), plain),)
        if type_.startswith("decimal"):
            return (Way(frozenset({Decimal, int, float}), self._decimals),)
        match type_:
            case "double":
                return (Way(frozenset({float, int, np.float64}), plain),)
            case "float":
                return (Way(frozenset({float, int}), _floats_of_values),)
            case "boolean":
                return (Way(frozenset({bool}), plain),)
            case "string":
                return (Way(frozenset({str}), _texts),)
            case "binary":
                return (Way(frozenset({bytes}), _binaries),)
            case "date":
                return (Way(frozenset({date}), plain), Way(frozenset({str}), _dates_of_texts))
            case _:
                return (
                    Way(frozenset({str}), self._times_of_texts),
                    Way(frozenset({int}), self._times_of_seconds),
                    Way(frozenset({datetime}), self._times),
                )

    def _decimals(self, values: Sequence[Any]) -> Column:
        # a number with a point is what its digits say
        exact = [Decimal(repr(v)) if type(v) is float else v for v in values]
        if any(type(v) is Decimal and not v.is_finite() for v in exact):
            raise UnclearError
        return pa.array(exact, self.arrow), None

    def _times(self, values: Sequence[Any]) -> Column:
        for offset in {v.utcoffset() for v in values if v is not None}:
            if offset is None and self._utc:
                continue
            if offset is None or offset % timedelta(minutes=1) or abs(offset) > OFFSET_MAX:
                raise UnclearError
        return pa.array(values, self.arrow), None

    def _times_of_seconds(self, values: Sequence[Any]) -> Column:
        micros, unclear = scaled(pa.array(values, pa.int64()), 1_000_000)
        return micros.cast(self.arrow), unclear

    def _times_of_texts(self, values: Sequence[Any]) -> Column:
        micros, unclear = times_of_texts(pa.array(values, pa.string()), utc=self._utc)
        return micros.cast(self.arrow), unclear


def scaled(numbers: pa.Array, factor: int) -> Column:
    """Whole numbers of some unit as microseconds."""
    bound = SECONDS_MAX * 1_000_000 // factor
    unclear = _flags(pc.or_(pc.greater(numbers, bound), pc.less(numbers, -bound)))
    return pc.multiply(_without(numbers, unclear), factor), unclear


def times_of_texts(texts: pa.Array, *, utc: bool) -> Column:
    """Texts as microseconds: date, time of day and zone written out; without one where it is UTC.

    >>> times_of_texts(pa.array(["2020-01-01T00:00:00+01:00", "2020", None]), utc=True)[1]
    array([False,  True, False])
    """
    zoned = pc.match_substring_regex(texts, f"^{DATE}[T ]{CLOCK}{ZONE}$")
    clear = zoned
    if utc:
        bare = pc.match_substring_regex(texts, f"^{DATE}[T ]{CLOCK}$")
        clear = pc.or_(zoned, bare)
        texts = pc.if_else(bare, pc.binary_join_element_wise(texts, "Z", ""), texts)
    times, unclear = _of_texts(texts, clear, pa.timestamp("us", tz="UTC"))
    return times.cast(pa.int64()), unclear


def _dates_of_texts(values: Sequence[Any]) -> Column:
    texts = pa.array(values, pa.string())
    return _of_texts(texts, pc.match_substring_regex(texts, f"^{DATE}$"), pa.date32())


def _of_texts(texts: pa.Array, clear: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Flags]:
    """Texts that look right as times or days; those that are none of the calendar are unclear."""
    unclear = _flags(pc.invert(clear))
    try:
        return _without(texts, unclear).cast(wanted), unclear
    except pa.ArrowInvalid:
        unclear = unclear | np.array([not _castable(text, wanted) for text in texts])
        return _without(texts, unclear).cast(wanted), unclear


def _castable(text: pa.Scalar, wanted: pa.DataType) -> bool:
    try:
        text.cast(wanted)
    except pa.ArrowInvalid:
        return False
    return True


def _texts(values: Sequence[Any]) -> Column:
    return _short(pa.array(values, pa.string())), None


def _binaries(values: Sequence[Any]) -> Column:
    array = pa.array(values, pa.binary())
    return array, _flags(pc.equal(pc.binary_length(array), 0))


def _floats_of_values(values: Sequence[Any]) -> Column:
    return _floats(pa.array(values, pa.float64()))


def _floats(doubles: pa.Array) -> Column:
    """Doubles as the nearest floats.

    Spark rounds the digits, not the double: where that lies just between two floats, or beyond all
    of them, the two may differ.
    """
    exact = np.asarray(pc.fill_null(doubles, 0.0))
    with np.errstate(over="ignore", invalid="ignore"):
        near = exact.astype(np.float32)
        back = near.astype(np.float64)
        other = np.nextafter(near, np.where(exact > back, np.inf, -np.inf).astype(np.float32))
        middle = (back + other.astype(np.float64)) / 2
    between = (exact == middle) & (exact != back)
    unclear = between | (np.isinf(back) & np.isfinite(exact))
    return pa.array(near, mask=np.asarray(pc.is_null(doubles))), unclear


def _short(texts: pa.Array) -> pa.Array:
    """The same texts, where none of them may meet a limit of the JSON parser."""
    if texts.nbytes > TEXT_BYTES_MAX:
        longest = pc.max(pc.binary_length(texts)).as_py()
        if longest is not None and longest > TEXT_BYTES_MAX:
            raise UnclearError
    return texts


def _flags(mask: pa.Array) -> Flags:
    """A mask for numpy; NULL is not unclear."""
    return np.asarray(pc.fill_null(mask, False))


def _without(array: pa.Array, unclear: Flags) -> pa.Array:
    """The same with NULL in the place of what is unclear."""
    if not unclear.any():
        return array
    return pc.if_else(pa.array(unclear), pa.scalar(None, array.type), array)


def _arrow_type(type_: str, zone: str) -> pa.DataType | None:
    if type_ in INTEGERS:
        return INTEGERS[type_]
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", type_):
        return pa.decimal128(int(found[1]), int(found[2]))
    simple = {
        "double": pa.float64(), "float": pa.float32(), "boolean": pa.bool_(),
        "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz=zone),
    }  # fmt: skip
    return simple.get(type_)
