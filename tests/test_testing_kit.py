"""The kit that users test their queries with: event time, late rows, tables, and how it fails."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from millstream.core.errors import UsageError
from millstream.testing import QueryTest, query_test

pytestmark = pytest.mark.spark


@pytest.fixture
def case(spark: Any) -> Iterator[QueryTest]:
    with query_test() as made:
        made.stream("requests", host="string", status="int", lateness="10 seconds")
        yield made


def test_event_time_is_the_tests(case: QueryTest) -> None:
    errors = case.query("SELECT host FROM requests WHERE status >= 500", "errors")
    counts = case.query(
        "SELECT host, count(*) AS n FROM requests [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY host"
    )
    totals = case.query("SELECT host, count(*) AS n FROM requests GROUP BY host")
    case.rows("requests", (0, "a", 200), (59, "a", 500), {"at": 61, "host": "b", "status": 503})
    errors.expect(("a",), ("b",))
    errors.expect({"host": "a", "ts": 59}, {"host": "b", "ts": datetime(1970, 1, 1, 0, 1, 1)})
    counts.expect()  # rows may be late by ten seconds: the minute is not over
    case.until(70)
    counts.expect(("a", 2), at=60)
    case.rows("requests", (5, "late", 500), (75, "b", 200))
    errors.expect(("a",), ("b",), ordered=True)
    totals.expect(("a", 2), ("b", 2))
    case.end()
    counts.expect({"n": 2, "ts": 60}, {"n": 2, "ts": datetime(1970, 1, 1, 0, 2, tzinfo=UTC)})
    with pytest.raises(AssertionError) as difference:
        totals.expect(("a", 2), ("c", 7))
    assert str(difference.value) == (
        "expected 2 rows, found 2\n  missing: host='c', n=7\n  not expected: host='b', n=2"
    )
    with pytest.raises(AssertionError, match="in another order"):
        errors.expect(("b",), ("a",), ordered=True)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda t: t.rows("nope", (0,)), "the test has no stream nope"),
        (lambda t: t.rows("requests", (0, "a")), "a row of stream requests has 2 values"),
        (lambda t: t.rows("requests", (0, "a", "x")), "a row of stream requests is malformed"),
        (lambda t: t.rows("requests", ("soon", "a", 1)), "'soon' is not a time"),
        (lambda t: t.query("SELECT host FROM requests").expect((1, 2)), "expected row has 2 val"),
        (lambda t: t.query("SELECT host FROM requests").expect({"x": 1}), "has no column x"),
    ],
)
def test_mistakes_of_a_test_are_told(case: QueryTest, call: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        call(case)
