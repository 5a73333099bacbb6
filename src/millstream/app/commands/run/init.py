"""`millstream init`: a first job file over files that somebody has. Starts no Spark."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from millstream.app.config.first_job import Input, inputs_of, job_text, run_command
from millstream.app.config.job_file import load_job
from millstream.core.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command("init")(init)


def init(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files of rows (csv, tsv, json, ndjson, parquet, also .gz), folders or patterns.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="JOB.toml", help="The job file; else NAME.toml here.")
    ] = None,
    zone: Annotated[
        str, typer.Option(help="The zone of times that name none, e.g. Europe/Berlin; else UTC.")
    ] = "",
    time: Annotated[
        str,
        typer.Option(
            metavar="EXPRESSION",
            help="The time of a row, where none is found: \"to_timestamp(day, 'dd.MM.yyyy')\".",
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a job file.")] = False,
) -> None:
    """Look at files of rows and write a job file with a first query over each."""
    _check_zone(zone)
    inputs = inputs_of(files, zone, time)
    target = out if out is not None else Path(f"{inputs[0].name}.toml")
    if target.exists() and not force:
        raise UsageError(f"{target} exists", hint="--force replaces it, --out FILE names another")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", hint="make it first")
    command = shlex.join(["millstream", "init", *sys.argv[2:]])
    text = job_text(inputs, target, command if sys.argv[1:2] == ["init"] else "millstream init")
    target.write_text(text, encoding="utf-8")
    load_job(target)  # what we have written must be right
    for one in inputs:
        typer.echo(_told(one))
    typer.echo(f"wrote {target}; look at it, then: {run_command(target)}")


def _check_zone(zone: str) -> None:
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    try:
        if zone:
            ZoneInfo(zone)
    except (OSError, ValueError):
        raise UsageError(f"unknown zone {zone}", hint="e.g. Europe/Berlin or UTC") from None


def _told(one: Input) -> str:
    """What was found of a stream, in a few lines."""
    found = one.found
    shown = ", ".join(f"{f.name} {f.type}" for f in found.columns)
    options = "".join(f", {key} {value!r}" for key, value in found.options.items())
    lines = [
        f"{one.name}: {one.path} ({found.format}{options})",
        f"  columns  {shown}",
        f"  time     {found.time}",
    ]
    return "\n".join([*lines, *(f"  note     {note}" for note in found.notes)])
