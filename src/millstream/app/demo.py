"""The demo behind `make run`: thirty overlapping queries over real data, watched at work.

Runs `examples/demo.toml` of the repository, shows some rows of every result when they appear, and
says what to try next. It differs from `millstream run` only in what it prints.
"""

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from millstream.app.config import Job, load_job
from millstream.app.runs.display import Display
from millstream.app.runs.folder import STATE, RunFolder
from millstream.core.errors import StateError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = Path(__file__).parents[3] / "examples"
JOB = "demo.toml"
FORMAT = "parquet"
ROWS_EACH = 2  # rows shown of a batch
BATCHES_EACH = 1  # batches shown of a query
COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red")


def job_path() -> Path:
    """The demo's job file, in the repository that this package runs from, or here."""
    for folder in (EXAMPLES, Path.cwd() / "examples"):
        if (folder / JOB).is_file():
            return folder / JOB
    raise UsageError(
        f"{JOB} is not there: the demo runs from a clone of the repository",
        hint="change into the clone, or run a job of your own: millstream run JOB.toml --out DIR",
    )


def demo_folder(path: Path, job: Job) -> RunFolder:
    """The demo's output folder: an unfinished demo goes on, a finished one makes room.

    Anything else in the folder stays and is refused.
    """
    if (path / STATE / "job.json").is_file():
        if not _goes_on(path, job):
            shutil.rmtree(path)
    elif path.exists() and any(p for p in path.iterdir() if p.name != STATE):
        raise UsageError(
            f"{path} holds something else than a demo", hint="choose another --out folder"
        )
    return RunFolder(path)


def _goes_on(path: Path, job: Job) -> bool:
    with RunFolder(path) as folder:  # refused while another run holds it
        try:
            folder.claim(job, FORMAT)
            return folder.finished(job) is None
        except StateError:
            return False


class Preview:
    """Prints the first rows of the first batches of each query."""

    def __init__(self, display: Display, console: Console) -> None:
        self._display, self._console = display, console
        self._shown: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, query: str, table: "pa.Table") -> None:
        with self._lock:
            batches = self._shown.get(query, 0)
            colour = COLOURS[list(self._shown).index(query) % len(COLOURS)] if batches else None
            self._shown[query] = batches + 1
            colour = colour or COLOURS[(len(self._shown) - 1) % len(COLOURS)]
            if batches >= BATCHES_EACH:
                return
            for row in table.slice(0, ROWS_EACH).to_pylist():
                self._console.print(
                    Text.assemble((f"{query:<20}", colour), row_text(row)), overflow="ellipsis",
                    no_wrap=True,
                )  # fmt: skip
            more = table.num_rows - ROWS_EACH
            if more > 0:
                rows = "row" if more == 1 else "rows"
                self._console.print(Text(f"{'':<20}... and {more:,} {rows} more", "dim"))


def row_text(row: dict[str, Any]) -> str:
    """A row for people: the time first, then its columns."""
    values = {k: v for k, v in row.items() if k not in ("ts", "op")}
    cells = "  ".join(f"{k}={_cell(v)}" for k, v in values.items())
    op = f"{row['op']} " if "op" in row else ""
    moment = row["ts"].strftime("%Y-%m-%d %H:%M:%S") if row.get("ts") is not None else ""
    return f"{moment}  {op}{cells}"


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def introduction(path: Path) -> str:
    job = load_job(path)
    return (
        f"{len(job.queries)} continuous queries over {len(job.streams)} streams of real data: web "
        f"requests, road sensors, trades and quotes.\nThe queries stand in {_shown(path)}; "
        "what they have in common runs once."
    )


def what_next(path: Path, out: Path) -> str:
    job, folder = _shown(path), _shown(out)
    return f"""\
Next step: ask something of a file of your own
  .venv/bin/millstream init YOUR.csv     looks at it and writes a job with a first query
  .venv/bin/millstream run YOUR.toml --out out/yours --ui

What else to try
  who shared what        .venv/bin/millstream report {folder} ; open {folder}/report.html
  watch it in a browser  .venv/bin/millstream demo --stay (the graph shows ×n where n queries share)
  without sharing        put sharing = "none" below [engine] in {job} and run it again
  see the results        ls {folder} ; .venv/bin/python -c \
"import pandas; print(pandas.read_parquet('{folder}/jams'))"
  what a query means     .venv/bin/millstream explain {job} jams
  change a query         edit {job}, then
                         .venv/bin/millstream run {job} --out out/mine --format csv
  stop and go on         press Ctrl-C while that runs (or kill -9 it), then run it again
  read on                docs/tutorial.md"""


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
