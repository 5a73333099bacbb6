"""`millstream lab`: the experiments of the five works, listed, run, and reported.

Each run writes a tidy CSV, whose first lines say which run it was, and a plot, and prints what the
seed claims beside what came out. The command measures nothing itself, and judges what it reads back
from the file.
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
from millstream.core.errors import MillstreamError, ResourceError, UsageError
from millstream.core.output_folder import writing_to
from millstream_lab.claims import Finding, Row, Verdict
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.results import filled, page, stored_in
from millstream_lab.stored import cpu_s, origin_of, read_csv, read_origin, write_csv

app = typer.Typer(
    help="The experiments of the seeds: what they claim, and what comes out here.",
    no_args_is_help=True,
)
HERE = Path(__file__).parents[1]


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
    found = _experiments(work)
    if as_json:
        rows = [{"name": e.name, "work": e.seed_work, "title": e.title} for e in found]
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(e.name) for e in found)
    for experiment in found:
        typer.echo(f"{experiment.name:<{width}}  {experiment.title}")


def _experiments(work: str | None) -> list[Experiment]:
    lab.load()
    found = [e for _, e in EXPERIMENTS.items() if work is None or e.seed_work == work]
    if not found:
        known = sorted({e.seed_work for _, e in EXPERIMENTS.items()})
        raise UsageError(f"no experiments of {work!r}", hint=f"one of {', '.join(known)}")
    return found


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
    csv, png = out / f"{name}.csv", out / f"{name}.png"
    rows = _with_status(experiment, seed, quick, csv)
    with writing_to(out):
        _plot(experiment, rows, png)
    findings = experiment.findings(rows)
    if as_json:
        told = {"experiment": name, "seed": seed, "quick": quick, "csv": str(csv), "png": str(png)}
        typer.echo(json.dumps({**told, "findings": [_as_json(f) for f in findings]}, indent=2))
        return
    _tell(experiment, findings)
    typer.echo(f"\n{csv}\n{png}")


@app.command("all")
def run_all(
    out: Annotated[Path, typer.Option(help="Folder for the CSV files.")] = HERE / "results",
    seed: Annotated[int, typer.Option(min=0, help="Of all chance in the runs.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, in minutes.")] = False,
    work: Annotated[str | None, typer.Option(help="Only of one work.")] = None,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Without those that start processes or Spark.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out what the folder already has.")
    ] = False,
) -> None:
    """Runs every experiment, one after the other; what fails is told at the end."""
    found = [e for e in _experiments(work) if not (virtual and e.real)]
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    for number, experiment in enumerate(found, start=1):
        here = f"[{number} of {len(found)}] {experiment.name}"
        path = stored_in(out, experiment)
        if resume and _is_there(path, seed, quick):
            _say(f"{here}: there already")
            continue
        _say(f"{here}: {experiment.title}")
        try:
            _run(experiment, seed, quick, path, lambda text, here=here: _say(f"{here}: {text}"))  # type: ignore[misc]
        except (MillstreamError, TimeoutError) as error:
            failed.append(f"{experiment.name}: {error}")
            _say(f"{here}: failed: {error}")
    if failed:
        raise ResourceError(
            f"{len(failed)} of {len(found)} experiments failed: {'; '.join(failed)}"
        )


@app.command("report")
def report(
    results: Annotated[Path, typer.Option(help="Folder of CSV files.")] = HERE / "results",
    to: Annotated[Path, typer.Option(help="The page.")] = HERE / "RESULTS.md",
    docs: Annotated[
        Path | None, typer.Option(help="Folder of pages whose marked tables are made anew.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for plots of all of them.")] = None,
) -> None:
    """Writes the page of results, tables of other pages, and plots, from stored runs."""
    lab.load()
    with writing_to(to.parent):
        to.write_text(page(results))
    if docs is not None:
        with writing_to(docs):
            for path in sorted(docs.rglob("*.md")):
                text = path.read_text()
                if (made := filled(text, results)) != text:
                    path.write_text(made)
    if plots is not None:
        with writing_to(plots):
            plots.mkdir(parents=True, exist_ok=True)
            for experiment in _experiments(None):
                if stored_in(results, experiment).exists():
                    rows = read_csv(stored_in(results, experiment))
                    _plot(experiment, rows, plots / f"{experiment.name}.png")
    typer.echo(to)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _is_there(path: Path, seed: int, quick: bool) -> bool:
    """Whether a whole run of this seed and at least this size is stored."""
    if not path.exists():
        return False
    try:
        origin = read_origin(path)
    except UsageError:
        return False
    return origin.seed == seed and (origin.size == "full" or quick)


def _with_status(experiment: Experiment, seed: int, quick: bool, csv: Path) -> list[Row]:
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(experiment.title) as status:
            return _run(experiment, seed, quick, csv, status.update)
    return _run(experiment, seed, quick, csv, _say)


def _run(
    experiment: Experiment, seed: int, quick: bool, csv: Path, progress: Progress
) -> list[Row]:
    """The rows as the file has them; the file appears when the run is over."""
    began = cpu_s()
    rows = experiment.run(seed, quick, progress)
    origin = origin_of(experiment.name, seed, quick, cpu_s() - began)
    with writing_to(csv.parent):
        write_csv(rows, csv, origin)
    return read_csv(csv)


def _plot(experiment: Experiment, rows: Sequence[Row], path: Path) -> None:
    from millstream.sim.plotting import new_figure, save  # noqa: PLC0415  (matplotlib is slow)

    figure = new_figure()
    experiment.plot(rows, figure)
    save(figure, path)


def _tell(experiment: Experiment, findings: Sequence[Finding]) -> None:
    console = Console()
    table = Table(
        "the seed claims", "measured", "verdict", title=escape(experiment.title), show_lines=True
    )
    for finding in findings:
        measured = f"{escape(finding.measured)}\n[dim]{escape(finding.wanted)}[/dim]"
        if finding.reason:
            measured += f"\n[dim]{escape(finding.reason)}[/dim]"
        verdict = escape(finding.verdict)
        if finding.verdict == Verdict.FAILS:
            verdict = f"[bold]{verdict}[/bold]"
        table.add_row(escape(finding.claim), measured, verdict)
    console.print(table)


def _as_json(finding: Finding) -> dict[str, str]:
    return {
        "claim": finding.claim,
        "wanted": finding.wanted,
        "measured": finding.measured,
        "verdict": str(finding.verdict),
        "reason": finding.reason,
    }
