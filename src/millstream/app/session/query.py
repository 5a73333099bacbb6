"""A registered query as its user holds it: rows, tables, sinks, the plan.

Rows are taken by the query's own cursor, wherever its result is kept: each comes once, and is
acknowledged with the last row of its batch. Nothing here decides when work is done.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from millstream.app.session.arguments import Goals
from millstream.app.session.live_table import follow
from millstream.app.session.notebook import ROWS_SHOWN, query_html
from millstream.client.arrow_types import empty_table
from millstream.client.system import (
    QueryFailedError,
    Reader,
    RegisteredQuery,
    System,
    tables_of,
)
from millstream.control.definitions.sink_table import sink_of
from millstream.core.errors import MillstreamError, UsageError
from millstream.core.extras import told_where_missing
from millstream.language.plan.explain import explain
from millstream.store.delivery import FILE_FORMATS, CallbackSink, ConsoleSink, FileSink, Sink
from millstream.store.sinks.opening import SINKS, open_sink

__all__ = ["QueryFailedError", "QueryHandle", "Row"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(dict[str, Any]):
    """A result row: `row["host"]`, or `row.host` where the name allows it."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no column {name}; there are {', '.join(self)}") from None


def _unclosed(rows: Iterator[Row]) -> Iterator[Row]:
    """Passes rows on; whoever stops early does not end the iterator behind."""
    while (row := next(rows, None)) is not None:
        yield row


class HandleSession(Protocol):
    """What a handle asks of its session."""

    system: System

    @property
    def spark(self) -> Any: ...

    def latest(self, query: str, rows_max: int) -> list[dict[str, Any]]: ...

    def present_rules(self, table: str) -> list[dict[str, Any]]: ...

    def set_quality(
        self, goals: Goals, query: str | None = None, *, weight: float | None = None
    ) -> None: ...

    def restart(self, name: str) -> None: ...

    def drop(self, name: str) -> None: ...


