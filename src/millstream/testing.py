"""Tests of your own queries: rows in, expected rows out, event time as the test says.

    from millstream.testing import query_test

    def test_hosts_are_counted_by_the_minute() -> None:
        with query_test() as test:
            test.stream("requests", host="string")
            counts = test.query("SELECT host, count(*) AS n FROM requests [RANGE 1 MINUTE SLIDE "
                                "1 MINUTE] GROUP BY host")
            test.rows("requests", (0, "a"), (59, "a"), (60, "b"))
            counts.expect(("a", 2), at=60)

All tests of a process share one Spark, which starts with the first and ends with the process; each
has streams, queries and a home of its own. Nothing here waits for the clock: rows have the times
that the test gives them, in seconds, and event time goes on by rows, `until` and `end`.
"""

import atexit
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.app.session import Session
from millstream.app.session.query import QueryHandle
from millstream.core.errors import UsageError
from millstream.language.cql.catalog import StreamDefinition

__all__ = ["QueryTest", "TestedQuery", "query_test"]

TIME = "at"  # the column of event time, in front of those that a test declares
WAIT_S = 300.0
SHOWN_MAX = 20  # rows of a difference
Moment = float | datetime
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@contextmanager
def query_test(**settings: Any) -> Iterator["QueryTest"]:
    """Streams and queries for one test; settings are those of `[engine]` in a job file."""
    _shared_spark()
    with Session(settings=settings) as session:
        yield QueryTest(session)


