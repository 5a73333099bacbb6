"""Seed 004, figures 5(a) to 6(b): hosts, resources and arity, and what planning time they cost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import process_time
from typing import Any

from millstream.decide.place.bounds import aggregate_host
from millstream.decide.place.problem import Problem
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner
from millstream.decide.place.reuse.planners.sqpr_milp import MilpPlanner, MilpSettings
from millstream.decide.place.reuse.rebuild import recounted
from millstream.decide.place.reuse.utilisation import share_used
from millstream.decide.place.workload import LITERAL, TIGHT, Workload, generate, scaled
from millstream_lab.claims import (
    Bound,
    Claim,
    Row,
    Rows,
    about,
    at_least,
    at_most,
    change,
    chosen,
    largest_step,
    mean,
    numbers,
    values,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.sqpr.runs import Progress, hosts_needed, planned, plot_lines

LIMIT_S, QUICK_LIMIT_S = 100.0, 10.0  # of a query
LIMIT = at_least("time limit of a query", lambda rows: min(numbers(rows, "limit_s")), 100, 0, "s")
PROBES = 8  # queries for each point
USED = (0.75, 0.95)  # of the CPU, while planning time is taken


def run_5a(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """The same streams and queries on ever more hosts."""
    base = replace(TIGHT, base_streams=60, queries=200) if quick else replace(TIGHT, queries=3000)
    rows: list[Row] = []
    for hosts in (3, 4, 6) if quick else (25, 50, 75, 100):
        rows += _both(replace(base, hosts=hosts), seed, progress, hosts=hosts)
    return rows


def _both(workload: Workload, seed: int, progress: Progress, **labels: object) -> list[Row]:
    problem = generate(workload, seed)
    mine = len(planned(problem, "sqpr", progress).solution.admitted)
    bound = len(aggregate_host(problem).admitted)
    return [
        {**labels, "planner": "sqpr", "admitted": mine, "ratio": mine / max(1, bound)},
        {**labels, "planner": "aggregate host", "admitted": bound, "ratio": 1.0},
    ]


def _grown(rows: Rows, planner: str) -> float:
    """Queries a host at the most hosts over those at the fewest."""
    mine = chosen(rows, planner=planner)
    per_host = [mean(mine, "admitted", hosts=n) / n for n in sorted(values(mine, "hosts"))]
    return float(per_host[-1] / per_host[0])


def _ratios(rows: Rows, **where: object) -> list[float]:
    return numbers(rows, "ratio", planner="sqpr", **where)


def _listed_ratios(rows: Rows, **where: object) -> str:
    told = ", ".join(f"{ratio:.2f}" for ratio in _ratios(rows, **where))
    return f"admitted over aggregate host: {told}"


def _never_below(rows: Rows) -> str:
    """A gap needs a bound above what is admitted."""
    least = min(_ratios(rows))
    if least < 1:
        return ""
    return (
        "there is no gap: the aggregate host, which the seed takes for a bound, admits fewer at "
        f"every number of hosts (at least {least - 1:.0%} above it)"
    )


CLAIMS_5A = (
    Claim(
        "admissions grow super-linearly in the hosts",
        at_least("queries a host at the most hosts over those at the fewest",
                 lambda rows: _grown(rows, "sqpr"), 1.02, 0, "times"),
        (hosts_needed(100),),
        lambda rows: f"the aggregate host {_grown(rows, 'aggregate host'):.2f} times",
        lambda rows: (
            "the aggregate host, without network and time limit, does not either "
            f"({_grown(rows, 'aggregate host'):.2f} times)"
            if _grown(rows, "aggregate host") <= 1
            else ""
        ),
    ),
    Claim(
        "the gap to the aggregate host widens with the hosts",
        at_most("ratio to it at the most hosts, less that at the fewest",
                lambda rows: _ratios(rows)[-1] - _ratios(rows)[0], -0.02),
        (hosts_needed(100),),
        _listed_ratios,
        _never_below,
    ),
)  # fmt: skip


def run_5b(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """More CPU, and ten times the bandwidth."""
    base = scaled(LITERAL, 4 if quick else 50)
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
            rows += _both(
                workload, seed, progress, hosts=base.hosts, cpu=workload.cpu, bandwidth=name
            )
    return rows


CLAIMS_5B = (
    Claim(
        "near optimal with more resources",
        at_least("least ratio to the aggregate host", lambda rows: min(_ratios(rows)), 0.9),
        (hosts_needed(50),),
        _listed_ratios,
    ),
)


def run_5c(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """All queries of one arity, with the network tight and wide."""
    rows: list[Row] = []
    for name, regime in BANDWIDTHS.items():
        base = scaled(regime, 5 if quick else 50)
        for arity in (2, 3, 4) if quick else (2, 3, 4, 5):
            asked = replace(base, arities=(arity,))
            rows += _both(asked, seed, progress, hosts=base.hosts, bandwidth=name, arity=arity)
    return rows


BANDWIDTHS = {"60 Mbps": TIGHT, "1 Gbps": LITERAL}


def _by_bandwidth(rows: Rows) -> str:
    """The same queries under both networks: which numbers of inputs the narrow one limits."""
    arities = values(rows, "arity")
    found = {name: numbers(rows, "admitted", planner="sqpr", bandwidth=name) for name in BANDWIDTHS}
    told = ", ".join(
        f"{arity}: {few:.0f} and {many:.0f}"
        for arity, few, many in zip(arities, *found.values(), strict=True)
    )
    return f"admitted by number of inputs with {' and '.join(found)}: {told}"


def _claims_5c(name: str) -> tuple[Claim, ...]:
    needs = (hosts_needed(50), at_least("ways of a join", _most_ways, 5))
    return (
        Claim(
            f"fewer queries are admitted the more complex they are [{name}]",
            at_most("largest change by one input more",
                    lambda rows: largest_step(
                        numbers(rows, "admitted", planner="sqpr", bandwidth=name)), 0, 0,
                    "queries"),
            needs,
            lambda rows: ", ".join(
                f"{p}: " + ", ".join(
                    f"{n:.0f}" for n in numbers(rows, "admitted", planner=p, bandwidth=name))
                for p in ("sqpr", "aggregate host")
            ),
            _by_bandwidth,
        ),
        Claim(
            f"the ratio to the bound hardly depends on complexity [{name}]",
            at_most("largest ratio to the aggregate host, less the smallest",
                    lambda rows: max(_ratios(rows, bandwidth=name))
                    - min(_ratios(rows, bandwidth=name)), 0.15),
            needs,
            lambda rows: _listed_ratios(rows, bandwidth=name),
            _by_bandwidth,
        ),
    )  # fmt: skip


def _most_ways(rows: Rows) -> float:
    return max(numbers(rows, "arity"))


CLAIMS_5C = tuple(claim for name in BANDWIDTHS for claim in _claims_5c(name))


def timed(problem: Problem, probes: int, limit_s: float) -> Iterator[tuple[str, float, bool]]:
    """Planning time of single queries at 75 to 95 % use: (planner, CPU seconds, proven).

    CPU time, because that of a clock depends on what else the machine does. All hosts are in the
    model, as in the seed; by default only those that matter most are.
    """
    catalog = Catalog.of(problem)
    filler = SqprPlanner(catalog)
    taken = 0
    for query in problem.queries:
        share = share_used(filler.state, "cpu")
        known = catalog.stream_at[query.stream] in filler.state.delivered_at
        if USED[0] <= share <= USED[1] and not known and taken < probes:
            taken += 1
            solver = MilpPlanner(
                catalog, MilpSettings(limit_s, hosts_considered=len(problem.hosts))
            )
            solver.state = recounted(filler.state)
            started = process_time()
            solver.submit((query,))
            yield "sqpr_milp", process_time() - started, bool(solver.proven)
            started = process_time()
            filler.consider(query)
            yield "sqpr", process_time() - started, True
        filler.submit((query,))
        filler.rest()


def _times(
    workload: Workload, seed: int, quick: bool, probes: int, progress: Progress, **labels: object
) -> list[Row]:
    limit_s = QUICK_LIMIT_S if quick else LIMIT_S
    rows: list[Row] = [
        {**labels, "hosts": workload.hosts, "in_model": workload.hosts, "limit_s": limit_s,
         "planner": planner, "seconds": seconds, "proven": proven}
        for planner, seconds, proven in timed(generate(workload, seed), probes, limit_s)
    ]  # fmt: skip
    for planner in ("sqpr_milp", "sqpr"):
        mine = [row["seconds"] for row in rows if row["planner"] == planner]
        if mine:
            told = {**labels, "hosts": workload.hosts}
            progress(f"{told}: {planner} {sum(mine) / len(mine):.4f} s a query")
    return rows


def run_6a(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Planning time against hosts."""
    rows: list[Row] = []
    for hosts in (5, 10) if quick else (15, 25, 50, 75, 100, 150):
        rows += _times(scaled(TIGHT, hosts), seed, quick, 3 if quick else PROBES, progress)
    return rows


