"""`millstream lab`: the experiments of the five works, listed and run.

Each run writes a tidy CSV and a plot, and prints what the seed claims beside what came out. The
command measures nothing itself.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import millstream_lab as lab
from millstream.core.errors import UsageError
from millstream.core.output_folder import writing_to
from millstream_lab.experiment import (
    EXPERIMENTS,
    Experiment,
    Finding,
    Outcome,
    write_csv,
)

app = typer.Typer(
    help="The experiments of the seeds: what they claim, and what comes out here.",
    no_args_is_help=True,
)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="lab")


@app.command("list")
def list_experiments(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    work: Annotated[
        str | None, typer.Option(help="Only of one work, for example raindrop.")
    ] = None,
) -> None:
    """Names every experiment."""
    lab.load()
    found = [e for _, e in EXPERIMENTS.items() if work is None or e.seed_work == work]
    if not found:
        known = sorted({e.seed_work for _, e in EXPERIMENTS.items()})
        raise UsageError(f"no experiments of {work!r}", hint=f"one of {', '.join(known)}")
    if as_json:
        rows = [{"name": e.name, "work": e.seed_work, "title": e.title} for e in found]
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(e.name) for e in found)
    for experiment in found:
        typer.echo(f"{experiment.name:<{width}}  {experiment.title}")


@app.command("run")
def run_experiment(
    name: Annotated[str, typer.Argument(help="As `millstream lab list` names it.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.csv and NAME.png.")],
    seed: Annotated[int, typer.Option(min=0, help="Of all chance in the run.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, in seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False,
) -> None:
    """Runs one experiment and sets the seed's claim beside the figure."""
    lab.load()
    experiment = EXPERIMENTS.get(name)
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
    outcome = _run(experiment, seed, quick)
    csv, png = out / f"{name}.csv", out / f"{name}.png"
    with writing_to(out):
        write_csv(outcome.rows, csv)
        _plot(experiment, outcome, png)
    if as_json:
        typer.echo(json.dumps(_as_json(name, seed, quick, outcome, csv, png), indent=2))
        return
    _tell(experiment, outcome.findings)
    typer.echo(f"\n{csv}\n{png}")


def _run(experiment: Experiment, seed: int, quick: bool) -> Outcome:
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(experiment.title) as status:
            return experiment.run(seed, quick, status.update)
    return experiment.run(seed, quick, lambda text: print(text, file=sys.stderr, flush=True))


def _plot(experiment: Experiment, outcome: Outcome, path: Path) -> None:
    from millstream.sim.plotting import new_figure, save  # noqa: PLC0415  (matplotlib is slow)

    figure = new_figure()
    experiment.plot(outcome.rows, figure)
    save(figure, path)


def _tell(experiment: Experiment, findings: Sequence[Finding]) -> None:
    console = Console()
    table = Table(
        "the seed claims", "measured", "holds", title=escape(experiment.title), show_lines=True
    )
    for finding in findings:
        measured = escape(finding.measured)
        if finding.reason:
            measured += f"\n[dim]{escape(finding.reason)}[/dim]"
        table.add_row(
            escape(finding.claim), measured, "yes" if finding.holds else "[bold]no[/bold]"
        )
    console.print(table)


def _as_json(
    name: str, seed: int, quick: bool, outcome: Outcome, csv: Path, png: Path
) -> dict[str, object]:
    return {
        "experiment": name,
        "seed": seed,
        "quick": quick,
        "csv": str(csv),
        "png": str(png),
        "findings": [
            {"claim": f.claim, "measured": f.measured, "holds": f.holds, "reason": f.reason}
            for f in outcome.findings
        ],
    }
