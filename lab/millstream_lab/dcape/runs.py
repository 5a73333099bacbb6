"""What the experiments of seed 000 have in common: a run of a plan, its rows, its plot.

Runs are in virtual time: the production patterns, cost models and policies on virtual processors
(lab/millstream_lab/dcape/distributed_plan.py), calibrated as docs/design/0015 says. Throughput is
what the thesis plots: results given so far. The thesis restarts an experiment in which a processor
fails; here such a run is not comparable.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from millstream.core.placement import Placement, ProcessorDescription
from millstream.decide.place.patterns import distribute
from millstream.sim.plotting import mark_claim, mark_seed
from millstream_lab.claims import (
    Bound,
    Claim,
    Row,
    Rows,
    at_least,
    at_most,
    change,
    chosen,
    numbers,
    values,
)
from millstream_lab.dcape.distributed_plan import (
    DistributedPlan,
    Environment,
    PlanRecord,
    Redistribution,
    Sample,
    VirtualPlan,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress

MINUTES = 30
QUICK_MINUTES = 5
STORED_S = 30.0  # between two stored samples
EQUAL = 0.02  # throughputs within this count as the same
PATTERN_NAMES = {
    "round_robin": "Round Robin",
    "grouping": "Grouping",
    "quality_aware": "quality-aware (ours)",
}
MEASURED = (
    "rows_out", "rows_wanted", "rows_held_max", "still_s_max", "moves_so_far", "connections_max",
    "died_at_minute",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One line of a figure."""

    label: str
    plan: VirtualPlan
    pattern: str
    processors: int
    record: PlanRecord
    factor: float = 1.0  # of the rates
    seed: int = 0
    moved: str = "never"  # or by what operators move


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
    factor: float = 1.0,
    seed: int = 0,
) -> Run:
    table = table_of(plan, pattern, count)
    driver = DistributedPlan(plan, table, names(count), environment, redistribution)
    record = driver.run(minutes * 60)
    text = label or f"{PATTERN_NAMES[pattern]}, {count} processor{'s' * (count > 1)}"
    moved = "never" if redistribution is None else redistribution.name
    return Run(text, plan, pattern, count, record, factor, seed, moved)


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
    """One row for every half minute of a run."""
    return [row for one in runs for row in _rows_of(one)]


def _rows_of(one: Run) -> Iterable[Row]:
    wanted_per_s = sum(one.plan.rates[root] for root in one.plan.graph.roots) * one.factor
    died = min(one.record.failed.values(), default=None)
    still = still_max = 0.0
    before = None
    for sample in one.record.samples:
        if before is not None and sample.at > 60:
            lasted = sample.at - before.at
            still = still + lasted if sample.rows_out <= before.rows_out else 0.0
            still_max = max(still_max, still)
        before = sample
        if sample.at % STORED_S:
            continue
        yield {
            "run": one.label,
            "plan": one.plan.name,
            "pattern": one.pattern,
            "processors": one.processors,
            "factor": one.factor,
            "seed": one.seed,
            "moved": one.moved,
            "minute": round(sample.at / 60, 4),
            "rows_out": round(sample.rows_out, 1),
            "rows_wanted": round(wanted_per_s * sample.at, 1),
            "rows_held_max": round(max(sample.rows_held.values()), 1),
            "still_s_max": still_max,
            "moves_so_far": sum(at <= sample.at for at, _ in one.record.moves),
            "connections_max": max(one.record.connections.values()),
            "died_at_minute": None if died is None else round(died / 60, 3),
            **_busiest(sample),
        }


def _busiest(sample: Sample) -> Row:
    """Of the busiest processor so far: share of the time, and of it for operators and for rows."""
    spent = max(sample.spent.values(), key=lambda each: each.busy_s)
    return {
        "busy_share": round(spent.busy_s / sample.at, 4) if sample.at else 0.0,
        "engine_share": round(spent.engine_s / spent.busy_s, 4) if spent.busy_s else 0.0,
        "transfer_share": round(spent.transfer_s / spent.busy_s, 4) if spent.busy_s else 0.0,
    }


# -- quantities of claims -------------------------------------------------------------------------


def final(rows: Rows, column: str, **where: object) -> float:
    """A column at the end of one run, or the mean over seeds of what it was at the end."""
    mine = chosen(rows, **where)
    ends = [numbers(mine, column, run=r, seed=s)[-1] for r, s in keys(mine)]
    return sum(ends) / len(ends)


def keys(rows: Rows) -> list[tuple[str, int]]:
    return list(dict.fromkeys((row["run"], row["seed"]) for row in rows))


def gain(rows: Rows, first: dict[str, object], second: dict[str, object]) -> float:
    """By how much the first run's results are more than the second's."""
    return change(final(rows, "rows_out", **first), final(rows, "rows_out", **second))


def gain_over_one(count: int) -> Callable[[Rows], float]:
    return lambda rows: gain(rows, {"processors": count}, {"processors": 1})


