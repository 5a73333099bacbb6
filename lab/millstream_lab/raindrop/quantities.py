"""Quantities of the figures 6.2 to 6.7 and 7.1, and what a run shows of why a claim fails."""

from collections.abc import Callable, Sequence
from statistics import fmean

from millstream.decide.schedule.settings import THESIS_CANDIDATES
from millstream_lab.claims import (
    Bound,
    MissingError,
    Rows,
    at_least,
    change,
    chosen,
    confidence,
    numbers,
    values,
)
from millstream_lab.raindrop.runs import rank_of

LEAST = {"delay": True, "rate": False, "memory": True}
FOUR = THESIS_CANDIDATES


def of_run(rows: Rows, metric: str, contender: str, **where: object) -> float:
    """The mean over seeds of a whole run's figure."""
    return fmean(by_seed(rows, metric, contender, **where))


def by_seed(rows: Rows, metric: str, contender: str, **where: object) -> list[float]:
    mine = chosen(rows, contender=contender, **where)
    return [numbers(mine, f"{metric}_run", seed=seed)[0] for seed in values(mine, "seed")]


def ranked(metric: str, **where: object) -> Callable[[Rows], str]:
    """Every contender's figure with its interval, best first."""

    def tell(rows: Rows) -> str:
        found = {
            name: by_seed(rows, metric, name, **where)
            for name in values(chosen(rows, **where), "contender")
        }
        best = sorted(found, key=lambda name: fmean(found[name]), reverse=not LEAST[metric])
        return ", ".join(
            f"{name} {fmean(found[name]):.3g} ± {confidence(found[name]):.2g}" for name in best
        )

    return tell


def best_of(rows: Rows, metric: str, **where: object) -> float:
    choose = min if LEAST[metric] else max
    return choose(of_run(rows, metric, name, **where) for name in FOUR)


def over_best(name: str, metric: str, **where: object) -> Callable[[Rows], float]:
    """A contender's figure over that of the best of the seed's four, as a change."""
    return lambda rows: change(of_run(rows, metric, name, **where), best_of(rows, metric, **where))


def place(name: str, metric: str, **where: object) -> Callable[[Rows], float]:
    """Among the seed's four: 1 is better than all of them."""

    def count(rows: Rows) -> float:
        others = [of_run(rows, metric, other, **where) for other in FOUR if other != name]
        return float(rank_of(of_run(rows, metric, name, **where), others, least=LEAST[metric]))

    return count


def ahead(name: str, metric: str, **where: object) -> Callable[[Rows], float]:
    """Share of the spans in which a contender is better than all four."""

    def share(rows: Rows) -> float:
        known = {
            (row["contender"], row["seed"], row["second"]): row[metric]
            for row in chosen(rows, **where)
            if row[metric] is not None
        }
        wins = []
        for (contender, seed, second), mine in known.items():
            theirs = [known.get((other, seed, second)) for other in FOUR]
            rivals = [value for value in theirs if value is not None]
            if contender == name and rivals:
                wins.append(mine < min(rivals) if LEAST[metric] else mine > max(rivals))
        if not wins:
            raise MissingError(f"spans of {name}")
        return fmean(wins)

    return share


def lasting(seconds: int, seeds: int) -> tuple[Bound, ...]:
    """The seed's length, and as many seeds as make an interval."""
    return (
        at_least("seconds of a run", lambda rows: max(numbers(rows, "second")) + 1, seconds),
        at_least("seeds", lambda rows: len(values(rows, "seed")), seeds),
    )


LONG = lasting(300, 3)


def among(name: str, metric: str, **where: object) -> Callable[[Rows], str]:
    """Where a contender lies between the best and the worst single algorithm of the seed's four."""

    def tell(rows: Rows) -> str:
        found = {other: of_run(rows, metric, other, **where) for other in FOUR}
        best, worst = sorted(found, key=found.__getitem__, reverse=not LEAST[metric])[
            :: len(FOUR) - 1
        ]
        apart = abs(found[worst] - found[best])
        mine = of_run(rows, metric, name, **where)
        told = f"the four lie {apart / max(abs(found[best]), 1e-9):.1%} apart"
        if apart > 0:
            way = (mine - found[best]) / (found[worst] - found[best])
            told += f"; {name} lies {way:.0%} of the way from {best} to {worst}"
        return told

    return tell


def behind(metric: str, names: Sequence[str], *, most: bool) -> Callable[[Rows], str]:
    """Of algorithms that are said to have most or least of something, those that do not."""

    def tell(rows: Rows) -> str:
        found = {other: of_run(rows, metric, other) for other in FOUR}
        rivals = [found[other] for other in FOUR if other not in names]
        limit = max(rivals) if most else min(rivals)
        wrong = [n for n in names if (found[n] < limit if most else found[n] > limit)]
        right = [n for n in names if n not in wrong]
        told = f"not so for {', '.join(wrong)}"
        return f"{told}; it is for {', '.join(right)}" if right else told

    return tell