class QueryTest:
    """One test: declare streams, register queries, give rows, say what is expected."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._streams: dict[str, StreamDefinition] = {}

    def stream(
        self,
        name: str,
        columns: Mapping[str, str] | None = None,
        *,
        lateness: str = "0 seconds",
        **more: str,
    ) -> None:
        """A stream with these columns, types by name, and event time in front as `at`."""
        wanted = {TIME: "timestamp", **(columns or {}), **more}
        made = self.session.stream(name, columns=wanted, time=TIME, lateness=lateness)
        self._streams[name] = made

    def query(self, cql: str, name: str | None = None) -> "TestedQuery":
        """A query over the streams, which sees all rows of the test."""
        return TestedQuery(self, self.session.query(cql, name, from_beginning=True))

    def rows(self, stream: str, *rows: Sequence[Any] | Mapping[str, Any]) -> None:
        """Rows in order of arrival: the time first, then the columns; or mappings with `at`.

        A row that is malformed is the test's mistake. One that is late is none: queries do not
        see it.
        """
        definition = self._known(stream)
        names = [field.name for field in definition.columns]
        given = []
        for row in rows:
            if not isinstance(row, Mapping) and len(row) != len(names):
                raise UsageError(
                    f"a row of stream {stream} has {len(row)} values", detail=repr(row),
                    hint=f"give {', '.join(names)}",
                )  # fmt: skip
            named = dict(row if isinstance(row, Mapping) else zip(names, row, strict=True))
            given.append(named | {TIME: _moment(named.get(TIME))})
        told = self.session.push(stream, given)
        if told["rejected"]:
            number, reason = told["reasons"][0]
            columns = ", ".join(f"{field.name} {field.type}" for field in definition.columns)
            raise UsageError(
                f"a row of stream {stream} is malformed", detail=f"{rows[number]!r}: {reason}",
                hint=f"its columns are {columns}",
            )  # fmt: skip

    def until(self, moment: Moment, *streams: str) -> None:
        """Event time has come to a moment, on all streams or on these: older rows are late."""
        at_us = round((_moment(moment) - EPOCH) / timedelta(microseconds=1))
        local = self.session.here("a test")
        for name in streams or tuple(self._streams):
            self._known(name)
            local.engine.appenders[name].follow(at_us)
        local.start()

    def end(self, *streams: str) -> None:
        """No more rows will come, on all streams or on these: all windows can be decided."""
        for name in streams or tuple(self._streams):
            self._known(name)
            self.session.finish(name)

    def _known(self, stream: str) -> StreamDefinition:
        if stream not in self._streams:
            known = ", ".join(self._streams) or "none"
            raise UsageError(f"the test has no stream {stream}", hint=f"it has {known}")
        return self._streams[stream]


class TestedQuery:
    """A query of a test."""

    __test__ = False  # pytest: a class of ours, no tests in it

    def __init__(self, test: QueryTest, handle: QueryHandle) -> None:
        self._test, self.handle = test, handle

    def found(self) -> list[dict[str, Any]]:
        """All rows so far, once all that was given is processed; of a relation, its table."""
        self._test.session.wait(WAIT_S)
        taken = self.handle.table() if self.handle.relation else self.handle.to_arrow()
        return list(taken.to_pylist())

    def expect(
        self,
        *rows: Sequence[Any] | Mapping[str, Any],
        at: Moment | None = None,
        ordered: bool = False,
    ) -> None:
        """Exactly these rows have come so far, in any order unless `ordered`.

        A row is the values of the select list, or a mapping of some columns, `ts` among them
        where it matters; `at` is the time that all of them have.
        """
        names = [name for name, _ in self.handle.columns]
        wanted = [dict(row) if isinstance(row, Mapping) else _paired(names, row) for row in rows]
        if at is not None:
            wanted = [{**row, "ts": at} for row in wanted]
        wanted = [{**row, "ts": _moment(row["ts"])} if "ts" in row else row for row in wanted]
        looked_at = list(wanted[0]) if wanted else names
        if unknown := [name for row in wanted for name in row if name not in (*names, "ts")]:
            raise UsageError(
                f"the result has no column {unknown[0]}", hint=f"it has {', '.join(names)}, ts"
            )
        found = [{name: row[name] for name in looked_at} for row in self.found()]
        expected = [{name: row.get(name) for name in looked_at} for row in wanted]
        same = found == expected if ordered else _bag(found) == _bag(expected)
        if not same:
            raise AssertionError(_difference(found, expected))


def _paired(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    if len(row) != len(names):
        raise UsageError(
            f"an expected row has {len(row)} values", detail=repr(row),
            hint=f"the result has {', '.join(names)}",
        )  # fmt: skip
    return dict(zip(names, row, strict=True))


def _moment(value: Any) -> datetime:
    """A time as a test writes it: seconds from 1970 on, or a datetime, UTC where it has no zone.

    >>> _moment(1.5).isoformat(), _moment(datetime(1970, 1, 2)).isoformat()
    ('1970-01-01T00:00:01.500000+00:00', '1970-01-02T00:00:00+00:00')
    """
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(
            f"{value!r} is not a time", hint="give seconds from 1970 on, such as 90, or a datetime"
        )
    return EPOCH + timedelta(seconds=value)


def _bag(rows: Sequence[Mapping[str, Any]]) -> "Counter[Any]":
    return Counter(_frozen(row) for row in rows)


def _frozen(value: Any) -> Any:
    """A value that can be counted; 2 and 2.0 are equal, so are the same moment in two zones, and
    one NaN and another.

    >>> _frozen([2, float("nan")]) == _frozen([2.0, float("nan")])
    True
    """
    if isinstance(value, Mapping):
        return frozenset((name, _frozen(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(inner) for inner in value)
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124


def _difference(found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> str:
    """What is missing, and what should not be there."""
    missing, more = _bag(expected) - _bag(found), _bag(found) - _bag(expected)
    lines = [f"expected {len(expected)} rows, found {len(found)}"]
    for title, wanted, rows in (("missing", missing, expected), ("not expected", more, found)):
        for row in rows:
            if wanted[_frozen(row)] > 0:
                wanted[_frozen(row)] -= 1
                lines.append(f"  {title}: {_told(row)}")
    if len(lines) == 1:
        lines.append("  in another order:")
        lines += [f"  found: {_told(row)}" for row in found]
    if len(lines) > SHOWN_MAX:
        lines = [*lines[:SHOWN_MAX], f"  and {len(lines) - SHOWN_MAX} more"]
    return "\n".join(lines)


def _told(row: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{k}={v.isoformat() if isinstance(v, datetime) else repr(v)}" for k, v in row.items()
    )


def _shared_spark() -> None:
    """Starts the one Spark of the process, unless one runs: yours, or another test's."""
    from millstream.app.runs.local_system import shared_spark  # noqa: PLC0415  (brings Spark)

    started = shared_spark()
    if started is not None:
        atexit.register(started)
