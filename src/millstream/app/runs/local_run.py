"""What only a run in this process has: all mistakes at once, goals that change, a trace, a display.

Importing this module brings Spark.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from millstream.app.config import Job
from millstream.app.config.job_file import JobFileError
from millstream.app.runs.checking import check_job
from millstream.app.runs.display import Display
from millstream.app.runs.folder import RunFolder
from millstream.app.runs.job_edits import JobEdits
from millstream.app.runs.live_run import LiveRun
from millstream.app.runs.local_system import LocalSystem
from millstream.app.runs.trace import tracing


@contextmanager
def opened(
    job: Job, folder: RunFolder, master: str, shown: Display, lineage: str | None = None
) -> Iterator[LocalSystem]:
    """An engine whose home lies in the output folder; mistakes show before anything runs."""
    system = LocalSystem(
        folder.home, master, settings=job.engine, spark=job.spark, say=shown.say, lineage=lineage
    )
    try:
        checked = check_job(job, system.engine.compiler.analyzer)
        if checked.mistakes:
            raise JobFileError(checked.mistakes)
        yield system
    finally:
        system.close()
        if not folder.recorded():
            folder.forget()


@contextmanager
def overseen(
    system: LocalSystem,
    edits: JobEdits,
    home: Path,
    shown: Display,
    poll: Callable[[], None],
    trace: Path | None,
    ways: Sequence[Callable[[LiveRun], AbstractContextManager[None]]],
) -> Iterator[tuple[Callable[[], None], Callable[[], dict[str, Any]]]]:
    """What to call now and then while it works, and what a summary says of the scheduling."""
    live = LiveRun(edits, home, system.engine, system.loop, shown)
    write_trace, close_trace = tracing(trace, system.loop)
    states: dict[str, str] = {}

    def tick() -> None:
        poll()
        _tell_troubles(system, states, shown)
        live.look()
        write_trace()
        if shown.due():
            shown.show(live.status(), system.steps)

    def noticed(text: str) -> None:
        if text.startswith("stream "):  # of queries, the state says it
            shown.say(text)

    system.engine.on_notice.append(noticed)
    try:
        with ExitStack() as open_ways:
            for way in ways:
                open_ways.enter_context(way(live))
            yield tick, lambda: {"scheduling": live.scheduling()}
    finally:
        system.engine.on_notice.remove(noticed)
        close_trace()
        live.close()
    _tell_troubles(system, states, shown)


def _tell_troubles(system: LocalSystem, states: dict[str, str], shown: Display) -> None:
    """Says once that a query was parked, goes on, or has failed."""
    for query in list(system.engine.queries.values()):
        if query.state != states.get(query.name, "running"):
            states[query.name] = query.state
            reason = f": {query.reason}" if query.reason else ""
            shown.say(f"query {query.name} is {query.state}{reason}")
