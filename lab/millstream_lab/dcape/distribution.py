"""Experiments dcape-5.4 to dcape-5.11: one processor against several (section 5.1.5, 5.1.6)."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from millstream_lab.claims import Claim, Row, Rows, about, at_least, at_most, chosen
from millstream_lab.dcape.distributed_plan import VirtualPlan
from millstream_lab.dcape.plans import plan_1, plan_2, plan_3, plan_4
from millstream_lab.dcape.runs import (
    EQUAL,
    add,
    busiest,
    courses,
    deaths,
    falls,
    final,
    gain_over_one,
    growth,
    kept_up,
    lasting,
    results,
    runs_over,
    seed_gain,
    seed_minute,
    tidy,
)
from millstream_lab.experiment import Progress

COUNTS = (1, 2, 3, 4, 5)
LARGEST = (1, 3, 5)
NEEDS = (lasting(), deaths())


def on_counts(
    plan: VirtualPlan, pattern: str, counts: Sequence[int]
) -> Callable[[int, bool, Progress], list[Row]]:
    def go(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001  (no chance in it)
        return tidy(runs_over(plan, pattern, counts, quick, progress))

    return go


def gains(rows: Rows) -> str:
    told = ", ".join(f"{n}: {gain_over_one(n)(rows):+.1%}" for n in COUNTS[1:])
    return f"over one processor on {told}; {results(rows)}"


def _least_gain(rows: Rows) -> float:
    return min(gain_over_one(count)(rows) for count in COUNTS[1:])


def _why_this_gain(rows: Rows) -> str:
    """What one processor gives bounds what more of them can add."""
    one, most = kept_up(rows, processors=1), kept_up(rows, processors=COUNTS[-1])
    if one > 0.9:
        return f"one processor already gives {one:.0%} of what is wanted"
    told = f"one processor gives {one:.0%} of what is wanted, five {most:.0%}"
    limit = busiest(rows, processors=1 if most > 0.9 else COUNTS[-1])
    return f"{told}; with {'one' if most > 0.9 else 'five'} {limit}"


def _why_below(rows: Rows) -> str:
    """Where the number of processors with the least is short."""
    count = min(COUNTS[1:], key=lambda n: gain_over_one(n)(rows))
    share = kept_up(rows, processors=count)
    return f"on {count}, {share:.0%} of what is wanted: {busiest(rows, processors=count)}"


NEVER_BELOW = Claim(
    "distributing a small plan never gives less than one processor",
    at_least("least change over one processor", _least_gain, 0.0, EQUAL, "+%"),
    NEEDS,
    gains,
    _why_below,
)


def _steepest_fall(rows: Rows) -> float:
    ends = [final(rows, "rows_out", processors=count) for count in COUNTS]
    return min(b / a - 1 for a, b in pairwise(ends))


def larger(claimed: float) -> tuple[Claim, ...]:
    return (
        Claim(
            f"{claimed:.0%} more by distribution",
            about("change on five over one", gain_over_one(5), claimed, 0.1, "+%"),
            NEEDS,
            gains,
            _why_this_gain,
        ),
        Claim(
            "throughput rises with the number of processors",
            at_least("steepest fall by one processor more", _steepest_fall, 0.0, EQUAL, "+%"),
            NEEDS,
            gains,
            lambda rows: "less with " + ", ".join(falls(COUNTS, rows)),
        ),
    )


def _half(rows: Rows, count: int) -> float:
    """Results of the second half of a run over those of the first."""
    course = courses(rows, "rows_out", processors=count)
    end = course[-1][0]
    early = [value for minute, value in course if minute <= end / 2][-1]
    return (course[-1][1] - early) / max(early, 1e-9)


LEVELS_OFF = Claim(
    "one processor levels off, several go on in a straight line",
    at_most("second half over the first on one, less that on five",
            lambda rows: _half(rows, 1) - _half(rows, 5), -0.1),
    NEEDS,
    lambda rows: f"one {_half(rows, 1):.2f}, five {_half(rows, 5):.2f}",
)  # fmt: skip


def _death_minute(rows: Rows) -> float:
    found = courses(rows, "minute", processors=1)
    died = [row["died_at_minute"] for row in rows if row["processors"] == 1]
    return float(died[-1]) if died[-1] is not None else float(found[-1][0] * 10)


def _others_died(rows: Rows) -> float:
    dead = {r["processors"] for r in rows if r["died_at_minute"] is not None}
    return float(len(dead & {3, 5}))


def _why_they_died(rows: Rows) -> str:
    """How each of them filled up."""
    dead = [n for n in (3, 5) if any(r["died_at_minute"] for r in chosen(rows, processors=n))]
    parts = []
    for count in dead:
        held = courses(rows, "rows_held_max", processors=count)
        parts.append(
            f"on {count}, {kept_up(rows, processors=count):.0%} of what is wanted, "
            f"{growth(held, 0.5, held[-1][0]):,.0f} rows a minute more in memory: "
            f"{busiest(rows, processors=count)}"
        )
    return "; ".join(parts)


def _why_it_survived(rows: Rows) -> str:
    """One processor: how full it is, and what it lacks."""
    share = kept_up(rows, processors=1)
    return f"one processor gives {share:.0%} of what is wanted; {busiest(rows, processors=1)}"


def _why_no_jump(rows: Rows) -> str:
    """Whether it was behind before the minute of the jump already."""
    early = [r for r in chosen(rows, processors=1) if r["minute"] <= 8][-1]
    share = early["rows_out"] / early["rows_wanted"]
    told = f"it is behind from the start: {share:.0%} of what is wanted by minute 8"
    return told if share < 0.9 else ""


def _jump(rows: Rows) -> float:
    """Growth of memory in the eight minutes after minute 10 over that of the eight before."""
    course = courses(rows, "rows_held_max", processors=1)
    return growth(course, 10, 18) / max(growth(course, 0.5, 8), 1e-9)


for _name, _window, _joins in (("5.4", 0.0, False), ("5.5", 2.0, True), ("5.6", 10.0, True)):
    add(
        f"dcape-{_name}",
        f"plan 1 with windows of {_window:g} s on 1 to 5 processors: distribution costs nothing",
        on_counts(plan_1(_window, joins=_joins), "round_robin", COUNTS),
        "never below one processor",
        (NEVER_BELOW,),
    )
for _name, _pattern in (("5.7", "round_robin"), ("5.8", "grouping")):
    add(
        f"dcape-{_name}",
        f"plan 2 by {'Round Robin' if _name == '5.7' else 'Grouping'} on 1 to 5 processors",
        on_counts(plan_2(10.0), _pattern, COUNTS),
        "25 % more by distribution",
        larger(0.25),
        marks=seed_gain(0.25, 0.25, processors=1),
    )
add(
    "dcape-5.9",
    "plan 3 by Grouping on 1 to 5 processors",
    on_counts(plan_3(10.0), "grouping", COUNTS),
    "33 % more on five; one processor levels off",
    (*larger(0.33), LEVELS_OFF),
    marks=seed_gain(0.33, 0.33, processors=1),
)
add(
    "dcape-5.10",
    "plan 4 by Grouping: one processor runs out of memory",
    on_counts(plan_4(10.0), "grouping", LARGEST),
    "one processor fails at about 20 minutes",
    (
        Claim(
            "one processor runs out of memory at about 20 minutes",
            about("minute at which it fails (ten times the run's length: never)", _death_minute,
                  20, 5),
            (lasting(),),
            results,
            _why_it_survived,
        ),
        Claim(
            "several processors do not run out of memory",
            at_most("runs on three and five that fail", _others_died, 0),
            (lasting(),),
            results,
            _why_they_died,
        ),
    ),
    marks=seed_minute(20, "one processor fails"),
)  # fmt: skip
add(
    "dcape-5.11",
    "rows in memory during 5.10",
    on_counts(plan_4(10.0), "grouping", LARGEST),
    "memory of one processor jumps at about 10 minutes",
    (
        Claim(
            "memory of one processor jumps after about 10 minutes",
            at_least("its growth in minutes 10 to 18 over that in minutes 0 to 8", _jump, 1.5,
                     0.2, "times"),
            (lasting(18),),
            lambda rows: ", ".join(
                f"{growth(courses(rows, 'rows_held_max', processors=1), a, b):,.0f} rows a minute "
                f"in {a:.0f} to {b}" for a, b in ((0.5, 8), (10, 18))
            ),
            _why_no_jump,
        ),
    ),
    "rows_held_max",
    "rows on the fullest processor",
    seed_minute(10, "memory jumps"),
)  # fmt: skip
