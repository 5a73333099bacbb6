"""Seed 004, figures 4(a) to 4(c): how many queries are admitted, in batches, and with overlap."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millstream.decide.place.bounds import aggregate_host, proven_bound
from millstream.decide.place.reuse.planners.sqpr_milp import MilpSettings
from millstream.decide.place.workload import LITERAL, TIGHT, generate, scaled
from millstream_lab.claims import (
    Bound,
    Claim,
    Row,
    Rows,
    at_least,
    at_most,
    change,
    chosen,
    largest_step,
    mean,
    numbers,
    smallest_step,
    values,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.sqpr.runs import (
    Progress,
    admitted,
    admitted_curve,
    hosts_needed,
    planned,
    plot_lines,
)

TIMEOUTS_S = (5.0, 30.0, 60.0)
LIMIT_4B_S = 30.0  # of a query
BATCHES = (1, 2, 4, 8, 16)
MILP_BATCHES = (1, 2, 3, 4)
ZIPFS = (0.0, 0.5, 1.0, 1.5)


def run_4a(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Admitted against submitted: all planners, and the solver under three time limits."""
    rows: list[Row] = []
    for regime, workload in (("tight", TIGHT), ("literal", LITERAL)):
        problem = generate(scaled(workload, 4 if quick else 50), seed)
        step = len(problem.queries) // 20
        where = {"panel": regime, "hosts": len(problem.hosts), "limit_s": None}
        for planner in ("sqpr", "heuristic", "soda"):
            curve = admitted_curve(planned(problem, planner, progress), step)
            rows += [_point(where, planner, *point) for point in curve]
        rows += _bounds(where, problem, step)
    problem = generate(scaled(TIGHT, 3 if quick else 50), seed)
    if quick:
        problem = replace(problem, queries=problem.queries[:20])
    step = len(problem.queries) // 20
    for limit in TIMEOUTS_S:
        where = {"panel": "solver", "hosts": len(problem.hosts), "limit_s": limit}
        outcome = planned(problem, "sqpr_milp", progress, timeout_s=limit)
        name = f"sqpr_milp, {limit:g} s"
        rows += [_point(where, name, *point) for point in admitted_curve(outcome, step)]
    where = {"panel": "solver", "hosts": len(problem.hosts), "limit_s": None}
    for planner in ("sqpr", "heuristic"):
        curve = admitted_curve(planned(problem, planner, progress), step)
        rows += [_point(where, planner, *point) for point in curve]
    rows += _bounds(where, problem, step)
    return rows


def _point(where: Row, planner: str, submitted: int, count: int) -> Row:
    return {**where, "planner": planner, "submitted": submitted, "admitted": count}


def _bounds(where: Row, problem: Any, step: int) -> list[Row]:
    taken = set(aggregate_host(problem).admitted)
    rows, count = [], 0
    for number, query in enumerate(problem.queries, start=1):
        count += query.id in taken
        if number % step == 0:
            rows.append(_point(where, "aggregate host", number, count))
    rows.append(_point(where, "proven bound", len(problem.queries), proven_bound(problem).admitted))
    return rows


def _claims_4a(panel: str, planner: str) -> tuple[Claim, ...]:
    where = {"panel": panel}
    needs: tuple[Bound, ...] = (
        at_least("hosts", lambda rows: max(numbers(rows, "hosts", **where)), 50),
    )
    if panel == "solver":
        needs += (
            at_least("time limit of a query", lambda rows: numbers(rows, "limit_s",
                     planner=planner)[0], 5, 0, "s"),
        )  # fmt: skip
    return (
        Claim(
            f"SQPR admits more than the heuristic [{panel}, {planner}]",
            at_least(
                "queries admitted over the heuristic's",
                lambda rows: change(
                    admitted(rows, planner, **where), admitted(rows, "heuristic", **where)
                ),
                0.01,
                0,
                "+%",
            ),
            needs,
            lambda rows: _all(rows, panel),
        ),
        Claim(
            f"the gap to the 'optimistic bound' is below 25 % [{panel}, {planner}]",
            at_most("gap to the aggregate host, which is no bound",
                    lambda rows: _gap(rows, planner, "aggregate host", panel), 0.25, 0, "%"),
            needs,
            lambda rows: f"{_gap(rows, planner, 'proven bound', panel):.1%} to the proven bound",
        ),
    )  # fmt: skip


def _gap(rows: Rows, planner: str, bound: str, panel: str) -> float:
    return 1 - admitted(rows, planner, panel=panel) / admitted(rows, bound, panel=panel)


def _all(rows: Rows, panel: str) -> str:
    planners = values(chosen(rows, panel=panel), "planner")
    told = ", ".join(f"{name} {admitted(rows, name, panel=panel):.0f}" for name in planners)
    if panel == "solver":
        told += f"; for each query the {MilpSettings().hosts_considered} hosts that matter most"
    return told


CLAIMS_4A = tuple(
    claim
    for panel, planners in (
        ("tight", ("sqpr",)),
        ("literal", ("sqpr",)),
        ("solver", tuple(f"sqpr_milp, {limit:g} s" for limit in TIMEOUTS_S)),
    )
    for planner in planners
    for claim in _claims_4a(panel, planner)
)


