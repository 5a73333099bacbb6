"""`millstream demo`: what `make run` runs."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from millstream.app import demo as example
from millstream.app.commands.run.run import dashboard_of, guarded
from millstream.app.config import load_job
from millstream.app.runs.display import display_for
from millstream.app.runs.job_run import RunSettings, run_job
from millstream.app.runs.summary import exit_code, print_summary


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for results.")] = Path("out/demo"),
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    ui: Annotated[bool, typer.Option(help="Serve the dashboard while the demo runs.")] = True,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep the dashboard after the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Watch thirty overlapping queries over real data being answered by one dataflow on Spark."""
    # a run of a minute ends before Java's optimising compiler has earned what it costs
    os.environ.setdefault("MILLSTREAM_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    path = example.job_path()
    job = load_job(path)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(example.introduction(path), highlight=False)
    with example.demo_folder(out, job) as folder:
        folder.claim(job, example.FORMAT)
        display = display_for(console, quiet=False)
        preview = example.Preview(display, console)
        with dashboard_of("demo", ui or stay, None, display, quiet=False) as dashboard:
            watch = dashboard.watch if dashboard is not None else None
            settings = RunSettings(example.FORMAT, master, watch=watch)
            with guarded(folder, display) as poll:
                summary = run_job(job, folder, settings, display, poll=poll, preview=preview)
            _tell_end(console, summary, path, out)
            if dashboard is not None and stay:
                dashboard.stay()
    raise typer.Exit(exit_code(summary))


def _tell_end(console: Console, summary: dict[str, Any], path: Path, out: Path) -> None:
    console.print()
    print_summary(summary, console)
    console.print()
    console.print(example.what_next(path, out), highlight=False, markup=False, soft_wrap=True)