class QueryHandle:
    """One query of a session."""

    def __init__(self, session: HandleSession, name: str) -> None:
        self._session, self._system, self.name = session, session.system, name
        self._rows: Iterator[Row] | None = None
        self._reader: Reader | None = None
        self._sinks = 0

    def __repr__(self) -> str:
        try:
            state = self.state
        except UsageError:
            state = "dropped"
        except MillstreamError:
            state = "out of reach"
        return f"<query {self.name}: {state}>"

    def _repr_html_(self) -> str:
        """For notebooks: the text, the state, the columns, the plan drawn, the latest rows."""
        try:
            query = self._query
        except UsageError:
            return f"<p>query <b>{escape(self.name)}</b> was dropped</p>"
        state = query.state + (f": {query.reason}" if query.reason else "")
        columns = (*self.columns, ("ts", "timestamp"))
        root = query.plan.root if query.plan is not None else None
        rows = self._session.latest(self.name, ROWS_SHOWN)
        return query_html(self.name, state, query.cql, columns, root, rows)

    def live(self, seconds: float = 60.0, until_rows: int | None = None) -> pa.Table:
        """A table in a notebook that follows the result; returns the rows that it shows at the end.

        It ends with the input, after `seconds`, or when there are `until_rows` rows. Rows are
        not consumed: iterating afterwards gives them too.
        """
        self._system.start()
        shown = follow(self._system.reader(self.name), seconds, until_rows)
        return shown if shown is not None else empty_table(self._query.result)

    # -- what it is -----------------------------------------------------------------------------

    @property
    def _query(self) -> RegisteredQuery:
        return self._system.query(self.name)

    @property
    def cql(self) -> str:
        return self._query.cql

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the result, without `ts`."""
        return tuple((f.name, f.type) for f in self._query.columns)

    @property
    def relation(self) -> bool:
        """Whether the result is a table that changes, not a stream of rows."""
        return self._query.relation

    @property
    def start(self) -> datetime | None:
        """The event time from which rows count; None if rows count from the very beginning."""
        start = self._query.start
        return None if start is None else EPOCH + timedelta(microseconds=start)

    @property
    def state(self) -> str:
        """`running` or `failed`; `reason` says why."""
        return self._query.state

    @property
    def reason(self) -> str:
        return self._query.reason

    def explain(self) -> str:
        plan = self._query.plan
        if plan is None:
            raise UsageError(
                f"the plan of {self.name} is not known here", hint="the dashboard shows it"
            )
        return explain(plan)

    # -- rows -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Row]:
        """Rows in order of arrival, each once; ends with the input.

        A relation gives its changes, with `op` + or -. Breaking off and iterating again goes on
        with the next row.
        """
        if self._sinks:
            raise UsageError(
                f"the rows of {self.name} go to a sink", hint="register the query twice to do both"
            )
        if self._rows is None:
            self._rows = self._take()
        yield from _unclosed(self._rows)

    def _take(self) -> Iterator[Row]:
        self._system.start()
        if self._reader is None:
            self._reader = self._system.reader(self.name)
        for table in tables_of(self._system, self.name, self._reader, acknowledge=True):
            for record in table.to_pylist():
                yield Row(record)
        self._rows = None

    # -- tables ---------------------------------------------------------------------------------

    def to_arrow(self, *, wait: bool = True) -> pa.Table:
        """All rows that no iteration has consumed; waits until the input so far is processed.

        It does not acknowledge them: iterating afterwards gives them too.
        """
        enough = self._system.caught_up(self.name) if wait else lambda: True
        reader = self._system.reader(self.name)
        tables = list(tables_of(self._system, self.name, reader, enough))
        if tables:
            return pa.concat_tables(tables, promote_options="permissive")
        return empty_table(self._query.result)

    def to_pandas(self, *, wait: bool = True) -> Any:
        with told_where_missing():
            return self.to_arrow(wait=wait).to_pandas()

    def table(self, *, wait: bool = True) -> pa.Table:
        """A relation's table as of the input so far."""
        if not self.relation:
            raise UsageError(
                f"the result of {self.name} is a stream, not a table", hint="use to_arrow()"
            )
        enough = self._system.caught_up(self.name) if wait else lambda: True
        pieces = list(self._system.table_pieces(self.name, enough))
        return pa.concat_tables(pieces, promote_options="permissive")

    # -- sinks ----------------------------------------------------------------------------------

    def on_batch(self, function: Callable[[pa.Table, int], Any]) -> "QueryHandle":
        """Calls a function with each batch and its id, at least once, in order of arrival.

        On a cluster it returns when the result has ended; so do `write` and `print`.
        """
        return self._attach(CallbackSink(function))

    def write(
        self,
        path: str | Path | None = None,
        format: str = "parquet",  # noqa: A002  (as Spark calls it)
        **options: Any,
    ) -> "QueryHandle":
        """Writes every row: to parquet, csv or json files of a folder, exactly once.

        `format="postgres"` with dsn, table and perhaps key and password, and `format="delta"` with
        a path and perhaps key, write into a table, also once: a relation as upserts and deletes,
        a stream as inserts. So do `format="iceberg"` with table, perhaps key, and options for a
        catalog, and `format="kafka"` with topic, perhaps key, and options for librdkafka; without
        such options, or with `kafka.bootstrap.servers`, it is Spark's connector. `format="mqtt"`
        with topic, options and perhaps key keeps a table as retained messages, or publishes rows.
        Other formats are those of Spark's batch writer, with its options; each batch comes at least
        once with its id in a column `batch`, and in options that say `{batch}`.
        """
        if format in FILE_FORMATS and path is not None and not options:
            return self._attach(FileSink(Path(path).absolute(), format))
        theirs = any(o.startswith("kafka.") for o in options)
        theirs = theirs or (format == "iceberg" and "options" not in options)
        if format in SINKS.names() and not theirs:
            where = {} if path is None else {"path": str(path)}
            return self._attach(open_sink(sink_of({"type": format} | where | options)))
        spark = self._session.spark
        from millstream.spark.sink import SparkSink  # noqa: PLC0415  (brings Spark)

        absolute = {} if path is None else {"path": str(Path(path).absolute())}
        return self._attach(SparkSink(spark, format, absolute | options))

    def print(self, rows_max: int = 20) -> "QueryHandle":
        """Prints rows as they appear, at most `rows_max` of each batch."""
        return self._attach(ConsoleSink(print, rows_max))

    def _attach(self, sink: Sink) -> "QueryHandle":
        if self._rows is not None:
            raise UsageError(
                f"the rows of {self.name} are being iterated", hint="register the query twice"
            )
        self._system.deliver(self.name, sink)
        self._sinks += 1
        self._system.serve_sinks(self.name)
        return self

    def set_quality(self, goals: Goals, *, weight: float | None = None) -> None:
        """Sets the goals of this query, beside those of all queries; None removes them."""
        self._session.set_quality(goals, self.name, weight=weight)

    def restart(self) -> "QueryHandle":
        """Continues the query where it failed: nothing is lost or comes twice. If the cause
        is still there, it fails again."""
        self._session.restart(self.name)
        return self

    def drop(self) -> None:
        """Stops and removes the query; queries that share its operators continue."""
        self._session.drop(self.name)
