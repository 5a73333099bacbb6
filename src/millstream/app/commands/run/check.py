"""`millstream check`: reads all that a home holds and says what is damaged. Changes nothing.

Exit codes: 0 all is as it was written; 2 a mistake, or no home; 5 something is damaged.
"""

import json
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from millstream.core.errors import DamageError

TELL_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    app.command("check")(check)


def check(
    home: Annotated[
        Path,
        typer.Argument(
            help="The --home of a processor or a manager, or the --out folder of a run."
        ),
    ],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every digest of a home: ledger, segments, delivered files; it may be in use."""
    from millstream.store.integrity.scrub import scrub  # noqa: PLC0415

    report = scrub(home, _progress())
    if json_output:
        typer.echo(json.dumps({"ok": not report.findings} | asdict(report)))
    else:
        typer.echo(
            f"{report.kind} {report.ledger}; {report.segments:,} files of segments and "
            f"{report.delivered:,} delivered files read; {len(report.findings):,} damaged"
        )
        if report.unchecked:
            typer.echo(f"{report.unchecked:,} files have no digest yet: they get one when the "
                       "home is opened next")  # fmt: skip
        if report.set_aside:
            typer.echo(f"{report.set_aside:,} files are set aside in {report.home}/set-aside")
        for one in report.mended:
            at = datetime.fromtimestamp(one.at_s, UTC).isoformat(" ", "seconds")
            typer.echo(f"segments/{one.file} of stream {one.stream} was damaged and was fetched "
                       f"anew from {one.source} at {at}")  # fmt: skip
        for finding in report.findings:
            typer.echo(f"{finding.file}\n  {finding.problem}\n  hint: {finding.remedy}")
    if report.findings:
        raise typer.Exit(DamageError.exit_code)


class _progress:  # noqa: N801  (made once, then called)
    """Says how far it is, once a second, where somebody looks."""

    def __init__(self) -> None:
        self._next = time.monotonic() + TELL_SECONDS

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next and sys.stderr.isatty():
            self._next = time.monotonic() + TELL_SECONDS
            typer.echo(f"{done:,} of {total:,} files", err=True)
