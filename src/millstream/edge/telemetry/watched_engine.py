"""An engine's queries and steps for others: OpenLineage's events and OpenTelemetry's spans.

Listens to what the engine tells and hands it on; where nobody wants to hear, it costs nothing.
"""

import os
from collections.abc import Callable
from typing import Any

from millstream.edge.telemetry.emitting import Emitter, target_of
from millstream.edge.telemetry.lineage import (
    Dataset,
    EventType,
    Job,
    event,
    source_dataset,
    together,
)
from millstream.edge.telemetry.spans import Spans
from millstream.engine.engine import Engine
from millstream.engine.query import Query, QueryEvent
from millstream.language.plan.nodes import sources_of

NAMESPACE = "OPENLINEAGE_NAMESPACE"
KINDS: dict[QueryEvent, EventType] = {
    "registered": "START",
    "taken up": "START",
    "delivered": "RUNNING",
    "replaced": "RUNNING",
    "restarted": "RUNNING",
    "failed": "FAIL",
    "dropped": "ABORT",
}


class WatchedEngine:
    """Tells others of one engine, until it is closed."""

    def __init__(
        self,
        engine: Engine,
        lineage: str | None = None,  # a URL or a file; OPENLINEAGE_URL where it is not given
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._jobs: dict[str, Job] = {}
        self._namespace = os.environ.get(NAMESPACE, "millstream")
        target = target_of(lineage)
        self._emitter = Emitter(target, say) if target else None
        self._spans = Spans.wanted()
        if self._emitter is not None:
            engine.on_query.append(self._told)
        if self._spans is not None:
            engine.on_query.append(self._spans.query)
            engine.on_step.append(self._spans.step)

    def close(self, *, complete: bool) -> None:
        """The system ends: with all its input, or before."""
        engine, emitter = self._engine, self._emitter
        if emitter is not None:
            engine.on_query.remove(self._told)
            for name, job in self._jobs.items():
                query = engine.queries.get(name)
                if query is not None and query.state != "failed":
                    kind: EventType = "COMPLETE" if complete else "ABORT"
                    emitter.emit(event(kind, self._job(query, job.run), self._namespace))
            emitter.close()
        if self._spans is not None:
            engine.on_query.remove(self._spans.query)
            engine.on_step.remove(self._spans.step)

    def _told(self, what: QueryEvent, query: Query) -> None:
        assert self._emitter is not None
        known = self._jobs.get(query.name)
        if known is None and what in ("delivered", "dropped"):
            return  # of what is about to take another's place nothing is told
        anew = known is None or what in ("registered", "taken up")
        job = self._job(query, "" if anew or known is None else known.run)
        self._jobs[query.name] = job
        reason = query.reason if what == "failed" else ""
        self._emitter.emit(event(KINDS[what], job, self._namespace, reason=reason))
        if what == "dropped":
            del self._jobs[query.name]

    def _job(self, query: Query, run: str) -> Job:
        catalog = self._engine.catalog
        names = sorted({s.stream for s in sources_of(query.plan.root)})
        read = [source_dataset(catalog.stream(n), self._namespace) for n in names]
        written = [Dataset(self._namespace, query.name, query.plan.columns)]
        for delivery in self._engine.deliveries:
            place: Any = getattr(delivery.sink, "dataset", None)
            if delivery.result.query == query.name and place is not None:
                namespace, name = place
                written.append(Dataset(namespace, name, query.plan.columns))
        told = (query.name, query.cql, tuple(together(read)), tuple(together(written)))
        return Job(*told, run) if run else Job(*told)
