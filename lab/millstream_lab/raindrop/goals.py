"""Experiment raindrop-goals: goals of single queries, and rate against delay, under overload.

Lines of two filters, one a query, over streams of their own; the same rows and the same scheduler
each time, only the goals differ. What a run shows of a query is the delay of its rows, those that
still wait at the end included: the run is drained.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from millstream.decide.schedule import Quality, Scheduler, ScheduleSettings, Specification
from millstream.decide.schedule.goal_text import specification_from_text
from millstream.decide.schedule.quality import TEMPLATES
from millstream.sim.arrivals import ChangingPoisson
from millstream.sim.kernel import Kernel
from millstream_lab.claims import (
    Row,
)
from millstream_lab.experiment import Progress
from millstream_lab.raindrop.operators import OperatorSpec, PlanSpec
from millstream_lab.raindrop.processor import VirtualProcessor
from millstream_lab.raindrop.runs import PLANS, START, specification

FRESH = TEMPLATES.get("fresh")
CONTENDERS = ("cost_aware", "foresight")
ROW_S = 4e-3  # work for a row, over both filters
KEPT = 0.5


def lines(queries: int, load: float, *, bursts: bool = False) -> PlanSpec:
    """So many equal queries q0, q1, ..., together of this load, on average where it bursts."""
    pattern = ChangingPoisson(1.0) if bursts else ChangingPoisson(1.0, burst_chance=0, spread=0.1)
    rate = load / queries / (ROW_S / 2 * (1 + KEPT)) / pattern.mean_rate
    operators: list[OperatorSpec] = []
    for number in range(queries):
        leaf = OperatorSpec(f"leaf{number}", (f"s{number}",), KEPT, ROW_S / 2, START)
        root = OperatorSpec(f"root{number}", (leaf.id,), 1.0, ROW_S / 2, START, query=f"q{number}")
        operators += [leaf, root]
    streams = {f"s{number}": replace(pattern, rate=rate) for number in range(queries)}
    return PlanSpec(f"{queries} lines at load {load:g}", dict(streams), tuple(operators))


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of one query's results, in seconds."""

    mean: float
    p95: float


def delays(
    plan: PlanSpec,
    quality: Quality,
    contender: str,
    seed: int,
    seconds: float,
    skipped_s: float = 10.0,
) -> dict[str, Delays]:
    """By query, over the rows that came after the start."""
    scheduler = Scheduler(settings_of(contender, seed), quality)
    processor = VirtualProcessor(Kernel(seed), plan, scheduler, seconds, count_in_flight=True)
    processor.run()
    record = processor.drain()
    found: dict[str, Delays] = {}
    for spec in plan.operators:
        if spec.query is None:
            continue
        waited = [now - times[times >= skipped_s] for now, times in record.by_root.get(spec.id, ())]
        all_rows = np.concatenate([*waited, np.zeros(0)])
        found[spec.query] = Delays(float(all_rows.mean()), float(np.quantile(all_rows, 0.95)))
    return found


def settings_of(contender: str, seed: int) -> ScheduleSettings:
    """The default selector, or the cost-aware algorithm alone, as an engine without settings."""
    if contender == "foresight":
        return ScheduleSettings(seed=seed)
    return ScheduleSettings(candidates=(contender,), selector="fixed", seed=seed)


def favouring(query: str, weight: float, goals: Specification = FRESH) -> Quality:
    return Quality(FRESH, 1.0, {query: (weight, goals)})


def fixed_priority(query: str) -> Quality:
    """So great a weight that the query always goes first."""
    return favouring(query, 1e6)


def run_goals(seed: int, quick: bool, progress: Progress) -> list[Row]:
    seconds = 40.0 if quick else 120.0
    seeds = [seed] if quick else list(range(seed, seed + 5))
    rows: list[Row] = []
    for contender in CONTENDERS:
        for each in seeds:
            progress(f"{contender}, seed {each}")
            rows += _two(contender, each, seconds)
            rows += _ten(contender, each, seconds)
            rows += _limits(contender, each, seconds)
            rows += _rate_or_delay(contender, each, int(seconds))
    return rows


def _rows(
    case: str, goals: str, contender: str, seed: int, found: Mapping[str, Delays]
) -> list[Row]:
    return [
        _row(case, goals, contender, seed, query, delay_s=each.mean, p95=each.p95)
        for query, each in found.items()
    ]


def _row(
    case: str,
    goals: str,
    contender: str,
    seed: int,
    query: str,
    *,
    delay_s: float,
    p95: float | None = None,
    rate: float | None = None,
) -> Row:
    return {
        "case": case, "goals": goals, "contender": contender, "seed": seed, "query": query,
        "delay_s": round(delay_s, 4), "delay_s_p95": None if p95 is None else round(p95, 4),
        "rate_rows_s": None if rate is None else round(rate, 4),
    }  # fmt: skip


