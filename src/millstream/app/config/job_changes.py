"""What an edited job file changes of a job that runs: told first, then done.

Pure: from what a run has recorded of its job to the differences of a file. A query whose text has
changed, its own or that of a query or view that it reads, is dropped and registered anew. Streams
can be added; one that rows have come from is what it is.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.app.config.job_file import Job
from millstream.app.config.job_queries import JobQuery
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.views import own_text, reads_of


@dataclass(frozen=True, slots=True)
class KnownQuery:
    """A query of a job as it was recorded."""

    cql: str
    paused: bool = False


@dataclass(frozen=True, slots=True)
class JobChanges:
    """What is to be done; nothing where the file says what runs."""

    added: tuple[JobQuery, ...] = ()
    changed: tuple[tuple[str, JobQuery], ...] = ()  # the old text, and the query as it shall be
    dropped: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()
    streams: tuple[StreamDefinition, ...] = ()  # that are new
    refused: tuple[str, ...] = ()  # what cannot be done, in sentences

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def lines(self) -> Iterator[str]:
        """The difference for people."""
        for stream in self.streams:
            yield f"+ stream {stream.name}"
        for query in self.added:
            yield f"+ query {query.name}"
            yield from (f"    + {line}" for line in own_text(query.cql).splitlines())
        for before, query in self.changed:
            yield f"~ query {query.name}"
            yield from (f"    {line}" for line in _difference(before, query.cql))
        for name in self.dropped:
            yield f"- query {name}"
        for name in self.paused:
            yield f"| query {name} is paused"
        for name in self.resumed:
            yield f"> query {name} continues"
        yield from (f"! {sentence}" for sentence in self.refused)

    def table(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "streams": [s.name for s in self.streams],
            "added": [q.name for q in self.added],
            "changed": [q.name for _, q in self.changed],
            "dropped": list(self.dropped),
            "paused": list(self.paused),
            "resumed": list(self.resumed),
            "refused": list(self.refused),
        }


def changes_of(
    job: Job,
    queries: Mapping[str, KnownQuery],
    streams: Mapping[str, str],
    digests: Mapping[str, str],
    *,
    drop_others: bool = True,
) -> JobChanges:
    """From what is recorded to the job; streams are compared by their digests.

    `drop_others`: whether a query that is not in the file is to go.
    """
    wanted = {q.name: q for q in job.queries}
    refused = [
        f"stream {name} has changed, and rows have come from it: begin anew with run --fresh"
        for name, digest in digests.items()
        if name in streams and streams[name] != digest
    ]
    if drop_others:
        refused += [
            f"stream {name} cannot be taken away while the job runs: keep it, or run --fresh"
            for name in streams
            if name not in digests
        ]
    kept = [(queries[n], q) for n, q in wanted.items() if n in queries]
    refused += [f"query {q.name} reads {name}, which the file no longer has"
                for known, q in kept for name in _lost(known, q, job)]  # fmt: skip
    return JobChanges(
        added=tuple(q for n, q in wanted.items() if n not in queries),
        changed=tuple((known.cql, q) for known, q in kept if known.cql != q.cql),
        dropped=tuple(n for n in queries if n not in wanted) if drop_others else (),
        paused=tuple(q.name for known, q in kept if q.paused and not known.paused),
        resumed=tuple(q.name for known, q in kept if known.paused and not q.paused),
        streams=tuple(s for s in job.streams if s.name not in streams),
        refused=tuple(refused),
    )


def _lost(known: KnownQuery, query: JobQuery, job: Job) -> list[str]:
    """What a query reads by its name, and nothing has that name any more."""
    if own_text(known.cql) != own_text(query.cql):
        return []  # binding says what a new text lacks
    there = {*reads_of(query.cql), *(s.name for s in job.streams)}
    return [name for name in reads_of(known.cql) if name not in there]


def _difference(before: str, now: str) -> Iterator[str]:
    """Lines that went and came; where only what it reads has changed, a word on that."""
    old, new = own_text(before), own_text(now)
    if old == new:
        yield "as a query or view that it reads has changed"
        return
    for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"{line[0]} {line[1:]}"
