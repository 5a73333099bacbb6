"""What an experiment is: a name, the seed's claim, a run that gives tidy rows, a plot.

Every experiment of the five works is one `Experiment` in `EXPERIMENTS`. `run` is deterministic
given the seed where it runs in virtual time. Rows are tidy: one observation a row, the same keys
in every row. Findings set the seed's claim beside what was measured.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.core.registry import Registry

Row = Mapping[str, object]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim of the seed beside our figure."""

    claim: str  # what the seed says
    measured: str  # what came out here, with figures
    holds: bool
    reason: str = ""  # why, where it does not hold


@dataclass(frozen=True, slots=True)
class Outcome:
    rows: Sequence[Row]
    findings: Sequence[Finding] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Experiment:
    name: str  # as in `millstream lab run NAME`
    title: str  # one line for `millstream lab list`
    seed_work: str  # "dcape", "raindrop", "placement", "network" or "sqpr"
    run: Callable[[int, bool, Progress], Outcome]  # (seed, quick, progress)
    plot: Callable[[Sequence[Row], Any], None]  # (rows, a matplotlib Figure)


EXPERIMENTS: Registry[Experiment] = Registry("experiment")


def write_csv(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
