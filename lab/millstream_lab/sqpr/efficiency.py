"""Seed 004, figures 4(a) to 4(c): how many queries are admitted, in batches, and with overlap."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millstream.decide.place.bounds import aggregate_host, proven_bound
from millstream.decide.place.workload import LITERAL, TIGHT, generate, scaled
from millstream_lab.experiment import EXPERIMENTS, Experiment, Outcome, Row
from millstream_lab.sqpr.runs import (
    Progress,
    admitted_curve,
    finding,
    mean_of,
    planned,
    plot_lines,
)

# The seed's 5, 30 and 60 s, a tenth of each: our solver and hosts are faster.
TIMEOUTS_S = (0.5, 3.0, 6.0)
BATCHES = (1, 2, 4, 8, 16)
MILP_BATCHES = (1, 2, 3, 4)
ZIPFS = (0.0, 0.5, 1.0, 1.5)


def run_4a(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Admitted against submitted: all planners, and the solver under three time limits."""
    rows: list[Row] = []
    for regime, workload in (("tight", TIGHT), ("literal", LITERAL)):
        problem = generate(scaled(workload, 10 if quick else 50), seed)
        step = len(problem.queries) // 20
        panel = f"{regime}, {len(problem.hosts)} hosts"
        for planner in ("sqpr", "heuristic", "soda"):
            curve = admitted_curve(planned(problem, planner, progress), step)
            rows += [_point(panel, planner, *point) for point in curve]
        rows += _bounds(panel, problem, step)
    problem = generate(scaled(TIGHT, 4 if quick else 15), seed)
    if quick:
        problem = replace(problem, queries=problem.queries[:60])
    step = len(problem.queries) // 20
    panel = f"solver, {len(problem.hosts)} hosts"
    for limit in TIMEOUTS_S[:1] if quick else TIMEOUTS_S:
        outcome = planned(problem, "sqpr_milp", progress, timeout_s=limit)
        name = f"sqpr_milp, {limit:g} s"
        rows += [_point(panel, name, *point) for point in admitted_curve(outcome, step)]
    for planner in ("sqpr", "heuristic"):
        curve = admitted_curve(planned(problem, planner, progress), step)
        rows += [_point(panel, planner, *point) for point in curve]
    rows += _bounds(panel, problem, step)
    return Outcome(rows, _findings_4a(rows))


def _point(panel: str, planner: str, submitted: int, admitted: int) -> Row:
    return {"panel": panel, "planner": planner, "submitted": submitted, "admitted": admitted}


def _bounds(panel: str, problem: Any, step: int) -> list[Row]:
    admitted = set(aggregate_host(problem).admitted)
    rows, count = [], 0
    for number, query in enumerate(problem.queries, start=1):
        count += query.id in admitted
        if number % step == 0:
            rows.append(_point(panel, "aggregate host", number, count))
    rows.append(_point(panel, "proven bound", len(problem.queries), proven_bound(problem).admitted))
    return rows


def _findings_4a(rows: Sequence[Row]) -> list[Any]:
    findings = []
    for panel in dict.fromkeys(str(row["panel"]) for row in rows):
        last = max(int(str(row["submitted"])) for row in rows if row["panel"] == panel)
        final = {
            str(row["planner"]): int(str(row["admitted"]))
            for row in rows
            if row["panel"] == panel and row["submitted"] == last
        }
        for name in (planner for planner in final if planner.startswith("sqpr")):
            findings.append(
                finding(
                    "SQPR admits more than the heuristic",
                    f"{panel}: {name} {final[name]}, heuristic {final['heuristic']}",
                    final[name] >= final["heuristic"],
                    "the solver plans one query at a time and never sweeps",
                )
            )
            gap = 1 - final[name] / final["aggregate host"]
            true_gap = 1 - final[name] / final["proven bound"]
            findings.append(
                finding(
                    "the gap to the 'optimistic bound' is below 25 %",
                    f"{panel}: {name} {gap:.1%} (aggregate host {final['aggregate host']}, which is"
                    f" no bound); {true_gap:.1%} to the proven one of {final['proven bound']}",
                    gap < 0.25,
                )
            )
    return findings


