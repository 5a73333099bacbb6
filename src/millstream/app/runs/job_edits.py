"""The queries of an active run: those of its job file, and those that people register.

Declares them when a run begins or continues, attaches files to their results, and carries out what
an edited job file or a dashboard wants changed. All that was changed is recorded in the run's
folder, so that it holds after a restart. Results of a query that is dropped or changed are put
aside, never removed.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millstream.app.config import Job
from millstream.app.config.job_changes import JobChanges
from millstream.app.config.job_queries import JobQuery
from millstream.app.runs.folder import RunFolder
from millstream.client.system import Submission, System
from millstream.control.protocol.records import ASKED
from millstream.control.snapshot.model import PASSING
from millstream.core.beginning import beginning_gone
from millstream.core.errors import UsageError
from millstream.core.names import problem_of
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.views import reads_of, replacing
from millstream.store.delivery import FileSink, Sink
from millstream.store.sinks.opening import open_sink

Tick = Callable[[], None]
Wrapped = Callable[[Sink, bool], Sink]  # what a run adds to a sink, and whether people see its rows
IN_FILE = "its job file says so"  # why a query rests
REST_S = 0.1  # while a query is being deployed


class JobEdits:
    """The job of one run as it stands now."""

    def __init__(
        self, system: System, job: Job, folder: RunFolder, kind: str, wrapped: Wrapped
    ) -> None:
        self._system, self._folder, self._kind, self._wrapped = system, folder, kind, wrapped
        self._file_job = job
        self._registered: dict[str, str] = {}
        self._passing: set[str] = set()  # queries of shells: gone with them, or with the run
        self._kept = folder.kept()  # finished before the job was edited: not computed again
        self._pauses: dict[str, bool] = folder.pauses()  # what people want instead of the file
        self._lock = threading.RLock()

    @property
    def job(self) -> Job:
        """The job with what was registered while it ran, without what was finished before."""
        added = tuple(
            JobQuery(name, cql, self._file_job.text, from_beginning=True)
            for name, cql in self._registered.items()
        )
        return replace(self._file_job, queries=(*self._to_run(self._file_job), *added))

    def _to_run(self, job: Job) -> list[JobQuery]:
        return [q for q in job.queries if q.name not in self._kept]

    def kept(self) -> dict[str, Any]:
        """What a run before has told of queries that are not computed again."""
        return dict(self._kept)

    # -- when a run begins or goes on -----------------------------------------------------------

    def declare(self, poll: Tick, say: Callable[[str], None]) -> None:
        """Streams and queries, each mistake at its place in the job file."""
        system, recorded = self._system, self._system.recorded()
        for definition in self._file_job.streams:
            try:
                system.declare(definition)
            except UsageError as error:
                raise self._file_job.stream_mistake(definition.name, error) from None
        wanted = self._to_run(self._file_job)
        edited = [q for q in wanted if recorded.get(q.name, q.cql) != q.cql]
        for query in wanted:
            poll()
            if query not in edited:
                self._submit(query)
        for name, cql in self._folder.registered().items():
            if name in self._kept:
                continue
            try:
                system.submit(Submission(name, cql, from_beginning=True))
                self._registered[name] = cql
                self._system.pause(name, self._pauses.get(name, False), ASKED)
            except UsageError as error:
                say(f"query {name}, which was registered while the job ran, is left out: {error}")
        system.forget_leftovers()
        for query in edited:
            self._submit(query)

    def _submit(self, query: JobQuery) -> None:
        try:
            asked = Submission(query.name, query.cql, True, query.replicas)
            self._system.submit(asked)
            wanted = self._pauses.get(query.name, query.paused)
            if wanted or not self._system.shared:
                why = ASKED if query.name in self._pauses else IN_FILE
                self._system.pause(query.name, wanted, why)
        except UsageError as error:
            raise query.located(error) from None

    def attach(self, poll: Tick) -> None:
        """Files for every result, and for rows that were late or malformed."""
        for query in self.job.queries:
            while self._system.query(query.name).state == "starting":
                poll()
                time.sleep(REST_S)
            self._deliver(query)
        for stream in self._file_job.streams:
            self._deliver_rejects(stream)

    def _deliver(self, query: JobQuery) -> None:
        """Files for a result, and beside them the sink that its job wants."""
        changes = ".changes" if self._system.query(query.name).relation else ""
        files = FileSink(self._folder.path / f"{query.name}{changes}", self._kind)
        self._system.deliver(query.name, self._wrapped(files, True))
        if query.sink is not None:
            try:
                self._system.deliver(query.name, open_sink(query.sink))
            except UsageError as error:
                at = ("queries", query.name, "sink")
                raise query.job.mistake(at, error.message, error.hint) from None

    def _deliver_rejects(self, stream: StreamDefinition) -> None:
        late = FileSink(self._folder.path / f"{stream.name}.late", self._kind)
        rejected = FileSink(self._folder.path / f"{stream.name}.rejected", self._kind)
        wrapped = self._wrapped(late, False), self._wrapped(rejected, False)
        self._system.deliver_rejects(stream, *wrapped)

    # -- while it runs --------------------------------------------------------------------------

    def apply(self, job: Job, *, keep: bool = False) -> dict[str, Any]:
        """Makes the run one of this job; gives what was done, and what should be known.

        With `keep`, queries whose text has changed go on under their name, with their results.
        """
        with self._lock:
            changes = self._folder.changes(job)
            if changes.refused:
                told = "\n".join(changes.refused[1:])
                raise UsageError(changes.refused[0], detail=told, hint="nothing was done")
            self._refuse_taken(changes)
            self._folder.amend(job, self._kind)  # first: a restart goes on with what is wanted
            for stream in changes.streams:
                self._system.declare(stream)
                self._deliver_rejects(stream)
            notes = self._readers(changes)
            anew = [
                q
                for _, q in changes.changed
                if not (keep and q.name not in self._kept and self._replaced(q, notes))
            ]
            for name in (*changes.dropped, *(q.name for q in anew)):
                if self._kept.pop(name, None) is None:
                    self._system.drop(name)
                self._folder.put_aside(name)
            for query in (*changes.added, *anew):
                self._submit(query)
                self._deliver(query)
                if gone := beginning_gone(self._system.query(query.name).start):
                    notes.append(f"query {query.name}: {gone}")
            self._pauses = {n: p for n, p in self._pauses.items() if n in self._registered}
            self._folder.note_pauses(self._pauses)
            for query in job.queries:  # the file has the last word
                if query not in changes.added and query.name not in self._kept:
                    self._system.pause(query.name, query.paused, IN_FILE)
            self._file_job = job
            return {**changes.table(), "notes": notes}

    def _replaced(self, query: JobQuery, notes: list[str]) -> bool:
        """Whether a query continues with its new text; else it is registered anew, and why is
        noted."""
        try:
            self._system.submit(Submission(query.name, query.cql, replace=True))
        except UsageError as error:
            notes.append(f"query {query.name} is registered anew: {error.message}")
            return False
        return True

    def foretell(self, job: Job, what: Callable[[str, str], Sequence[str]]) -> dict[str, Any]:
        """What would become of queries whose text has changed, as `what` tells it of one."""
        changes = self._folder.changes(job)
        return {"notes": [line for _, q in changes.changed for line in what(q.cql, q.name)]}

    def _refuse_taken(self, changes: JobChanges) -> None:
        for query in changes.added:
            if query.name in self._registered:
                raise UsageError(
                    f"query {query.name} was registered while the job ran",
                    hint="drop that one first, or choose another name; nothing was done",
                )

    def _readers(self, changes: JobChanges) -> list[str]:
        """Queries that people registered and that read what has gone: they keep what it was."""
        gone = {*changes.dropped, *(q.name for _, q in changes.changed)}
        return [
            f"query {reader} reads {name} as it was, and continues with that"
            for name in sorted(gone)
            for reader in self.dependants(name)
            if reader in self._registered
        ]

    def dependants(self, name: str) -> list[str]:
        """Queries that read another one by its name."""
        return [q.name for q in self.job.queries if q.name != name and name in reads_of(q.cql)]

    def register(self, name: str, cql: str) -> None:
        """A query of somebody who looks on: kept and written out as if it stood in the file."""
        with self._lock:
            if name.startswith(PASSING):  # somebody looks on for a while: nothing is written
                self._system.submit(Submission(name, cql, from_beginning=True))
                self._passing.add(name)
                return
            if problem := problem_of(name):
                raise UsageError(problem, hint="results are written to a folder of that name")
            if name in self._registered and replacing(cql) is not None:
                self._system.submit(Submission(name, cql))
                self._registered[name] = self._system.recorded()[name]
                self._folder.register(self._registered)
                return
            if self._folder.taken(name):
                raise UsageError(
                    f"{self._folder.path / name} exists",
                    hint="its results would lie there: choose another name",
                )
            self._system.submit(Submission(name, cql, from_beginning=True))
            whole = self._system.query(name).cql
            self._registered[name] = whole
            self._folder.register(self._registered)
            self._deliver(JobQuery(name, whole, self._file_job.text))

    def drop(self, name: str) -> None:
        """Ends a query that was registered while the job ran; its results are put aside."""
        with self._lock:
            if not self.droppable(name):
                raise UsageError(
                    f"query {name} belongs to the job file",
                    hint="take it out of the file, then: millstream apply FILE --run DIR",
                )
            self._system.drop(name)
            if name in self._passing:
                self._passing.discard(name)
                return
            self._registered.pop(name, None)
            self._folder.register(self._registered)
            self._folder.put_aside(name)

    def droppable(self, name: str) -> bool:
        """Whether it may be dropped here: those of the job file are dropped by editing that."""
        return name in self._registered or name in self._passing

    def pause(self, name: str, wanted: bool) -> None:
        """Lets a query rest or go on; holds after a restart, until a job file says otherwise."""
        with self._lock:
            self._system.pause(name, wanted, ASKED)
            self._pauses[name] = wanted
            self._folder.note_pauses(self._pauses)
