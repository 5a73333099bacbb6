"""`millstream apply`: makes a running job, or a cluster, one of an edited job file.

Shows the difference, then does it. Exit codes: 0 done, or nothing to do; 1 it could not be done;
2 a mistake in the file, or something that cannot be changed.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.app.config import Job, load_job
from millstream.app.config.job_changes import JobChanges, KnownQuery, changes_of
from millstream.app.runs.folder import RunFolder
from millstream.client.manager_client import ManagerClient, manager_url
from millstream.core.errors import StateError, UsageError
from millstream.core.lock import locked

ANSWER_SECONDS_MAX = 120.0
WAIT_S = 120.0  # for a query on a cluster


def register(app: typer.Typer) -> None:
    app.command("apply")(apply)


def apply(
    job: Annotated[Path, typer.Argument(help="The edited job file (TOML).")],
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The --out folder of the run to change.")
    ] = None,
    manager: Annotated[
        str | None, typer.Option(metavar="URL", help="The manager of the cluster to change.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the difference; do nothing.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="On a cluster: also drop queries the file has not.")
    ] = False,
    keep_results: Annotated[
        bool,
        typer.Option(
            "--keep-results",
            help="For a run: changed queries keep their results and the state that still fits; "
            "without this option they begin anew, and their results are put aside.",
        ),
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what an edited job file changes of a running job, then change it."""
    wanted = load_job(job)
    if run is not None and manager is not None:
        raise UsageError("--run and --manager exclude each other")
    if run is not None and prune:
        raise UsageError("--prune goes with --manager", hint="the file is all of a run's job")
    if run is None and keep_results:
        raise UsageError("--keep-results goes with --run")
    if run is not None:
        told = _on_run(wanted, run, dry_run=dry_run, keep=keep_results, quiet=json_output)
    else:
        told = _on_cluster(wanted, manager, dry_run=dry_run, prune=prune, quiet=json_output)
    if json_output:
        typer.echo(json.dumps(told))
        return
    for note in told.get("notes", ()):
        typer.echo(f"note: {note}")
    typer.echo(_closing(told))


def _closing(told: dict[str, Any]) -> str:
    if not told["changes"]:
        return "nothing changes"
    if told["done"]:
        return "done"
    return "nothing was done (--dry-run)" if told["dry_run"] else str(told["later"])


def _shown(changes: JobChanges, *, quiet: bool) -> None:
    for line in changes.lines() if not quiet else ():
        typer.echo(line)


def _refuse(changes: JobChanges) -> None:
    if changes.refused:
        told = "\n".join(changes.refused[1:])
        raise UsageError(changes.refused[0], detail=told, hint="nothing was done")


# -- a run ----------------------------------------------------------------------------------------


def _on_run(job: Job, out: Path, *, dry_run: bool, keep: bool, quiet: bool) -> dict[str, Any]:
    folder = RunFolder(out)
    changes = folder.changes(job)
    _shown(changes, quiet=quiet)
    told = {"changes": changes.table() if changes else {}, "dry_run": dry_run, "done": False}
    if dry_run and keep and changes.changed and locked(folder.home):
        return told | _asked(folder.home, job, keep=True, dry_run=True)
    if dry_run or not changes:
        return told
    _refuse(changes)
    if locked(folder.home):
        answer = _asked(folder.home, job, keep=keep, dry_run=False)
        return told | {"done": True, "notes": answer.get("notes", [])}
    if keep:
        raise StateError(
            f"no run is active in {out}, and only an active run can keep results",
            hint="start it first, or leave out --keep-results",
        )
    with folder:
        if (folder.home / "summary.json").exists():
            folder.reopen_for(job, changes)
            if (folder.home / "summary.json").exists():
                return told | {"done": True}
            again = f"millstream run {job.text.shown} --out {out}"
            return told | {"later": f"the run in {out} was finished: results that have not changed "
                           f"stay, the others are computed by: {again}"}  # fmt: skip
        for name in (*changes.dropped, *(q.name for _, q in changes.changed)):
            folder.put_aside(name)
        folder.amend(job, folder.kind())
    return told | {"later": f"no run is active in {out}; it is done when it does: millstream run "
                   f"{job.text.shown} --out {out}"}  # fmt: skip


def _asked(home: Path, job: Job, *, keep: bool, dry_run: bool) -> dict[str, Any]:
    """What the run answers to the wish for another job."""
    from millstream.app.runs.live_run import APPLY, DRY_RUN, KEEP, answered  # noqa: PLC0415

    wish = {APPLY: str(job.path.absolute()), KEEP: keep, DRY_RUN: dry_run}
    answer = answered(home, wish, ANSWER_SECONDS_MAX)
    if answer is None:
        raise StateError(
            "the run has not answered", hint="look at what it prints, then apply the file again"
        )
    return answer


# -- a cluster ------------------------------------------------------------------------------------


def _on_cluster(
    job: Job, manager: str | None, *, dry_run: bool, prune: bool, quiet: bool
) -> dict[str, Any]:
    """Queries of others stay, unless they are pruned."""
    from millstream.control.definitions.stream_table import table_of  # noqa: PLC0415

    with ManagerClient(manager_url(manager)) as client:
        known = {
            str(q["name"]): KnownQuery(str(q["cql"]), bool(q["paused"])) for q in client.queries()
        }
        there = dict.fromkeys(client.streams(), "")
        digests = {s.name: "" for s in job.streams}
        changes = changes_of(job, known, there, digests, drop_others=False)
        gone = sorted(set(known) - {q.name for q in job.queries}) if prune else []
        for name in gone if not quiet else ():
            typer.echo(f"- query {name}")
        _shown(changes, quiet=quiet)
        table = {**changes.table(), "dropped": gone} if changes or gone else {}
        told = {"changes": table, "dry_run": dry_run, "done": False}
        if dry_run or not table:
            return told
        for stream in changes.streams:
            client.declare(table_of(stream))
        for name in (*gone, *(q.name for _, q in changes.changed)):
            client.drop(name, wait_s=WAIT_S)
        refused = []
        for query in (*changes.added, *(q for _, q in changes.changed)):
            try:
                answer = client.submit(
                    query.name, query.cql, from_beginning=True, wait_s=WAIT_S,
                    replicas=query.replicas, paused=query.paused,
                )  # fmt: skip
            except UsageError as error:
                raise query.located(error) from None
            if answer["state"] in ("refused", "failed"):
                refused.append(f"{query.name} is {answer['state']}: {answer['reason']}")
        for name in (*changes.paused, *changes.resumed):
            client.pause(name, wanted=name in changes.paused, wait_s=WAIT_S)
        if changes.streams:
            client.start_streams([s.name for s in changes.streams])
        if refused:
            raise StateError(refused[0], detail="\n".join(refused[1:]))
        return told | {"done": True}
