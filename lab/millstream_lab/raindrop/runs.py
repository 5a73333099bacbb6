"""What the experiments of seed 001 have in common: its plans, its weightings, a run, its score.

Figure 6.1's numbers are not in the text, so the two plans here are of its shape: four filters in a
line, and filters below and above a window join of 200 ms, O1 the root. Selectivities and costs are
chosen so that cheap selective work lies low in the plan, which is where Chain and FIFO part ways,
and the mean load is about 0.8 with bursts of 1.3 and more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from millstream.decide.schedule import Goal, Quality, Scheduler, ScheduleSettings, Specification
from millstream.decide.schedule.scoring import MIDDLE
from millstream.decide.schedule.selectors.exploration import Exploration
from millstream.decide.schedule.settings import THESIS_CANDIDATES
from millstream.sim.arrivals import ChangingPoisson
from millstream.sim.kernel import Kernel
from millstream_lab.raindrop.operators import OperatorSpec, PlanSpec
from millstream_lab.raindrop.processor import VirtualProcessor

MS = 4.2e-3  # the unit of the costs below, in seconds
START = 2e-4  # seconds to start a step: 'operators typically have a start-up cost' (section 4.5)

PLANS: Mapping[int, PlanSpec] = {
    1: PlanSpec(
        "plan 1",
        {"s": ChangingPoisson(rate=80)},
        (
            OperatorSpec("O1", ("O2",), 1.0, 1.6 * MS, START),
            OperatorSpec("O2", ("O3",), 0.8, 1.2 * MS, START),
            OperatorSpec("O3", ("O4",), 0.4, 0.4 * MS, START),
            OperatorSpec("O4", ("s",), 0.9, 0.8 * MS, START),
        ),
    ),
    2: PlanSpec(
        "plan 2",
        {"a": ChangingPoisson(rate=45), "b": ChangingPoisson(rate=45)},
        (
            OperatorSpec("O1", ("O2",), 1.0, 1.5 * MS, START),
            OperatorSpec("O2", ("O3",), 0.5, 1.0 * MS, START),
            OperatorSpec("O3", ("O4", "O5"), 0.04, 1.0 * MS, START, window_s=0.2),
            OperatorSpec("O4", ("b",), 0.5, 0.6 * MS, START),
            OperatorSpec("O5", ("a",), 0.9, 0.8 * MS, START),
        ),
    ),
}

# The three metrics of section 6.1: our statistic and its quantifier.
METRICS: Mapping[str, tuple[str, str]] = {
    "delay": ("delay", "minimise"),
    "rate": ("output_rate", "maximise"),
    "memory": ("queue_rows", "minimise"),
}
SINGLES = (*THESIS_CANDIDATES, "cost_aware")
WHEEL, DEFAULT = "roulette", "foresight"
START_UP_S = Exploration.seconds(len(SINGLES), 5.0, 1.0)  # left out of all figures


def specification(**weights: float) -> Specification:
    """Goals by metric.

    >>> specification(delay=0.7, rate=0.3).weights
    {'delay': 0.7, 'output_rate': 0.3}
    """
    goals = tuple(Goal(*METRICS[metric], weight) for metric, weight in weights.items() if weight)
    return Specification(goals, " ".join(f"{m} {w:.0%}" for m, w in weights.items() if w))


def weightings() -> list[Specification]:
    """100-0, 70-30, 50-50, 30-70, 0-100 over every pair of metrics, and 33-33-34."""
    found = [specification(**{metric: 1.0}) for metric in METRICS]
    names = list(METRICS)
    for position, first in enumerate(names):
        for second in names[position + 1 :]:
            found += [specification(**{first: s, second: 1 - s}) for s in (0.7, 0.5, 0.3)]
    return [*found, specification(delay=0.33, rate=0.34, memory=0.33)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One second of a run; delay is None where nothing was delivered."""

    second: int
    delay: float | None
    rate: float
    memory: float
    held: float  # memory, with the rows of running steps


@dataclass(frozen=True, slots=True)
class Run:
    """A run's figures after start-up and exploration."""

    contender: str
    samples: tuple[Sample, ...]
    delay: float  # mean over rows that arrived after start-up
    rate: float  # of such rows delivered by the end, a second
    memory: float
    held: float
    in_charge: Mapping[str, float]  # share of time by algorithm
    switches: int

    def metric(self, name: str) -> float:
        return float(getattr(self, name))


def settings_for(contender: str, seed: int) -> ScheduleSettings:
    """One algorithm for ever, the seed's wheel over its four, or the default over all."""
    if contender == WHEEL:
        return ScheduleSettings(candidates=THESIS_CANDIDATES, selector=WHEEL, seed=seed)
    if contender == DEFAULT:
        return ScheduleSettings(candidates=SINGLES, selector=DEFAULT, seed=seed)
    return ScheduleSettings(candidates=(contender,), selector="fixed", seed=seed)


