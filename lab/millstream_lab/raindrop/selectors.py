"""Experiment raindrop-selectors: every weighting, both plans, many seeds, each selector's score.

Two yardsticks: the best of the seed's four algorithms, and the best of all single ones, the
cost-aware one among them, which the default selector may also choose. Two spreads in equation 5.1:
as printed (every second of every single algorithm), and strict (the algorithms' means). Two ways of
counting memory: rows in queues, as in the seed, where rows of a running step are nowhere; and with
those, as on the engine. Larger steps look better by the first than they are, hence the second.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from millstream.decide.schedule import Specification
from millstream.decide.schedule.settings import THESIS_CANDIDATES
from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Claim, Row, Rows, at_least, chosen, listed, numbers, values
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.raindrop.runs import (
    DEFAULT,
    PLANS,
    WHEEL,
    Run,
    counting_in_flight,
    run_plan,
    score,
    weightings,
)

SELECTORS = (DEFAULT, WHEEL)
TOLERANCE = 0.05
EVEN = 1e-9  # scores this close are equal, not above
YARDSTICKS = {"four": "the seed's four", "all": "all single algorithms, cost-aware included"}
# (way of counting memory, spread) and how findings call it
JUDGEMENTS = {
    ("queues", "seconds"): "spread of seconds",
    ("queues", "means"): "spread of means",
    ("in_flight", "seconds"): "spread of seconds, rows of running steps counted",
}


def run_selectors(seed: int, quick: bool, progress: Progress) -> list[Row]:
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
    return rows


def compare(number: int, seed: int, seconds: int, goals: Sequence[Specification]) -> list[Row]:
    """One plan and seed: every weighting, both selectors, both yardsticks, all judgements."""
    # The seed's four do not look at the goals: one run serves every weighting.
    four = [run_plan(PLANS[number], name, goals[0], seed, seconds) for name in THESIS_CANDIDATES]
    rows: list[Row] = []
    for weighting in goals:
        aware = _run(number, "cost_aware", weighting, seed, seconds)
        for selector in SELECTORS:
            queues = _run(number, selector, weighting, seed, seconds)
            # The default selector's steps depend on the way of counting; the wheel's do not.
            told = selector == DEFAULT
            in_flight = (
                _run(number, selector, weighting, seed, seconds, count_in_flight=True)
                if told
                else queues
            )
            runs = {"queues": queues, "in_flight": counting_in_flight(in_flight)}
            for counting, spread in JUDGEMENTS:
                singles = [*four, aware]
                if counting == "in_flight":
                    singles = [counting_in_flight(single) for single in singles]
                rows += [
                    _row(number, seed, weighting, runs[counting], yardstick, rivals,
                         counting, spread)
                    for yardstick, rivals in (("four", singles[:-1]), ("all", singles))
                ]  # fmt: skip
    return rows


def _run(
    number: int,
    name: str,
    goals: Specification,
    seed: int,
    seconds: int,
    *,
    count_in_flight: bool = False,
) -> Run:
    return run_plan(PLANS[number], name, goals, seed, seconds, count_in_flight=count_in_flight)


def _row(
    plan: int,
    seed: int,
    goals: Specification,
    run: Run,
    yardstick: str,
    singles: Sequence[Run],
    counting: str,
    spread: str,
) -> Row:
    strict = spread == "means"
    scores = {single.contender: score(single, goals, singles, strict=strict) for single in singles}
    best = max(scores, key=lambda name: scores[name])
    mine = score(run, goals, singles, strict=strict)
    return {
        "plan": plan,
        "seed": seed,
        "weighting": goals.name,
        "selector": run.contender,
        "yardstick": yardstick,
        "counting": counting,
        "spread": spread,
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


def _relatives(rows: Rows, key: tuple[str, str, str, str]) -> list[float]:
    selector, yardstick, counting, spread = key
    return numbers(
        rows, "relative", selector=selector, yardstick=yardstick, counting=counting, spread=spread
    )


def _told(rows: Rows, key: tuple[str, str, str, str]) -> str:
    mine = _relatives(rows, key)
    below = fmean(value < -TOLERANCE for value in mine)
    return f"{len(mine)} cases, mean {fmean(mine):+.1%}, more than 5 % below in {below:.0%}"


def _why(key: tuple[str, str, str, str]) -> Callable[[Rows], str]:
    """Where the cases lie that are below, and the worst of them."""
    columns = ("selector", "yardstick", "counting", "spread")

    def tell(rows: Rows) -> str:
        mine = chosen(rows, **dict(zip(columns, key, strict=True)))
        worst = min(mine, key=lambda row: row["relative"])
        shares = {
            f"plan {plan}": fmean(row["relative"] < -EVEN for row in chosen(mine, plan=plan))
            for plan in values(mine, "plan")
        }
        return (
            f"below in {listed(shares, '.0%')} of the cases; the worst is plan {worst['plan']}, "
            f"{worst['weighting']}, seed {worst['seed']}, where {worst['best_single']} scores "
            f"{worst['best_score']:.3f} and this {worst['score']:.3f}"
        )

    return tell


def _claims(key: tuple[str, str, str, str]) -> tuple[Claim, ...]:
    """Not in the seed: two for each yardstick, judgement and selector."""
    selector, yardstick, counting, spread = key
    name = f"[{selector}] {{}} the best of {YARDSTICKS[yardstick]} ({JUDGEMENTS[counting, spread]})"
    needs = (at_least("seeds", lambda rows: len(values(rows, "seed")), 20),)
    return (
        Claim(
            name.format("never more than 5 % below"),
            at_least("worst score against it", lambda rows: min(_relatives(rows, key)),
                     -TOLERANCE, 0, "+%"),
            needs,
            lambda rows: _told(rows, key),
            _why(key),
        ),
        Claim(
            name.format("in half of the cases above"),
            at_least("share of cases above it",
                     lambda rows: fmean(v > EVEN for v in _relatives(rows, key)), 0.5, 0, "%"),
            needs,
            lambda rows: _told(rows, key),
            _why(key),
        ),
    )  # fmt: skip


CLAIMS = tuple(
    claim
    for yardstick in YARDSTICKS
    for counting, spread in JUDGEMENTS
    for selector in SELECTORS
    for claim in _claims((selector, yardstick, counting, spread))
)


def plot_selectors(rows: Sequence[Row], figure: Any) -> None:
    """How far each selector's score lies from the best rival's, by weighting; a panel a yardstick.

    Points are single cases, the wide mark is their mean.
    """
    names = list(dict.fromkeys(str(row["weighting"]) for row in rows))
    figure.set_size_inches(8.4, 0.35 * len(names) + 1.8)
    axes = figure.subplots(1, len(YARDSTICKS), sharey=True)
    for axis, (yardstick, told) in zip(axes, YARDSTICKS.items(), strict=True):
        mine = [
            row
            for row in rows
            if (row["yardstick"], row["counting"], row["spread"])
            == (yardstick, "queues", "seconds")
        ]
        for offset, selector, colour in ((-0.18, DEFAULT, "C0"), (0.18, WHEEL, "C1")):
            for index, name in enumerate(names):
                values = [
                    100 * float(str(row["relative"]))
                    for row in mine
                    if row["weighting"] == name and row["selector"] == selector
                ]
                axis.scatter(values, [index + offset] * len(values), s=7, color=colour, alpha=0.4)
                axis.scatter([fmean(values)], [index + offset], s=60, color=colour, marker="|",
                             label=selector if index == 0 else None)  # fmt: skip
        axis.axvline(0, color="#444444", linewidth=0.8)
        axis.axvline(-100 * TOLERANCE, color="#444444", linewidth=0.8, linestyle=":")
        axis.set_xlabel(f"score against the best of\n{told}, %", fontsize=8)
    axes[0].set_yticks(range(len(names)), names, fontsize=7)
    axes[0].invert_yaxis()
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=2, fontsize=7)
    mark_claim(axes[0], "adaptive close to or better than the best single algorithm")


EXPERIMENTS.add(
    "raindrop-selectors",
    Experiment(
        "raindrop-selectors",
        "all weightings, both plans, 20 seeds: selectors against the best single algorithm",
        "raindrop",
        run_selectors,
        plot_selectors,
        CLAIMS,
        ("score", "best_score", "difference", "relative"),
    ),
)
