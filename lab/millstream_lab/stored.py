"""Runs as files: a CSV whose first lines say which run gave it.

`# command: ...`, `# commit: ...`, then tidy rows. What is judged and drawn is always what the file
says, read back: a verdict never rests on something that was not stored.
"""

import csv
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from millstream.core.errors import UsageError
from millstream_lab.claims import Row

DIGITS = 6  # of a stored number


CODE = (":/src", ":/lab/millstream_lab")


@dataclass(frozen=True, slots=True)
class Origin:
    """Which run gave the rows."""

    command: str
    commit: str
    seed: int
    size: str  # "full", or "small" for a quick run
    cpu_s: float


def cpu_s() -> float:
    """Seconds of CPU time so far, those of child processes that have ended among them."""
    return sum(os.times()[:4])


def origin_of(name: str, seed: int, quick: bool, cpu_s: float) -> Origin:
    words = ["millstream lab run", name, "--out DIR", f"--seed {seed}", *(["--quick"] * quick)]
    size = "small" if quick else "full"
    return Origin(" ".join(words), commit(), seed, size, round(cpu_s, 1))


def commit() -> str:
    """Of the checkout that this package lies in; with '-dirty' if a file of its code was changed.

    Stored runs and the pages made of them change while an experiment follows the other.
    """
    try:
        name = _git("describe", "--always", "--abbrev=10", "--exclude=*")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}-dirty" if changed else name


def _git(*words: str) -> str:
    here = Path(__file__).parent
    command = ["git", *words]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write_csv(rows: Sequence[Row], path: Path, origin: Origin | None = None) -> None:
    with path.open("w", newline="") as file:
        if origin is not None:
            file.writelines(f"# {key}: {value}\n" for key, value in asdict(origin).items())
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _rounded(value) for key, value in row.items()} for row in rows)


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        lines = [line for line in file if not line.startswith("# ")]
    return [{k: parsed(v) for k, v in row.items()} for row in csv.DictReader(lines)]


def read_origin(path: Path) -> Origin:
    with path.open() as file:
        told = dict(line[2:].rstrip("\n").split(": ", 1) for line in file if line.startswith("# "))
    missing = [field.name for field in fields(Origin) if field.name not in told]
    if missing:
        raise UsageError(
            f"{path} does not say which run gave it",
            detail=f"its first lines lack {', '.join(missing)}",
            hint="`millstream lab run` writes them",
        )
    return Origin(
        told["command"], told["commit"], int(told["seed"]), told["size"], float(told["cpu_s"])
    )


def as_stored(rows: Sequence[Row]) -> list[Row]:
    """The rows as a file of them would be read back."""
    return [
        {k: parsed("" if v is None else str(_rounded(v))) for k, v in row.items()} for row in rows
    ]


def parsed(text: str) -> Any:
    """A number, a truth value, nothing, or the text itself."""
    if text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if abs(value) < 10**DIGITS else round(value, 1)
    return value
