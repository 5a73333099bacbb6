"""What seed 001 claims of its figures 6.2 to 6.7 and of section 7.1, over their rows.

Claims about 'the adaptive framework' come twice: for the roulette wheel and for our default
selector. The seed gives no figures for 'slightly', 'about average' and 'most of execution'; the
ranges here are ours and stand beside every verdict.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, median

from millstream_lab.claims import (
    Bound,
    Claim,
    Rows,
    about,
    at_least,
    at_most,
    change,
    chosen,
    listed,
    mean,
    values,
)
from millstream_lab.raindrop.quantities import (
    FOUR,
    LONG,
    ahead,
    among,
    behind,
    best_of,
    lasting,
    of_run,
    over_best,
    place,
    ranked,
)
from millstream_lab.raindrop.runs import DEFAULT, SINGLES, WHEEL

ADAPTIVE = (WHEEL, DEFAULT)
WEIGHTS = {"6.4": "delay 70% rate 30%", "6.5": "delay 30% rate 70%"}


def each(make: Callable[[str], Claim]) -> tuple[Claim, ...]:
    return tuple(make(name) for name in ADAPTIVE)


def _waits(name: str, metric: str, **where: object) -> Callable[[Rows], str]:
    """How the queues went, which is what a lower rate and a longer delay come from."""

    def tell(rows: Rows) -> str:
        mine = chosen(rows, contender=name, **where)
        ends = values(mine, "second")
        first, last = (mean(mine, "memory", second=end) for end in (ends[0], ends[-1]))
        best = best_of(rows, metric, **where)
        singles = [of_run(rows, metric, other, **where) for other in FOUR]
        spread = (max(singles) - min(singles)) / max(abs(best), 1e-9)
        told = f"rows in queues {first:.0f} at first, {last:.0f} at the end"
        if metric == "rate" and spread < 0.02:
            told += f"; the four single algorithms differ by {spread:.1%} in rate only"
        else:
            told += f"; {among(name, metric, **where)(rows)}"
        return told

    return tell


CLAIMS_6_2 = (
    Claim(
        "Chain and MTIQ keep least in memory",
        at_most(
            "the larger of their memories over the least of the others",
            lambda rows: (
                max(of_run(rows, "memory", n) for n in ("chain", "mtiq"))
                / min(of_run(rows, "memory", n) for n in ("fifo", "round_robin"))
            ),
            1.0,
        ),
        LONG,
        ranked("memory"),
        behind("memory", ("chain", "mtiq"), most=False),
    ),
    Claim(
        "Chain and MTIQ have the worst delay by the end",
        at_least(
            "the lesser of their delays over the worst of the others",
            lambda rows: (
                min(of_run(rows, "delay", n) for n in ("chain", "mtiq"))
                / max(of_run(rows, "delay", n) for n in ("fifo", "round_robin"))
            ),
            1.0,
        ),
        LONG,
        ranked("delay"),
        behind("delay", ("chain", "mtiq"), most=True),
    ),
    Claim(
        "FIFO does quite well in delay",
        at_most("FIFO's place of four", place("fifo", "delay"), 2),
        LONG,
        ranked("delay"),
    ),
)
_MEMORY, _DELAY = {"goals": "memory 100%"}, {"goals": "delay 100%"}
CLAIMS_6_3 = (
    *each(
        lambda name: Claim(
            f"at many times the framework keeps less in memory than every single one [{name}]",
            at_least("share of spans", ahead(name, "memory", **_MEMORY), 1 / 3, 0, "%"),
            lasting(30, 10),
            ranked("memory", **_MEMORY),
            among(name, "memory", **_MEMORY),
        )
    ),
    *each(
        lambda name: Claim(
            f"the framework has less delay than all single algorithms [{name}]",
            at_most("delay over the best single", over_best(name, "delay", **_DELAY), 0, 0, "+%"),
            lasting(30, 10),
            ranked("delay", **_DELAY),
            among(name, "delay", **_DELAY),
        )
    ),
)
CLAIMS_6_4 = (
    *each(
        lambda name: Claim(
            f"best of all in delay [{name}]",
            at_most("delay over the best single", over_best(name, "delay"), 0, 0, "+%"),
            LONG,
            ranked("delay"),
            _waits(name, "delay"),
        )
    ),
    *each(
        lambda name: Claim(
            f"about average in output rate [{name}]",
            about(
                "rate over the mean of the four single ones",
                lambda rows: (
                    of_run(rows, "rate", name) / fmean(of_run(rows, "rate", n) for n in FOUR)
                ),
                1.0,
                0.05,
            ),
            LONG,
            ranked("rate"),
        )
    ),
)
_NOW, _THEN = {"goals": WEIGHTS["6.5"]}, {"goals": WEIGHTS["6.4"]}
CLAIMS_6_5 = (
    *each(
        lambda name: Claim(
            f"still exceptionally good in delay [{name}]",
            at_most("delay over the best single", over_best(name, "delay", **_NOW), 0, 0.1, "+%"),
            LONG,
            ranked("delay", **_NOW),
            _waits(name, "delay", **_NOW),
        )
    ),
    *each(
        lambda name: Claim(
            f"significantly better in rate than at 70-30 [{name}]",
            at_least(
                "rate over that at 70-30",
                lambda rows: change(
                    of_run(rows, "rate", name, **_NOW), of_run(rows, "rate", name, **_THEN)
                ),
                0.05,
                0,
                "+%",
            ),
            LONG,
            ranked("rate", **_NOW),
            _waits(name, "rate", **_NOW),
        )
    ),
)
CLAIMS_6_6 = (
    *each(
        lambda name: Claim(
            f"better in delay than all single algorithms for most of execution [{name}]",
            at_least("share of spans", ahead(name, "delay"), 0.5, 0, "%"),
            LONG,
            ranked("delay"),
            _waits(name, "delay"),
        )
    ),
    *each(
        lambda name: Claim(
            f"the output rate suffers slightly [{name}]",
            Bound("rate over the best single", over_best(name, "rate"), -0.1, -0.002, 0, "+%"),
            LONG,
            ranked("rate"),
            _waits(name, "rate"),
        )
    ),
)
CLAIMS_6_7 = tuple(
    Claim(
        f"better than all but the best single algorithm in {metric} [{name}]",
        at_most("place of five", place(name, metric), 2),
        LONG,
        ranked(metric),
        _waits(name, metric),
    )
    for metric in ("delay", "memory")
    for name in ADAPTIVE
)


def _tuned(name: str, goal: str, other: str) -> Claim:
    return Claim(
        f"tuned for {goal} beats tuned for {other} on {goal} [{name}]",
        at_most(
            f"{goal} tuned for it over {goal} tuned for {other}",
            lambda rows: change(
                of_run(rows, goal, f"{name} for {goal}"), of_run(rows, goal, f"{name} for {other}")
            ),
            -0.01,
            0,
            "+%",
        ),
        lasting(120, 3),
        lambda rows: f"{goal} {listed({n: of_run(rows, goal, n) for n in _runs_of(name)})}",
        _shares_told(name),
    )


def _runs_of(name: str) -> list[str]:
    return [f"{name} for {goal}" for goal in ("delay", "memory")]


def _shares(rows: Rows, name: str) -> dict[str, float]:
    mine = chosen(rows, contender=f"{name} for memory")
    return {algorithm: mean(mine, f"share_{algorithm}") for algorithm in SINGLES}


def _shares_told(name: str) -> Callable[[Rows], str]:
    def tell(rows: Rows) -> str:
        shares = _shares(rows, name)
        used = sorted((a for a in shares if shares[a]), key=lambda a: -shares[a])
        return "in charge for memory: " + ", ".join(f"{a} {shares[a]:.0%}" for a in used)

    return tell


def _candidates(name: str) -> Sequence[str]:
    return FOUR if name == WHEEL else SINGLES


def _chosen_most(name: str) -> Callable[[Rows], float]:
    """Share of time of the single algorithm that alone is best for memory, less the next one's."""

    def lead(rows: Rows) -> float:
        names = _candidates(name)
        best = min(names, key=lambda a: of_run(rows, "memory", f"{a} for memory"))
        shares = _shares(rows, name)
        return shares[best] - max(share for other, share in shares.items() if other != best)

    return lead


