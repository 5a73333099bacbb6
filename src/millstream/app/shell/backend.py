"""What a shell works on: a system that can be looked at, behind an address or in this process.

A SELECT is registered for as long as somebody looks at it. In this process one over files starts
from their beginning each time, in an engine of its own, and streams can be declared and fed.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from millstream.app.session import Session
from millstream.control.snapshot.model import (
    PASSING,
    DecisionSnapshot,
    Explanation,
    Snapshot,
    SnapshotSource,
)
from millstream.core.errors import MillstreamError, UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.views import body_of, whole_text
from millstream.language.plan.nodes import sources_of

POLL_SECONDS = 0.25
BATCH_ROWS = 500
ENDED = ("finished", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a result."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    lost: int = 0  # rows before them that are not kept


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


class Backend:
    """Carries out statements and commands; `session` is what stands behind `source` where that is
    an engine of this process."""

    def __init__(self, source: SnapshotSource, session: Session | None = None) -> None:
        self._source, self._session = source, session
        self._views: dict[str, str] = {}

    def snapshot(self) -> Snapshot:
        return self._source.snapshot()

    def explain(self, cql: str) -> Explanation:
        return self._source.explain(self._whole(cql))

    def create_view(self, name: str, cql: str) -> None:
        """A name for a query, for the statements of this shell."""
        if any(q.name == name for q in self.snapshot().queries):
            raise UsageError(f"there is a query {name}", hint="choose another name for the view")
        self._views[name] = body_of(cql)

    def _whole(self, cql: str) -> str:
        """A text with the views that it reads; those of queries are the system's to add."""
        return whole_text(cql, self._views.get)

    def select(self, cql: str) -> Iterator[Batch]:
        """Rows as they come, until the input ends or nobody wants more."""
        cql = self._whole(cql)
        read = self._read_by(cql)
        if read and all(_finite(stream) for stream in read):
            yield from self._over_files(cql, read)
            return
        name = f"{PASSING}{uuid.uuid4().hex[:8]}"
        try:
            decision = self.create_query(name, cql)
            if decision.kind == "refusal":
                raise UsageError(decision.sentence, detail=decision.reason)
            yield from follow(self._source, name)
        finally:  # also where a signal comes before the answer: it may be registered by then
            with suppress(MillstreamError):
                self._source.drop(name)

    def _read_by(self, cql: str) -> list[StreamDefinition]:
        """The streams that a query reads, where they are declared in this process."""
        if self._session is None:
            return []
        engine = self._session.here("a stream of files").engine
        names = {s.stream for s in sources_of(engine.plan(cql).root)}
        return [engine.catalog.stream(name) for name in sorted(names)]

    def _over_files(self, cql: str, read: Sequence[StreamDefinition]) -> Iterator[Batch]:
        with Session() as scratch:  # on the same Spark
            for definition in read:
                scratch.system.declare(definition)
            rows: list[tuple[Any, ...]] = []
            columns: tuple[str, ...] = ()
            started = time.monotonic()
            for row in scratch.query(self._with_queries(cql), from_beginning=True):
                columns = tuple(row)
                rows.append(tuple(row.values()))
                if len(rows) >= BATCH_ROWS or time.monotonic() - started > POLL_SECONDS:
                    yield Batch(columns, rows)
                    rows, started = [], time.monotonic()
            if rows:
                yield Batch(columns, rows)

    def _with_queries(self, cql: str) -> str:
        session = self._session
        return cql if session is None else session.here("a query").engine.whole_text(cql)

    def tail(self, name: str) -> Iterator[Batch]:
        return follow(self._source, name)

    def create_query(self, name: str, cql: str) -> DecisionSnapshot:
        decision = self._source.register(name, self._whole(cql))
        if self._session is not None:
            self._session.start()
        return decision

    def create_stream(self, cql: str) -> str:
        if self._session is None:
            raise UsageError(
                "streams of a running system are declared where it runs",
                hint="in its job file; or start a shell of your own without --url",
            )
        return self._session.stream(cql=cql).name

    def restart(self, name: str) -> None:
        self._source.restart(name)

    def act(self, action: str, name: str) -> str:
        """Pauses or resumes a query; says what was done."""
        return self._source.act(action, name)

    def drop(self, name: str) -> None:
        self._source.drop(name)

    def push(self, stream: str, row: dict[str, Any]) -> None:
        if self._session is None:
            raise UsageError(
                f"rows of {stream} go to its own endpoint", hint="POST /streams/NAME/rows"
            )
        answer = self._session.push(stream, [row])
        if answer["rejected"] or answer["late"]:
            reasons = [reason for _, reason in answer["reasons"]]
            raise UsageError(
                f"the row was {'rejected' if answer['rejected'] else 'too late'}",
                detail="; ".join(reasons) or json.dumps(row),
            )


def _finite(definition: StreamDefinition) -> bool:
    source = definition.source
    plain = source.get("source", "file" if "path" in source else "push") == "file"
    return plain and not source.get("follow") and not source.get("rate")
