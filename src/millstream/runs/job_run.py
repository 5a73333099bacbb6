"""A job from its file to its results: what `millstream run` does.

Streams and queries are declared to an engine whose home lies in the output folder; the loop runs
until all finite input is processed; relations are written as tables; the summary is recorded. After
a kill at any moment the same call goes on from the ledger and gives the same files.
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.config import Job
from millstream.config.job_file import JobFileError
from millstream.engine.consumers import Consumer
from millstream.errors import ResourceError, StateError, UsageError
from millstream.runs.checking import check_job
from millstream.runs.display import Display, Silent
from millstream.runs.folder import NEW_RUN, RunFolder
from millstream.runs.live_run import LiveRun
from millstream.runs.statistics_export import keep_statistics, statistics_of
from millstream.runs.summary import counted, summarise
from millstream.runs.trace import tracing

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.engine.engine import Engine
    from millstream.engine.loop import Loop
    from millstream.store.delivery import Result, Sink

FORMATS = ("parquet", "csv", "json")
Preview = Callable[[str, "pa.Table"], None]


@dataclass(frozen=True, slots=True)
class RunSettings:
    format: str = "parquet"
    master: str = "local[*]"
    trace: Path | None = None  # a file for every choice of the scheduler
    # opens the way for rows from other programs, and for whoever looks on, while the run goes on
    door: Callable[[LiveRun], AbstractContextManager[None]] | None = None
    watch: Callable[[LiveRun], AbstractContextManager[None]] | None = None  # only looks on


class Interrupted(Exception):  # noqa: N818  (a request, not a fault)
    """Somebody asked the run to stop; it can go on later."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by signal {signal_number}")
        self.signal_number = signal_number


class PreviewedSink:
    """A sink whose batches somebody looks at as they pass."""

    def __init__(self, sink: "Sink", preview: Preview | None) -> None:
        self._sink, self._preview = sink, preview

    def recover(self, following: int) -> None:
        self._sink.recover(following)

    def deliver(self, result: "Result", first: int, last: int, table: "pa.Table") -> None:
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
    poll: Callable[[], None] = lambda: None,
    preview: Preview | None = None,
) -> dict[str, Any]:
    """Runs a job in an open folder to its end; gives the summary.

    `poll` may raise to stop it; `preview` sees every batch of results once it is written.
    """
    shown = display or Silent()
    started = time.monotonic()
    with _full_disk_told():
        engine = open_engine(job, folder, settings, shown)
        poll()
        try:
            attach_sinks(engine, job, folder.path, settings.format, preview)
            loop = _loop(engine)
            live = LiveRun(job, folder.home, engine, loop, shown)
            write_trace, close_trace = tracing(settings.trace, loop)
            troubles: dict[str, str] = {}

            def tick() -> None:
                poll()
                _tell_troubles(engine, troubles, shown)
                live.look()
                write_trace()
                if shown.due():
                    shown.show(live.status(), loop.steps)

            shown.say(
                f"{counted(len(job.queries), 'query', 'queries')} over "
                f"{counted(len(job.streams), 'stream', 'streams')}"
            )
            try:
                with ExitStack() as open_ways:
                    for way in (settings.door, settings.watch):
                        if way is not None:
                            open_ways.enter_context(way(live))
                    loop.run(tick)
            finally:
                close_trace()
                live.close()
            _tell_troubles(engine, troubles, shown)
            summary = _complete(engine, job, folder.path, settings.format, started, loop.steps)
            summary["scheduling"] = live.scheduling()
            keep_statistics(statistics_of(engine.status(), summary), folder.home)
        finally:
            engine.close()
        folder.finish(summary)
    return summary


def _tell_troubles(engine: "Engine", told: dict[str, str], shown: Display) -> None:
    """Says once that a query was parked, goes on, or has failed."""
    for query in list(engine.queries.values()):
        if query.state != told.get(query.name, "running"):
            told[query.name] = query.state
            reason = f": {query.reason}" if query.reason else ""
            shown.say(f"query {query.name} is {query.state}{reason}")


def open_engine(job: Job, folder: RunFolder, settings: RunSettings, shown: Display) -> "Engine":
    """An engine with the job's streams and queries; mistakes show before anything runs."""
    from millstream.engine.engine import Engine, EngineSettings  # noqa: PLC0415
    from millstream.spark.session import active, session  # noqa: PLC0415

    spark = active()
    if spark is None:
        shown.say(f"starting Spark ({settings.master})")
        warehouse = str(folder.home / "warehouse")
        spark = session(
            settings.master,
            {"spark.sql.warehouse.dir": warehouse, **job.spark},
            log=folder.home / "spark.log",
        )
    engine = Engine(folder.home, spark, EngineSettings(**job.engine))
    try:
        declare(engine, job, door=settings.door is not None)
    except BaseException:
        engine.close()
        if not folder.recorded():
            folder.forget()
        raise
    folder.record(job, settings.format)
    return engine