def run_4b(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Batches of n queries: the fast planner and the solver with a limit of n times one query."""
    rows: list[Row] = []
    problem = generate(scaled(TIGHT, 4 if quick else 50), seed)
    for batch in BATCHES[::2] if quick else BATCHES:
        for planner in ("sqpr", "heuristic"):
            outcome = planned(problem, planner, progress, batch=batch)
            rows.append(_batch("fast", len(problem.hosts), planner, batch, outcome))
    small = generate(scaled(TIGHT, 3 if quick else 50), seed)
    if quick:
        small = replace(small, queries=small.queries[:40])
    for batch in MILP_BATCHES[:2] if quick else MILP_BATCHES:
        for planner in ("sqpr_milp", "sqpr"):
            options = {"timeout_s": LIMIT_4B_S} if planner == "sqpr_milp" else {}
            outcome = planned(small, planner, progress, batch=batch, **options)
            rows.append(_batch("solver", len(small.hosts), planner, batch, outcome))
    return rows


def _by_batch(rows: Rows, panel: str, planner: str) -> list[float]:
    mine = chosen(rows, panel=panel, planner=planner)
    return [mean(mine, "admitted", batch=batch) for batch in sorted(values(mine, "batch"))]


def _claim_4b(panel: str, planner: str) -> Claim:
    needs = [at_least("hosts", lambda rows: max(numbers(rows, "hosts", panel=panel)), 50)]
    if planner == "sqpr_milp":
        limit = at_least(
            "time limit of a query", lambda rows: min(numbers(rows, "limit_s")), 30, 0, "s"
        )
        needs.append(limit)
    return Claim(
        f"larger batches admit fewer queries [{panel}, {planner}]",
        at_most("queries admitted in the largest batches over one by one",
                lambda rows: change(_by_batch(rows, panel, planner)[-1],
                                    _by_batch(rows, panel, planner)[0]), -0.01, 0, "+%"),
        tuple(needs),
        lambda rows: ", ".join(f"{n:.0f}" for n in _by_batch(rows, panel, planner)),
        lambda rows: _planning_time(rows, panel, planner),
    )  # fmt: skip


def _planning_time(rows: Rows, panel: str, planner: str) -> str:
    """The seed loses queries to its time limit: how near ours comes to one."""
    times = numbers(rows, "median_ms", panel=panel, planner=planner)
    return f"a query takes {max(times):.0f} ms at most, in the median: no time limit is near"


CLAIMS_4B = tuple(
    _claim_4b(panel, planner)
    for panel, planner in (("fast", "sqpr"), ("fast", "heuristic"), ("solver", "sqpr_milp"))
)


def _batch(panel: str, hosts: int, planner: str, batch: int, outcome: Any) -> Row:
    return {
        "panel": panel,
        "hosts": hosts,
        "planner": planner,
        "batch": batch,
        "limit_s": LIMIT_4B_S if planner == "sqpr_milp" else None,
        "admitted": len(outcome.solution.admitted),
        "median_ms": outcome.solution.planning_ms.median,
    }


def run_4c(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Overlap: fewer base streams and a steeper Zipf law mean more reuse."""
    rows: list[Row] = []
    base = scaled(LITERAL, 4 if quick else 50)
    for share in (0.5, 1.0, 2.0):
        for zipf in ZIPFS[::2] if quick else ZIPFS:
            streams = int(base.base_streams * share)
            problem = generate(replace(base, base_streams=streams, zipf=zipf), seed)
            outcome = planned(problem, "sqpr", progress)
            rows.append(
                {
                    "hosts": base.hosts,
                    "base_streams": f"{streams} base streams",
                    "streams": streams,
                    "zipf": zipf,
                    "admitted": len(outcome.solution.admitted),
                }
            )
    return rows


def _zipf_steps(rows: Rows) -> float:
    """The least that a step up in the Zipf parameter adds, over all numbers of base streams."""
    return min(
        smallest_step([mean(rows, "admitted", streams=n, zipf=z) for z in values(rows, "zipf")])
        for n in values(rows, "streams")
    )


def _stream_steps(rows: Rows) -> float:
    sizes = sorted(values(rows, "streams"))
    return largest_step([mean(rows, "admitted", streams=n, zipf=1.0) for n in sizes])


def _told_4c(rows: Rows) -> str:
    return "; ".join(
        f"{n} streams: " + ", ".join(f"{v:.0f}" for v in numbers(rows, "admitted", streams=n))
        for n in values(rows, "streams")
    )


CLAIMS_4C = (
    Claim(
        "more overlap (a larger Zipf parameter) admits more",
        at_least("least change by a step of the parameter", _zipf_steps, 0, 0, "queries"),
        (hosts_needed(50),),
        _told_4c,
    ),
    Claim(
        "more overlap (fewer base streams) admits more",
        at_most("largest change by a step to more base streams, at Zipf 1", _stream_steps, 0, 0,
                "queries"),
        (hosts_needed(50),),
        _told_4c,
    ),
)  # fmt: skip


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


for _name, _title, _run, _draw, _claims in (
    ("sqpr-4a", "queries admitted by planner", run_4a, plot_4a, CLAIMS_4A),
    ("sqpr-4b", "queries admitted in batches", run_4b, plot_4b, CLAIMS_4B),
    ("sqpr-4c", "queries admitted with overlap", run_4c, plot_4c, CLAIMS_4C),
):
    EXPERIMENTS.add(_name, Experiment(_name, _title, "sqpr", _run, _draw, _claims, ("admitted",)))