def run_plan(
    plan: PlanSpec,
    contender: str,
    goals: Specification,
    seed: int,
    seconds: int,
    settings: ScheduleSettings | None = None,
    *,
    count_in_flight: bool = False,
    by_query: bool = False,
) -> Run:
    """One run in virtual time, judged after the start-up phase.

    The delay is that of all results; `by_query` the mean over the queries of each one's.
    """
    scheduler = Scheduler(settings or settings_for(contender, seed), Quality(goals))
    processor = VirtualProcessor(
        Kernel(seed), plan, scheduler, float(seconds), count_in_flight=count_in_flight
    )
    record = processor.run()
    in_charge, switches = dict(scheduler.seconds_in_charge), scheduler.switches
    skipped = int(START_UP_S)
    judged = record.seconds[skipped:seconds]
    samples = tuple(
        Sample(
            number,
            second.delay_s_total / second.rows_delivered if second.rows_delivered else None,
            second.rows_delivered,
            second.queue_row_seconds,
            second.held_row_seconds,
        )
        for number, second in enumerate(judged, start=skipped)
    )
    processor.drain()
    delay, rate = _delay_and_rate(record.deliveries, float(skipped), float(seconds))
    if by_query:
        each = (_delay_and_rate(d, float(skipped), float(seconds)) for d in record.by_root.values())
        delay = fmean(found for found, _ in each) if record.by_root else 0.0
    total = sum(in_charge.values()) or 1.0
    return Run(
        contender,
        samples,
        delay,
        rate,
        fmean(sample.memory for sample in samples),
        fmean(sample.held for sample in samples),
        {name: spent / total for name, spent in in_charge.items()},
        switches,
    )


def counting_in_flight(run: Run) -> Run:
    """The run judged with the rows of running steps counted as memory.

    With one slot nothing runs when an operator is chosen, so that an algorithm that does not look
    at the way of counting decides the same under both.
    """
    samples = tuple(replace(sample, memory=sample.held) for sample in run.samples)
    return replace(run, samples=samples, memory=run.held)


def _delay_and_rate(
    deliveries: Sequence[tuple[float, NDArray[np.float64]]], start: float, end: float
) -> tuple[float, float]:
    """Over rows that arrived after start-up.

    Delay counts them all, also those that were still waiting at the end: the run is drained. So an
    algorithm gains nothing by leaving old rows behind. Rate counts those delivered by the end, so
    that a backlog from before start-up is not to an algorithm's credit.
    """
    rows = delivered = 0
    waited = 0.0
    for now, arrived in deliveries:
        mine = arrived[arrived >= start]
        rows += len(mine)
        waited += float((now - mine).sum())
        if now <= end:
            delivered += len(mine)
    return waited / max(1, rows), delivered / (end - start)


def score(run: Run, goals: Specification, yardstick: Sequence[Run], *, strict: bool) -> float:
    """Equations 5.1 and 5.2 for a whole run, against the runs of single algorithms.

    Equation 5.1 as printed, without the clamp: two runs beyond the end of the scale would score
    alike, and who is better than every single algorithm no more than the best of them.

    As in the seed, the history is every second of every single algorithm. `strict` takes the spread
    of the algorithms' means instead: the best single algorithm then scores 1 on a lone goal and the
    worst 0, so that small differences count fully.
    """
    total = 0.0
    for goal in goals.goals:
        metric = next(
            name for name, (statistic, _) in METRICS.items() if statistic == goal.statistic
        )
        means = [other.metric(metric) for other in yardstick]
        if strict:
            least, greatest = min(means), max(means)
            middle = (least + greatest) / 2
        else:
            values = list(_values(metric, yardstick))
            least, greatest, middle = min(values), max(values), fmean(means)
        spread = greatest - least
        z = (run.metric(metric) - middle) / spread + MIDDLE if spread > 0 else MIDDLE
        total += goal.weight * (1 - z if goal.minimised else z)
    return total


def _values(metric: str, runs: Sequence[Run]) -> Iterable[float]:
    for run in runs:
        for sample in run.samples:
            value = getattr(sample, metric)
            if value is not None:
                yield value


def mean_of(runs: Sequence[Run], metric: str) -> float:
    return fmean(run.metric(metric) for run in runs)


def rank_of(value: float, others: Sequence[float], *, least: bool) -> int:
    """1 for the best."""
    return 1 + sum((other < value) if least else (other > value) for other in others)


Contest = dict[str, list[Run]]


def contest(
    plan: PlanSpec,
    goals: Specification,
    contenders: Sequence[str],
    seeds: Sequence[int],
    seconds: int,
    progress: Callable[[str], None],
) -> Contest:
    """Every contender under every seed."""
    found: Contest = {}
    for contender in contenders:
        progress(f"{plan.name}, {goals.name}: {contender}")
        found[contender] = [run_plan(plan, contender, goals, seed, seconds) for seed in seeds]
    return found
