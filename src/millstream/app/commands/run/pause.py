"""`millstream pause` and `millstream resume`: pauses a query, and continues it where it stopped.

For an active run or a cluster. The rows that come meanwhile are kept for it: nothing is lost, and
nothing comes twice. Exit codes: 0 done; 1 no answer; 2 a mistake.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.app.runs.folder import STATE
from millstream.app.runs.live_run import PAUSE, RESUME, answered
from millstream.client.keyring import TOKEN
from millstream.client.manager_client import ManagerClient, manager_url
from millstream.core.errors import StateError, UsageError
from millstream.core.lock import locked

ANSWER_SECONDS_MAX = 30.0
WAIT_S = 30.0  # for processors of a cluster

Query = Annotated[str, typer.Argument(help="The query.")]
Run = Annotated[
    str | None, typer.Option(metavar="DIR", help="The --out folder of its run, or the run's URL.")
]
Manager = Annotated[str | None, typer.Option(metavar="URL", help="The manager of its cluster.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(app: typer.Typer) -> None:
    app.command("pause")(pause)
    app.command("resume")(resume)


def pause(
    query: Query, run: Run = None, manager: Manager = None, json_output: Json = False
) -> None:
    """Pause a query; the rows that come meanwhile are kept for it."""
    _done(query, run, manager, wanted=True, json_output=json_output)


def resume(
    query: Query, run: Run = None, manager: Manager = None, json_output: Json = False
) -> None:
    """Continue a paused query where it stopped."""
    _done(query, run, manager, wanted=False, json_output=json_output)


def _done(
    query: str, run: str | None, manager: str | None, *, wanted: bool, json_output: bool
) -> None:
    if run is not None and manager is not None:
        raise UsageError("--run and --manager exclude each other")
    if run is None:
        with ManagerClient(manager_url(manager)) as client:
            told = client.pause(query, wanted=wanted, wait_s=WAIT_S)
    elif "://" in run:
        from millstream.edge.http.run_client import pause_query  # noqa: PLC0415

        told = pause_query(run, os.environ.get(TOKEN), query, wanted=wanted)
    else:
        told = _by_folder(Path(run), query, wanted=wanted)
    line = f"{query} {'is paused' if wanted else 'continues'}"
    typer.echo(json.dumps(told) if json_output else line)


def _by_folder(out: Path, query: str, *, wanted: bool) -> dict[str, Any]:
    home = out / STATE
    if not (home / "job.json").exists():
        raise UsageError(f"{out} is not a folder of a run", hint="the --out folder, or a URL")
    if not locked(home):
        raise StateError(
            f"no run is active in {out}",
            hint="start it, with the same command; or set paused in its job file",
        )
    answer = answered(home, {PAUSE if wanted else RESUME: query}, ANSWER_SECONDS_MAX)
    if answer is None:
        raise StateError(f"the run in {out} does not answer", hint="look whether it has ended")
    return answer
