"""Seed 004, figures 5(a) to 6(b): hosts, resources and arity, and what planning time they cost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean
from time import perf_counter
from typing import Any

from millstream.decide.place.bounds import aggregate_host
from millstream.decide.place.problem import Problem
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner
from millstream.decide.place.reuse.planners.sqpr_milp import MilpPlanner, MilpSettings
from millstream.decide.place.reuse.rebuild import recounted
from millstream.decide.place.reuse.utilisation import share_used
from millstream.decide.place.workload import LITERAL, TIGHT, Workload, generate, scaled
from millstream_lab.experiment import EXPERIMENTS, Experiment, Outcome, Row
from millstream_lab.sqpr.runs import Progress, finding, planned, plot_lines

LIMIT_S = 10.0  # a tenth of the seed's 100 s
USED = (0.75, 0.95)  # of the CPU, while planning time is taken


def run_5a(seed: int, quick: bool, progress: Progress) -> Outcome:
    """The same streams and queries on ever more hosts."""
    base = replace(TIGHT, base_streams=100, queries=600) if quick else replace(TIGHT, queries=3000)
    rows: list[Row] = []
    for hosts in (5, 10, 15) if quick else (25, 50, 75, 100):
        rows += _both(replace(base, hosts=hosts), seed, progress, hosts=hosts)
    return Outcome(rows, _findings_5a(rows))


def _both(workload: Workload, seed: int, progress: Progress, **labels: object) -> list[Row]:
    problem = generate(workload, seed)
    mine = len(planned(problem, "sqpr", progress).solution.admitted)
    bound = len(aggregate_host(problem).admitted)
    return [
        {**labels, "planner": "sqpr", "admitted": mine, "ratio": mine / max(1, bound)},
        {**labels, "planner": "aggregate host", "admitted": bound, "ratio": 1.0},
    ]


def _findings_5a(rows: Sequence[Row]) -> list[Any]:
    mine = [row for row in rows if row["planner"] == "sqpr"]
    others = [row for row in rows if row["planner"] != "sqpr"]
    times = float(str(mine[-1]["hosts"])) / float(str(mine[0]["hosts"]))
    grown, ideal = (
        float(str(each[-1]["admitted"])) / float(str(each[0]["admitted"]))
        for each in (mine, others)
    )
    ratios = [float(str(row["ratio"])) for row in mine]
    return [
        finding(
            "admissions grow super-linearly in the hosts",
            f"{times:g} times the hosts, {grown:.2f} times the queries; the aggregate host"
            f" {ideal:.2f} times",
            grown > times,
            "nor does the aggregate host, which has no network and no time limit: what grows less"
            " than the hosts is what this workload asks for",
        ),
        finding(
            "the gap to the aggregate host widens with the hosts",
            f"admitted over aggregate host: {', '.join(f'{ratio:.2f}' for ratio in ratios)}",
            ratios[-1] < ratios[0],
            "the seed's gap is its solver's time limit; ours does not grow with the hosts",
        ),
    ]


def run_5b(seed: int, quick: bool, progress: Progress) -> Outcome:
    """More CPU, and ten times the bandwidth."""
    base = scaled(LITERAL, 10 if quick else 50)
    rows: list[Row] = []
    for factor in (1, 2) if quick else (1, 2, 3, 4):
        for bandwidth in (1000.0, 10000.0):
            workload = replace(
                base,
                cpu=base.cpu * factor / 2,
                bandwidth=bandwidth,
                link_bandwidth=bandwidth,
                queries=base.queries * 2,
            )
            name = f"{bandwidth / 1000:g} Gbps"
            rows += _both(workload, seed, progress, cpu=workload.cpu, bandwidth=name)
    ratios = [float(str(row["ratio"])) for row in rows if row["planner"] == "sqpr"]
    return Outcome(
        rows,
        [
            finding(
                "near the bound with more resources",
                f"admitted over aggregate host: {', '.join(f'{ratio:.2f}' for ratio in ratios)}",
                min(ratios) > 0.9,
            )
        ],
    )


def run_5c(seed: int, quick: bool, progress: Progress) -> Outcome:
    """All queries of one arity, with the network tight and wide."""
    rows: list[Row] = []
    findings: list[Any] = []
    for name, regime in (("60 Mbps", TIGHT), ("1 Gbps", LITERAL)):
        base = scaled(regime, 8 if quick else 50)
        mine: list[Row] = []
        for arity in (2, 3, 4) if quick else (2, 3, 4, 5):
            both = _both(
                replace(base, arities=(arity,)), seed, progress, bandwidth=name, arity=arity
            )
            mine.append(both[0])
            rows += both
        findings += _findings_5c(name, mine)
    return Outcome(rows, findings)


def _findings_5c(name: str, mine: Sequence[Row]) -> list[Any]:
    counts = [int(str(row["admitted"])) for row in mine]
    ratios = [float(str(row["ratio"])) for row in mine]
    return [
        finding(
            "more complex queries: fewer are admitted",
            f"{name}, 2-way and up: {', '.join(map(str, counts))}",
            counts == sorted(counts, reverse=True),
            "a two-way join has one way only, two base streams at one host, and the network is"
            " full before the CPU is; wider joins have other ways and share more",
        ),
        finding(
            "the ratio to the bound hardly depends on complexity",
            f"{name}, admitted over aggregate host: {', '.join(f'{r:.2f}' for r in ratios)}",
            max(ratios) - min(ratios) < 0.15,
            "wide joins leave more freedom to share, and more to lose under a tight network",
        ),
    ]


def timed(problem: Problem, probes: int, limit_s: float) -> Iterator[tuple[str, float, bool]]:
    """Planning time of single queries at 75 to 95 % use: (planner, seconds, proven)."""
    catalog = Catalog.of(problem)
    filler = SqprPlanner(catalog)
    taken = 0
    for query in problem.queries:
        share = share_used(filler.state, "cpu")
        known = catalog.stream_at[query.stream] in filler.state.delivered_at
        if USED[0] <= share <= USED[1] and not known and taken < probes:
            taken += 1
            solver = MilpPlanner(catalog, MilpSettings(timeout_s=limit_s))
            solver.state = recounted(filler.state)
            started = perf_counter()
            solver.submit((query,))
            yield "sqpr_milp", perf_counter() - started, bool(solver.proven)
            started = perf_counter()
            filler.consider(query)
            yield "sqpr", perf_counter() - started, True
        filler.submit((query,))
        filler.rest()


def _times(
    workload: Workload, seed: int, probes: int, progress: Progress, **labels: object
) -> list[Row]:
    rows: list[Row] = [
        {**labels, "planner": planner, "seconds": seconds, "proven": proven}
        for planner, seconds, proven in timed(generate(workload, seed), probes, LIMIT_S)
    ]
    for planner in ("sqpr_milp", "sqpr"):
        mine = [row["seconds"] for row in rows if row["planner"] == planner]
        if mine:
            progress(f"{labels}: {planner} {mean(float(str(s)) for s in mine):.4f} s a query")
    return rows


def run_6a(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Planning time against hosts."""
    rows: list[Row] = []
    for hosts in (5, 10) if quick else (15, 25, 50, 75, 100, 150):
        workload = scaled(TIGHT, hosts)
        rows += _times(workload, seed, 3 if quick else 20, progress, hosts=hosts)
    solver = [row for row in rows if row["planner"] == "sqpr_milp"]
    share = mean(float(bool(row["proven"])) for row in solver)
    return Outcome(
        rows,
        [
            finding(
                "the reduced problem is solved to optimality up to 100 hosts",
                f"{share:.0%} of {len(solver)} problems proven within {LIMIT_S:g} s",
                share > 0.9,
            )
        ],
    )


