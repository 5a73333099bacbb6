"""Experiment raindrop-selectors: every weighting, both plans, many seeds, each selector's score.

Two yardsticks: the best of the seed's four algorithms, and the best of those and the cost-aware
one, which the default selector may also choose. Two spreads in equation 5.1: as printed (every
second of every single algorithm), and strict (the algorithms' means).
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from millstream.lab.experiment import EXPERIMENTS, Experiment, Finding, Outcome, Progress, Row
from millstream.lab.plotting import mark_claim
from millstream.lab.raindrop_runs import (
    DEFAULT,
    PLANS,
    WHEEL,
    Run,
    run_plan,
    score,
    weightings,
)
from millstream.schedule import Specification
from millstream.schedule.settings import THESIS_CANDIDATES

SELECTORS = (DEFAULT, WHEEL)
TOLERANCE = 0.05
EVEN = 1e-9  # scores this close are equal, not above


def run_selectors(seed: int, quick: bool, progress: Progress) -> Outcome:
    seeds = [seed] if quick else list(range(seed, seed + 20))
    seconds = 30 if quick else 45
    goals = weightings()
    if quick:
        goals = [goals[0], goals[2], goals[-1]]
    rows: list[Row] = []
    for number in PLANS:
        for each in seeds:
            progress(f"plan {number}, seed {each}")
            rows += compare(number, each, seconds, goals)
    return Outcome(rows, findings(rows))


def compare(number: int, seed: int, seconds: int, goals: Sequence[Specification]) -> list[Row]:
    """One plan and seed: every weighting, both selectors, both yardsticks, both spreads."""
    plan = PLANS[number]
    # The seed's four do not look at the goals: one run serves every weighting.
    four = [run_plan(plan, name, goals[0], seed, seconds) for name in THESIS_CANDIDATES]
    rows: list[Row] = []
    same: dict[str, Run] = {}
    for weighting in goals:
        aware = _run(number, "cost_aware", weighting, seed, seconds, same)
        for selector in SELECTORS:
            run = _run(number, selector, weighting, seed, seconds, same)
            for yardstick, singles in (("four", four), ("all", [*four, aware])):
                rows += [
                    _row(number, seed, weighting, run, yardstick, singles, strict)
                    for strict in (False, True)
                ]
    return rows


def _run(
    number: int, name: str, goals: Specification, seed: int, seconds: int, same: dict[str, Run]
) -> Run:
    """A run; without a memory goal holding costs differ by a factor only, so one run serves all."""
    by_costs = name in (DEFAULT, "cost_aware") and "queue_rows" not in goals.weights
    if not by_costs:
        return run_plan(PLANS[number], name, goals, seed, seconds)
    if name not in same:
        same[name] = run_plan(PLANS[number], name, goals, seed, seconds)
    return same[name]


def _row(
    plan: int,
    seed: int,
    goals: Specification,
    run: Run,
    yardstick: str,
    singles: Sequence[Run],
    strict: bool,
) -> Row:
    scores = {single.contender: score(single, goals, singles, strict=strict) for single in singles}
    best = max(scores, key=lambda name: scores[name])
    mine = score(run, goals, singles, strict=strict)
    return {
        "plan": plan,
        "seed": seed,
        "weighting": goals.name,
        "selector": run.contender,
        "yardstick": yardstick,
        "spread": "means" if strict else "seconds",
        "score": round(mine, 6),
        "best_single": best,
        "best_score": round(scores[best], 6),
        "difference": round(mine - scores[best], 6),
        "relative": round(mine / scores[best] - 1, 6) if scores[best] else 0.0,
        "delay_s": round(run.delay, 6),
        "rate_rows_s": round(run.rate, 6),
        "memory_rows": round(run.memory, 6),
        "switches": run.switches,
    }


def findings(rows: Sequence[Row]) -> list[Finding]:
    found: list[Finding] = []
    for yardstick, told in (("four", "the seed's four"), ("all", "those and cost-aware")):
        for spread in ("seconds", "means"):
            for selector in SELECTORS:
                mine = [
                    float(str(row["relative"]))
                    for row in rows
                    if (row["selector"], row["yardstick"], row["spread"])
                    == (selector, yardstick, spread)
                ]
                above = fmean(value > EVEN for value in mine)
                found.append(
                    Finding(
                        f"[{selector}] never more than 5 % below the best of {told}, above it in "
                        f"half of the cases (spread of {spread})",
                        f"{len(mine)} cases: worst {min(mine):+.1%}, mean {fmean(mine):+.1%}, "
                        f"above in {above:.0%}, more than 5 % below in "
                        f"{fmean(value < -TOLERANCE for value in mine):.0%}",
                        min(mine) >= -TOLERANCE and above >= 0.5,
                    )
                )
    return found


def plot_selectors(rows: Sequence[Row], figure: Any) -> None:
    """How far each selector's score lies from the best of the four, by weighting."""
    mine = [row for row in rows if row["yardstick"] == "four" and row["spread"] == "seconds"]
    names = list(dict.fromkeys(str(row["weighting"]) for row in mine))
    figure.set_size_inches(6.4, 0.35 * len(names) + 1.4)
    axis = figure.subplots()
    for offset, selector in ((-0.18, DEFAULT), (0.18, WHEEL)):
        for index, name in enumerate(names):
            values = [
                100 * float(str(row["relative"]))
                for row in mine
                if row["weighting"] == name and row["selector"] == selector
            ]
            colour = "C0" if selector == DEFAULT else "C1"
            axis.scatter(values, [index + offset] * len(values), s=7, color=colour, alpha=0.5)
            axis.scatter([fmean(values)], [index + offset], s=34, color=colour, marker="|",
                         label=selector if index == 0 else None)  # fmt: skip
    axis.axvline(0, color="#444444", linewidth=0.8)
    axis.axvline(-5, color="#444444", linewidth=0.8, linestyle=":")
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("score against the best of the seed's four algorithms, %")
    axis.legend(fontsize=7)
    mark_claim(axis, "adaptive close to or better than the best single algorithm")


EXPERIMENTS.add(
    "raindrop-selectors",
    Experiment(
        "raindrop-selectors",
        "all weightings, both plans, 20 seeds: selectors against the best single algorithm",
        "raindrop",
        run_selectors,
        plot_selectors,
    ),
)
