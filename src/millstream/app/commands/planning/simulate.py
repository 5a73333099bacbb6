"""`millstream simulate`: a cluster in virtual time, and what would happen if.

Runs a scenario, and one variant for each question, tells the figures side by side, writes plots and
tables. Exits 1 if a check of the scenario or an invariant fails, with the line that reproduces it.
"""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from millstream.core.output_folder import writing_to
from millstream.sim import report, reproduction
from millstream.sim.scenario import Scenario, load_scenario
from millstream.sim.scenario_run import Outcome, run_variant
from millstream.sim.what_if import FORMS, Variant, ask


def register(app: typer.Typer) -> None:
    app.command("simulate")(simulate)


def simulate(
    scenario: Annotated[Path, typer.Argument(help="A scenario (TOML).")],
    seed: Annotated[
        int | None, typer.Option(help="Of all chance in the run; the scenario's own if absent.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.json, samples.csv, moves.csv and plots.")
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", help=f"Run a variant too; may be repeated, '+' joins. {FORMS}."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Balance by this policy instead of the scenario's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Simulates a cluster: what if I add a host, double this stream, lose that link."""
    loaded = load_scenario(scenario)
    number = loaded.seed if seed is None else seed
    base = Variant(loaded)
    if policy is not None:
        base = ask(base, f"policy:{policy}")
    variants = _variants(loaded, base, what_if or [])
    outcomes = _run(variants, number)
    summaries = [report.summary(outcome) for outcome in outcomes]
    again = reproduction.line(str(scenario), number, tuple(what_if or ()), policy)
    if out is not None:
        _write(out, outcomes, summaries, again)
    if as_json:
        typer.echo(_json(summaries, again))
    else:
        _tell(loaded, summaries, out)
    failed = [f"{o.name}: {failure}" for o in outcomes for failure in o.failures]
    if failed:
        for failure in failed:
            typer.echo(f"failed: {failure}", err=True)
        typer.echo(f"again with: {again}", err=True)
        raise typer.Exit(1)


def _variants(
    scenario: Scenario, base: Variant, questions: Sequence[str]
) -> list[tuple[str, Variant]]:
    """The scenario as it is, then its own questions, then those asked here."""
    named = [(part.name, part.change) for part in scenario.what_if]
    named += [(question, question) for question in questions]
    return [(scenario.name, base), *((name, ask(base, change)) for name, change in named)]


def _run(variants: Sequence[tuple[str, Variant]], seed: int) -> list[Outcome]:
    console = Console(stderr=True)
    outcomes = []
    for n, (name, variant) in enumerate(variants, 1):
        text = f"simulating {name} ({n} of {len(variants)})"
        # Expectations are the scenario's own: a variant may break them, that is the question.
        asked = n > 1
        if asked:
            plain = variant.scenario.model_copy(update={"checks": type(variant.scenario.checks)()})
            variant = Variant(plain, variant.hosts_more, variant.stream_factors)  # noqa: PLW2901
        if console.is_terminal:
            with console.status(escape(text)):
                outcomes.append(run_variant(variant, seed, name=name))
        else:
            print(text, file=sys.stderr, flush=True)
            outcomes.append(run_variant(variant, seed, name=name))
    return outcomes


def _tell(scenario: Scenario, summaries: Sequence[report.Row], out: Path | None) -> None:
    console = Console(emoji=False)  # names and titles are shown as they are written
    title = escape(scenario.title or scenario.name)
    table = Table(title=title, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")
    for _, heading, _ in report.COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for cells in report.table_rows(summaries):
        table.add_row(*(escape(cell) for cell in cells))
    console.print(table)
    for sentence in report.verdict(summaries):
        console.print(escape(sentence), highlight=False)
    if out is not None:
        console.print(escape(f"written to {out}"), highlight=False)


def _write(
    out: Path, outcomes: Sequence[Outcome], summaries: Sequence[report.Row], again: str
) -> None:
    from millstream.sim.plotting import new_figure, save  # noqa: PLC0415  (matplotlib is slow)

    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.json").write_text(_json(summaries, again) + "\n")
        _write_csv(out / "samples.csv", report.sample_rows(outcomes))
        _write_csv(out / "moves.csv", report.move_rows(outcomes))
        course = new_figure()
        report.draw_course(course, outcomes)
        save(course, out / "course.png")
        for n, outcome in enumerate(outcomes):
            hosts = new_figure()
            report.draw_hosts(hosts, outcome)
            save(hosts, out / (f"hosts-{n}.png" if n else "hosts.png"))


def _json(summaries: Sequence[report.Row], again: str) -> str:
    # NaN and infinity are no JSON: rather none than what nobody can read.
    return json.dumps({"runs": list(summaries), "reproduce": again}, indent=2, allow_nan=False)


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["name"])
        writer.writeheader()
        writer.writerows(rows)