def _proven(rows: Rows, hosts: int) -> float:
    return mean(rows, "proven", planner="sqpr_milp", hosts=hosts)


def _least_proven(rows: Rows) -> float:
    return min(_proven(rows, hosts) for hosts in values(rows, "hosts") if hosts <= 100)


def _seconds(rows: Rows, **where: object) -> float:
    return mean(rows, "seconds", planner="sqpr_milp", **where)


def _hundred(rows: Rows) -> int:
    """The most hosts up to 100, but not the most of all."""
    counts = sorted(values(rows, "hosts"))[:-1]
    return int(max(count for count in counts if count <= 100))


def modelled(count: int) -> Bound:
    return at_least("hosts in the model", lambda rows: max(numbers(rows, "in_model")), count)


def _told_6a(rows: Rows) -> str:
    return f"optimal to {MilpSettings().gap:.0%}; " + "; ".join(
        f"{n} hosts: {_seconds(rows, hosts=n):.2f} s, {_proven(rows, n):.0%} proven"
        for n in values(rows, "hosts")
    )


CLAIMS_6A = (
    Claim(
        "problems with up to 100 hosts are solved to optimality",
        about("least share proven, over numbers of hosts up to 100", _least_proven, 1, 0.05, "%"),
        (hosts_needed(100), modelled(100), LIMIT),
        _told_6a,
    ),
    Claim(
        "larger systems require significantly longer",
        at_least("seconds with the most hosts over those with 100",
                 lambda rows: change(_seconds(rows, hosts=max(values(rows, "hosts"))),
                                     _seconds(rows, hosts=_hundred(rows))), 0.5, 0, "+%"),
        (hosts_needed(150), modelled(150), LIMIT),
        _told_6a,
    ),
)  # fmt: skip


