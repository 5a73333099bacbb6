"""Experiments dcape-5.2, 5.12, 5.14 to 5.16: Round Robin against Grouping (section 5.1.7).

Beside the seed's two patterns runs the quality-aware one that it names as future work.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from millstream.core.placement import connection_count, connections_by_processor, pieces
from millstream.sim.plotting import mark_claim
from millstream_lab.dcape.distributed_plan import VirtualPlan
from millstream_lab.dcape.plans import plan_1, plan_2, plan_3, plan_4
from millstream_lab.dcape.runs import (
    PATTERN_NAMES,
    Run,
    add,
    gain,
    minutes_of,
    run,
    table_of,
    tidy,
    told,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment, Finding, Outcome, Progress, Row

MORE = 1.002  # as much more counts as more


def tables(seed: int, quick: bool, progress: Progress) -> Outcome:  # noqa: ARG001  (no chance in it)
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
    found = {(row["processors"], row["pattern"]): row for row in rows}
    dealt, grouped, ours = (found[3, pattern] for pattern in PATTERN_NAMES)
    return Outcome(
        rows,
        [
            Finding(
                "Round Robin: 12 pieces, 17 connections, three joins on one processor",
                f"{dealt['pieces']} pieces, {dealt['connections']} connections, "
                f"{dealt['joins_max']} joins on one",
                (dealt["pieces"], dealt["connections"], dealt["joins_max"]) == (12, 17, 3),
                "the shape of plan 2 is lost with its figure and was chosen among those that agree",
            ),
            Finding(
                "Grouping: 8 connections",
                f"{grouped['connections']} connections in {grouped['pieces']} pieces; ours "
                f"{ours['connections']}",
                grouped["connections"] == 8,
            ),
        ],
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
    axis.set(xlabel="processors", ylabel="connections of plan 2", xticks=[2, 3, 4, 5])
    axis.legend(fontsize=7)
    mark_claim(axis, "on three: Round Robin 17 connections, Grouping 8")


def five_joins(seed: int, quick: bool, progress: Progress) -> Outcome:  # noqa: ARG001
    """5.12: five joins with windows of 60 s on four processors."""
    runs = _contest(plan_1(60.0, joins=True), 4, quick, progress)
    dealt, grouped, _ = runs
    early = 60.0
    ahead = dealt.record.rows_out_at(early) > MORE * grouped.record.rows_out_at(early)
    return Outcome(
        tidy(runs),
        [
            Finding(
                "Round Robin is ahead at first",
                f"after {early:.0f} s {dealt.record.rows_out_at(early):,.0f} against "
                f"{grouped.record.rows_out_at(early):,.0f}",
                ahead,
                "" if ahead else "the windows are still filling, and neither is short of CPU",
            ),
            _grouping_wins(runs),
        ],
    )


def contest_on(
    plan: Callable[[float], VirtualPlan], counts: tuple[int, ...]
) -> Callable[[int, bool, Progress], Outcome]:
    """5.14, 5.15, 5.16: the patterns on some numbers of processors."""

    def go(seed: int, quick: bool, progress: Progress) -> Outcome:  # noqa: ARG001
        rows: list[Row] = []
        findings: list[Finding] = []
        for count in counts:
            runs = _contest(plan(10.0), count, quick, progress)
            rows += tidy(runs)
            findings += [_grouping_wins(runs), _connections(runs)]
            if len(counts) == 1:
                findings.append(_steps(runs))
        return Outcome(rows, findings)

    return go


def _contest(plan: VirtualPlan, count: int, quick: bool, progress: Progress) -> list[Run]:
    found = []
    for pattern in PATTERN_NAMES:
        progress(f"{plan.name}, {PATTERN_NAMES[pattern]} on {count}")
        found.append(run(plan, pattern, count, minutes_of(quick)))
    return found


def _grouping_wins(runs: Sequence[Run]) -> Finding:
    dealt, grouped, ours = runs
    wins = grouped.rows_out > MORE * dealt.rows_out
    even = not wins and MORE * grouped.rows_out > dealt.rows_out
    return Finding(
        f"{dealt.plan.name} on {dealt.processors}: Grouping gives more than Round Robin",
        f"{told(runs)}; Grouping {gain(grouped, dealt):+.0%}, ours {gain(ours, dealt):+.0%}",
        wins,
        ""
        if wins
        else "both keep up with all that comes"
        if even
        else "Round Robin happens to leave the root, which costs most, beside cheap operators; "
        "Grouping puts it beside its costly neighbours",
    )


def _connections(runs: Sequence[Run]) -> Finding:
    most = [max(one.record.connections.values()) for one in runs]
    return Finding(
        f"{runs[0].plan.name} on {runs[0].processors}: Grouping needs far fewer connections a "
        "processor (at most 5 against up to 15 for plan 2)",
        f"at most {most[0]} by Round Robin, {most[1]} by Grouping, {most[2]} by ours",
        most[1] < most[0],
    )


def _steps(runs: Sequence[Run]) -> Finding:
    """How unevenly results come: the longest time without any, after the first minutes."""
    longest = []
    for one in runs[:2]:
        samples = [s for s in one.record.samples if s.at >= 60]
        still = worst = 0
        for a, b in pairwise(samples):
            still = still + 1 if b.rows_out <= a.rows_out else 0
            worst = max(worst, still)
        longest.append(worst * (samples[1].at - samples[0].at) if len(samples) > 1 else 0.0)
    return Finding(
        "Round Robin's results come in steps",
        f"longest time without results {longest[0]:.0f} s by Round Robin, {longest[1]:.0f} s by "
        "Grouping",
        longest[0] > longest[1],
        ""
        if longest[0] > longest[1]
        else "a step here takes at most 500 rows, so the root has its turn every few seconds; the "
        "thesis's steps took all that waited",
    )


EXPERIMENTS.add(
    "dcape-5.2",
    Experiment(
        "dcape-5.2", "pieces and connections of plan 2 by pattern", "dcape", tables, plot_tables
    ),
)
add(
    "dcape-5.12",
    "five joins with windows of 60 s on four processors: Round Robin against Grouping",
    five_joins,
    "Round Robin ahead early, Grouping ends higher",
)
add(
    "dcape-5.14",
    "plan 2 on 2, 4 and 5 processors: Round Robin against Grouping",
    contest_on(plan_2, (2, 4, 5)),
    "Grouping always wins",
)
add(
    "dcape-5.15",
    "plan 3 on four processors: Round Robin against Grouping",
    contest_on(plan_3, (4,)),
    "the gap widens; Round Robin moves in steps",
)
add(
    "dcape-5.16",
    "plan 4 on five processors: Round Robin against Grouping",
    contest_on(plan_4, (5,)),
    "the gap widens; Round Robin moves in steps",
)
