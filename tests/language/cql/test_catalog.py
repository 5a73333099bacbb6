"""Streams and functions by name."""

import pytest

from millstream.core.errors import UsageError
from millstream.language.cql.catalog import Catalog, StreamDefinition, UserFunction, lookup
from millstream.language.plan.schema import Field


def stream(name: str, *columns: str, time: str = "at") -> StreamDefinition:
    fields = tuple(Field(c, "timestamp" if c == "at" else "long") for c in columns or ("at",))
    return StreamDefinition(name, fields, time)


def test_types_are_in_one_spelling() -> None:
    assert [f.type for f in stream("s", "at", "v").columns] == ["timestamp", "bigint"]


def test_a_time_is_spelled_as_its_column_is() -> None:
    assert [stream("s", "at", time=t).time for t in ("AT", " At ", "`aT`")] == ["at", "at", "`at`"]
    assert stream("s", "at", "AT", time="AT").time == "AT"
    assert stream("s", "at", time="timestamp_seconds(AT)").time == "timestamp_seconds(AT)"


def test_a_name_is_found_in_any_case_unless_ambiguous() -> None:
    catalog = Catalog((stream("Requests"), stream("orders"), stream("Orders")))
    assert catalog.stream("requests").name == "Requests"
    assert catalog.stream("orders").name == "orders"
    assert catalog.stream("Orders").name == "Orders"
    with pytest.raises(UsageError, match="stream ORDERS is ambiguous"):
        catalog.stream("ORDERS")


def test_an_unknown_stream_names_a_near_one() -> None:
    catalog = Catalog((stream("requests"), stream("trades")))
    with pytest.raises(UsageError) as caught:
        catalog.stream("reqests")
    assert caught.value.message == "unknown stream reqests; did you mean requests?"
    assert caught.value.hint == "known streams: requests, trades"
    with pytest.raises(UsageError, match="no stream is declared"):
        Catalog().stream("s")


def test_a_catalog_is_a_value() -> None:
    empty = Catalog()
    full = empty.with_stream(stream("s")).with_function(UserFunction("f", "1"))
    assert not empty.streams
    assert full.function("F") == UserFunction("f", "1")
    newer = full.with_function(UserFunction("f", "2"))
    assert newer.function("f") == UserFunction("f", "2")
    assert len(newer.functions) == 1
    with pytest.raises(UsageError, match="exists already"):
        full.with_stream(stream("s"))


def test_versions_are_part_of_a_call() -> None:
    assert UserFunction("f").call_name == "f"
    assert UserFunction("f", "2").call_name == "f@2"


@pytest.mark.parametrize(
    ("columns", "time", "expected"),
    [
        (("v", "at"), "at", 1),
        (("v", "at"), "AT", 1),
        (("v", "at"), "`at`", 1),
        (("v", "at"), "timestamp_seconds(v)", None),
        (("a", "A"), "a", 0),
    ],
)
def test_the_column_that_is_the_time(
    columns: tuple[str, ...], time: str, expected: int | None
) -> None:
    assert stream("s", *columns, time=time).time_column == expected


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (("", ("at",), "at"), "a stream needs a name"),
        (("s", (), "at"), "stream s has no columns"),
        (("s", ("at", "v", "v"), "at"), "stream s has two columns named v"),
        (("s", ("at",), "  "), "stream s has no time"),
    ],
)
def test_a_bad_definition_is_refused(
    definition: tuple[str, tuple[str, ...], str], message: str
) -> None:
    name, columns, time = definition
    with pytest.raises(UsageError, match=message):
        StreamDefinition(name, tuple(Field(c, "int") for c in columns), time)


def test_lookup_prefers_the_exact_spelling() -> None:
    assert lookup("a", ["A", "a", "b"]) == (1,)
    assert lookup("B", ["A", "a", "b"]) == (2,)
    assert lookup("a", ["A", "Á"]) == (0,)
    assert lookup("x", ["A"]) == ()
