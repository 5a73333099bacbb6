"""`millstream restart`: lets a query that has failed go on where it failed.

In a run that goes on, in one that has come to its end, or on a cluster. Exit codes: 0 it goes on,
or will; 1 nobody answers; 2 a mistake, or a query that cannot go on.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.app.runs.folder import STATE, RunFolder
from millstream.app.runs.live_run import RESTART, answered
from millstream.client.keyring import TOKEN
from millstream.client.manager_client import ManagerClient, manager_url
from millstream.core.errors import StateError, UsageError
from millstream.core.lock import locked

ANSWER_SECONDS_MAX = 30.0
WAIT_S = 30.0  # for processors of a cluster


def register(app: typer.Typer) -> None:
    app.command("restart")(restart)


def restart(
    query: Annotated[str, typer.Argument(help="The query that has failed.")],
    run: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The --out folder of its run, or the run's URL."),
    ] = None,
    manager: Annotated[
        str | None, typer.Option(metavar="URL", help="The manager of its cluster.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let a failed query go on where it failed; nothing is lost or comes twice."""
    if run is not None and manager is not None:
        raise UsageError("--run and --manager exclude each other")
    if run is None:
        with ManagerClient(manager_url(manager)) as client:
            told = client.restart(query, wait_s=WAIT_S)
        line = f"{query} is {told['state']}"
    elif "://" in run:
        told, line = _by_url(run, query), f"{query} goes on"
    else:
        told, line = _by_folder(Path(run), query)
    typer.echo(json.dumps(told) if json_output else line)


def _by_url(url: str, query: str) -> dict[str, Any]:
    from millstream.edge.http.run_client import restart_query  # noqa: PLC0415

    return restart_query(url, os.environ.get(TOKEN), query)


def _by_folder(out: Path, query: str) -> tuple[dict[str, Any], str]:
    home = out / STATE
    if not (home / "job.json").exists():
        raise UsageError(f"{out} is no folder of a run", hint="the --out folder, or a URL")
    if (home / "summary.json").exists():
        with RunFolder(out) as folder:
            folder.reopen(query)
        told = "it goes on when the run is started again, with the same command"
        return {"restarted": query, "later": told}, f"{query}: {told}"
    if not locked(home):
        raise StateError(f"no run goes on in {out}", hint="start it, with the same command")
    answer = answered(home, {RESTART: query}, ANSWER_SECONDS_MAX)
    if answer is None:
        raise StateError(f"the run in {out} does not answer", hint="look whether it has ended")
    return answer, f"{query} goes on"
