"""`millstream run`: a job file to results in a folder, exactly once, resumable.

Exit codes: 0 all done; 1 a query has failed on its data (the others are done); 2 a mistake in the
job, the command or changed input; 3 something ran out; 4 all done, but most rows of a stream were
rejected or late (or the first one, with --strict); 70 a fault of ours, told in crash.log;
130 and 143 stopped by a signal, to be resumed by the same command.
"""

import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from millstream.app.commands.cluster.credentials import Key, PlainHttp, tls_of
from millstream.app.config import Job, load_job
from millstream.app.runs.display import Display, display_for
from millstream.app.runs.folder import RunFolder
from millstream.app.runs.job_run import (
    FORMATS,
    Interrupted,
    RunSettings,
    posted_streams,
    run_job,
)
from millstream.app.runs.json_log import LOG_FORMATS, JsonDisplay
from millstream.app.runs.live_run import LiveRun
from millstream.app.runs.statistics_export import (
    check_export_folder,
    export_statistics,
    kept_statistics,
)
from millstream.app.runs.summary import exit_code, print_summary
from millstream.client.keyring import TOKEN
from millstream.core.errors import InternalError, MillstreamError, UsageError

if TYPE_CHECKING:
    from millstream.edge.http.serving import Tls
    from millstream.edge.run.dashboard import RunDashboard


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    job: Annotated[Path, typer.Argument(help="A job file (TOML).")],
    out: Annotated[Path, typer.Option(help="The folder for results; also holds the state.")],
    output_format: Annotated[
        str, typer.Option("--format", help=f"Format of results: {', '.join(FORMATS)}.")
    ] = "parquet",
    master: Annotated[
        str, typer.Option(help="Spark's master: local[n], local-cluster[n,c,m], spark://...")
    ] = "local[*]",
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")] = False,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="Listen on this port (or host:port) for rows of streams with source = 'http', "
            "figures and goals. Such streams have a port chosen and printed without it.",
        ),
    ] = None,
    lineage: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE",
            help="Where events of OpenLineage go; OPENLINEAGE_URL where it is not given.",
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Append every choice of the scheduler to this file.")
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve the dashboard while it runs.")] = False,
    ui_at: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serve the dashboard on this port (or host:port)."),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep the dashboard after the end, until Ctrl-C.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(help="Progress as text or as json: one object a line.")
    ] = "text",
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Statistics as statistics.xlsx and parquet, at the end."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that is rejected or late.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget the run in --out, and its results; begin anew.")
    ] = False,
    manager: Annotated[
        str | None, typer.Option(metavar="URL", help="Run it on the cluster of this manager.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate of endpoint and dashboard (PEM).")
    ] = None,
    key: Key = None,
    plain_http: PlainHttp = False,
) -> None:
    """Run all queries of a job file over their input and write the results."""
    if output_format not in FORMATS:
        raise UsageError(
            f"unknown output format {output_format!r}", hint=f"one of {', '.join(FORMATS)}"
        )
    wanted = load_job(job)
    if export is not None:
        check_export_folder(export)
    with RunFolder(out) as folder:
        if fresh:
            folder.begin_anew()
        folder.claim(wanted, output_format)
        here = manager is None  # a cluster has a dashboard and an endpoint of its own
        if here:
            folder.verify_input(wanted)
        summary = folder.finished(wanted)
        again = summary is not None
        if summary is None:
            display = _display(log_format, quiet=quiet)
            tls = tls_of(certificate, key, plain=plain_http)
            door = _door(wanted, http, display, tls, quiet=quiet) if here else None
            pages, at = (ui or stay, ui_at) if here else (False, None)
            with dashboard_of(job.name, pages, at, display, tls, quiet=quiet) as dashboard:
                watch = dashboard.watch if dashboard is not None else None
                settings = RunSettings(
                    output_format, master, trace, door, watch, strict, manager, lineage
                )
                with guarded(folder, display) as poll:
                    summary = run_job(wanted, folder, settings, display, poll=poll)
                _export(folder, export)
                if dashboard is not None and stay:
                    report(summary, json_output=json_output, again=again)
                    dashboard.stay()
                    raise typer.Exit(exit_code(summary))
        else:
            _export(folder, export)
        report(summary, json_output=json_output, again=again)
    raise typer.Exit(exit_code(summary))


