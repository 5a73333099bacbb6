"""A session: streams and queries of a system, an engine in this process or a cluster.

Nothing runs until somebody asks for a result (iterating, `to_arrow`, `on_batch`, `write`, `wait`,
`start`), so that queries registered one after the other all begin with the first row.
"""

import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.app.session.arguments import (
    Columns,
    Goals,
    naming_of,
    resolved,
    specification_given,
    stream_of,
)
from millstream.app.session.query import QueryHandle
from millstream.app.session.rows import as_given
from millstream.app.session.rules import (
    RuleSet,
    for_each,
    refuse_tableless,
    rule_table,
    table_named,
)
from millstream.app.session.user_aggregates import UserAggregate
from millstream.client.cluster_system import ClusterSystem
from millstream.client.system import Submission, System
from millstream.control.snapshot.model import Alarm
from millstream.core.errors import UsageError
from millstream.core.extras import told_where_missing
from millstream.core.lock import FolderLock
from millstream.decide.schedule.facts import Choice, Switch
from millstream.decide.schedule.measures import OperatorStatistic, PlanStatistic
from millstream.engine.scheduling.goals import register_statistic
from millstream.language.cql.catalog import StreamDefinition, UserFunction
from millstream.language.cql.functions import AGGREGATES
from millstream.language.cql.parsing.parser import (
    CreateStream,
    CreateView,
    parse,
    parse_query,
    split,
)
from millstream.language.cql.types import canonical
from millstream.language.cql.views import body_of, whole_text

if TYPE_CHECKING:
    from millstream.app.runs.local_system import LocalSystem


