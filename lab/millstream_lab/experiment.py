"""What an experiment is: a name, a run that gives tidy rows, a plot, and the seed's claims.

Every experiment of the five works is one `Experiment` in `EXPERIMENTS`. `run` is deterministic
given the seed where it runs in virtual time. Rows are tidy: one observation a row, the same keys
in every row. Claims are judged from the rows alone, so that a stored file gives the same verdicts
as the run that wrote it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.core.registry import Registry
from millstream_lab.claims import Claim, Finding, Row, judged

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Experiment:
    name: str  # as in `millstream lab run NAME`
    title: str  # one line for `millstream lab list`
    seed_work: str  # "dcape", "raindrop", "placement", "network" or "sqpr"
    run: Callable[[int, bool, Progress], Sequence[Row]]  # (seed, quick, progress)
    plot: Callable[[Sequence[Row], Any], None]  # (rows, a matplotlib Figure)
    claims: tuple[Claim, ...]
    measured: tuple[str, ...]  # columns that a run gives; the others say what was run
    real: bool = False  # starts processes, or Spark

    def findings(self, rows: Sequence[Row]) -> list[Finding]:
        return [judged(claim, rows) for claim in self.claims]


EXPERIMENTS: Registry[Experiment] = Registry("experiment")
