"""A job from its file to its results: what `millstream run` does, in this process or on a cluster.

Streams and queries are declared to a system; it works until all finite input is processed; results
go into files, relations also as tables; the summary is recorded. After a kill at any moment the
same call goes on from what the output folder knows and gives the same files.
"""

import errno
import os
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.app.config import Job
from millstream.app.runs.bad_rows import refuse_bad_rows, strict_tick, warnings_of
from millstream.app.runs.display import Display, Silent
from millstream.app.runs.folder import RunFolder
from millstream.app.runs.job_edits import JobEdits
from millstream.app.runs.live_run import LiveRun
from millstream.app.runs.statistics_export import keep_statistics, statistics_of
from millstream.app.runs.summary import counted, summarise
from millstream.client.arrow_types import empty_table
from millstream.client.cluster_system import ClusterSystem
from millstream.client.system import Figures, System
from millstream.core.errors import MillstreamError, ResourceError, UsageError
from millstream.core.extras import told_where_missing
from millstream.decide.schedule.quality import Quality
from millstream.store.delivery import Result, Sink
from millstream.store.file_formats import write_file

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("parquet", "csv", "json")
Preview = Callable[[str, "pa.Table"], None]
Tick = Callable[[], None]
Way = Callable[[LiveRun], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class RunSettings:
    format: str = "parquet"
    master: str = "local[*]"
    trace: Path | None = None  # a file for every choice of the scheduler
    # opens the way for rows from other programs, and for whoever looks on, while the run goes on
    door: Way | None = None
    watch: Way | None = None  # only looks on
    strict: bool = False  # the first row that is rejected or late ends the run
    manager: str | None = None  # of the cluster to run on, where nothing of the above is used
    lineage: str | None = None  # where events of OpenLineage go: a URL or a file


class Interrupted(Exception):  # noqa: N818  (a request, not a fault)
    """Somebody asked the run to stop; it can go on later."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by signal {signal_number}")
        self.signal_number = signal_number


class PreviewedSink:
    """A sink of files whose batches somebody may look at as they pass; a full disk ends the run."""

    def __init__(self, sink: Sink, preview: Preview | None) -> None:
        self._sink, self._preview = sink, preview

    def recover(self, following: int) -> None:
        self._sink.recover(following)

    def newest(self) -> int:
        newest = getattr(self._sink, "newest", None)
        return int(newest()) if newest is not None else 0

    def deliver(self, result: Result, first: int, last: int, table: "pa.Table") -> None:
        with _full_disk_told():
            self._sink.deliver(result, first, last, table)
        if self._preview is not None and table.num_rows:
            with suppress(Exception):  # the rows are written, whoever looks on
                self._preview(result.query, table)


def run_job(
    job: Job,
    folder: RunFolder,
    settings: RunSettings,
    display: Display | None = None,
    *,
    poll: Tick = lambda: None,
    preview: Preview | None = None,
) -> dict[str, Any]:
    """Runs a job in an open folder to its end; gives the summary.

    `poll` may raise to stop it; `preview` sees every batch of results once it is written.
    """
    shown = display or Silent()
    started = time.monotonic()
    with _full_disk_told():
        with _opened(job, folder, settings, shown, poll, preview) as (system, oversight, edits):
            edits.declare(poll, shown.say)
            if system.shared:
                share_out_goals(system, job)
            folder.record(job, settings.format)
            edits.attach(poll)
            for name in folder.restarts():
                with suppress(UsageError):  # it goes on already
                    system.restart(name)
            folder.restarted()
            with oversight as (tick, more):
                shown.say(_begun(system, job))
                strictly = strict_tick(tick, system.figures, folder.path)
                system.work(strictly if settings.strict else tick)
            job = edits.job  # with what was changed meanwhile
            figures = system.figures()
            if settings.strict:
                refuse_bad_rows(figures, folder.path)
            tables = _write_results(system, job, figures, folder.path, settings.format)
            seconds = time.monotonic() - started
            summary = summarise(figures, tables, folder.path, seconds=seconds, steps=system.steps)
            summary["queries"] = edits.kept() | summary["queries"]
            if told := warnings_of(job, summary["streams"], folder.path):
                summary["warnings"] = told
            summary |= more()
            keep_statistics(statistics_of(figures, summary), folder.home)
            if system.shared:
                _leave(system, job)
        if resting := [n for n, q in summary["queries"].items() if q["state"] == "paused"]:
            shown.say(
                f"not finished: {', '.join(resting)} is paused; remove paused and run it again"
            )
        else:
            kept = any(q.get("restartable") for q in summary["queries"].values())
            folder.finish(summary, keep_state=kept)
    return summary


Oversight = AbstractContextManager[tuple[Tick, Callable[[], dict[str, Any]]]]


@contextmanager
def _opened(
    job: Job,
    folder: RunFolder,
    settings: RunSettings,
    shown: Display,
    poll: Tick,
    preview: Preview | None,
) -> Iterator[tuple[System, Oversight, JobEdits]]:
    """The system to run on, what is done beside its work, now and then and at the end, and how the
    job is changed."""

    def edits_of(system: System) -> JobEdits:
        def wrapped(sink: Sink, seen: bool) -> Sink:
            return PreviewedSink(sink, preview if seen else None)

        return JobEdits(system, job, folder, settings.format, wrapped)

    if settings.manager is not None:
        refuse_posted(job, "", "a job on a cluster reads files and Spark's sources")
        with closing(ClusterSystem(settings.manager, home=folder.home, say=shown.say)) as cluster:
            for line in not_counted(job, cluster.url):
                shown.say(line)
            yield cluster, nullcontext((poll, dict)), edits_of(cluster)
        return
    if settings.door is None:
        refuse_posted(job, ", and this run has no endpoint")
    # it brings Spark, which a run on a cluster does without
    with told_where_missing():
        from millstream.app.runs.local_run import opened, overseen  # noqa: PLC0415

    ways = [way for way in (settings.door, settings.watch) if way is not None]
    with opened(job, folder, settings.master, shown, settings.lineage) as local:
        edits = edits_of(local)
        yield local, overseen(local, edits, folder.home, shown, poll, settings.trace, ways), edits


def _begun(system: System, job: Job) -> str:
    if system.shared:
        return f"{counted(len(job.queries), 'query runs', 'queries run')} on {system.url}"
    return (
        f"{counted(len(job.queries), 'query', 'queries')} over "
        f"{counted(len(job.streams), 'stream', 'streams')}"
    )


def posted_streams(job: Job) -> list[str]:
    """Streams whose rows come from other programs."""
    return [s.name for s in job.streams if s.source.get("source") in ("http", "push")]


def refuse_posted(job: Job, why: str, hint: str = "") -> None:
    for name in posted_streams(job):
        raise job.text.mistake(
            ("streams", name, "source"),
            f"the rows of stream {name} come from other programs{why}",
            hint,
        )


def not_counted(job: Job, url: str) -> Iterator[str]:
    """What of a job file does not count on a cluster."""
    sections = tomllib.loads(job.text.places.text)
    if "engine" in sections:
        yield "[engine] does not count here: processors have their own settings"
    if "schedule" in sections:
        yield (
            "[schedule] does not count here: a processor schedules all its queries alike; "
            f"millstream qos {url} --schedule {job.text.shown} sets it for all"
        )


def share_out_goals(system: System, job: Job) -> None:
    """The job's goals are those of its queries, where others run queries as well.

    Goals of all queries together are shared out over those that have none of their own.
    """
    quality: Quality | None = job.engine.get("quality")
    if quality is None:
        return
    others = [q.name for q in job.queries if q.name not in quality.by_query]
    share = (quality.weight / max(len(others), 1), quality.overall)
    for name, (weight, goals) in {**dict.fromkeys(others, share), **quality.by_query}.items():
        system.set_quality(goals, name, weight)


def _write_results(
    system: System, job: Job, figures: Figures, path: Path, kind: str
) -> dict[str, int]:
    """Final tables, and folders of results without rows; gives the number of rows of each table."""
    tables: dict[str, int] = {}
    for query in job.queries:
        registered = system.query(query.name)
        target = path / query.name
        if registered.relation:
            failed = figures["queries"][query.name]["state"] == "failed"
            tables[query.name] = 0 if failed else _write_table(system, query.name, target, kind)
            target = path / f"{query.name}.changes"
        if not target.is_dir() or not any(target.iterdir()):
            target.mkdir(parents=True, exist_ok=True)
            write_file(empty_table(registered.result), target / f"part-none.{kind}", kind)
    return tables


def _write_table(system: System, name: str, folder: Path, kind: str) -> int:
    """A relation's final table as files; gives the number of rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():  # of an attempt that was killed
        file.unlink()
    rows = 0
    for number, piece in enumerate(system.table_pieces(name)):
        rows += piece.num_rows
        write_file(piece, folder / f"part-table-{number:05d}.{kind}", kind)
    return rows


def _leave(system: System, job: Job) -> None:
    """Takes the job off a cluster; streams stay where others read them."""
    for query in job.queries:
        with suppress(MillstreamError):
            system.drop(query.name)
    for stream in job.streams:
        with suppress(MillstreamError):
            system.forget(stream.name)


class _full_disk_told:  # noqa: N801  (reads as a statement)
    """A full disk is a message, not a fault of ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceError(
                "the disk is full",
                detail=os.strerror(error.errno),
                hint="free some space and run the same command again: nothing is lost",
            ) from error