class Session:
    """Streams and queries of this process, or of a cluster.

    `home` keeps state between sessions: declare streams and queries again, and they continue
    where they stopped. Without `home` the session forgets everything at its end. With `manager`,
    the URL of a cluster's manager, the same calls work on the cluster: its processors must see
    the files, and its queries continue after the session until you drop them.

    `spark` is either settings for the Spark that the session starts, or a running Spark session
    (`attach`). The engine then works in a separate session beside it, with separate settings; the
    user's session does not change.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        master: str = "local[*]",
        *,
        manager: str | None = None,
        token: str | None = None,  # that a manager asks for
        verify: str | bool = True,  # a manager's certificate
        settings: Mapping[str, Any] | None = None,
        spark: Any = None,  # settings of one that it starts, or a session that runs already
        lineage: str | None = None,  # where events of OpenLineage go: a URL or a file
    ) -> None:
        self._producer = f"session-{uuid.uuid4().hex[:12]}"
        self._local: LocalSystem | None = None
        self._views: dict[str, str] = {}
        self.system: System
        with ExitStack() as opened:
            if manager is None:
                self._local = self.system = self._engine(
                    opened, home, master, settings, spark, lineage
                )
            elif home is None and settings is None and spark is None:
                self.system = ClusterSystem(manager, token=token, verify=verify)
                opened.callback(self.system.close)
            else:
                raise UsageError(
                    "a manager's processors have homes and settings of their own",
                    hint="leave out home, settings and spark",
                )
            self._opened = opened.pop_all()

    def _engine(
        self, opened: ExitStack, home: str | Path | None, master: str,
        settings: Mapping[str, Any] | None, spark: Any, lineage: str | None,
    ) -> "LocalSystem":  # fmt: skip
        # it brings Spark, which a session on a cluster does without
        with told_where_missing():
            from millstream.app.runs.local_system import LocalSystem  # noqa: PLC0415

        self.home = Path(home if home is not None else tempfile.mkdtemp(prefix="millstream-"))
        self.home = self.home.absolute()
        if home is None:
            opened.callback(shutil.rmtree, self.home, ignore_errors=True)
        opened.enter_context(FolderLock(self.home))
        user = None if spark is None or isinstance(spark, Mapping) else spark
        set_ = spark if isinstance(spark, Mapping) else {}
        system = LocalSystem(
            self.home, master, settings=settings or {}, spark=set_, attach_to=user, lineage=lineage
        )
        if system.own_spark:
            opened.callback(system.spark.stop)
        opened.callback(system.close)
        return system

    def here(self, what: str) -> "LocalSystem":
        """The engine of this process, for calls that work only there."""
        if self._local is None:
            raise UsageError(
                f"{what} needs an engine in this process", hint="a Session without manager has one"
            )
        return self._local

    @property
    def spark(self) -> Any:
        """Spark's own session."""
        return self.here("Spark").spark

    # -- life -----------------------------------------------------------------------------------

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finishes the running steps and ends; with a home, a later session continues."""
        self._opened.close()

    def start(self) -> None:
        """Starts to work; reading a result also starts the session."""
        self.system.start()

    def latest(self, query: str, rows_max: int) -> list[dict[str, Any]]:
        """The last rows of a result at hand; none before an engine here has started."""
        local = self._local
        return local.latest(query, rows_max) if local is not None and local.working else []

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all input so far is processed; False if that took too long.

        Raises if a function or a sink that takes a query's rows has failed.
        """
        return self.system.wait(timeout)

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
        retain, history, source, rate, follow, key, op. Without path and source, push the rows.
        """
        return self._declare(stream_of(name, cql, columns, options))

    def _declare(self, definition: StreamDefinition) -> StreamDefinition:
        self.system.declare(definition)
        return definition

    def push(
        self, stream: str, rows: Any, *, producer: str | None = None, number: int | None = None
    ) -> Mapping[str, Any]:
        """Adds rows durably to a stream without a source; returns counts of what became of them.

        Rows are mappings, sequences in order of columns, an Arrow table or batches of one, or a
        pandas frame. If a producer counts its batches from 1 and repeats one, it counts once.
        """
        given = as_given(rows, self.system.definition(stream))
        return self.system.push(stream, given, producer or self._producer, number)

    def finish(self, stream: str) -> None:
        """Declares that no more rows will come on a stream, so all its windows can be decided."""
        self.system.finish(stream)

    # -- queries --------------------------------------------------------------------------------

    def query(
        self, cql: str, name: str | None = None, *, from_beginning: bool = False
    ) -> QueryHandle:
        """Registers a query.

        It begins with the rows that come after registration; with `from_beginning` it begins with
        the oldest rows that are still there.
        """
        given, beginning = naming_of(cql)
        chosen = name or given or self.system.free_name()
        cql = whole_text(cql, self._views.get)
        self.system.submit(Submission(chosen, cql, from_beginning or beginning))
        return QueryHandle(self, chosen)

    def rules(
        self,
        cql: str,
        name: str | None = None,
        *,
        parameters: Columns | None = None,
        rows: Any = (),
        from_beginning: bool = False,
    ) -> RuleSet:
        """Registers one query for many rules: `WHERE value > :limit`, and one row per rule.

        `parameters` are the columns of the rules with their types, beside `rule`, the name of a
        rule; the session makes a table of them. A text that names its own table (CREATE RULES
        name FROM table AS ...) needs no parameters. Rules in `rows` hold from the query's start,
        others from the moment when they are added.
        """
        given, beginning = naming_of(cql)
        chosen = name or given or self.system.free_name()
        table = table_named(cql)
        if not table:
            if parameters is None:
                raise refuse_tableless(cql)
            table = f"{chosen}_rules"
            self._declare(rule_table(table, parameters))
            cql = for_each(cql, table)
        listed = list(rows) if not hasattr(rows, "columns") else rows
        if len(listed):
            made = RuleSet(self, chosen, table, self._producer)
            made.add(listed)
        cql = whole_text(cql, self._views.get)
        self.system.submit(Submission(chosen, cql, from_beginning or beginning))
        return RuleSet(self, chosen, table, self._producer)

    def present_rules(self, table: str) -> list[dict[str, Any]]:
        """The rules of a table that hold now."""
        return self.here("a rule table").rules(table)

    def explain(self, cql: str) -> str:
        """A query's plan, what it would share with running queries, and what that costs."""
        return self.system.explain(whole_text(cql, self._views.get))

    def view(self, name: str, cql: str) -> None:
        """Gives a query a name that queries of this session can read: CREATE VIEW name AS cql."""
        if name in self._views and self._views[name] != cql:
            raise UsageError(f"view {name} exists already", hint="choose another name")
        if name in self.system.queries():
            raise UsageError(f"there is a query {name}", hint="choose another name for the view")
        parse_query(cql)
        self._views[name] = cql

    def execute(self, cql: str) -> tuple[StreamDefinition | QueryHandle, ...]:
        """All statements of a text: CREATE STREAM, CREATE QUERY, CREATE VIEW, SELECT."""
        made: list[StreamDefinition | QueryHandle] = []
        for text in split(cql):
            (statement,) = parse(text)
            if isinstance(statement, CreateStream):
                made.append(self._declare(resolved(statement.definition)))
            elif isinstance(statement, CreateView):
                self.view(statement.name, body_of(text))
            else:
                made.append(self.query(text))
        return tuple(made)

    def queries(self) -> tuple[QueryHandle, ...]:
        return tuple(QueryHandle(self, name) for name in self.system.queries())

    def restart(self, name: str) -> None:
        self.system.restart(name)

    def drop(self, name: str) -> None:
        self.system.drop(name)

    def status(self) -> Mapping[str, Any]:
        """Streams, queries, operators and processors, with their figures."""
        return self.system.status()

    # -- quality of service ---------------------------------------------------------------------

    def set_quality(
        self, goals: Goals, query: str | None = None, *, weight: float | None = None
    ) -> None:
        """Sets the goals of all queries together, or of one, from now on; results do not change.

        Goals are a line (`"delay <= 2s, output_rate maximise 0.3"`), the name of a template, a
        table as in a job file, or a Specification; None removes a query's own goals.
        """
        self.system.set_quality(specification_given(goals), query, weight)

    def quality(self) -> Mapping[str, Any]:
        """Goals beside the measured values that the system knows."""
        return self.system.quality()

    def alarms(self) -> tuple[Alarm, ...]:
        """What needs attention now, the worst first: each with its culprit and what to do."""
        return self.system.snapshot().overview.alarms

    def register_statistic(self, statistic: OperatorStatistic | PlanStatistic) -> None:
        """Registers your own statistic, computed from now on; one of plans can be a goal."""
        register_statistic(self.here("a statistic of your own").engine, statistic)

    def choices(self) -> tuple[Choice | Switch, ...]:
        """The last choices of the scheduler and its reviews, each with its reason."""
        local = self.here("the trace of the scheduler")
        local.start()
        with local.engine.lock:
            return tuple(local.loop.scheduler.scheduler.trace)

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
        """Registers a deterministic function for queries.

        Either a Python function of one row's values, or a SQL expression over `parameters`. A new
        version has a new name in plans, so results of the old and the new version never mix.
        """
        local = self._registering(name)
        engine, spark = local.engine, local.spark
        kind = canonical(returns)
        typed = ", ".join(f"{n} {canonical(t)}" for n, t in dict(parameters or {}).items())
        with local.inside():
            if callable(function):
                spark.udf.register(name, function, kind)
            else:
                spark.sql(
                    f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({typed}) "
                    f"RETURNS {kind} RETURN {function}"
                )
        with engine.lock:
            engine.catalog = engine.catalog.with_function(UserFunction(name, version))
            engine.compiler.functions_changed()

    def register_aggregate(
        self,
        name: str,
        *,
        zero: Any,
        accumulate: Callable[..., Any],
        merge: Callable[[Any, Any], Any],
        finish: Callable[[Any], Any] | None = None,
        returns: str,
        version: str = "",
    ) -> None:
        """Registers an aggregate for queries: `name(x)`, `name(x, y)` over any window or none.

        `accumulate(state, x)` adds a value to a state that begins as `zero`, `merge(state, other)`
        makes one state of two, `finish(state)` gives the result. The order of rows and of merges
        must not matter. A state is kept as JSON: numbers, texts, lists, dictionaries. Rows with a
        NULL argument are skipped.
        """
        local = self._registering(name)
        if name.lower() in AGGREGATES:
            raise UsageError(f"{name} is an aggregate of the language", hint="choose another name")
        parts = UserAggregate(zero, accumulate, merge, finish).checked(name)
        kind = canonical(returns)
        with local.inside():
            local.spark.udf.register(f"{name}__rows", parts.over_rows(), "string")
            local.spark.udf.register(f"{name}__parts", parts.over_states(), "string")
            local.spark.udf.register(f"{name}__end", parts.at_the_end(), kind)
        known = UserFunction(name, str(version), aggregate=True, returns=kind)
        with local.engine.lock:
            local.engine.catalog = local.engine.catalog.with_function(known)
            local.engine.compiler.functions_changed()

    def _registering(self, name: str) -> "LocalSystem":
        """The system here, where nobody uses the name."""
        local = self.here("a function of your own")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UsageError(f"{name!r} cannot be a function's name")
        users = [q.name for q in local.engine.queries.values() if _calls(q.cql, name)]
        if users and local.engine.catalog.function(name) is not None:
            raise UsageError(
                f"function {name} is in use by query {users[0]}", hint="drop the query first"
            )
        return local


def attach(
    spark: Any,  # the user's SparkSession
    home: str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
) -> Session:
    """A session in a Spark that runs already: a notebook's, or a cluster's."""
    return Session(home, spark=spark, settings=settings)


def _calls(cql: str, name: str) -> bool:
    return re.search(rf"\b{name}\s*\(", cql, re.IGNORECASE) is not None
