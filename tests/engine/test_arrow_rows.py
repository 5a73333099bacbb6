"""Pushed rows read by Arrow and by Spark: the same rows, the same reasons, whoever reads them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_engines import stream

from millstream.language.cql.catalog import StreamDefinition
from millstream.spark.ingest.row_parsing import SparkRowParser
from millstream.store.arrivals.appending import ROW
from millstream.store.arrivals.arrow_rows import ArrowRows

CHECKED = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TYPES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(8,2)",
    "decimal(38,10)", "string", "binary", "date", "timestamp",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 127, 128, -128, -129, 255, 32767, 32768, 2**31 - 1, 2**31, 2**53, 2**53 + 1,
    2**24 + 1, 2**63 - 1, 2**63, -(2**63), 10**40, 10**1200, 253_402_300_800, 10**13, -(10**13),
    0.0, -0.0, 1.0, 0.1, 1.5, -2.25, 1e-5, 1e22, 1e300, -1e300, 5e-324, 3.4028235677973366e38,
    3.4e38, 1.401298464324817e-45, 7.006492321624085e-46, 16777217.0, 0.10000000149011612,
    float("nan"), float("inf"), -float("inf"), 1.005, 999999.995, 123456.7, 9999999.99,
    np.int64(3), np.int8(5), np.float64(2.5), np.float32(2.5), np.float64("nan"),
    Decimal("1.50"), Decimal("1.505"), Decimal("1E+3"), Decimal("-0.00"), Decimal("NaN"),
    Decimal("Infinity"), Decimal("123456.78"), Decimal("1234567.8"), Decimal("1e-12"),
)  # fmt: skip
TEXTS: tuple[Any, ...] = (
    "", " ", "x", "1", "1.5", "true", "null", "NaN", "a\x00b", "ü€😀", '"', "\\", "\n", "AQI=",
    "2020-01-01", "2020-1-1", "2020-02-30", "2020-01-01T00:00:00Z", "2020-01-01 00:00:00",
    "2020-01-01T00:00:00", "2020-01-01T00:00:00.1", "2020-01-01T00:00:00.123456+05:30",
    "2020-01-01T00:00:00.1234567Z", "2020-01-01T24:00:00Z", "2020-01-01T23:59:60Z",
    "2020-02-30T00:00:00Z", "2020-01-01T00:00:00+18:00", "2020-01-01T00:00:00-17:59",
    "2020-01-01T00:00:00 Europe/Berlin", " 2020-01-01T00:00:00Z ", "2020-01-01T00:00Z",
    "2020-01-01T00:00:00z", "2020-01-01T00:00:00+0100", "0000-01-01T00:00:00Z", "12:30", "now",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "10000-01-01T00:00:00Z", "2020",
    "1582-10-10", "1582-10-10T00:00:00Z", "1900-02-29", "2020-01-01\n", "1234567.899",
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, b"", b"\x00\xff", b"plain", [1], {"a": 1}, date(2020, 1, 1), date(1, 1, 1),
    date(9999, 12, 31), date(1582, 10, 10), datetime(2020, 1, 1), datetime(1, 1, 1),
    datetime(2020, 1, 1, 1, 2, 3, 456, UTC), datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(2020, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(1880, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
    datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=20))),
    datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=-17, minutes=-30))),
)  # fmt: skip
POOL = (*NUMBERS, *TEXTS, *OTHERS)
TIMES = {
    "bigint": ("timestamp_seconds(`t`)", "TIMESTAMP_MILLIS( t )", "timestamp_micros(t)",
               "CAST(t AS timestamp)"),
    "int": ("timestamp_seconds(t)", "cast(`t` as TIMESTAMP)"),
    "double": ("timestamp_seconds(t)",),
    "timestamp": ("t", "CAST(t AS TIMESTAMP)"),
    "date": ("t", "cast(t as timestamp)"),
    "string": ("t", "CAST(t AS TIMESTAMP)"),
}  # fmt: skip


class Both:
    """One declaration, read both ways; Spark reads each row once."""

    def __init__(self, definition: StreamDefinition, spark: Any) -> None:
        self._definition, self._parser = definition, SparkRowParser(definition, spark)
        self._zone = spark.conf.get("spark.sql.session.timeZone")
        self.by_arrow = 0

    def compare(self, rows: Sequence[Mapping[str, Any]]) -> None:
        wanted = self._parser.table(rows, "p")
        places = {id(row): place for place, row in enumerate(rows)}
        self._check(rows, rows, wanted, lambda row: places[id(row)])

    def compare_columns(self, tables: Sequence[pa.Table]) -> None:
        """Tables whose column `t` counts all rows from 0."""
        rows = [row for table in tables for row in table.to_pylist()]
        wanted = self._parser.table(rows, "p")
        for table in tables:
            first = table["t"][0].as_py()
            part = wanted.slice(first, table.num_rows)
            own = part.set_column(part.num_columns - 1, ROW, pa.array(range(table.num_rows)))
            self._check(table, table.to_pylist(), own, lambda row, n=first: row["t"] - n)

    def _check(self, given: Any, rows: Any, wanted: pa.Table, place: Callable[..., int]) -> None:
        def parse(odd: Sequence[Mapping[str, Any]], producer: str) -> pa.Table:
            assert producer == "p"
            self.by_arrow -= len(odd)
            return wanted.take([place(row) for row in odd])

        reader = ArrowRows(self._definition, self._zone, parse)
        assert reader.able
        found = reader.table(given, "p")
        self.by_arrow += len(rows)
        assert found.schema.remove_metadata() == wanted.schema.remove_metadata()
        pairs = zip(rows, cells(found), cells(wanted), strict=True)
        assert [(row, ours, theirs) for row, ours, theirs in pairs if ours != theirs] == []


def cells(table: pa.Table) -> list[list[str]]:
    """Rows of texts that tell NaN, zeros and times that Python has no word for."""
    whole = {pa.timestamp("us", tz="UTC"): pa.int64(), pa.date32(): pa.int32()}
    columns = [c.cast(whole.get(c.type, c.type)).to_pylist() for c in table.columns]
    return [[repr(value) for value in row] for row in zip(*columns, strict=True)]


@pytest.mark.spark
@pytest.mark.parametrize("type_", TYPES)
def test_odd_values_of_every_type(spark: Any, type_: str) -> None:
    columns = {"t": "bigint", "x": type_}
    both = Both(stream("s", columns, "timestamp_seconds(t)", source="push"), spark)
    both.compare([{"t": place, "x": value} for place, value in enumerate(POOL)])
    assert both.by_arrow, "some of them are plain"


@pytest.mark.spark
@pytest.mark.parametrize("type_", TIMES)
def test_odd_times(spark: Any, type_: str) -> None:
    for time in TIMES[type_]:
        both = Both(stream("s", {"t": type_}, time, source="push"), spark)
        both.compare([{"t": value} for value in POOL])
        assert both.by_arrow


ODD = st.one_of(
    st.sampled_from(POOL),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.floats(width=32),
    st.decimals(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(timezones=st.one_of(st.none(), st.timezones())),
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
)
PLAIN = {
    "boolean": st.booleans(), "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(2**15), 2**15 - 1), "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1), "float": st.floats(), "double": st.floats(),
    "decimal(8,2)": st.decimals(-999_999, 999_999, places=2), "string": st.text(max_size=8),
    "decimal(38,10)": st.one_of(st.integers(-(10**27), 10**27), st.floats(-1e9, 1e9)),
    "binary": st.binary(max_size=4), "date": st.dates(), "timestamp": st.datetimes(
        timezones=st.one_of(st.just(UTC), st.timezones())
    ),
}  # fmt: skip


@st.composite
def declared_rows(draw: st.DrawFn) -> tuple[StreamDefinition, list[dict[str, Any]]]:
    """A declaration, and rows that mostly fit it: keys may be missing, odd ones may be there."""
    timed = draw(st.sampled_from(sorted(TIMES)))
    types = {"t": timed} | {
        f"x{i}": type_ for i, type_ in enumerate(draw(st.lists(st.sampled_from(TYPES), max_size=4)))
    }
    time = draw(st.sampled_from(TIMES[timed]))
    values = {name: PLAIN[type_] for name, type_ in types.items()}
    odd = draw(st.sets(st.sampled_from(sorted(types))))  # columns that hold anything
    values |= {name: st.one_of(values[name], st.none(), ODD) for name in odd}
    shape = st.fixed_dictionaries({}, optional=values | {"T": ODD, "more": ODD})
    rows = draw(st.lists(st.one_of(st.fixed_dictionaries(values), shape), max_size=25))
    return stream("s", types, time, source="push"), rows


@pytest.mark.spark
@settings(CHECKED, max_examples=40)
@given(case=declared_rows())
def test_rows_of_any_declaration(
    spark: Any, case: tuple[StreamDefinition, list[dict[str, Any]]]
) -> None:
    definition, rows = case
    Both(definition, spark).compare([dict(row) for row in rows])


COLUMNS: tuple[pa.Array, ...] = (
    pa.array([1, None, 127, 128]), pa.array([1, 2, 3, 255], pa.uint8()),
    pa.array([1, 2, 2**63, 2**64 - 1], pa.uint64()), pa.array([2**53, 2**53 + 1, None, 7]),
    pa.array([0.1, float("nan"), None, 16777217.0]), pa.array([0.1, 1e30, None, 2], pa.float32()),
    pa.array([True, None, False, True]), pa.array(["a", "2020-01-01T00:00:00Z", None, "1"]),
    pa.array(["a", "", None, "2020-01-01"], pa.large_string()),
    pa.array(["a", "b", None, "a"]).dictionary_encode(), pa.nulls(4),
    pa.array([b"a", b"", None, b"\xff"]), pa.array([0, 1, None, -1], pa.date32()),
    pa.array([0, 1, None, 1577836800000001], pa.timestamp("us")),
    pa.array([0, 1, None, 1577836800], pa.timestamp("s", tz="UTC")),
    pa.array([0, 1000, None, 1577836800000000001], pa.timestamp("ns", tz="UTC")),
    pa.array([0, 1000, None, -2803500000000], pa.timestamp("ms", tz="Europe/Berlin")),
    pa.array([Decimal("1.50"), Decimal("2.25"), None, Decimal("-3.00")]),
    pa.array([Decimal("1.505"), Decimal("123456789.000"), None, Decimal(0)]),
    pa.array([[1], [], None, [2]]),
)  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("type_", TYPES)
def test_arrow_columns_of_every_kind(spark: Any, type_: str) -> None:
    """A table is what its values are: a column of another Arrow type may say the same."""
    definition = stream("s", {"t": "bigint", "x": type_}, "timestamp_seconds(t)", source="push")
    tables = [
        pa.table({"t": pa.array(range(4 * place, 4 * place + 4)), "x": column})
        for place, column in enumerate(COLUMNS)
    ]
    both = Both(definition, spark)
    both.compare_columns(tables)
    assert both.by_arrow > len(COLUMNS), "NULLs and some of the values are plain"


def test_plain_rows_never_meet_spark() -> None:
    columns = {
        "at": "timestamp", "a": "boolean", "b": "int", "c": "double", "d": "string", "e": "date",
        "f": "decimal(8,2)", "g": "binary", "h": "float", "i": "bigint",
    }  # fmt: skip
    rows = [
        {"at": "2020-01-01T00:00:00Z", "a": True, "b": 1, "c": 1, "d": "x", "e": "2020-01-01",
         "f": 1.5, "g": b"x", "h": 0.1, "i": 2**62},
        {"at": "2020-01-01 00:00:01.5+01:00", "c": 0.1, "f": 2, "more": "of it"},
        {"a": None},
    ]  # fmt: skip

    def parse(rows: Sequence[Mapping[str, Any]], producer: str) -> pa.Table:
        raise AssertionError(f"{rows} of {producer} are plain")

    reader = ArrowRows(stream("s", columns, "at", source="push"), "UTC", parse)
    made = reader.table(rows, "p")
    assert made["_ts"].to_pylist() == [1577836800000000, 1577833201500000, None]
    assert made["c6"].to_pylist() == [Decimal("1.50"), Decimal("2.00"), None]
    assert reader.table(made.select([]), "p").num_rows == 3, "columns may be missing"
    table = pa.table({"at": pa.array([1], pa.timestamp("s", tz="UTC")), "d": ["x"]})
    assert reader.table(table, "p")["_ts"].to_pylist() == [1_000_000]


def test_declarations_that_are_sparks() -> None:
    def able(columns: dict[str, str], time: str, zone: str = "UTC") -> bool:
        return ArrowRows(stream("s", columns, time), zone, lambda *_: pa.table({})).able

    assert able({"a": "bigint"}, "timestamp_seconds(a)")
    assert not able({"a": "bigint", "b": "array<int>"}, "timestamp_seconds(a)")
    assert not able({"a": "bigint"}, "timestamp_seconds(a + 1)")
    assert not able({"a": "bigint"}, "timestamp_seconds(A)"), "Spark tells cases apart"
    assert not able({"a": "bigint", "A": "int"}, "timestamp_seconds(a)")
    assert not able({"a": "date"}, "a", "Europe/Berlin"), "a day begins elsewhere"
    assert not able({"a": "timestamp_ntz"}, "a")