def _overhead(name: str) -> Callable[[Rows], float]:
    """CPU time of a run over the median of the single algorithms'."""
    return lambda rows: (
        mean(rows, "cpu_ms_per_s", contender=f"{name} for memory")
        / median(mean(rows, "cpu_ms_per_s", contender=f"{a} for memory") for a in SINGLES)
    )


CLAIMS_7_1 = (
    *(
        _tuned(name, goal, other)
        for name in ADAPTIVE
        for goal, other in (("delay", "memory"), ("memory", "delay"))
    ),
    *each(
        lambda name: Claim(
            f"the algorithm that alone is best for memory is chosen most [{name}]",
            at_least("its share of time, less the next one's", _chosen_most(name), 0.0, 0, "+%"),
            lasting(120, 3),
            lambda rows: (
                "memory alone: "
                + listed({a: of_run(rows, "memory", f"{a} for memory") for a in SINGLES})
            ),
            _shares_told(name),
        )
    ),
    *each(
        lambda name: Claim(
            f"the overhead of adapting is comparable to that of a single algorithm [{name}]",
            at_most("CPU time over the median single's", _overhead(name), 1.0, 0.5, "times"),
            lasting(120, 3),
        )
    ),
)
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "6.2": CLAIMS_6_2,
    "6.3": CLAIMS_6_3,
    "6.4": CLAIMS_6_4,
    "6.5": CLAIMS_6_5,
    "6.6": CLAIMS_6_6,
    "6.7": CLAIMS_6_7,
    "7.1": CLAIMS_7_1,
}