def run_6b(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Planning time against arity, and against hosts once more for comparison."""
    rows: list[Row] = []
    hosts = 6 if quick else 50
    for arity in (2, 3) if quick else (2, 3, 4, 5):
        workload = replace(scaled(TIGHT, hosts), arities=(arity,))
        rows += _times(workload, seed, 3 if quick else 15, progress, arity=arity)
    means = [
        mean(
            float(str(row["seconds"]))
            for row in rows
            if row["planner"] == "sqpr_milp" and row["arity"] == arity
        )
        for arity in dict.fromkeys(row["arity"] for row in rows)
    ]
    return Outcome(
        rows,
        [
            finding(
                "time rises with arity, less than with hosts",
                f"sqpr_milp, seconds a query by arity: {', '.join(f'{s:.2f}' for s in means)}",
                means[-1] > means[0],
                "problems of one arity differ from each other by more than that",
            )
        ],
    )


def _plot(x: str, label: str, claim: str, line: str = "planner") -> Any:
    def plot(rows: Sequence[Row], figure: Any) -> None:
        plot_lines(
            rows,
            figure,
            x=x,
            y="admitted",
            line=line,
            panel="bandwidth" if rows and "bandwidth" in rows[0] else None,
            claim=claim,
            labels=(label, "queries admitted"),
        )

    return plot


def _plot_times(x: str, label: str, claim: str) -> Any:
    def plot(rows: Sequence[Row], figure: Any) -> None:
        plot_lines(
            rows,
            figure,
            x=x,
            y="seconds",
            line="planner",
            claim=claim,
            labels=(label, "seconds a query, mean"),
            log_y=True,
        )

    return plot


for _name, _title, _run, _draw in (
    ("sqpr-5a", "queries admitted by hosts", run_5a, _plot("hosts", "hosts", "super-linear")),
    ("sqpr-5b", "queries admitted by resources", run_5b, _plot("cpu", "CPU a host", "near bound")),
    ("sqpr-5c", "queries admitted by arity", run_5c, _plot("arity", "arity", "constant ratio")),
    ("sqpr-6a", "planning time by hosts", run_6a, _plot_times("hosts", "hosts", "optimal to 100")),
    ("sqpr-6b", "planning time by arity", run_6b, _plot_times("arity", "arity", "arity is cheap")),
):
    EXPERIMENTS.add(_name, Experiment(_name, _title, "sqpr", _run, _draw))
