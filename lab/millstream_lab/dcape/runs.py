"""What the experiments of seed 000 have in common: a run of a plan, its rows, its plot.

Runs are in virtual time: the production patterns, cost models and policies on virtual processors
(lab/millstream_lab/dcape/distributed_plan.py), calibrated as docs/design/0015 says. Throughput is
what the thesis plots: results given so far.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.core.placement import Placement, ProcessorDescription
from millstream.decide.place.patterns import distribute
from millstream.sim.plotting import mark_claim
from millstream_lab.dcape.distributed_plan import (
    DistributedPlan,
    Environment,
    PlanRecord,
    Redistribution,
    VirtualPlan,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment, Outcome, Progress, Row

MINUTES = 30
QUICK_MINUTES = 5
PATTERN_NAMES = {
    "round_robin": "Round Robin",
    "grouping": "Grouping",
    "quality_aware": "quality-aware (ours)",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One line of a figure."""

    label: str
    plan: VirtualPlan
    pattern: str
    processors: int
    table: Placement
    record: PlanRecord

    @property
    def rows_out(self) -> float:
        return self.record.rows_out

    @property
    def rows_wanted(self) -> float:
        """Results if everything kept up, from the first second on."""
        end = self.record.samples[-1].at
        return end * sum(self.plan.rates[root] for root in self.plan.graph.roots)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"p{number + 1}" for number in range(count))


def table_of(plan: VirtualPlan, pattern: str, count: int) -> Placement:
    return distribute(plan.graph, [ProcessorDescription(n) for n in names(count)], pattern)


def run(
    plan: VirtualPlan,
    pattern: str,
    count: int,
    minutes: float,
    *,
    label: str = "",
    environment: Environment | None = None,
    redistribution: Redistribution | None = None,
) -> Run:
    table = table_of(plan, pattern, count)
    driver = DistributedPlan(plan, table, names(count), environment, redistribution)
    record = driver.run(minutes * 60)
    text = label or f"{PATTERN_NAMES[pattern]}, {count} processor{'s' * (count > 1)}"
    return Run(text, plan, pattern, count, table, record)


def minutes_of(quick: bool) -> int:
    return QUICK_MINUTES if quick else MINUTES


def runs_over(
    plan: VirtualPlan, pattern: str, counts: Iterable[int], quick: bool, progress: Progress
) -> list[Run]:
    """A plan under one pattern on several numbers of processors."""
    found = []
    for count in counts:
        progress(f"{plan.name}, {PATTERN_NAMES[pattern]} on {count}")
        found.append(run(plan, pattern, count, minutes_of(quick)))
    return found


def tidy(runs: Iterable[Run]) -> list[Row]:
    """One row a sample."""
    return [
        {
            "run": one.label,
            "plan": one.plan.name,
            "pattern": one.pattern,
            "processors": one.processors,
            "minute": round(sample.at / 60, 4),
            "rows_out": round(sample.rows_out, 1),
            "rows_held_max": round(max(sample.rows_held.values()), 1),
            "moves_so_far": sum(at <= sample.at for at, _ in one.record.moves),
            "connections_max": max(one.record.connections.values()),
        }
        for one in runs
        for sample in one.record.samples
    ]


def gain(first: Run, second: Run) -> float:
    """By how much the first gave more than the second."""
    return first.rows_out / max(second.rows_out, 1e-9) - 1


def told(runs: Sequence[Run]) -> str:
    """Results of each run, and which ran out of memory."""
    parts = []
    for one in runs:
        failed = "".join(
            f", {name} out of memory at {at / 60:.1f} min"
            for name, at in sorted(one.record.failed.items())
        )
        parts.append(f"{one.label} {one.rows_out:,.0f}{failed}")
    return "; ".join(parts)


Value = Callable[[Row], float]


def curves(claim: str, y: str, unit: str) -> Callable[[Sequence[Row], Any], None]:
    """A line for each run over the minutes."""

    def plot(rows: Sequence[Row], figure: Any) -> None:
        axis = figure.subplots()
        for label in dict.fromkeys(row["run"] for row in rows):
            mine = [row for row in rows if row["run"] == label]
            axis.plot([row["minute"] for row in mine], [row[y] for row in mine], label=label)
        axis.set(xlabel="minutes", ylabel=unit, ylim=(0, None))
        axis.legend(fontsize=7)
        mark_claim(axis, claim)

    return plot


def add(
    name: str,
    title: str,
    run_it: Callable[[int, bool, Progress], Outcome],
    claim: str,
    y: str = "rows_out",
    unit: str = "results so far, rows",
) -> None:
    """Registers an experiment whose figure is one line a run."""
    EXPERIMENTS.add(name, Experiment(name, title, "dcape", run_it, curves(claim, y, unit)))