def posted_streams(job: Job) -> list[str]:
    """Streams whose rows come from other programs."""
    return [s.name for s in job.streams if s.source.get("source") in ("http", "push")]


def declare(engine: "Engine", job: Job, *, door: bool = False) -> None:
    """Streams and queries; all mistakes of all queries at once."""
    if not door:
        for name in posted_streams(job):
            raise job.text.mistake(
                ("streams", name, "source"),
                f"the rows of stream {name} come from other programs, and this run has no endpoint",
            )
    checked = check_job(job, engine.analyzer)
    if checked.mistakes:
        raise JobFileError(checked.mistakes)
    for definition in job.streams:
        try:
            engine.add_stream(definition)
        except StateError:
            raise
        except UsageError as error:
            raise job.stream_mistake(definition.name, error) from None
    for query in job.queries:
        try:
            engine.add_query(query.name, query.cql, from_beginning=True)
        except UsageError as error:
            raise query.located(error) from None


def attach_sinks(
    engine: "Engine", job: Job, path: Path, kind: str, preview: Preview | None = None
) -> None:
    """Files for every result, and for rows that were late or malformed."""
    from millstream.spark.operators import SELF_READING  # noqa: PLC0415
    from millstream.store.delivery import FileSink, Sink  # noqa: PLC0415

    def results(folder: Path) -> Sink:
        return PreviewedSink(FileSink(folder, kind), preview)

    for query in job.queries:
        registered = engine.queries[query.name]
        if not registered.plan.relation:
            engine.deliver(query.name, results(path / query.name))
            continue
        operator = engine.operators.get(registered.stream)
        kept = operator is not None and operator.kind in SELF_READING
        # the final table needs the whole changelog: where the operator does not keep it for
        # itself, the query's own cursor holds it, and the sink has another one
        consumer = None if kept else Consumer("changes", query.name)
        engine.deliver(query.name, results(path / f"{query.name}.changes"), consumer=consumer)
    for stream in job.streams:
        late = FileSink(path / f"{stream.name}.late", kind)
        rejected = FileSink(path / f"{stream.name}.rejected", kind)
        engine.deliver_rejects(stream.name, late, rejected)


def _complete(
    engine: "Engine", job: Job, path: Path, kind: str, started: float, steps: int
) -> dict[str, Any]:
    """Final tables, folders of results without rows, and the summary."""
    from millstream.store.delivery import write_file  # noqa: PLC0415

    tables: dict[str, int] = {}
    for query in job.queries:
        registered = engine.queries[query.name]
        target = path / query.name
        if registered.plan.relation and registered.state != "failed":
            tables[query.name] = _write_table(engine, query.name, target, kind)
        elif registered.plan.relation:
            tables[query.name] = 0
        if registered.plan.relation:
            target = path / f"{query.name}.changes"
        if not target.is_dir() or not any(target.iterdir()):
            target.mkdir(parents=True, exist_ok=True)
            write_file(engine.result(query.name).slice(0, 0), target / f"part-none.{kind}", kind)
    return summarise(engine.status(), tables, path, seconds=time.monotonic() - started, steps=steps)


def _write_table(engine: "Engine", name: str, folder: Path, kind: str) -> int:
    """A relation's final table as files; gives the number of rows."""
    from millstream.store.delivery import write_file  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():  # of an attempt that was killed
        file.unlink()
    rows = 0
    for number, piece in enumerate(engine.table_pieces(name)):
        rows += piece.num_rows
        write_file(piece, folder / f"part-table-{number:05d}.{kind}", kind)
    return rows


def _loop(engine: "Engine") -> "Loop":
    from millstream.engine.loop import Loop  # noqa: PLC0415

    return Loop(engine)


def verify_input(job: Job, folder: RunFolder) -> None:
    """Refuses to report or go on over other input than was read; starts no Spark."""
    import sqlite3  # noqa: PLC0415

    from millstream.share.dataflow import base_stream  # noqa: PLC0415
    from millstream.store.file_source import list_files, verify_unchanged  # noqa: PLC0415

    ledger = folder.home / "ledger.db"
    if not ledger.exists():
        return
    db = sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)
    try:
        for stream in job.streams:
            if stream.source.get("source", "file") != "file":
                continue
            found = "SELECT path, identity FROM source_files WHERE stream = ? ORDER BY number"
            recorded = db.execute(found, (base_stream(stream.name),)).fetchall()
            verify_unchanged(stream.name, recorded)
            begun = "SELECT 1 FROM ingests WHERE stream = ?"
            seen = recorded or db.execute(begun, (base_stream(stream.name),)).fetchall()
            if not seen or stream.source.get("follow"):
                continue
            known = {path for path, _ in recorded}
            fresh = [p for p in list_files(stream) if str(p) not in known]
            if fresh:
                raise StateError(
                    f"stream {stream.name}: {fresh[0]} was not there when this run began",
                    hint=NEW_RUN,
                )
    except sqlite3.OperationalError:
        return  # killed before the ledger had its tables: nothing was read
    finally:
        db.close()


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
