"""A session: one engine in this process, run by a loop in the background.

Nothing runs until somebody asks for a result (iterating, `to_arrow`, `on_batch`, `write`, `wait`,
`start`), so that queries registered one after the other all begin with the first row.
"""

import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millstream.cql.catalog import StreamDefinition, UserFunction
from millstream.cql.parser import CreateStream, parse, split
from millstream.cql.types import canonical
from millstream.engine.consumers import Consumer
from millstream.errors import UsageError
from millstream.runs.lock import FolderLock
from millstream.schedule.measures import OperatorStatistic, PlanStatistic
from millstream.schedule.protocol import Choice, Switch
from millstream.session.arguments import (
    Columns,
    Goals,
    naming_of,
    resolved,
    specification_given,
    stream_of,
)
from millstream.session.query import QueryHandle
from millstream.session.rows import as_mappings

if TYPE_CHECKING:
    from millstream.engine.loop import Loop
    from millstream.engine.push_source import PushSource


class Session:
    """Streams and queries of this process.

    `home` keeps state between sessions: declared again, streams and queries go on where they
    stopped. Without it, everything is forgotten at the end. With `manager`, the URL of a cluster's
    manager, the same calls work on the cluster (session/cluster_session.py).
    """

    def __new__(cls, *_: Any, manager: str | None = None, **given: Any) -> Any:
        if manager is None:
            return super().__new__(cls)
        from millstream.session.cluster_session import ClusterSession  # noqa: PLC0415

        return ClusterSession(manager, **given)

    def __init__(
        self,
        home: str | Path | None = None,
        master: str = "local[*]",
        *,
        manager: str | None = None,  # see __new__
        settings: Mapping[str, Any] | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        from millstream.engine.engine import Engine, EngineSettings  # noqa: PLC0415
        from millstream.spark.session import active, session  # noqa: PLC0415

        self._scratch = Path(tempfile.mkdtemp(prefix="millstream-")) if home is None else None
        self.home = Path(home).absolute() if home is not None else self._scratch or Path()
        self._lock = FolderLock(self.home)
        self._lock.__enter__()
        try:
            running = active()
            own = {"spark.sql.warehouse.dir": str(self.home / "warehouse"), **(spark or {})}
            self.spark = running or session(master, own, log=self.home / "spark.log")
            self._own_spark = running is None
            self.engine: Engine = Engine(
                self.home, self.spark, EngineSettings(**dict(settings or {}))
            )
        except BaseException:
            self._lock.__exit__()
            raise
        self._loop: Loop | None = None
        self._producer = f"session-{uuid.uuid4().hex[:12]}"
        self._closed = False

    # -- life -----------------------------------------------------------------------------------

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finishes the steps in hand and ends; with a home, a later session goes on."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not None:
            self._loop.stop()
        self.engine.close()
        if self._own_spark:
            self.spark.stop()
        self._lock.__exit__()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def start(self) -> None:
        """Begins to work; reading a result does so by itself."""
        self.running_loop()

    def running_loop(self) -> "Loop":
        from millstream.engine.loop import Loop  # noqa: PLC0415

        if self._closed:
            raise UsageError("the session is closed")
        self.check()
        if self._loop is None:
            self._loop = Loop(self.engine)
            self._loop.start()
        return self._loop

    @property
    def working(self) -> bool:
        """Whether it has begun to work."""
        return self._loop is not None

    def wake(self) -> None:
        """Begins to work, or tells the loop that there is something new."""
        self.running_loop().wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all input so far is processed; False where that took too long."""
        loop = self.running_loop()
        loop.wake()
        settled = loop.settled.wait(timeout)
        self.check()
        return settled

    def check(self) -> None:
        """Raises what stopped the loop, if anything did."""
        if self._loop is not None and self._loop.failure is not None:
            raise self._loop.failure

    # -- streams --------------------------------------------------------------------------------

    def stream(
        self,
        name: str | None = None,
        *,
        cql: str | None = None,
        columns: Columns | None = None,
        **options: Any,
    ) -> StreamDefinition:
        """Declares a stream, as a job file does or by CREATE STREAM.

        Options are those of a job file: path, format, options, time, lateness, idle, max_ahead,
        source, rate, follow. Without path and source, rows are pushed.
        """
        return self._declare(stream_of(name, cql, columns, options))

    def _declare(self, definition: StreamDefinition) -> StreamDefinition:
        self.engine.add_stream(definition)
        if self._loop is not None:
            source = self.engine.sources.get(definition.name)
            if source is not None:
                source.start()
            self._loop.wake()
        return definition

    def push(
        self, stream: str, rows: Any, *, producer: str | None = None, number: int | None = None
    ) -> Mapping[str, Any]:
        """Adds rows to a stream without a source of its own, durably; tells what became of them.

        Rows are mappings, sequences in order of columns, an Arrow table or a pandas frame. A
        producer that counts its batches from 1 may send one again: it counts once.
        """
        source = self._pushed(stream)
        given = producer or self._producer
        answer = source.push(
            given,
            number if number is not None else source.expected(given),
            as_mappings(rows, source.definition),
        )
        return {"rows": answer.rows, "late": answer.late, "rejected": answer.rejected,
                "repeated": answer.repeated, "reasons": answer.reasons}  # fmt: skip

    def finish(self, stream: str) -> None:
        """No more rows will come on a stream: all its windows can be decided."""
        self._pushed(stream).finish()

    def _pushed(self, stream: str) -> "PushSource":
        from millstream.engine.push_source import PushSource  # noqa: PLC0415

        name = self.engine.catalog.stream(stream).name
        source = self.engine.sources.get(name)
        if not isinstance(source, PushSource):
            raise UsageError(
                f"stream {name} has a source of its own",
                hint='declare it with source="push" to push rows',
            )
        return source

    # -- queries --------------------------------------------------------------------------------

    def query(
        self, cql: str, name: str | None = None, *, from_beginning: bool = False
    ) -> QueryHandle:
        """Registers a query.

        It begins with the rows that come after it was registered; `from_beginning`, with the
        oldest that are still there.
        """
        given, beginning = naming_of(cql)
        chosen = name or given or self._free_name()
        return self._register(cql, chosen, from_beginning or beginning)

    def explain(self, cql: str) -> str:
        """What a query means, what it would share with those that run, and what that costs."""
        from millstream.engine.costs import explained  # noqa: PLC0415

        return explained(self.engine, self.engine.plan(cql))

    def _register(self, cql: str, name: str, from_beginning: bool) -> QueryHandle:
        query = self.engine.add_query(name, cql, from_beginning=from_beginning)
        if query.plan.relation:
            self._hold_table(name, query.stream)
        if self._loop is not None:
            self._loop.wake()
        return QueryHandle(self, name)

    def _hold_table(self, name: str, stream: str) -> None:
        """`table()` needs the whole changelog where the operator does not keep it for itself."""
        from millstream.spark.operators import SELF_READING  # noqa: PLC0415

        operator = self.engine.operators.get(stream)
        if operator is None or operator.kind in SELF_READING:
            return
        with self.engine.ledger.transaction() as ledger:
            following, watermark = ledger.cursor(Consumer("table", name), stream)
            ledger.set_cursor(Consumer("table", name), stream, following, watermark)

    def _free_name(self) -> str:
        number = 1
        while f"q{number}" in self.engine.queries:
            number += 1
        return f"q{number}"

    def execute(self, cql: str) -> tuple[StreamDefinition | QueryHandle, ...]:
        """All statements of a text: CREATE STREAM, CREATE QUERY, SELECT."""
        made: list[StreamDefinition | QueryHandle] = []
        for text in split(cql):
            (statement,) = parse(text)
            if isinstance(statement, CreateStream):
                made.append(self._declare(resolved(statement.definition)))
            else:
                made.append(self.query(text))
        return tuple(made)

    def queries(self) -> tuple[QueryHandle, ...]:
        return tuple(QueryHandle(self, name) for name in self.engine.queries)

    def drop(self, name: str) -> None:
        with self.engine.lock:
            self.engine.drop_query(name)
            with self.engine.ledger.transaction() as ledger:
                ledger.drop_consumer(Consumer("table", name))
        if self._loop is not None:
            self._loop.wake()

    def status(self) -> Mapping[str, Any]:
        """Streams, operators and queries with their figures."""
        return self.engine.status()

    # -- quality of service ---------------------------------------------------------------------

    def set_quality(
        self, goals: Goals, query: str | None = None, *, weight: float | None = None
    ) -> None:
        """What is wanted of all queries together, or of one, from now on; results do not change.

        Goals are a line (`"delay <= 2s, output_rate maximise 0.3"`), the name of a template, a
        table as in a job file, or a Specification; None forgets a query's own.
        """
        from millstream.engine.goals import change_goals  # noqa: PLC0415

        change_goals(self.engine, specification_given(goals), query, weight)

    def quality(self) -> Mapping[str, Any]:
        """Goals beside what is measured, the algorithm in charge, what choosing costs."""
        from millstream.engine.goals import scheduling_figures  # noqa: PLC0415

        return scheduling_figures(self.running_loop(), time.time())

    def register_statistic(self, statistic: OperatorStatistic | PlanStatistic) -> None:
        """A statistic of your own, computed from now on; one of plans can be a goal."""
        from millstream.engine.goals import register_statistic  # noqa: PLC0415

        register_statistic(self.engine, statistic)

    def choices(self) -> tuple[Choice | Switch, ...]:
        """The last choices of the scheduler and its reviews, each with its reason."""
        loop = self.running_loop()
        with self.engine.lock:
            return tuple(loop.scheduler.scheduler.trace)

    # -- functions ------------------------------------------------------------------------------

    def register_function(
        self,
        name: str,
        function: Callable[..., Any] | str,
        returns: str,
        version: str = "",
        *,
        parameters: Columns | None = None,
    ) -> None:
        """Makes a deterministic function known to queries.

        Either a Python function of one row's values, or a SQL expression over `parameters`. A new
        version has a new name in plans, so that results of old and new never mix.
        """
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UsageError(f"{name!r} cannot be a function's name")
        users = [q.name for q in self.engine.queries.values() if _calls(q.cql, name)]
        if users and self.engine.catalog.function(name) is not None:
            raise UsageError(
                f"function {name} is in use by query {users[0]}", hint="drop the query first"
            )
        kind = canonical(returns)
        if callable(function):
            self.spark.udf.register(name, function, kind)
        else:
            typed = ", ".join(f"{n} {canonical(t)}" for n, t in dict(parameters or {}).items())
            self.spark.sql(
                f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({typed}) "
                f"RETURNS {kind} RETURN {function}"
            )
        with self.engine.lock:
            self.engine.catalog = self.engine.catalog.with_function(UserFunction(name, version))
            self.engine.analyzer.forget()


def _calls(cql: str, name: str) -> bool:
    return re.search(rf"\b{name}\s*\(", cql, re.IGNORECASE) is not None
