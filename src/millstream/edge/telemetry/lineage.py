"""What a query reads and writes, as events of OpenLineage; decides nothing.

A query is a job, each time that it is taken up a run of it. It starts when it is registered, runs
when a sink is attached or its text is replaced, fails when its data breaks it, is aborted when it
is dropped or its system stops, and is complete when all its input has ended. Options of sources and
sinks are never told, only where their data lies.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.histories import KIND as PAST
from millstream.language.plan.schema import Schema

EventType = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]
PRODUCER = "urn:millstream"
SPEC = "https://openlineage.io/spec"
RUN_EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Data that a query reads or writes."""

    namespace: str
    name: str
    columns: Schema = ()

    def table(self) -> dict[str, Any]:
        told: dict[str, Any] = {"namespace": self.namespace, "name": self.name}
        if self.columns:
            fields = [{"name": c.name, "type": c.type} for c in self.columns]
            told["facets"] = {"schema": _facet("1-1-1/SchemaDatasetFacet", fields=fields)}
        return told


@dataclass(frozen=True, slots=True)
class Job:
    """A query for those who draw lineage."""

    name: str
    cql: str
    inputs: tuple[Dataset, ...]
    outputs: tuple[Dataset, ...]
    run: str = field(default_factory=lambda: str(uuid.uuid4()))


def event(
    kind: EventType, job: Job, namespace: str, moment: datetime | None = None, reason: str = ""
) -> dict[str, Any]:
    """One event.

    >>> job = Job("errors", "SELECT a FROM s", (Dataset("n", "s"),), (Dataset("n", "errors"),), "1")
    >>> told = event("START", job, "n", datetime(2024, 1, 1, tzinfo=UTC))
    >>> told["eventType"], told["job"]["name"], told["inputs"], told["eventTime"]
    ('START', 'errors', [{'namespace': 'n', 'name': 's'}], '2024-01-01T00:00:00+00:00')
    """
    run: dict[str, Any] = {"runId": job.run}
    if reason:
        run["facets"] = {
            "errorMessage": _facet(
                "1-0-1/ErrorMessageRunFacet", message=reason, programmingLanguage="SQL"
            )
        }
    kinds = {"processingType": "STREAMING", "integration": "MILLSTREAM", "jobType": "QUERY"}
    return {
        "eventType": kind,
        "eventTime": (moment or datetime.now(UTC)).isoformat(),
        "run": run,
        "job": {
            "namespace": namespace,
            "name": job.name,
            "facets": {
                "sql": _facet("1-1-0/SQLJobFacet", query=job.cql, dialect="cql"),
                "jobType": _facet("2-0-3/JobTypeJobFacet", **kinds),
            },
        },
        "inputs": [d.table() for d in job.inputs],
        "outputs": [d.table() for d in job.outputs],
        "producer": PRODUCER,
        "schemaURL": RUN_EVENT,
    }


def _facet(schema: str, **more: Any) -> dict[str, Any]:
    version, _, name = schema.partition("/")
    url = f"{SPEC}/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url, **more}


def source_dataset(definition: StreamDefinition, namespace: str) -> Dataset:
    """Where the rows of a stream come from; the stream itself where they are pushed.

    >>> from millstream.language.plan.schema import Field
    >>> columns = (Field("at", "timestamp"),)
    >>> made = StreamDefinition("r", columns, "at", source={"path": "/in/r.csv"})
    >>> source_dataset(made, "here").namespace, source_dataset(made, "here").name
    ('file', '/in/r.csv')
    """
    source = definition.source
    options: Mapping[str, Any] = source.get("options") or {}
    if "path" in source:
        return Dataset("file", str(Path(str(source["path"])).absolute()), definition.columns)
    if topic := options.get("topic") or options.get("subscribe") or source.get("topic"):
        servers = options.get("bootstrap.servers") or options.get("kafka.bootstrap.servers")
        kind = "kafka" if servers else str(source.get("source", "stream"))
        first = str(servers or options.get("host") or "").partition(",")[0]
        return Dataset(f"{kind}://{first}", str(topic), definition.columns)
    if table := options.get("table") or source.get("table"):
        kind = source.get("format" if source.get("source") == PAST else "source", "table")
        return Dataset(str(kind), str(table), definition.columns)
    return Dataset(namespace, definition.name, definition.columns)


def together(datasets: Iterable[Dataset]) -> Sequence[Dataset]:
    """Each once."""
    return list({(d.namespace, d.name): d for d in datasets}.values())