TWO, TEN, PLAIN = "two queries near load 1", "ten queries at load 1.1", "no own goals"


def _two(contender: str, seed: int, seconds: float) -> list[Row]:
    """Two equal queries near load 1, and a weight of 1,000 on the delay of one."""
    plan = lines(2, 1.0)
    rows = _rows(TWO, PLAIN, contender, seed,
                 delays(plan, Quality(FRESH), contender, seed, seconds))  # fmt: skip
    for mine in ("q0", "q1"):
        found = delays(plan, favouring(mine, 1000.0), contender, seed, seconds)
        rows += _rows(TWO, f"weight on {mine}", contender, seed, found)
    return rows


def _ten(contender: str, seed: int, seconds: float) -> list[Row]:
    """Weight 10:1 on one of ten queries at load 1.1."""
    plan = lines(10, 1.1)
    before = delays(plan, Quality(FRESH), contender, seed, seconds)
    after = delays(plan, favouring("q0", 10.0), contender, seed, seconds)
    return [
        *_rows(TEN, PLAIN, contender, seed, before),
        *_rows(TEN, "weight on q0", contender, seed, after),
    ]


LIMIT_S = 2.0
LIMIT = specification_from_text("delay <= 2s")
FIRST, LIMITED = "q0 always first", "delay of q0 <= 2 s"
LIMITED_PLANS = ((2, 0.9), (2, 1.2), (4, 1.1), (4, 1.5), (10, 1.3))  # queries, load


def _limits(contender: str, seed: int, seconds: float) -> list[Row]:
    """A limit of 2 s on one of several queries, and that query always first."""
    rows: list[Row] = []
    for queries, load in LIMITED_PLANS:
        plan = lines(queries, load, bursts=True)
        first = delays(plan, fixed_priority("q0"), contender, seed, seconds)
        found = delays(plan, favouring("q0", 1.0, LIMIT), contender, seed, seconds)
        rows += _rows(plan.name, FIRST, contender, seed, first)
        rows += _rows(plan.name, LIMITED, contender, seed, found)
    return rows


SHARES = (0.99, 0.7, 0.3, 0.01)
OVERLOAD = 1.5  # times the arrivals of the plans of the seed: less leaves plan 2 idle at times
UNLIKE = "unlike queries"


def unlike(load: float) -> PlanSpec:
    """Queries whose rows cost twice as much and give five times as many results as the others'."""
    operators: list[OperatorSpec] = []
    kinds = [("many", 1.0, 8e-3), ("few", 0.2, 4e-3)]
    for number in range(4):
        name, kept, row_s = kinds[number % 2]
        operators.append(
            OperatorSpec(
                f"{name}{number}", (f"s{number}",), kept, row_s, START, query=f"{name}{number}"
            )
        )
    rate = load / sum(spec.row_cost_s for spec in operators) / ChangingPoisson(1.0).mean_rate
    streams = {f"s{number}": ChangingPoisson(rate) for number in range(4)}
    return PlanSpec(f"unlike queries at load {load:g}", dict(streams), tuple(operators))


def _overloaded() -> dict[str, PlanSpec]:
    """Unlike queries, and the seed's plans with more rows than they can take."""
    plans = {UNLIKE: unlike(1.3)}
    for number, plan in PLANS.items():
        streams = {
            name: ChangingPoisson(arrivals.rate * OVERLOAD)
            for name, arrivals in plan.streams.items()
            if isinstance(arrivals, ChangingPoisson)
        }
        plans[f"plan {number}"] = replace(plan, streams=dict(streams))
    return plans


def _rate_or_delay(contender: str, seed: int, seconds: int) -> list[Row]:
    """What delay and rate are given for what was asked."""
    rows: list[Row] = []
    for named, plan in _overloaded().items():
        for share in SHARES:
            goals = specification(delay=share, rate=1 - share)
            delay, rate = _given(plan, goals, contender, seed, seconds)
            rows.append(
                _row(named, f"{share:.0%} delay", contender, seed, "all", delay_s=delay, rate=rate)
            )
    return rows


def _given(
    plan: PlanSpec, goals: Specification, contender: str, seed: int, seconds: int
) -> tuple[float, float]:
    """Mean of the queries' mean delays, and results a second while rows came."""
    scheduler = Scheduler(settings_of(contender, seed), Quality(goals))
    processor = VirtualProcessor(
        Kernel(seed), plan, scheduler, float(seconds), count_in_flight=True
    )
    processor.run()
    record = processor.drain()
    delays_s = []
    delivered = 0
    for found in record.by_root.values():
        delays_s.append(float(np.concatenate([now - times for now, times in found]).mean()))
        delivered += sum(len(times) for now, times in found if now <= seconds)
    return fmean(delays_s), delivered / seconds
