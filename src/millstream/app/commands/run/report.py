"""`millstream report`: a finished run as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from millstream.app.runs.folder import RunFolder
from millstream.app.runs.statistics_export import kept_statistics
from millstream.core.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    run: Annotated[
        Path, typer.Argument(metavar="DIR", help="The output folder of a finished run.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The HTML file; else DIR/report.html.")
    ] = None,
) -> None:
    """Write what a finished run did as one HTML file that needs nothing else."""
    from millstream.app.runs.report_page import report_page  # noqa: PLC0415  (brings Arrow)

    folder = RunFolder(run)
    target = out if out is not None else run / "report.html"
    page = report_page(folder.path.name, folder.summary(), kept_statistics(folder.home), run)
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {(error.strerror or '').lower()}") from None
    typer.echo(f"wrote {target}")
