"""Experiments raindrop-6.2 to raindrop-6.7 and raindrop-7.1: single algorithms against selectors.

The seed shows one run a figure. Here each figure is a few seeds; a claim is judged on their mean.
Claims about 'the adaptive framework' are judged for the seed's roulette wheel over its four
algorithms and, apart, for our default selector. What was claimed of whom is in
`raindrop/claimed.py`; here are the runs, their rows and their plots.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import process_time
from typing import Any

from millstream.decide.schedule import Specification
from millstream.decide.schedule.settings import THESIS_CANDIDATES
from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Row
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.raindrop.claimed import ADAPTIVE, CLAIMS
from millstream_lab.raindrop.runs import (
    PLANS,
    SINGLES,
    Contest,
    Run,
    Sample,
    contest,
    run_plan,
    specification,
)

UNITS = {"delay": "s", "rate": "rows/s", "memory": "rows in queues"}
SPAN_S = 10  # of a stored row
MEASURED = (*UNITS, "delay_run", "rate_run", "memory_run")
SEEDS = 5


def tidy(found: Contest, seeds: Sequence[int], plan: int, goals: str) -> list[Row]:
    """One row a contender, seed and span; the figures of the whole run beside it."""
    return [
        {
            "plan": plan,
            "goals": goals,
            "contender": contender,
            "seed": seed,
            **span,
            "delay_run": run.delay,
            "rate_run": run.rate,
            "memory_run": run.memory,
        }
        for contender, runs in found.items()
        for seed, run in zip(seeds, runs, strict=True)
        for span in spans(run)
    ]


def spans(run: Run) -> list[Row]:
    """Means of so many seconds; of delay over the rows delivered in them, if any were."""
    found: list[Row] = []
    for start in range(0, len(run.samples), SPAN_S):
        some = run.samples[start : start + SPAN_S]
        found.append(
            {
                "second": some[-1].second,
                "delay": _delay(some),
                "rate": sum(sample.rate for sample in some) / len(some),
                "memory": sum(sample.memory for sample in some) / len(some),
            }
        )
    return found


def _delay(samples: Sequence[Sample]) -> float | None:
    known = [(s.delay, s.rate) for s in samples if s.delay is not None]
    rows = sum(rate for _, rate in known)
    return sum(delay * rate for delay, rate in known) / rows if rows else None


def figure(
    plan: int, goals: Sequence[Specification], contenders: Sequence[str], seconds: int
) -> Callable[[int, bool, Progress], list[Row]]:
    """Runs of one figure: contenders under the first goals; under others the adaptive ones only."""

    def run(seed: int, quick: bool, progress: Progress) -> list[Row]:
        seeds = [seed] if quick else list(range(seed, seed + SEEDS))
        length = 40 if quick else seconds
        rows: list[Row] = []
        for number, asked in enumerate(goals):
            some = contenders if number == 0 else ADAPTIVE
            found = contest(PLANS[plan], asked, some, seeds, length, progress)
            rows += tidy(found, seeds, plan, asked.name)
        return rows

    return run


def run_6_3(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """One goal, 30 seconds: memory in panel a, delay in panel b."""
    seeds = [seed] if quick else list(range(seed, seed + 10))
    rows: list[Row] = []
    for metric in ("memory", "delay"):
        goals = specification(**{metric: 1.0})
        found = contest(PLANS[2], goals, (*SINGLES, *ADAPTIVE), seeds, 30, progress)
        rows += tidy(found, seeds, 2, goals.name)
    return rows


def run_7_1(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Adaptive ones tuned for delay and for memory, every single algorithm beside them.

    CPU time is the only clock that is read in these figures: simulation and scheduling together.
    """
    seeds = [seed] if quick else list(range(seed, seed + SEEDS))
    length = 40 if quick else 120
    rows: list[Row] = []
    for goal in ("delay", "memory"):
        goals = specification(**{goal: 1.0})
        for name in (*ADAPTIVE, *SINGLES):
            progress(f"{name} for {goal}")
            for each in seeds:
                began = process_time()
                run = run_plan(PLANS[2], name, goals, each, length)
                cpu_ms = (process_time() - began) / length * 1e3
                shares = {f"share_{a}": run.in_charge.get(a, 0.0) for a in SINGLES}
                labelled = replace(run, contender=f"{name} for {goal}")
                rows += [
                    {**row, "seconds": length, "cpu_ms_per_s": cpu_ms, **shares}
                    for row in tidy({labelled.contender: [labelled]}, [each], 2, goals.name)
                ]
    return rows


