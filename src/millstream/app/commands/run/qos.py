"""`millstream qos`: the goals of a run or a cluster that goes on, shown and changed.

Exit codes: 0 done; 1 shown, and a limit is not met; 2 a mistake, or no such run.
"""

import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from millstream.app.config import load_job
from millstream.app.runs.folder import STATE
from millstream.app.runs.live_run import answered, live_figures
from millstream.client.keyring import TOKEN
from millstream.core.errors import StateError, UsageError
from millstream.core.lock import locked
from millstream.decide.schedule.goal_text import specification_from_text

ANSWER_SECONDS_MAX = 30.0


def register(app: typer.Typer) -> None:
    app.command("qos")(qos)


def qos(
    run: Annotated[str, typer.Argument(help="The --out folder of a run, its URL, or a manager's.")],
    goals: Annotated[
        str | None,
        typer.Argument(help="New goals: 'delay <= 2s, output_rate maximise 0.3', or a template."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Of this query; without it, of all together.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Of these goals beside those of other queries.")
    ] = None,
    schedule: Annotated[
        Path | None,
        typer.Option(help="All processors of a cluster schedule as [schedule] of this job file."),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Drop a query's own goals.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show how the goals of a running job stand, or change them.

    Goals change no result, but for a query that may_drop rows which have missed its limit."""
    wish: dict[str, Any] = {
        k: v for k, v in (("goals", goals), ("query", query), ("weight", weight)) if v is not None
    }
    if forget:
        wish["forget"] = True
    if schedule is not None:
        if wish or "://" not in run:
            raise UsageError("--schedule goes with the URL of a manager, and alone")
        wish["schedule"] = _schedule(schedule)
    if goals is not None:
        specification_from_text(goals)  # mistakes are told here, before anybody is asked
    figures = _by_url(run, wish) if "://" in run else _by_folder(Path(run), wish)
    if figures is None:
        typer.echo("no run is active there; the goals take effect when it is")
        return
    if json_output:
        typer.echo(json.dumps(figures))
    else:
        show(figures, Console())
    if not wish and figures["met"] is False:
        raise typer.Exit(1)


def _schedule(job: Path) -> dict[str, Any]:
    """The `[schedule]` of a job file without mistakes, as it stands there."""
    table = tomllib.loads(load_job(job).text.places.text).get("schedule")
    if not table:
        raise UsageError(f"{job} has no [schedule]")
    return dict(table)


def _by_url(url: str, wish: dict[str, Any]) -> dict[str, Any]:
    from millstream.edge.http.run_client import change_quality, run_quality  # noqa: PLC0415

    token = os.environ.get(TOKEN)
    return change_quality(url, token, wish) if wish else run_quality(url, token)


def _by_folder(out: Path, wish: dict[str, Any]) -> dict[str, Any] | None:
    """By files in the run's folder; None where the run will take the wish when it goes on."""
    home = out / STATE
    if not (home / "job.json").exists():
        raise UsageError(f"{out} is not a folder of a run", hint="the --out folder, or a URL")
    if (home / "summary.json").exists():
        raise StateError(f"the run in {out} is finished")
    live = live_figures(home) if locked(home) else None
    if not wish:
        if live is None:
            raise StateError(
                f"no run is active in {out}", hint="start it, or try again in a second"
            )
        found: dict[str, Any] = live["scheduling"]
        return found
    return answered(home, wish, ANSWER_SECONDS_MAX, keep=True)


def show(figures: dict[str, Any], console: Console) -> None:
    """A line on the algorithm and a table of goals."""
    spent = ", ".join(f"{k} {v:.0f} s" for k, v in figures["seconds_in_charge"].items())
    console.print(
        f"in charge: {figures['algorithm'] or 'none yet'} ({figures['selector']}; {spent}; "
        f"{figures['switches']} changes)",
        highlight=False,
    )
    table = Table("goals of", "goal and value", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for goal in figures["goals"]:
        style = "red" if goal["met"] is False else ""
        table.add_row(goal["query"] or "all queries", goal["told"], style=style)
    console.print(table)
    for query, share in figures.get("costs_others", {}).items():
        console.print(
            f"{query} costs the others: its steps went before older rows for {share:.1%} of the "
            "time",
            highlight=False,
        )
    for query, rows in figures.get("shed", {}).items():
        console.print(
            f"{query} did without {rows:,} rows that had missed its limit of delay",
            style="yellow",
            highlight=False,
        )
    for label, waited in figures["starving"].items():
        console.print(f"operator {label} starves: passed over for {waited:g} s", style="red")
