"""A session on a cluster: the same calls as on an engine in this process, over HTTP.

Streams are declared to the manager and begin when somebody asks for a result (or by `start`), so
that queries registered one after the other all see the first row. Rows come from the processors
that own the results; what an iteration has taken is acknowledged and not kept any longer.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from millstream.client.arrow_types import empty_table
from millstream.client.manager_client import ManagerClient, manager_url
from millstream.client.relation import summed
from millstream.client.results import ResultReader
from millstream.config.qos_table import specification_table
from millstream.config.stream_json import table_of
from millstream.cql.catalog import StreamDefinition
from millstream.cql.parser import CreateStream, parse, split
from millstream.cql.system_streams import PREFIX
from millstream.errors import StateError, UsageError
from millstream.plan.schema import Field
from millstream.plan.windows import BEGINNING
from millstream.session.arguments import (
    Columns,
    Goals,
    naming_of,
    resolved,
    specification_given,
    stream_of,
)
from millstream.session.query import EPOCH, QueryFailedError, Row
from millstream.session.rows import as_mappings
from millstream.store.delivery import FileSink, Result, user_table

POLL_S = 0.2


class ClusterQuery:
    """A query of a cluster as its user holds it."""

    def __init__(self, session: "ClusterSession", name: str) -> None:
        self._session, self.name = session, name
        self._reader: ResultReader | None = None

    def __repr__(self) -> str:
        return f"<query {self.name} on {self._session.client.url}>"

    def _told(self) -> dict[str, Any]:
        return self._session.client.query(self.name)

    @property
    def cql(self) -> str:
        return str(self._told()["cql"])

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((str(n), str(t)) for n, t in self._told()["columns"])

    @property
    def relation(self) -> bool:
        return bool(self._told()["relation"])

    @property
    def start(self) -> datetime | None:
        start = self._told()["start"]
        return None if start in (None, BEGINNING) else EPOCH + timedelta(microseconds=start)

    @property
    def state(self) -> str:
        return str(self._told()["state"])

    @property
    def reason(self) -> str:
        return str(self._told()["reason"])

    # -- rows -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Row]:
        """Rows in order of arrival, each once; ends with the input."""
        for table in self._batches(acknowledge=True):
            yield from (Row(record) for record in table.to_pylist())

    def _batches(
        self, *, acknowledge: bool, ready: Callable[[], bool] = lambda: False
    ) -> Iterator[pa.Table]:
        """Tables as they come, until the result has ended, or nothing more comes when `ready`."""
        self._session.start()
        kept = self._reader if acknowledge else None
        reader = kept or ResultReader(self._session.client, self.name)
        if acknowledge:
            self._reader = reader
        while not reader.ended:
            came = done = False
            for batch in reader.batches(0.0 if ready() else POLL_S):
                came = True
                if batch.table is not None:
                    yield batch.table
                    done = True
            if acknowledge and came:
                reader.acknowledge()
            if not came and not done:
                self._raise_if_failed()
                if reader.idle and ready():
                    return

    def _raise_if_failed(self) -> None:
        told = self._told()
        if told["state"] == "failed":
            raise QueryFailedError(f"query {self.name} failed: {told['reason']}")

    def to_arrow(self, *, wait: bool = True) -> pa.Table:
        """All rows that are kept; takes nothing. Of a query over the system itself, which never
        ends, those that are there now."""
        endless = any(str(s).startswith(PREFIX) for s in self._told().get("sources", ()))
        ready = self._session.finite_end if wait and not endless else (lambda: True)
        tables = list(self._batches(acknowledge=False, ready=ready))
        if tables:
            return pa.concat_tables(tables, promote_options="permissive")
        told = self._told()
        columns = tuple(Field(str(n), str(t)) for n, t in told["columns"])
        result = Result(self.name, str(told["result"]), columns, bool(told["relation"]))
        return user_table(empty_table(result), [f.name for f in columns], changes=result.changes)

    def to_pandas(self, *, wait: bool = True) -> Any:
        return self.to_arrow(wait=wait).to_pandas()

    def table(self, *, wait: bool = True) -> pa.Table:
        """A relation's present table."""
        if not self.relation:
            raise UsageError(f"the result of {self.name} is no relation", hint="to_arrow()")
        return summed(self.to_arrow(wait=wait))

    def on_batch(self, function: Callable[[pa.Table, int], Any]) -> "ClusterQuery":
        """Calls a function with every batch until the result ends; comes back then."""
        for number, table in enumerate(self._batches(acknowledge=True), 1):
            function(table, number)
        return self

    def write(self, path: str | Path, format: str = "parquet") -> "ClusterQuery":  # noqa: A002
        """Writes the result as files until it ends."""
        told = self._told()
        columns = tuple(Field(str(n), str(t)) for n, t in told["columns"])
        result = Result(self.name, str(told["result"]), columns, bool(told["relation"]))
        sink = FileSink(Path(path), format)
        for number, table in enumerate(self._batches(acknowledge=True), 1):
            sink.deliver(result, number, number, table)
        return self

    def set_quality(self, goals: Goals, *, weight: float | None = None) -> None:
        """What is wanted of this query, beside what is wanted of all; None forgets it."""
        self._session.set_quality(goals, self.name, weight=weight)

    def drop(self) -> None:
        self._session.drop(self.name)