def plot_over_time(rows: Sequence[Row], target: Any) -> None:
    """A panel a metric and plan: the mean of every ten seconds over all seeds."""
    metrics = [metric for metric in UNITS if any(row[metric] is not None for row in rows)]
    plans = list(dict.fromkeys(row["plan"] for row in rows))
    target.set_size_inches(4.4 * len(plans) + 2, 2.3 * len(metrics) + 0.4)
    axes = target.subplots(len(metrics), len(plans), squeeze=False, sharex=True)
    for metric, across in zip(metrics, axes, strict=True):
        for plan, axis in zip(plans, across, strict=True):
            _plot_contenders([row for row in rows if row["plan"] == plan], metric, axis)
            axis.set_ylabel(f"{metric}, {UNITS[metric]}")
    for plan, top, bottom in zip(plans, axes[0], axes[-1], strict=True):
        if len(plans) > 1:
            top.set_title(f"plan {plan}", fontsize=8, loc="right")
        bottom.set_xlabel("seconds of virtual time\n(means of ten, over all seeds)")
    lines, labels = axes[0][0].get_legend_handles_labels()
    target.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=7)


def _plot_contenders(rows: Sequence[Row], metric: str, axis: Any) -> None:
    for contender in dict.fromkeys(str(row["contender"]) for row in rows):
        mine = [row for row in rows if row["contender"] == contender and row[metric] is not None]
        seconds, means = averaged(mine, metric)
        bold = {"linewidth": 2.2} if contender.split()[0] in ADAPTIVE else {"linewidth": 1.0}
        axis.plot(seconds, means, label=contender, **bold)


def averaged(rows: Sequence[Row], metric: str) -> tuple[list[int], list[float]]:
    """Ends of spans, and the mean of all seeds in each; delays count by the rows delivered."""
    sums: dict[int, tuple[float, float]] = {}
    for row in rows:
        weight = float(row["rate"]) if metric == "delay" else 1.0
        value, weights = sums.get(row["second"], (0.0, 0.0))
        sums[row["second"]] = (value + weight * float(row[metric]), weights + weight)
    ends = sorted(sums)
    return ends, [sums[end][0] / max(1e-9, sums[end][1]) for end in ends]


def plotter(claim: str) -> Callable[[Sequence[Row], Any], None]:
    def plot(rows: Sequence[Row], target: Any) -> None:
        plot_over_time(rows, target)
        mark_claim(target.axes[0], claim)

    return plot


ALL = (*SINGLES, *ADAPTIVE)
_70_30 = specification(delay=0.7, rate=0.3)
_30_70 = specification(delay=0.3, rate=0.7)
_FIGURES = (
    ("6.2", "four algorithms: memory and delay", "Chain, MTIQ least memory and worst delay",
     figure(2, (specification(memory=0.5, delay=0.5),), THESIS_CANDIDATES, 300)),
    ("6.3", "one goal: memory, and delay", "adaptive below all", run_6_3),
    ("6.4", "70 % delay, 30 % rate", "adaptive best in delay, average in rate",
     figure(1, (_70_30,), ALL, 300)),
    ("6.5", "30 % delay, 70 % rate", "delay still good, rate clearly up",
     figure(1, (_30_70, _70_30), ALL, 300)),
    ("6.6", "50 % delay, 50 % rate", "adaptive above single algorithms most of the run",
     figure(2, (specification(delay=0.5, rate=0.5),), ALL, 300)),
    ("6.7", "three equal goals", "adaptive better than all but the best in delay and memory",
     figure(2, (specification(delay=0.33, rate=0.34, memory=0.33),), ALL, 300)),
    ("7.1", "tuned for one goal against tuned for another", "each best on its own goal", run_7_1),
)  # fmt: skip
_MORE = ("cpu_ms_per_s", *(f"share_{name}" for name in SINGLES))
for _number, _title, _claim, _run in _FIGURES:
    EXPERIMENTS.add(
        f"raindrop-{_number}",
        Experiment(
            f"raindrop-{_number}", f"{_number}: {_title}", "raindrop", _run, plotter(_claim),
            CLAIMS[_number], (*MEASURED, *_MORE) if _number == "7.1" else MEASURED,
        ),
    )  # fmt: skip