def _export(folder: RunFolder, export: Path | None) -> None:
    """Statistics of a run that has ended, now or before."""
    if export is not None:
        export_statistics(kept_statistics(folder.home), export)


def _display(log_format: str, *, quiet: bool) -> Display:
    if log_format not in LOG_FORMATS:
        raise UsageError(
            f"unknown log format {log_format!r}", hint=f"one of {', '.join(LOG_FORMATS)}"
        )
    if log_format == "json" and not quiet:
        return JsonDisplay()
    return display_for(Console(stderr=True), quiet=quiet)


@contextmanager
def dashboard_of(
    title: str,
    wanted: bool,
    at: str | None,
    display: Display,
    tls: "Tls | None" = None,
    *,
    quiet: bool,
) -> "Iterator[RunDashboard | None]":
    """The dashboard of a run, where one is wanted."""
    if not wanted and at is None:
        yield None
        return
    from millstream.edge.http.serving import address  # noqa: PLC0415
    from millstream.edge.run.dashboard import RunDashboard  # noqa: PLC0415

    say = partial(typer.echo, err=True) if quiet else display.say
    with RunDashboard(title, address(at), say, tls) as dashboard:
        yield dashboard


def _door(
    job: Job, listen: str | None, display: Display, tls: "Tls", *, quiet: bool
) -> Callable[[LiveRun], AbstractContextManager[None]] | None:
    """What opens the endpoint of a run, where it wants one."""
    posted = posted_streams(job)
    if listen is None and not posted:
        return None
    from millstream.edge.http.serving import address  # noqa: PLC0415
    from millstream.edge.run.api import run_endpoint  # noqa: PLC0415

    at = address(listen or "0")

    @contextmanager
    def opened(live: LiveRun) -> Iterator[None]:
        token = os.environ.get(TOKEN)
        with run_endpoint(live, host=at.host, port=at.port or 0, token=token, tls=tls) as server:
            say = partial(typer.echo, err=True) if quiet else display.say
            say(f"listening on {server.url}")
            for name in posted:
                say(f"rows of {name}: POST {server.url}/streams/{name}/rows, then .../{name}/end")
            yield

    return opened


def report(summary: dict[str, Any], *, json_output: bool, again: bool) -> None:
    if json_output:
        typer.echo(json.dumps(summary | {"again": again}, default=str))
    else:
        print_summary(summary, Console(), again=again)


@contextmanager
def guarded(folder: RunFolder, display: Display) -> Iterator[Callable[[], None]]:
    """A run that signals stop cleanly and whose faults are told in one line; gives its `poll`."""
    with _signals() as signals, _crash_log(folder):
        try:
            yield signals.check
        except MillstreamError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            number = _stopped_by(error, signals)
            if number is None:
                raise
            display.close()
            typer.echo(f"stopped; to continue: {_same_command()}", err=True)
            raise typer.Exit(128 + number) from None
        finally:
            display.close()


def _stopped_by(error: BaseException, signals: "_Signals") -> int | None:
    """The signal behind an error, if any: one to the whole group ends Spark's process too."""
    if isinstance(error, Interrupted):
        return error.signal_number
    if isinstance(error, KeyboardInterrupt):  # while Spark started
        return int(signal.SIGINT)
    return signals.number


class _Signals:
    """Notes a request to stop; `check` raises it in the main thread."""

    def __init__(self) -> None:
        self.number: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self.number = number

    def check(self) -> None:
        for chosen in (signal.SIGINT, signal.SIGTERM):
            # Spark's driver sets a handler of its own when it starts
            if signal.getsignal(chosen) != self.note:
                signal.signal(chosen, self.note)
        if self.number is not None:
            raise Interrupted(self.number)


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Ctrl-C and SIGTERM finish the steps in hand and stop."""
    noted = _Signals()
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, noted.note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _crash_log(folder: RunFolder) -> Iterator[None]:
    """What nobody foresaw goes to a file; the user reads one line."""
    try:
        yield
    except (MillstreamError, typer.Exit):
        raise
    except Exception as error:
        log = folder.home / "crash.log"
        with suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.write(traceback.format_exc() + "\n")
        first = (str(error).strip().splitlines() or [""])[0][:200]
        raise InternalError(
            f"unexpected {type(error).__name__}: {first}",
            detail=f"the details are in {log}",
            hint=f"nothing is lost; to continue: {_same_command()}",
        ) from None


def _same_command() -> str:
    return shlex.join(["millstream", *sys.argv[1:]])