class ClusterSession:
    """Streams and queries of a cluster."""

    def __init__(
        self, manager: str, *, token: str | None = None, verify: str | bool = True
    ) -> None:
        self.client = ManagerClient(manager_url(manager), token=token, verify=verify)
        self._definitions: dict[str, StreamDefinition] = {}
        self._waiting: set[str] = set()  # declared here, and not begun
        self._producer = f"session-{uuid.uuid4().hex[:12]}"
        self._numbers: dict[str, int] = {}

    def __enter__(self) -> "ClusterSession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session; queries of the cluster go on until they are dropped."""
        self.client.close()

    def start(self) -> None:
        """Lets the rows of streams declared here come."""
        if self._waiting:
            names, self._waiting = sorted(self._waiting), set()
            self.client.start_streams(names)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all processors have said that everything so far is processed."""
        self.start()
        begun = time.time()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            told = [p for p in self.client.status()["processors"].values() if p["state"] == "up"]
            fresh = all(p["heard"] > begun + 1.0 for p in told)
            if told and fresh and all(p["figures"].get("settled") for p in told):
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)

    def finite_end(self) -> bool:
        """Whether a stream goes on for ever, so that only what is there now can be waited for."""
        endless = [
            d for d in self._definitions.values()
            if d.source.get("source") != "file" or d.source.get("follow")
        ]  # fmt: skip
        return bool(endless) and self.wait()

    # -- streams --------------------------------------------------------------------------------

    def stream(
        self,
        name: str | None = None,
        *,
        cql: str | None = None,
        columns: Columns | None = None,
        **options: Any,
    ) -> StreamDefinition:
        """Declares a stream, as `Session.stream` does; files lie where the processors see them."""
        return self._declare(stream_of(name, cql, columns, options))

    def _declare(self, definition: StreamDefinition) -> StreamDefinition:
        self.client.declare(table_of(definition))
        self._definitions[definition.name] = definition
        self._waiting.add(definition.name)
        return definition

    def push(
        self, stream: str, rows: Any, *, producer: str | None = None, number: int | None = None
    ) -> Mapping[str, Any]:
        """Adds rows to a stream without a source of its own, durably."""
        definition = self._definitions.get(stream)
        if definition is None:
            raise UsageError(f"stream {stream} was not declared in this session")
        self.start()
        given = producer or self._producer
        sequence = number if number is not None else self._numbers.get(stream, 0) + 1
        body = {"producer": given, "sequence": sequence, "rows": as_mappings(rows, definition)}
        answer = self.client.ask("POST", f"{self._door(stream)}/rows", body).json()
        self._numbers[stream] = max(sequence, self._numbers.get(stream, 0))
        return dict(answer)

    def finish(self, stream: str) -> None:
        """No more rows will come on a stream."""
        self.start()
        self.client.ask("POST", f"{self._door(stream)}/end", {})

    def _door(self, stream: str) -> str:
        while True:
            with suppress(StateError):  # a manager below has not heard of it yet
                told = self.client.entrance(stream)
                if told["started"]:
                    return f"{told['url']}/streams/{stream}"
            time.sleep(POLL_S)

    # -- queries --------------------------------------------------------------------------------

    def query(
        self, cql: str, name: str | None = None, *, from_beginning: bool = False
    ) -> ClusterQuery:
        given, beginning = naming_of(cql)
        chosen = name or given or f"q{uuid.uuid4().hex[:8]}"
        self.client.submit(chosen, cql, from_beginning=from_beginning or beginning, wait_s=120.0)
        return ClusterQuery(self, chosen)

    def execute(self, cql: str) -> tuple[StreamDefinition | ClusterQuery, ...]:
        made: list[StreamDefinition | ClusterQuery] = []
        for text in split(cql):
            (statement,) = parse(text)
            if isinstance(statement, CreateStream):
                made.append(self._declare(resolved(statement.definition)))
            else:
                made.append(self.query(text))
        return tuple(made)

    def queries(self) -> tuple[ClusterQuery, ...]:
        return tuple(ClusterQuery(self, q["name"]) for q in self.client.queries())

    def drop(self, name: str) -> None:
        self.client.drop(name, wait_s=30.0)

    def set_quality(
        self, goals: Goals, query: str | None = None, *, weight: float | None = None
    ) -> None:
        """What is wanted of all queries together, or of one, as `Session.set_quality` takes it.

        The manager keeps it and tells every processor that it concerns.
        """
        chosen = specification_given(goals)
        if chosen is None:
            self.client.set_quality(None, query)
            return
        table = specification_table(chosen)
        if weight is not None:
            table["weight"] = weight
        self.client.set_quality(table, query)

    def quality(self) -> Mapping[str, Any]:
        """The goals of the cluster; how they stand, each processor knows."""
        return self.client.quality()

    def status(self) -> Mapping[str, Any]:
        """Processors, streams and queries with their figures."""
        return self.client.status()