def run_4b(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Batches of n queries: the fast planner and the solver with a limit of n times one query."""
    rows: list[Row] = []
    problem = generate(scaled(TIGHT, 10 if quick else 50), seed)
    for batch in BATCHES[::2] if quick else BATCHES:
        for planner in ("sqpr", "heuristic"):
            outcome = planned(problem, planner, progress, batch=batch)
            rows.append(_batch(f"{len(problem.hosts)} hosts", planner, batch, outcome))
    small = generate(scaled(TIGHT, 4 if quick else 10), seed)
    if quick:
        small = replace(small, queries=small.queries[:40])
    for batch in MILP_BATCHES[:2] if quick else MILP_BATCHES:
        for planner in ("sqpr_milp", "sqpr"):
            options = {"timeout_s": 0.5} if planner == "sqpr_milp" else {}
            outcome = planned(small, planner, progress, batch=batch, **options)
            rows.append(_batch(f"{len(small.hosts)} hosts", planner, batch, outcome))
    findings = []
    for key in dict.fromkeys((row["panel"], row["planner"]) for row in rows):
        mine = [row for row in rows if (row["panel"], row["planner"]) == key]
        first, last = mine[0], mine[-1]
        findings.append(
            finding(
                "larger batches admit fewer queries",
                f"{key[0]}, {key[1]}: {first['admitted']} one by one, {last['admitted']} in"
                f" batches of {last['batch']}",
                int(str(last["admitted"])) < int(str(first["admitted"])),
                "the seed loses queries to its time limit, because a batch makes its model larger;"
                " a planner that needs no limit only gains from knowing more queries at once",
            )
        )
    return Outcome(rows, findings)


def _batch(panel: str, planner: str, batch: int, outcome: Any) -> Row:
    return {
        "panel": panel,
        "planner": planner,
        "batch": batch,
        "admitted": len(outcome.solution.admitted),
        "median_ms": outcome.solution.planning_ms.median,
    }


def run_4c(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Overlap: fewer base streams and a steeper Zipf law mean more reuse."""
    rows: list[Row] = []
    base = scaled(LITERAL, 10 if quick else 50)
    for share in (0.5, 1.0, 2.0):
        for zipf in ZIPFS[::2] if quick else ZIPFS:
            streams = int(base.base_streams * share)
            problem = generate(replace(base, base_streams=streams, zipf=zipf), seed)
            outcome = planned(problem, "sqpr", progress)
            rows.append(
                {
                    "base_streams": f"{streams} base streams",
                    "zipf": zipf,
                    "admitted": len(outcome.solution.admitted),
                }
            )
    findings = []
    for size in _sizes(rows):
        counts = [row["admitted"] for row in rows if row["base_streams"] == size]
        findings.append(
            finding(
                "more overlap (a larger Zipf parameter) admits more",
                f"{size}: {', '.join(map(str, counts))}",
                counts == sorted(counts, key=lambda n: int(str(n))),
            )
        )
    by_size = [mean_of(rows, "admitted", base_streams=n, zipf=1.0) for n in _sizes(rows)]
    findings.append(
        finding(
            "more overlap (fewer base streams) admits more",
            f"at Zipf 1: {', '.join(f'{n:.0f}' for n in by_size)} with growing base streams",
            by_size == sorted(by_size, reverse=True),
        )
    )
    return Outcome(rows, findings)


def _sizes(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["base_streams"]) for row in rows))


def plot_4a(rows: Sequence[Row], figure: Any) -> None:
    plot_lines(
        rows,
        figure,
        x="submitted",
        y="admitted",
        line="planner",
        panel="panel",
        claim="above the heuristic, gap under 25 %",
        labels=("queries submitted", "queries admitted"),
    )


def plot_4b(rows: Sequence[Row], figure: Any) -> None:
    plot_lines(
        rows,
        figure,
        x="batch",
        y="admitted",
        line="planner",
        panel="panel",
        claim="larger batches admit fewer",
        labels=("queries in a batch", "queries admitted"),
    )


def plot_4c(rows: Sequence[Row], figure: Any) -> None:
    plot_lines(
        rows,
        figure,
        x="zipf",
        y="admitted",
        line="base_streams",
        claim="more overlap admits more",
        labels=("Zipf parameter", "queries admitted"),
    )


EXPERIMENTS.add(
    "sqpr-4a", Experiment("sqpr-4a", "queries admitted by planner", "sqpr", run_4a, plot_4a)
)
EXPERIMENTS.add(
    "sqpr-4b", Experiment("sqpr-4b", "queries admitted in batches", "sqpr", run_4b, plot_4b)
)
EXPERIMENTS.add(
    "sqpr-4c", Experiment("sqpr-4c", "queries admitted with overlap", "sqpr", run_4c, plot_4c)
)
