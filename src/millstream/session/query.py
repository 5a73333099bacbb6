"""A registered query as its user holds it: rows, tables, sinks, the plan.

Rows are taken by a cursor in the ledger: each comes once, and is acknowledged with the last row of
its batch. Nothing here decides when work is done; it asks the session's loop and waits.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.engine.consumers import Consumer, subscriber
from millstream.errors import MillstreamError, UsageError
from millstream.plan.explain import explain
from millstream.plan.windows import BEGINNING
from millstream.session.notebook import ROWS_SHOWN, query_html

if TYPE_CHECKING:
    from millstream.engine.engine import Query
    from millstream.session.arguments import Goals
    from millstream.session.session import Session
    from millstream.store.delivery import Sink

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
POLL_SECONDS = 0.05


class Row(dict[str, Any]):
    """A result row: `row["host"]`, or `row.host` where the name allows it."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no column {name}; there are {', '.join(self)}") from None


class QueryFailedError(MillstreamError):
    """The data broke an expression of this query; the others go on."""


def _unclosed(rows: Iterator[Row]) -> Iterator[Row]:
    """Passes rows on; whoever stops early does not end the iterator behind."""
    while (row := next(rows, None)) is not None:
        yield row


class QueryHandle:
    """One query of a session."""

    def __init__(self, session: "Session", name: str) -> None:
        self._session, self.name = session, name
        self._rows: Iterator[Row] | None = None
        self._sinks = 0

    def __repr__(self) -> str:
        state = self.state if self.name in self._engine.queries else "dropped"
        return f"<query {self.name}: {state}>"

    def _repr_html_(self) -> str:
        """For notebooks: the text, the state, the columns, the plan drawn, the latest rows."""
        if self.name not in self._engine.queries:
            return f"<p>query <b>{escape(self.name)}</b> was dropped</p>"
        state = self.state + (f": {self.reason}" if self.reason else "")
        columns = (*self.columns, ("ts", "timestamp"))
        rows = self._latest(ROWS_SHOWN) if self._session.working else []
        return query_html(self.name, state, self.cql, columns, self._query.plan.root, rows)

    def _latest(self, rows_max: int) -> list[dict[str, Any]]:
        """The last rows that are retained, oldest first; reads no more files than it must."""
        from millstream.store.delivery import user_table  # noqa: PLC0415

        engine, query = self._engine, self._query
        names = [f.name for f in query.plan.columns]
        found: list[dict[str, Any]] = []
        with engine.runner.removals.reading():
            for segment in reversed(engine.ledger.segments(query.stream)):
                if len(found) >= rows_max:
                    break
                if segment.rows:
                    stored = engine.store.read(segment)
                    kept = stored.slice(max(0, stored.num_rows - rows_max + len(found)))
                    shown = user_table(kept, names, changes=query.plan.relation)
                    found = shown.to_pylist() + found
        return found

    def live(self, seconds: float = 60.0, until_rows: int | None = None) -> pa.Table:
        """A table in a notebook that follows the result; gives what it shows in the end.

        It ends with the input, after so many seconds, or when there are that many rows. Rows are
        not taken: iterating afterwards gives them too.
        """
        from millstream.session.live_table import follow  # noqa: PLC0415

        return follow(self, seconds, until_rows)

    # -- what it is -----------------------------------------------------------------------------

    @property
    def _engine(self) -> Any:
        return self._session.engine

    @property
    def _query(self) -> "Query":
        found = self._engine.queries.get(self.name)
        if found is None:
            raise UsageError(f"query {self.name} was dropped")
        query: Query = found
        return query

    @property
    def cql(self) -> str:
        return self._query.cql

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the result, without `ts`."""
        return tuple((f.name, f.type) for f in self._query.plan.columns)

    @property
    def relation(self) -> bool:
        """Whether the result is a table that changes, not a stream of rows."""
        return self._query.plan.relation

    @property
    def start(self) -> datetime | None:
        """The event time from which on rows count; None where it is the beginning of all."""
        start = self._query.start
        return None if start == BEGINNING else EPOCH + timedelta(microseconds=start)

    @property
    def state(self) -> str:
        """`running` or `failed`; `reason` tells why."""
        return self._query.state

    @property
    def reason(self) -> str:
        return self._query.reason

    def explain(self) -> str:
        return explain(self._query.plan)

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
        loop = self._session.running_loop()
        while True:
            done = loop.finished.is_set()
            batch = self._pending()
            if batch is None:
                if self._query.state == "failed":
                    raise QueryFailedError(f"query {self.name} failed: {self._query.reason}")
                if done:
                    self._session.check()
                    self._rows = None
                    return
                loop.finished.wait(POLL_SECONDS)
                continue
            table, last, watermark = batch
            for record in table.to_pylist():
                yield Row(record)
            self._acknowledge(last, watermark)

    def _pending(self) -> tuple[pa.Table, int, int] | None:
        """What has arrived since the last acknowledgement."""
        from millstream.store.delivery import user_table  # noqa: PLC0415

        engine, query = self._engine, self._query
        following, _ = engine.ledger.cursor(subscriber(self.name), query.stream)
        segments = engine.ledger.segments(query.stream, following)
        tables = [engine.store.read(s) for s in segments if s.rows]
        if not segments:
            return None
        last, watermark = segments[-1].last, segments[-1].watermark
        if not tables:
            self._acknowledge(last, watermark)
            return None
        names = [f.name for f in query.plan.columns]
        merged = pa.concat_tables(tables, promote_options="permissive")
        return user_table(merged, names, changes=query.plan.relation), last, watermark

    def _acknowledge(self, last: int, watermark: int) -> None:
        engine, query = self._engine, self._query
        with engine.ledger.transaction() as ledger:
            ledger.set_cursor(subscriber(self.name), query.stream, last + 1, watermark)
        engine.maintenance.retain([query.stream])

    # -- tables ---------------------------------------------------------------------------------

    def to_arrow(self, *, wait: bool = True) -> pa.Table:
        """All rows that nobody has taken by iterating; waits until the input so far is done.

        They are not acknowledged: iterating afterwards gives them too.
        """
        if wait:
            self._session.wait()
        self._raise_if_failed()
        batch = self._pending()
        if batch is not None:
            return batch[0]
        return self._engine.result(self.name).slice(0, 0)

    def to_pandas(self, *, wait: bool = True) -> Any:
        return self.to_arrow(wait=wait).to_pandas()

    def table(self, *, wait: bool = True) -> pa.Table:
        """A relation's table as of the input so far."""
        if not self.relation:
            raise UsageError(
                f"the result of {self.name} is a stream, not a table", hint="use to_arrow()"
            )
        if wait:
            self._session.wait()
        self._raise_if_failed()
        table: pa.Table = self._engine.table(self.name)
        return table

    def _raise_if_failed(self) -> None:
        if self.state == "failed":
            raise QueryFailedError(f"query {self.name} failed: {self.reason}")

    # -- sinks ----------------------------------------------------------------------------------

    def on_batch(self, function: Callable[[pa.Table, int], Any]) -> "QueryHandle":
        """Calls a function with each batch and its id, at least once, in order of arrival."""
        from millstream.store.delivery import CallbackSink  # noqa: PLC0415

        return self._attach(CallbackSink(function))

    def write(
        self,
        path: str | Path | None = None,
        format: str = "parquet",  # noqa: A002  (as Spark calls it)
        **options: Any,
    ) -> "QueryHandle":
        """Writes every row: to parquet, csv or json files of a folder, exactly once.

        Other formats are those of Spark's batch writer, with its options; each batch comes at least
        once with its id in a column `batch`, and in options that say `{batch}`.
        """
        from millstream.spark.spark_sink import SparkSink  # noqa: PLC0415
        from millstream.store.delivery import FILE_FORMATS, FileSink  # noqa: PLC0415

        if format in FILE_FORMATS and path is not None and not options:
            return self._attach(FileSink(Path(path).absolute(), format))
        where = {} if path is None else {"path": str(Path(path).absolute())}
        return self._attach(SparkSink(self._session.spark, format, where | options))

    def print(self, rows_max: int = 20) -> "QueryHandle":
        """Prints rows as they appear, of each batch at most so many."""
        from millstream.store.delivery import ConsoleSink  # noqa: PLC0415

        return self._attach(ConsoleSink(print, rows_max))

    def _attach(self, sink: "Sink") -> "QueryHandle":
        if self._rows is not None:
            raise UsageError(
                f"the rows of {self.name} are being iterated", hint="register the query twice"
            )
        # the first sink moves the query's own cursor, so that nothing is kept for nobody
        name = f"{self.name}:{self._sinks}"
        consumer = None if self._sinks == 0 else Consumer("sink", name)
        self._engine.deliver(self.name, sink, consumer=consumer)
        self._sinks += 1
        self._session.wake()
        return self

    def set_quality(self, goals: "Goals", *, weight: float | None = None) -> None:
        """What is wanted of this query, beside what is wanted of all; None forgets it."""
        self._session.set_quality(goals, self.name, weight=weight)

    def drop(self) -> None:
        """Stops the query and forgets it; others that share its operators go on."""
        self._session.drop(self.name)
