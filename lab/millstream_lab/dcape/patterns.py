"""Experiments dcape-5.2, 5.12, 5.14 to 5.16: Round Robin against Grouping (section 5.1.7).

Beside the seed's two patterns runs the quality-aware one that it names as future work. That the
gap widens with the plan (5.15, 5.16) is said of these figures against 5.14: each of them therefore
also runs plan 2 on as many processors.
"""

from collections.abc import Callable, Sequence
from typing import Any

from millstream.core.placement import connection_count, connections_by_processor, pieces
from millstream.sim.plotting import mark_claim, mark_seed
from millstream_lab.claims import (
    Claim,
    Row,
    Rows,
    about,
    at_least,
    at_most,
    chosen,
    numbers,
    values,
)
from millstream_lab.dcape.distributed_plan import VirtualPlan
from millstream_lab.dcape.plans import plan_1, plan_2, plan_3, plan_4
from millstream_lab.dcape.runs import (
    PATTERN_NAMES,
    add,
    busiest,
    courses,
    deaths,
    final,
    gain,
    kept_up,
    lasting,
    minutes_of,
    results,
    run,
    table_of,
    tidy,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress

MORE = 0.01  # as much more counts as more
EARLY_MIN = 1.0


def tables(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001  (no chance in it)
    """5.2 and 5.3: pieces and connections of plan 2 on three processors, and on 2, 4, 5."""
    plan = plan_2(10.0)
    rows: list[Row] = []
    for count in (2, 3, 4, 5):
        for pattern in PATTERN_NAMES:
            table = table_of(plan, pattern, count)
            joins = [table[o.id] for o in plan.graph if o.kind == "join"]
            rows.append(
                {
                    "processors": count,
                    "pattern": pattern,
                    "pieces": pieces(plan.graph, table),
                    "connections": connection_count(plan.graph, table),
                    "connections_max": max(connections_by_processor(plan.graph, table).values()),
                    "joins_max": max(map(joins.count, joins)),
                }
            )
    return rows


def _on_three(pattern: str, column: str, figure: float) -> Claim:
    return Claim(
        f"{PATTERN_NAMES[pattern]} on three: {figure:g} {column.replace('_', ' ')}",
        about(
            column.replace("_", " "),
            lambda rows: numbers(rows, column, processors=3, pattern=pattern)[0],
            figure,
        ),
    )


TABLE_CLAIMS = (
    _on_three("round_robin", "pieces", 12),
    _on_three("round_robin", "connections", 17),
    _on_three("round_robin", "joins_max", 3),
    _on_three("grouping", "connections", 8),
)


def plot_tables(rows: Sequence[Row], figure: Any) -> None:
    axis = figure.subplots()
    patterns = list(PATTERN_NAMES)
    for offset, pattern in enumerate(patterns):
        mine = [row for row in rows if row["pattern"] == pattern]
        places = [float(str(row["processors"])) + 0.25 * (offset - 1) for row in mine]
        bars = axis.bar(places, [row["connections"] for row in mine], 0.22)
        bars.set_label(PATTERN_NAMES[pattern])
        axis.bar_label(bars, fontsize=7)
    mark_seed(axis, x=2.75, y=17, text="Round Robin 17")
    mark_seed(axis, x=3.0, y=8, text="Grouping 8")
    axis.set(xlabel="processors", ylabel="connections of plan 2", xticks=[2, 3, 4, 5])
    axis.legend(fontsize=7)
    mark_claim(axis, "on three: Round Robin 17 connections, Grouping 8")


def contest(
    plans: Sequence[VirtualPlan], counts: Sequence[int]
) -> Callable[[int, bool, Progress], list[Row]]:
    """Every pattern over every plan on every number of processors."""

    def go(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001
        runs = []
        for plan in plans:
            for count in counts:
                for pattern, text in PATTERN_NAMES.items():
                    label = f"{plan.name}, {text} on {count}"
                    progress(label)
                    runs.append(run(plan, pattern, count, minutes_of(quick), label=label))
        return tidy(runs)

    return go


def lead(rows: Rows, pattern: str, **where: object) -> float:
    """What a pattern gives more than Round Robin."""
    return gain(rows, {"pattern": pattern, **where}, {"pattern": "round_robin", **where})


def _even(rows: Rows, **where: object) -> str:
    shares = {p: kept_up(rows, pattern=p, **where) for p in ("round_robin", "grouping")}
    if min(shares.values()) > 0.95:
        return f"both keep up: {shares['round_robin']:.0%} and {shares['grouping']:.0%} of all"
    found = [f"{p}, {shares[p]:.0%}: {busiest(rows, pattern=p, **where)}" for p in shares]
    return "share of what is wanted: " + "; ".join(found)


def grouping_wins(plan: str, count: int) -> Claim:
    where = {"plan": plan, "processors": count}
    return Claim(
        f"{plan} on {count}: Grouping gives more than Round Robin",
        at_least(
            "Grouping over Round Robin", lambda rows: lead(rows, "grouping", **where), MORE, 0, "+%"
        ),
        (lasting(), deaths(**where)),
        lambda rows: f"ours {lead(rows, 'quality_aware', **where):+.1%}; {results(rows)}",
        lambda rows: _even(rows, **where),
    )


def _connections(pattern: str, plan: str) -> Callable[[Rows], float]:
    return lambda rows: max(numbers(rows, "connections_max", pattern=pattern, plan=plan))


def _by_count(rows: Rows, pattern: str, plan: str) -> str:
    """The fullest processor's connections, by the number of processors."""
    mine = chosen(rows, pattern=pattern, plan=plan)
    counts = sorted(values(mine, "processors"))
    told = (f"{max(numbers(mine, 'connections_max', processors=n)):.0f} on {n}" for n in counts)
    return f"connections of the fullest: {', '.join(told)}"


GROUPING_5 = Claim(
    "Grouping has at most 5 connections a processor",
    about("most connections by Grouping", _connections("grouping", "plan 2"), 5),
    beside=lambda rows: f"ours {_connections('quality_aware', 'plan 2')(rows):.0f}",
    why=lambda rows: _by_count(rows, "grouping", "plan 2"),
)
DEALT_15 = Claim(
    "Round Robin has up to 15 connections a processor",
    about("most connections by Round Robin", _connections("round_robin", "plan 2"), 15, 1),
    why=lambda rows: _by_count(rows, "round_robin", "plan 2"),
)


def fewer_connections(plan: str) -> Claim:
    return Claim(
        f"{plan}: Grouping needs far fewer connections a processor",
        at_most(
            "most connections by Grouping over those by Round Robin",
            lambda rows: (
                _connections("grouping", plan)(rows) / _connections("round_robin", plan)(rows)
            ),
            0.5,
        ),
    )


def widens(plan: str, count: int) -> Claim:
    """Against plan 2 on as many processors."""
    return Claim(
        f"{plan} on {count}: the gap is wider than with plan 2",
        at_least(
            "lead of Grouping, less that with plan 2",
            lambda rows: (
                lead(rows, "grouping", plan=plan, processors=count)
                - lead(rows, "grouping", plan="plan 2", processors=count)
            ),
            MORE,
            0,
            "+%",
        ),
        (lasting(), deaths()),
        results,
    )


def steps(plan: str) -> Claim:
    def still(rows: Rows, pattern: str) -> float:
        return final(rows, "still_s_max", plan=plan, pattern=pattern)

    return Claim(
        f"{plan}: Round Robin's results come in steps",
        at_least(
            "its longest time without results over Grouping's",
            lambda rows: still(rows, "round_robin") - still(rows, "grouping"),
            30,
            0,
            "s",
        ),
        (lasting(), deaths(plan=plan)),
        lambda rows: f"{still(rows, 'round_robin'):.0f} and {still(rows, 'grouping'):.0f} s",
    )


def _early(rows: Rows) -> float:
    at = {
        p: next(v for m, v in courses(rows, "rows_out", pattern=p) if m >= EARLY_MIN)
        for p in ("round_robin", "grouping")
    }
    return at["round_robin"] / max(at["grouping"], 1e-9) - 1


EXPERIMENTS.add(
    "dcape-5.2",
    Experiment(
        "dcape-5.2", "pieces and connections of plan 2 by pattern", "dcape", tables, plot_tables,
        TABLE_CLAIMS, ("pieces", "connections", "connections_max", "joins_max"),
    ),
)  # fmt: skip
add(
    "dcape-5.12",
    "five joins with windows of 60 s on four processors: Round Robin against Grouping",
    contest((plan_1(60.0, joins=True),), (4,)),
    "Round Robin ahead early, Grouping ends higher",
    (
        Claim(
            "Round Robin is ahead at first",
            at_least(f"Round Robin over Grouping after {EARLY_MIN:g} min", _early, MORE, 0, "+%"),
            (lasting(), deaths()),
        ),
        grouping_wins("plan 1", 4),
    ),
)
add(
    "dcape-5.14",
    "plan 2 on 2, 4 and 5 processors: Round Robin against Grouping",
    contest((plan_2(10.0),), (2, 4, 5)),
    "Grouping always wins",
    (*(grouping_wins("plan 2", count) for count in (2, 4, 5)), GROUPING_5, DEALT_15),
)
for _number, _plan, _count in (("5.15", plan_3(10.0), 4), ("5.16", plan_4(10.0), 5)):
    add(
        f"dcape-{_number}",
        f"{_plan.name} on {_count} processors: Round Robin against Grouping",
        contest((_plan, plan_2(10.0)), (_count,)),
        "the gap widens; Round Robin moves in steps",
        (
            grouping_wins(_plan.name, _count),
            widens(_plan.name, _count),
            fewer_connections(_plan.name),
            steps(_plan.name),
        ),
    )
