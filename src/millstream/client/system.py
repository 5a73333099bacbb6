"""A running system as sessions, runs and commands ask it, wherever it runs.

`LocalSystem` (app/runs/local_system.py) is an engine in this process, `ClusterSystem`
(client/cluster_system.py) a manager over HTTP. Whoever holds a `System` need not know which one.
What a person may do beside looking (explain, preview, drop) is `control.snapshot.SnapshotSource`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millstream.control.snapshot.model import Snapshot
from millstream.core.errors import MillstreamError
from millstream.decide.schedule.quality import Specification
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import Plan
from millstream.language.plan.schema import Schema
from millstream.store.arrivals.appending import Rows
from millstream.store.delivery import Result, Sink

POLL_S = 0.2  # to wait for rows before anything else is looked at
REST_S = 0.05  # before somebody who did not answer is asked again


# by kind (streams, operators, queries; processors of a cluster), then by name
Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]


class QueryFailedError(MillstreamError):
    """The data broke an expression of this query; the others go on."""


class ReaderFailedError(MillstreamError):
    """A function or a sink that takes a query's rows has raised; the rows are kept for it."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A query that somebody wants to run."""

    name: str
    cql: str
    from_beginning: bool = False
    replicas: int = 1  # processors that are to have what it needs, in a cluster
    replace: bool = False  # whether a query of this name goes on with this text


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A query that a system has taken, as it stands now."""

    name: str
    cql: str
    columns: Schema
    relation: bool
    stream: str  # of its result
    state: str
    reason: str = ""
    start: int | None = None  # the event time in microseconds from which rows count
    sources: tuple[str, ...] = ()  # the streams that it reads
    plan: Plan | None = None  # known where the query was compiled

    @property
    def result(self) -> Result:
        return Result(self.name, self.stream, self.columns, self.relation)

    def raise_if_failed(self) -> None:
        if self.state == "failed":
            raise QueryFailedError(f"query {self.name} failed: {self.reason}")


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Rows of segments `first` to `last`, as users see them; None where they hold none."""

    first: int
    last: int
    table: pa.Table | None
    ended: bool = False  # nothing will follow


class Reader(Protocol):
    """One result from a number on; takes nothing until it acknowledges."""

    following: int  # the next number it wants
    ended: bool  # nothing more will come
    idle: bool  # there was nothing more when it last looked

    def pages(self, wait_s: float = 0.0) -> Iterator[ResultPage]:
        """What is there now; waits for more up to `wait_s` where there is nothing."""
        ...

    def acknowledge(self) -> None:
        """Everything below the next number is taken: it need not be kept."""
        ...


class System(Protocol):
    """Streams and queries, declared, fed, read and dropped."""

    @property
    def url(self) -> str:
        """The manager's address; empty in this process."""
        ...

    @property
    def shared(self) -> bool:
        """Whether the queries of others run there as well."""
        ...

    def declare(self, stream: StreamDefinition) -> None: ...

    def start(self) -> None:
        """Lets the rows of declared streams come."""
        ...

    def definition(self, stream: str) -> StreamDefinition:
        """The declaration of a stream that rows can be pushed to."""
        ...

    def push(
        self, stream: str, rows: Rows, producer: str, number: int | None = None
    ) -> Mapping[str, Any]:
        """Adds a batch to a stream without a source of its own; says what became of its rows."""
        ...

    def finish(self, stream: str) -> None:
        """No more rows will come on a stream."""
        ...

    def forget(self, stream: str) -> None: ...

    def free_name(self) -> str:
        """A name that no query has."""
        ...

    def submit(self, query: Submission) -> RegisteredQuery: ...

    def explain(self, cql: str) -> str:
        """What would become of a query if it were submitted now."""
        ...

    def query(self, name: str) -> RegisteredQuery: ...

    def queries(self) -> Sequence[str]: ...

    def recorded(self) -> Mapping[str, str]:
        """Texts of queries that this system knows from before it was opened, by name."""
        ...

    def forget_leftovers(self) -> None:
        """Ends those of them that nobody has submitted again."""
        ...

    def pause(self, name: str, wanted: bool, why: str = "") -> None:
        """Lets a query rest, or go on; its rows are kept for it meanwhile."""
        ...

    def restart(self, name: str) -> None:
        """Lets a failed query go on where it failed."""
        ...

    def drop(self, name: str) -> None: ...

    # -- results --------------------------------------------------------------------------------

    def reader(self, name: str) -> Reader:
        """From the first row that nobody has acknowledged."""
        ...

    def table_pieces(
        self, name: str, enough: Callable[[], bool] = lambda: True
    ) -> Iterator[pa.Table]:
        """A relation's table when `enough` has come, one piece in memory at a time."""
        ...

    def deliver(self, name: str, sink: Sink) -> None:
        """Attaches a sink to a result."""
        ...

    def deliver_rejects(self, stream: StreamDefinition, late: Sink, rejected: Sink) -> None:
        """Attaches sinks to the rows of a stream that came too late or were malformed."""
        ...

    def serve_sinks(self, name: str) -> None:
        """Lets the sinks of a result take its rows. An engine in this process does so by itself
        from now on; the rows of a cluster are pulled here until the result has ended."""
        ...

    def work(self, tick: Callable[[], None]) -> None:
        """Works until all finite input is processed and delivered; `tick` may raise to stop it."""
        ...

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until all input so far is processed; False if that took too long."""
        ...

    def caught_up(self, name: str) -> Callable[[], bool]:
        """What says, asked before a look at a result, that this look finds all there is to wait
        for."""
        ...

    # -- figures and goals ----------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """Everything as plain values for people and scripts."""
        ...

    def snapshot(self) -> Snapshot:
        """The picture that dashboards, `top` and alarms show, as of now."""
        ...

    def figures(self) -> Figures:
        """Figures of what is declared here."""
        ...

    @property
    def steps(self) -> int:
        """Steps that this process has run."""
        ...

    def set_quality(
        self, goals: Specification | None, query: str | None, weight: float | None
    ) -> None: ...

    def quality(self) -> Mapping[str, Any]: ...

    def close(self) -> None: ...


def tables_of(
    system: System, name: str, reader: Reader, enough: Callable[[], bool] = lambda: False,
    *, acknowledge: bool = False,
) -> Iterator[pa.Table]:  # fmt: skip
    """Tables of a result as they come, until it has ended, or nothing more is there after `enough`
    has come. What its user has taken is acknowledged, where that is wanted."""
    last_look = False
    while not reader.ended:
        # asked before the look, and not again: what comes later need not be waited for
        last_look, came = last_look or enough(), False
        for page in reader.pages(0.0 if last_look else POLL_S):
            came = True
            if page.table is not None:
                yield page.table
        if came:
            if acknowledge:
                reader.acknowledge()
            continue
        system.query(name).raise_if_failed()
        if last_look and reader.idle:
            return
        if last_look:
            time.sleep(REST_S)  # the result has moved, or its processor is away