def run_6b(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Planning time against arity at 50 hosts, and against hosts once more for comparison."""
    rows: list[Row] = []
    hosts, probes = (6, 3) if quick else (50, PROBES)
    for arity in (2, 3) if quick else (2, 3, 4, 5):
        asked = replace(scaled(TIGHT, hosts), arities=(arity,))
        rows += _times(asked, seed, quick, probes, progress, varied="arity", arity=arity)
    for count in (4, 8) if quick else (25, 50, 75, 100):
        asked = scaled(TIGHT, count)
        rows += _times(asked, seed, quick, probes, progress, varied="hosts", arity=3)
    return rows


def _rise(rows: Rows, column: str) -> float:
    """Seconds at the largest value over those at the smallest."""
    mine = chosen(rows, varied=column, planner="sqpr_milp")
    low, high = min(numbers(mine, column)), max(numbers(mine, column))
    return _seconds(mine, **{column: high}) / _seconds(mine, **{column: low})


def _told_6b(rows: Rows) -> str:
    return "; ".join(
        f"by {column}: " + ", ".join(
            f"{n}: {_seconds(rows, varied=column, **{column: n}):.2f} s"
            for n in values(chosen(rows, varied=column), column)
        )
        for column in ("arity", "hosts")
    )  # fmt: skip


CLAIMS_6B = (
    Claim(
        "planning takes longer for more complex queries",
        at_least("seconds at the most inputs over those at two", lambda rows: _rise(rows, "arity"),
                 1.1, 0, "times"),
        (hosts_needed(50), modelled(50), LIMIT, at_least("ways of a join", _most_ways, 5)),
        _told_6b,
    ),
    Claim(
        "the rise with complexity is smaller than that with hosts",
        at_most("rise with inputs over the rise with hosts",
                lambda rows: _rise(rows, "arity") / _rise(rows, "hosts"), 1, 0, "times"),
        (hosts_needed(100), modelled(100), LIMIT, at_least("ways of a join", _most_ways, 5)),
        _told_6b,
    ),
)  # fmt: skip


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
            [row for row in rows if row.get("varied", x) == x],
            figure,
            x=x,
            y="seconds",
            line="planner",
            claim=claim,
            labels=(label, "CPU seconds a query, mean"),
            log_y=True,
        )

    return plot


for _name, _title, _run, _draw, _claims in (
    ("5a", "queries admitted by hosts", run_5a, _plot("hosts", "hosts", "super-linear"), CLAIMS_5A),
    ("5b", "queries admitted by resources", run_5b, _plot("cpu", "CPU a host", "near bound"),
     CLAIMS_5B),
    ("5c", "queries admitted by arity", run_5c, _plot("arity", "arity", "constant ratio"),
     CLAIMS_5C),
    ("6a", "planning time by hosts", run_6a, _plot_times("hosts", "hosts", "optimal to 100"),
     CLAIMS_6A),
    ("6b", "planning time by arity", run_6b, _plot_times("arity", "arity", "arity is cheap"),
     CLAIMS_6B),
):  # fmt: skip
    _measured = ("seconds", "proven") if _name.startswith("6") else ("admitted", "ratio")
    EXPERIMENTS.add(
        f"sqpr-{_name}",
        Experiment(f"sqpr-{_name}", _title, "sqpr", _run, _draw, _claims, _measured),
    )
