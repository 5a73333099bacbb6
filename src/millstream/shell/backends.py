"""What a shell works on: an engine in this process, or a system behind an address.

Both give rows of a query as they come. Locally, a SELECT over files starts from their beginning
each time, in an engine of its own; queries that were created go on in the background.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from millstream.config import load_job
from millstream.control.snapshot import DecisionSnapshot, Explanation, Snapshot, SnapshotSource
from millstream.cql.catalog import StreamDefinition
from millstream.errors import MillstreamError, UsageError
from millstream.session.session import Session

if TYPE_CHECKING:
    from pathlib import Path

POLL_SECONDS = 0.25
BATCH_ROWS = 500
ENDED = ("finished", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a result."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    lost: int = 0  # rows before them that are not kept


class Backend(Protocol):
    """What statements and commands are carried out on."""

    def snapshot(self) -> Snapshot: ...

    def explain(self, cql: str) -> Explanation: ...

    def select(self, cql: str) -> Iterator[Batch]:
        """Rows as they come, until the input ends or nobody wants more."""
        ...

    def tail(self, name: str) -> Iterator[Batch]: ...

    def create_query(self, name: str, cql: str) -> DecisionSnapshot: ...

    def create_stream(self, cql: str) -> str: ...

    def drop(self, name: str) -> None: ...

    def push(self, stream: str, row: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def follow(source: SnapshotSource, name: str) -> Iterator[Batch]:
    """Rows of a registered query until its system has ended or it has failed."""
    after = 0
    while True:
        snapshot = source.snapshot()
        query = next((q for q in snapshot.queries if q.name == name), None)
        over = query is None or query.state == "failed" or snapshot.overview.state in ENDED
        found = source.results(name, after)
        if found.rows or found.lost:
            yield Batch(found.columns, found.rows, found.lost)
        after = found.last
        if over and not found.rows:
            if query is not None and query.state == "failed":
                raise MillstreamError(f"query {name} failed: {query.reason}")
            return
        if not found.rows:
            time.sleep(POLL_SECONDS)


class RemoteBackend:
    """A system behind an address; a SELECT is registered for as long as it is looked at."""

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source

    def snapshot(self) -> Snapshot:
        return self._source.snapshot()

    def explain(self, cql: str) -> Explanation:
        return self._source.explain(cql)

    def select(self, cql: str) -> Iterator[Batch]:
        name = f"shell_{uuid.uuid4().hex[:8]}"
        decision = self._source.register(name, cql)
        if decision.kind == "refusal":
            raise UsageError(decision.sentence, detail=decision.reason)
        try:
            yield from follow(self._source, name)
        finally:
            self._source.drop(name)

    def tail(self, name: str) -> Iterator[Batch]:
        return follow(self._source, name)

    def create_query(self, name: str, cql: str) -> DecisionSnapshot:
        return self._source.register(name, cql)

    def create_stream(self, cql: str) -> str:
        raise UsageError(
            "streams of a running system are declared where it runs",
            hint="in its job file; or start a shell of your own without --url",
        )

    def drop(self, name: str) -> None:
        self._source.drop(name)

    def push(self, stream: str, row: dict[str, Any]) -> None:
        raise UsageError(f"rows of {stream} go to its own endpoint", hint="POST /streams/NAME/rows")

    def close(self) -> None:
        """The system goes on."""


class LocalBackend:
    """An engine in this process."""

    def __init__(self, job: "Path | None" = None, master: str = "local[*]") -> None:
        from millstream.server.engine_view import EngineView  # noqa: PLC0415

        self._session = Session(master=master)
        self._view = EngineView(self._session.engine, title="shell")
        if job is not None:
            for definition in load_job(job).streams:
                self._session.engine.add_stream(definition)

    def snapshot(self) -> Snapshot:
        return self._view.snapshot()

    def explain(self, cql: str) -> Explanation:
        return self._view.explain(cql)

    def select(self, cql: str) -> Iterator[Batch]:
        needed = self._streams_of(cql)
        if all(_finite(d) for d in needed):
            return self._over_files(cql, needed)
        return self._live(cql)

    def _streams_of(self, cql: str) -> list[StreamDefinition]:
        from millstream.plan.nodes import sources_of  # noqa: PLC0415

        engine = self._session.engine
        names = {s.stream for s in sources_of(engine.plan(cql).root)}
        return [engine.catalog.stream(name) for name in sorted(names)]

    def _over_files(self, cql: str, needed: Sequence[StreamDefinition]) -> Iterator[Batch]:
        with Session() as scratch:  # on the same Spark
            for definition in needed:
                scratch.engine.add_stream(definition)
            rows: list[tuple[Any, ...]] = []
            columns: tuple[str, ...] = ()
            started = time.monotonic()
            for row in scratch.query(cql, from_beginning=True):
                columns = tuple(row)
                rows.append(tuple(row.values()))
                if len(rows) >= BATCH_ROWS or time.monotonic() - started > POLL_SECONDS:
                    yield Batch(columns, rows)
                    rows, started = [], time.monotonic()
            if rows:
                yield Batch(columns, rows)

    def _live(self, cql: str) -> Iterator[Batch]:
        name = f"shell_{uuid.uuid4().hex[:8]}"
        self._start()
        self._view.register(name, cql)
        try:
            yield from follow(self._view, name)
        finally:
            self._view.drop(name)

    def _start(self) -> None:
        self._view.attach(self._session.running_loop())

    def tail(self, name: str) -> Iterator[Batch]:
        return follow(self._view, name)

    def create_query(self, name: str, cql: str) -> DecisionSnapshot:
        made = self._view.register(name, cql)
        self._start()
        return made

    def create_stream(self, cql: str) -> str:
        return self._session.stream(cql=cql).name

    def drop(self, name: str) -> None:
        self._view.drop(name)

    def push(self, stream: str, row: dict[str, Any]) -> None:
        told = self._session.push(stream, [row])
        if told["rejected"] or told["late"]:
            reasons = [reason for _, reason in told["reasons"]]
            raise UsageError(
                f"the row was {'rejected' if told['rejected'] else 'too late'}",
                detail="; ".join(reasons) or json.dumps(row),
            )

    def close(self) -> None:
        self._view.close("stopped")
        self._session.close()


def _finite(definition: StreamDefinition) -> bool:
    source = definition.source
    plain = source.get("source", "file" if "path" in source else "push") == "file"
    return plain and not source.get("follow") and not source.get("rate")
