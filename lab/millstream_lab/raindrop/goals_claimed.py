"""What goals of queries are for: the claims of raindrop-goals, and its plot.

None of them is the seed's. The runs are in `goals`.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from millstream_lab.claims import (
    Bound,
    Claim,
    MissingError,
    Row,
    Rows,
    at_least,
    at_most,
    chosen,
    mean,
    numbers,
    values,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.raindrop.goals import (
    CONTENDERS,
    FIRST,
    LIMIT_S,
    LIMITED,
    LIMITED_PLANS,
    PLAIN,
    SHARES,
    TEN,
    TWO,
    UNLIKE,
    lines,
    run_goals,
)
from millstream_lab.raindrop.runs import PLANS

LESS = 0.999  # less, and not only by rounding


def _ratios(rows: Rows, contender: str, case: str, query: str, column: str) -> list[float]:
    """What a query's figure is with a weight on it, as a share of that without, by seed."""
    return [
        mean(rows, column, case=case, goals=f"weight on {query}", contender=contender, seed=seed,
             query=query)
        / mean(rows, column, case=case, goals=PLAIN, contender=contender, seed=seed, query=query)
        for seed in values(rows, "seed")
    ]  # fmt: skip


def _others(rows: Rows, contender: str) -> float:
    """The p95 of the nine beside the favoured query, as a share of that without goals."""
    queries = [q for q in values(chosen(rows, case=TEN), "query") if q != "q0"]

    def p95(goals: str) -> float:
        where = {"case": TEN, "goals": goals, "contender": contender}
        return fmean(mean(rows, "delay_s_p95", query=q, **where) for q in queries)

    return p95("weight on q0") / p95(PLAIN)


def _met(rows: Rows, contender: str) -> float:
    """Of the cases in which a fixed priority meets the limit, the share in which goals do."""
    met = []
    for queries, load in LIMITED_PLANS:
        where = {"case": lines(queries, load).name, "contender": contender, "query": "q0"}
        first = numbers(rows, "delay_s_p95", goals=FIRST, **where)
        found = numbers(rows, "delay_s_p95", goals=LIMITED, **where)
        met += [b <= LIMIT_S for a, b in zip(first, found, strict=True) if a <= LIMIT_S]
    if not met:
        raise MissingError("a case that a fixed priority meets")
    return fmean(met)


def _asked(rows: Rows, contender: str, case: str, column: str) -> float:
    """A figure at 70 % delay as a share of that at 30 %."""
    where = {"case": case, "contender": contender}
    return mean(rows, column, goals="70% delay", **where) / mean(
        rows, column, goals="30% delay", **where
    )


def _most_apart(contender: str, case: str) -> Callable[[Rows], str]:
    """What all of the weight on one side changes: more there is not to be had."""

    def tell(rows: Rows) -> str:
        parts = []
        for column, text in (("delay_s", "delay"), ("rate_rows_s", "rate")):
            found = {
                share: mean(
                    rows, column, case=case, contender=contender, goals=f"{share:.0%} delay"
                )
                for share in SHARES
            }
            spread = max(found.values()) / max(min(found.values()), 1e-9) - 1
            parts.append(f"{text} by {spread:.2%}")
        return f"from 99:1 to 1:99 the runs differ in {' and in '.join(parts)}"

    return tell


def _claims(contender: str) -> tuple[Claim, ...]:
    needs = (at_least("seeds", lambda rows: len(values(rows, "seed")), 5),)

    def weighed(rows: Rows) -> float:
        both = [_ratios(rows, contender, TWO, q, "delay_s") for q in ("q0", "q1")]
        return max(max(ratios) for ratios in both)

    def favoured(rows: Rows) -> float:
        return max(_ratios(rows, contender, TEN, "q0", "delay_s_p95"))

    found = [
        Claim(
            f"[{contender}] two queries near load 1: a weight of 1,000 on one's delay halves it",
            at_most("its delay against that without, at worst", weighed, 0.5, 0, "%"),
            needs,
        ),
        Claim(
            f"[{contender}] load 1.1, weight 10:1 on one of ten queries: its p95 is halved",
            at_most("its p95 against that without, at worst", favoured, 0.5, 0, "%"),
            needs,
        ),
        Claim(
            f"[{contender}] load 1.1, weight 10:1 on one of ten queries: the others wait at most "
            "15 % longer",
            at_most("their p95 against that without", lambda rows: _others(rows, contender),
                    1.15, 0, "%"),
            needs,
        ),
        Claim(
            f"[{contender}] delay <= 2 s of a query (p95) is met wherever a fixed priority meets "
            "it",
            at_least("share of cases", lambda rows: _met(rows, contender), 1.0, 0, "%"),
            needs,
        ),
    ]  # fmt: skip
    for case in (UNLIKE, *(f"plan {number}" for number in PLANS)):
        found += _asked_for(contender, case, needs)
    return tuple(found)


def _asked_for(contender: str, case: str, needs: tuple[Bound, ...]) -> list[Claim]:
    return [
        Claim(
            f"[{contender}] {case}, overload: 70:30 has less delay than 30:70",
            at_most("delay at 70:30 against 30:70",
                    lambda rows: _asked(rows, contender, case, "delay_s"), LESS, 0, "%"),
            needs,
            why=_most_apart(contender, case),
        ),
        Claim(
            f"[{contender}] {case}, overload: 30:70 has more rate than 70:30",
            at_most("rate at 70:30 against 30:70",
                    lambda rows: _asked(rows, contender, case, "rate_rows_s"), LESS, 0, "%"),
            needs,
            why=_most_apart(contender, case),
        ),
    ]  # fmt: skip


def plot_goals(rows: Sequence[Row], target: Any) -> None:
    """Delay and rate that were given for each share asked for, a panel a case."""
    cases = (UNLIKE, *(f"plan {number}" for number in PLANS))
    target.set_size_inches(3.2 * len(cases), 3.4)
    axes = target.subplots(1, len(cases))
    for axis, case in zip(axes, cases, strict=True):
        for contender, mark in zip(CONTENDERS, "os", strict=True):
            mine = [r for r in rows if r["case"] == case and r["contender"] == contender]
            points = [
                (mean(mine, "delay_s", goals=g), mean(mine, "rate_rows_s", goals=g), g)
                for g in values(mine, "goals")
            ]
            axis.plot([d for d, _, _ in points], [r for _, r, _ in points], marker=mark,
                      label=contender)  # fmt: skip
            for delay, rate, text in points if contender == CONTENDERS[0] else ():
                axis.annotate(text, (delay, rate), fontsize=6)
        axis.set_title(case, fontsize=8)
        axis.set_xlabel("mean delay, s", fontsize=8)
    axes[0].set_ylabel("results a second", fontsize=8)
    axes[0].legend(fontsize=7)


EXPERIMENTS.add(
    "raindrop-goals",
    Experiment(
        "raindrop-goals",
        "goals of single queries, limits, and rate against delay, under overload",
        "raindrop",
        run_goals,
        plot_goals,
        tuple(claim for contender in CONTENDERS for claim in _claims(contender)),
        ("delay_s", "delay_s_p95", "rate_rows_s"),
    ),
)
