"""`millstream demo`: what `make run` runs."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from millstream import demo as example
from millstream.commands.run import guarded
from millstream.config import load_job
from millstream.runs.display import display_for
from millstream.runs.job_run import RunSettings, run_job
from millstream.runs.summary import exit_code, print_summary


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for results.")] = Path("out/demo"),
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
) -> None:
    """Watch a dozen continuous queries over real data being answered on Spark."""
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
        with guarded(folder, display) as poll:
            summary = run_job(
                job,
                folder,
                RunSettings(example.FORMAT, master),
                display,
                poll=poll,
                preview=preview,
            )
    console.print()
    print_summary(summary, console)
    console.print()
    console.print(example.what_next(path, out), highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(exit_code(summary))
