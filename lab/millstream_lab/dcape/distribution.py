"""Experiments dcape-5.4 to dcape-5.11: one processor against several (section 5.1.5, 5.1.6)."""

from collections.abc import Callable
from itertools import pairwise

from millstream_lab.dcape.distributed_plan import VirtualPlan
from millstream_lab.dcape.plans import plan_1, plan_2, plan_3, plan_4
from millstream_lab.dcape.runs import Run, add, gain, runs_over, tidy, told
from millstream_lab.experiment import Finding, Outcome, Progress

EQUAL = 0.02  # throughputs within this count as the same


def small_plan(window_s: float, *, joins: bool) -> Callable[[int, bool, Progress], Outcome]:
    """5.4, 5.5, 5.6: a plan that one processor could run, on 1 to 5."""

    def go(seed: int, quick: bool, progress: Progress) -> Outcome:  # noqa: ARG001  (no chance in it)
        runs = runs_over(plan_1(window_s, joins=joins), "round_robin", range(1, 6), quick, progress)
        least = min(gain(one, runs[0]) for one in runs[1:])
        finding = Finding(
            "distributing a small plan never gives less than one processor",
            f"{told(runs)}; least change {least:+.1%}",
            least >= -EQUAL,
            ""
            if least >= -EQUAL
            else "on two, Round Robin sends every join's output to the other processor, up to "
            "1,840 rows a second, and both ends pay for each row",
        )
        return Outcome(tidy(runs), [finding])

    return go


def larger_plan(
    plan: Callable[[float], VirtualPlan], pattern: str, claimed: float
) -> Callable[[int, bool, Progress], Outcome]:
    """5.7, 5.8, 5.9: what five processors gain over one."""

    def go(seed: int, quick: bool, progress: Progress) -> Outcome:  # noqa: ARG001
        runs = runs_over(plan(10.0), pattern, range(1, 6), quick, progress)
        central, five = runs[0], runs[-1]
        reached = gain(five, central)
        findings = [
            Finding(
                f"{claimed:.0%} more by distribution over five",
                f"{told(runs)}; {reached:+.0%} on five",
                reached >= claimed - EQUAL,
                ""
                if reached >= claimed - EQUAL
                else "one processor is less overloaded here than the thesis's was",
            ),
            _rising(runs),
        ]
        if claimed > 0.3:
            findings.append(_levelling(central, five))
        return Outcome(tidy(runs), findings)

    return go


def _rising(runs: list[Run]) -> Finding:
    falls = [
        f"{b.processors} after {a.processors}" for a, b in pairwise(runs) if gain(b, a) < -EQUAL
    ]
    changes = ", ".join(f"{one.processors}: {gain(one, runs[0]):+.0%}" for one in runs[1:])
    return Finding(
        "throughput rises with the number of processors",
        f"over one processor {changes}",
        not falls,
        f"less with {', '.join(falls)}: where the pattern puts the costliest joins matters more "
        "than how many processors there are"
        if falls
        else "",
    )


def _levelling(central: Run, five: Run) -> Finding:
    """The second half of a run against the first."""
    halves = []
    for one in (central, five):
        end = one.record.samples[-1].at
        early = one.record.rows_out_at(end / 2)
        halves.append((one.rows_out - early) / max(early, 1e-9))
    return Finding(
        "one processor levels off, several go on in a straight line",
        f"second half against the first: one {halves[0]:.2f}, five {halves[1]:.2f}",
        halves[0] < halves[1] - EQUAL,
        ""
        if halves[0] < halves[1] - EQUAL
        else "rates are constant and so is what a full processor gives",
    )


def largest_plan(seed: int, quick: bool, progress: Progress) -> Outcome:  # noqa: ARG001
    """5.10: plan 4 on 1, 3 and 5."""
    runs = runs_over(plan_4(10.0), "grouping", (1, 3, 5), quick, progress)
    failed = runs[0].record.failed.get("p1")
    return Outcome(
        tidy(runs),
        [
            Finding(
                "one processor runs out of memory at about 20 minutes, several do not",
                told(runs),
                failed is not None
                and 15 <= failed / 60 <= 25
                and not any(one.record.failed for one in runs[1:]),
                "a quick run ends before" if quick else "",
            ),
            Finding(
                "several processors give far more",
                f"five over one {gain(runs[-1], runs[0]):+.0%}",
                gain(runs[-1], runs[0]) > 0.33,
            ),
        ],
    )


def memory_of_largest(seed: int, quick: bool, progress: Progress) -> Outcome:
    """5.11: rows in memory during 5.10."""
    outcome = largest_plan(seed, quick, progress)
    central = [row for row in outcome.rows if row["processors"] == 1]
    held = {float(str(row["minute"])): float(str(row["rows_held_max"])) for row in central}
    first = _growth(held, 0, 8)
    later = _growth(held, 10, 18)
    return Outcome(
        outcome.rows,
        [
            Finding(
                "memory of one processor jumps after about 10 minutes",
                f"rows a minute in minutes 0 to 8: {first:,.0f}, in 10 to 18: {later:,.0f}",
                later > first * 1.2,
                ""
                if later > first * 1.2
                else "with constant rates what one processor cannot serve piles up evenly from the "
                "start; a jump needs input that grows, as the thesis's logs may have",
            )
        ],
    )


def _growth(held: dict[float, float], start: float, end: float) -> float:
    inside = sorted(minute for minute in held if start <= minute <= end)
    if len(inside) < 2:
        return 0.0
    return (held[inside[-1]] - held[inside[0]]) / (inside[-1] - inside[0])


for _name, _window, _joins in (("5.4", 0.0, False), ("5.5", 2.0, True), ("5.6", 10.0, True)):
    add(
        f"dcape-{_name}",
        f"plan 1 with windows of {_window:g} s on 1 to 5 processors: distribution costs nothing",
        small_plan(_window, joins=_joins),
        "never below one processor",
    )
add(
    "dcape-5.7",
    "plan 2 by Round Robin on 1 to 5 processors",
    larger_plan(plan_2, "round_robin", 0.25),
    "25 % more by distribution",
)
add(
    "dcape-5.8",
    "plan 2 by Grouping on 1 to 5 processors",
    larger_plan(plan_2, "grouping", 0.25),
    "25 % more by distribution",
)
add(
    "dcape-5.9",
    "plan 3 by Grouping on 1 to 5 processors",
    larger_plan(plan_3, "grouping", 0.33),
    "33 % more on five; one processor levels off",
)
add(
    "dcape-5.10",
    "plan 4 by Grouping: one processor runs out of memory",
    largest_plan,
    "one processor fails at about 20 minutes",
)
add(
    "dcape-5.11",
    "rows in memory during 5.10",
    memory_of_largest,
    "memory of one processor jumps at about 10 minutes",
    "rows_held_max",
    "rows on the fullest processor",
)