def deaths(**where: object) -> Bound:
    """Nothing died."""

    def count(rows: Rows) -> float:
        mine = chosen(rows, **where)
        return float(sum(_died(mine, r, s) is not None for r, s in keys(mine)))

    return at_most("processors out of memory", count, 0)


def lasting(minutes: float = MINUTES) -> Bound:
    return at_least("minutes of a run", lambda rows: max(numbers(rows, "minute")), minutes)


def _died(rows: Rows, run_label: str, seed: int) -> float | None:
    return chosen(rows, run=run_label, seed=seed)[-1]["died_at_minute"]  # type: ignore[no-any-return]


def results(rows: Rows) -> str:
    """Results of each run, and which ran out of memory."""
    parts = []
    for label in values(rows, "run"):
        mine = chosen(rows, run=label)
        ends = [numbers(mine, "rows_out", seed=s)[-1] for s in values(mine, "seed")]
        died = [d for s in values(mine, "seed") if (d := _died(rows, label, s)) is not None]
        note = f", out of memory at {min(died):.1f} min" if died else ""
        parts.append(f"{label} {sum(ends) / len(ends):,.0f}{note}")
    return "results: " + "; ".join(parts)


def kept_up(rows: Rows, **where: object) -> float:
    """Share of what would come out if nothing fell behind."""
    return final(rows, "rows_out", **where) / final(rows, "rows_wanted", **where)


def busiest(rows: Rows, **where: object) -> str:
    """Where the busiest processor's time went by the end of a run."""
    share = {name: final(rows, f"{name}_share", **where) for name in ("busy", "engine", "transfer")}
    lost = 1 - share["engine"] - share["transfer"]
    return (
        f"the busiest processor works {share['busy']:.0%} of the time: {share['engine']:.0%} of it "
        f"in operators, {share['transfer']:.0%} with sending and receiving, {lost:.0%} lost to "
        "connections and the collector"
    )


def courses(rows: Rows, column: str, **where: object) -> list[tuple[float, float]]:
    """(minute, value) of one run."""
    mine = chosen(rows, **where)
    return [(float(r["minute"]), float(r[column])) for r in mine]


def growth(course: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Per minute, between two minutes."""
    inside = [(m, v) for m, v in course if start <= m <= end]
    if len(inside) < 2:
        return float("nan")
    (first, low), (last, high) = inside[0], inside[-1]
    return (high - low) / (last - first)


def falls(counts: Sequence[int], rows: Rows) -> list[str]:
    """Where more processors give less."""
    ends = {count: final(rows, "rows_out", processors=count) for count in counts}
    return [
        f"{b} after {a} ({change(ends[b], ends[a]):+.0%})"
        for a, b in pairwise(counts)
        if change(ends[b], ends[a]) < -EQUAL
    ]


# -- plots ----------------------------------------------------------------------------------------


Marks = Callable[[Any, Rows], None]  # draws the seed's figures on an axis


def seed_gain(low: float, high: float, **base: object) -> Marks:
    """What the seed's gain would make of one of our runs, at its end."""

    def mark(axis: Any, rows: Rows) -> None:
        mine = chosen(rows, **base)
        end = max(numbers(mine, "minute"))
        for share in sorted({low, high}):
            text = f"{share:+.0%} on {mine[0]['run']}"
            mark_seed(axis, x=end, y=(1 + share) * final(mine, "rows_out"), text=text)

    return mark


def seed_minute(minute: float, text: str) -> Marks:
    return lambda axis, _: mark_seed(axis, x=minute, text=text)


def curves(
    claim: str, y: str, unit: str, marks: Marks | None = None
) -> Callable[[Sequence[Row], Any], None]:
    """A line for each run over the minutes: the mean over seeds."""

    def plot(rows: Sequence[Row], figure: Any) -> None:
        axis = figure.subplots()
        for label in dict.fromkeys(row["run"] for row in rows):
            sums: dict[float, list[float]] = {}
            for row in rows:
                if row["run"] == label:
                    sums.setdefault(row["minute"], []).append(row[y])
            axis.plot(list(sums), [sum(v) / len(v) for v in sums.values()], label=label)
        if marks is not None:
            marks(axis, rows)
        axis.set(xlabel="minutes", ylabel=unit, ylim=(0, None))
        axis.legend(fontsize=7)
        mark_claim(axis, claim)

    return plot


def add(
    name: str,
    title: str,
    run_it: Callable[[int, bool, Progress], Sequence[Row]],
    claim: str,
    claims: Iterable[Claim],
    y: str = "rows_out",
    unit: str = "results so far, rows",
    marks: Marks | None = None,
) -> None:
    """Registers an experiment whose figure is one line a run."""
    plot = curves(claim, y, unit, marks)
    EXPERIMENTS.add(name, Experiment(name, title, "dcape", run_it, plot, tuple(claims), MEASURED))
