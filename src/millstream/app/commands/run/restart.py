"""`millstream restart`: continues a failed query where it failed.

In an active run, in a run that has ended, or on a cluster. With `--rolling`, all processors of a
cluster restart one after the other. Exit codes: 0 it continues, or will; 1 no answer, or a
processor was in trouble; 2 a mistake, or a query that cannot continue.
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
from millstream.core.errors import MillstreamError, StateError, UsageError
from millstream.core.lock import locked

ANSWER_SECONDS_MAX = 30.0
WAIT_S = 30.0  # for processors of a cluster


def register(app: typer.Typer) -> None:
    app.command("restart")(restart)


def restart(
    query: Annotated[str, typer.Argument(help="The query that has failed.")] = "",
    run: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The --out folder of its run, or the run's URL."),
    ] = None,
    manager: Annotated[
        str | None, typer.Option(metavar="URL", help="The manager of its cluster.")
    ] = None,
    rolling: Annotated[
        bool,
        typer.Option("--rolling", help="Restart all processors of a cluster, one by one."),
    ] = False,
    wait: Annotated[
        float, typer.Option(min=1, help="With --rolling: seconds for each part of a restart.")
    ] = 300.0,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Continue a failed query where it failed, or (--rolling) restart all processors."""
    if rolling:
        if query or run is not None:
            raise UsageError("--rolling concerns processors, not a query or a run")
        _rolling(manager, wait, json_output)
        return
    if not query:
        raise UsageError("which query?", hint="millstream restart QUERY, or --rolling")
    if run is not None and manager is not None:
        raise UsageError("--run and --manager exclude each other")
    if run is None:
        with ManagerClient(manager_url(manager)) as client:
            told = client.restart(query, wait_s=WAIT_S)
        line = f"{query} is {told['state']}"
    elif "://" in run:
        told, line = _by_url(run, query), f"{query} continues"
    else:
        told, line = _by_folder(Path(run), query)
    typer.echo(json.dumps(told) if json_output else line)


def _rolling(manager: str | None, wait_s: float, json_output: bool) -> None:
    from millstream.app.commands.cluster.rolling import (  # noqa: PLC0415
        RollingRestart,
        trouble_of,
    )

    with ManagerClient(manager_url(manager)) as client:
        asked = RollingRestart(client, lambda line: typer.echo(line, err=json_output), wait_s)
        try:
            asked.run()
        except MillstreamError as error:
            if json_output:
                told = {"restarted": asked.told(), "trouble": trouble_of(error)}
                typer.echo(json.dumps(told))
            raise
    if json_output:
        typer.echo(json.dumps({"restarted": asked.told(), "trouble": None}))
    else:
        typer.echo(f"all {len(asked.done)} processors were restarted")


def _by_url(url: str, query: str) -> dict[str, Any]:
    from millstream.edge.http.run_client import restart_query  # noqa: PLC0415

    return restart_query(url, os.environ.get(TOKEN), query)


def _by_folder(out: Path, query: str) -> tuple[dict[str, Any], str]:
    home = out / STATE
    if not (home / "job.json").exists():
        raise UsageError(f"{out} is not a folder of a run", hint="the --out folder, or a URL")
    if (home / "summary.json").exists():
        with RunFolder(out) as folder:
            folder.reopen(query)
        told = "it continues when the run is started again with the same command"
        return {"restarted": query, "later": told}, f"{query}: {told}"
    if not locked(home):
        raise StateError(f"no run is active in {out}", hint="start it, with the same command")
    answer = answered(home, {RESTART: query}, ANSWER_SECONDS_MAX)
    if answer is None:
        raise StateError(f"the run in {out} does not answer", hint="look whether it has ended")
    return answer, f"{query} continues"
