"""How many queries planners with reuse admit, how fast, and how far from a proven bound.

`run_planning_bench` plans the workload of SQPR's section V.A (50 hosts, 1,000 queries) with every
planner in a tight and in the paper's literal regime over several seeds, a large system, a system
with binding links, the mixed-integer planner at 15 hosts, and whole batches. Targets stand beside
the figures; those of time are judged by CPU time, which is the wall clock's where nothing else
runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from statistics import mean
from time import perf_counter, process_time
from typing import Any

import numpy as np

from millstream.core.errors import UsageError
from millstream.decide.place.bounds import aggregate_host, proven_bound, standalone_costs
from millstream.decide.place.planners import Outcome, plan_all
from millstream.decide.place.problem import Link, Links, Problem
from millstream.decide.place.workload import LITERAL, TIGHT, Workload, generate, scaled

Progress = Callable[[str], None]
QUICK_PLANNERS = ("sqpr", "sqpr_tiers", "heuristic", "soda")
MILP_TIMEOUT_S = 2.0
REGIMES = {"tight": (TIGHT, 1.05), "literal": (LITERAL, 1.02)}  # and times the aggregate host
PARTS = (*REGIMES, "large", "distances", "links", "milp", "batch")
BATCH_S = 600.0  # of wall clock, for a batch's plan and for the bound that it is held against


def run_planning_bench(
    *,
    seed: int = 1,
    quick: bool = False,
    parts: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """All figures, ready for JSON; `quick` is a small run to see that it works."""
    say = progress or _silent
    hosts, seeds = (10, 1) if quick else (50, 5)
    figures: dict[str, Any] = {"seeds": [seed + number for number in range(seeds)]}
    for part in parts_of(parts):
        if part in REGIMES:
            workload = scaled(REGIMES[part][0], hosts)
            problems = [generate(workload, seed + number) for number in range(seeds)]
            figures[part] = _regime(part, problems, say)
        elif part == "large":
            figures[part] = _large(scaled(TIGHT, 100 if quick else 1000), seed, say)
        elif part == "distances":
            figures[part] = _distances(scaled(TIGHT, 20 if quick else 200), seed, say)
        elif part == "links":
            figures[part] = _links(scaled(TIGHT, hosts), seed, say)
        elif part == "milp":
            figures[part] = _milp(scaled(TIGHT, 5 if quick else 15), seed, quick, say)
        else:
            figures[part] = _batches((5,) if quick else (15, 50), seed, say)
    figures["targets"] = _targets(figures)
    for target in figures["targets"]:
        mark = "met" if target["met"] else "MISSED"
        say(f"{target['what']}: {target['measured']:.4g} (target {target['target']}): {mark}")
    return figures


def parts_of(chosen: str | None) -> tuple[str, ...]:
    """The parts that a user names, with commas, in the order of `PARTS`; all without a name.

    >>> parts_of("links, tight")
    ('tight', 'links')
    """
    if chosen is None:
        return PARTS
    named = {name.strip() for name in chosen.split(",")}
    if unknown := sorted(named - set(PARTS)):
        raise UsageError(f"unknown part {unknown[0]!r}", hint=f"of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in named)


def _regime(name: str, problems: list[Problem], say: Progress) -> dict[str, Any]:
    weights = [standalone_costs(problem) for problem in problems]
    aggregate = [aggregate_host(problem) for problem in problems]
    bounds = [proven_bound(problem) for problem in problems]
    plain = [proven_bound(problem, packing=False) for problem in problems]
    figures: dict[str, Any] = {
        "aggregate_host": mean(len(item.admitted) for item in aggregate),
        "aggregate_host_each": [len(item.admitted) for item in aggregate],
        "proven_bound": mean(item.admitted for item in bounds),
        "proven": all(item.proven for item in bounds),
        "plain_bound": mean(item.admitted for item in plain),  # operators divided among hosts
    }
    say(
        f"{name}: aggregate host {figures['aggregate_host']:.1f}, "
        f"proven bound {figures['proven_bound']:.1f} ({figures['plain_bound']:.1f} without packing)"
    )
    for planner in QUICK_PLANNERS:
        outcomes = [plan_all(problem, planner) for problem in problems]
        figures[planner] = _planner_figures(outcomes, weights)
        line = figures[planner]
        say(
            f"{name} {planner}: {line['admitted']:.1f} admitted, {line['before_first_refusal']:.1f}"
            f" before the first refusal, weight {line['weight']:.0f}; ms median"
            f" {line['median_ms']:.2f}, p95 {line['p95_ms']:.2f}, max {line['max_ms']:.1f}"
            f" (CPU {line['median_cpu_ms']:.2f}, {line['p95_cpu_ms']:.2f});"
            f" {line['seconds']:.1f} s in all"
        )
    return figures


def _planner_figures(outcomes: list[Outcome], weights: list[dict[str, float]]) -> dict[str, Any]:
    times = [outcome.solution.planning_ms for outcome in outcomes]
    return {
        "admitted": mean(len(outcome.solution.admitted) for outcome in outcomes),
        "admitted_each": [len(outcome.solution.admitted) for outcome in outcomes],
        "before_first_refusal": mean(outcome.before_first_refusal for outcome in outcomes),
        "weight": mean(
            sum(weight[query] for query in outcome.solution.admitted)
            for outcome, weight in zip(outcomes, weights, strict=True)
        ),
        "median_ms": mean(item.median for item in times),
        "p95_ms": mean(item.p95 for item in times),
        "max_ms": max(item.max for item in times),
        "median_cpu_ms": mean(outcome.cpu_ms.median for outcome in outcomes),
        "p95_cpu_ms": mean(outcome.cpu_ms.p95 for outcome in outcomes),
        "seconds": mean(outcome.seconds_total for outcome in outcomes),
    }


def _large(workload: Workload, seed: int, say: Progress) -> dict[str, Any]:
    """Many hosts: flat, and in sites of fifty."""
    figures: dict[str, Any] = {"hosts": workload.hosts, "queries": workload.queries}
    for planner, sites in (("sqpr", 1), ("sqpr_tiers", max(1, workload.hosts // 50))):
        problem = generate(replace(workload, sites=sites), seed)
        busy, started = process_time(), perf_counter()
        outcome = plan_all(problem, planner)
        times = outcome.solution.planning_ms
        figures[planner] = {
            "admitted": len(outcome.solution.admitted),
            "seconds": perf_counter() - started,
            "cpu_seconds": process_time() - busy,
            "median_ms": times.median,
            "p95_ms": times.p95,
        }
        line = figures[planner]
        say(
            f"{workload.hosts} hosts, {workload.queries} queries, {planner}: {line['admitted']}"
            f" admitted in {line['seconds']:.1f} s ({line['cpu_seconds']:.1f} s CPU),"
            f" ms median {times.median:.2f}, p95 {times.p95:.2f}"
        )
    return figures


def _distances(workload: Workload, seed: int, say: Progress) -> dict[str, Any]:
    """Hosts on a map of 100 by 100; most queries have a bound on the way of a row, and half of them
    a place. The first of the workload: as many as three a host."""
    problem = generate(workload, seed)
    random = Random(seed)
    names = [host.id for host in problem.hosts]
    points = np.array([(100 * random.random(), 100 * random.random()) for _ in names])
    apart = points[:, None, :] - points[None, :, :]
    queries = tuple(
        replace(
            query,
            latency_bound=random.choice((None, 80.0, 120.0, 200.0)),
            deliver_to=random.choice((None, random.choice(names))),
        )
        for query in problem.queries[: 3 * len(names)]
    )
    links = replace(problem.links, distance=np.hypot(apart[..., 0], apart[..., 1]))
    outcome = plan_all(replace(problem, queries=queries, links=links), "sqpr")
    figures: dict[str, Any] = {
        "admitted": len(outcome.solution.admitted),
        "median_cpu_ms": outcome.cpu_ms.median,
        "p95_cpu_ms": outcome.cpu_ms.p95,
        "max_cpu_ms": outcome.cpu_ms.max,
    }
    say(
        f"distances, {len(names)} hosts: {figures['admitted']} of {len(queries)} admitted,"
        f" ms of CPU median {outcome.cpu_ms.median:.2f}, p95 {outcome.cpu_ms.p95:.2f},"
        f" max {outcome.cpu_ms.max:.0f}"
    )
    return figures


def _links(workload: Workload, seed: int, say: Progress) -> dict[str, Any]:
    """Links that carry one base stream each, and hosts that reach only four others."""
    figures: dict[str, Any] = {}
    plain = generate(workload, seed)
    few = scaled(workload, 10)
    for name, problem in (
        ("no limit", plain),
        ("four neighbours", replace(plain, links=_ring(plain, 2))),
        ("10 hosts, no limit", generate(few, seed)),
        ("10 hosts, links of 10.5", generate(replace(few, link_bandwidth=10.5), seed)),
    ):
        outcome = plan_all(problem, "sqpr")
        times = outcome.solution.planning_ms
        figures[name] = {
            "admitted": len(outcome.solution.admitted),
            "median_ms": times.median,
            "p95_ms": times.p95,
        }
        say(
            f"links, {name}: {len(outcome.solution.admitted)} admitted,"
            f" ms median {times.median:.2f}, p95 {times.p95:.2f}"
        )
    return figures


def _ring(problem: Problem, reach: int) -> Links:
    """Each host has links to the next ones on both sides only; the rest goes by relays."""
    names = [host.id for host in problem.hosts]
    count = len(names)
    pairs = {
        (names[number], names[(number + step) % count])
        for number in range(count)
        for step in range(-reach, reach + 1)
        if step % count
    }
    return Links(listed=tuple(Link(source, target) for source, target in sorted(pairs)))


def _milp(workload: Workload, seed: int, quick: bool, say: Progress) -> dict[str, Any]:
    problem = generate(workload, seed)
    if quick:
        problem = replace(problem, queries=problem.queries[:20])
    milp = plan_all(problem, "sqpr_milp", timeout_s=MILP_TIMEOUT_S)
    fast = plan_all(problem, "sqpr")
    rival = plan_all(problem, "heuristic")
    times = milp.solution.planning_ms
    figures = {
        "hosts": workload.hosts,
        "admitted": len(milp.solution.admitted),
        "admitted_sqpr": len(fast.solution.admitted),
        "admitted_heuristic": len(rival.solution.admitted),
        "before_first_refusal": milp.before_first_refusal,
        "before_first_refusal_sqpr": fast.before_first_refusal,
        "median_ms": times.median,
        "p95_ms": times.p95,
        "max_ms": times.max,
        "p95_cpu_ms": milp.cpu_ms.p95,
    }
    say(
        f"sqpr_milp, {workload.hosts} hosts: {figures['admitted']} admitted (sqpr"
        f" {figures['admitted_sqpr']}, heuristic {figures['admitted_heuristic']}), ms median"
        f" {times.median:.0f}, p95 {times.p95:.0f}, max {times.max:.0f}"
        f" (CPU p95 {milp.cpu_ms.p95:.0f})"
    )
    return figures


def _batches(sizes: Sequence[int], seed: int, say: Progress) -> dict[str, Any]:
    """All queries at once, against what is proven: the gap that hindsight leaves."""
    figures: dict[str, Any] = {}
    for hosts in sizes:
        for regime, (workload, _) in REGIMES.items():
            problem = generate(scaled(workload, hosts), seed)
            began, busy = perf_counter(), process_time()
            outcome = plan_all(problem, "sqpr_batch", batch=len(problem.queries))
            seconds, cpu = perf_counter() - began, process_time() - busy
            bound = proven_bound(problem, BATCH_S)
            alone = len(plan_all(problem).solution.admitted)
            admitted = len(outcome.solution.admitted)
            figures[f"{hosts} hosts, {regime}"] = {
                "admitted": admitted, "admitted_sqpr": alone, "bound": bound.admitted,
                "proven": bound.proven, "gap": 1 - admitted / bound.admitted,
                "gap_sqpr": 1 - alone / bound.admitted, "seconds": seconds, "cpu_seconds": cpu,
                "bound_seconds": bound.seconds,
            }  # fmt: skip
            say(
                f"batch, {hosts} hosts, {regime}: {admitted} admitted, none admits more than"
                f" {bound.admitted}{'' if bound.proven else ' (by what was proven in time)'}: a gap"
                f" of {1 - admitted / bound.admitted:.2%}; one by one {alone}. {seconds:.0f} s,"
                f" {cpu:.0f} s of CPU; the bound {bound.seconds:.0f} s"
            )
    return figures


def _targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """The targets of the planning issue with what was measured, of the parts that ran."""
    rows: list[dict[str, Any]] = []

    def target(what: str, measured: float, limit: float, *, at_least: bool) -> None:
        met = measured >= limit if at_least else measured <= limit
        sign = ">=" if at_least else "<="
        rows.append({"what": what, "measured": measured, "target": f"{sign} {limit:g}", "met": met})

    for regime, (_, factor) in REGIMES.items():
        if regime not in figures:
            continue
        part = figures[regime]
        mine = part["sqpr"]
        ratio = mine["admitted"] / part["aggregate_host"]
        target(f"{regime}: sqpr / aggregate host", ratio, factor, at_least=True)
        rival = mine["admitted"] / part["heuristic"]["admitted"]
        least = 1.6 if regime == "tight" else 1.0
        target(f"{regime}: sqpr / heuristic", rival, least, at_least=True)
        gap = 1 - mine["admitted"] / part["proven_bound"]
        target(f"{regime}: gap to the proven bound", gap, 0.16, at_least=False)
        for measure in ("before_first_refusal", "weight"):
            best = max(part[other][measure] for other in ("heuristic", "soda"))
            target(f"{regime}: {measure} / best rival", mine[measure] / best, 1.0, at_least=True)
        target(f"{regime}: median ms of CPU", mine["median_cpu_ms"], 1.0, at_least=False)
        target(f"{regime}: p95 ms of CPU", mine["p95_cpu_ms"], 5.0, at_least=False)
    if "large" in figures:
        large = figures["large"]["sqpr"]["cpu_seconds"]
        target("large system: CPU seconds in all", large, 30, at_least=False)
    if "distances" in figures:
        p95 = figures["distances"]["p95_cpu_ms"]
        target("distances and bounds: p95 ms of CPU", p95, 20, at_least=False)
    for name, part in figures.get("batch", {}).items():
        target(f"batch, {name}: gap to the proven bound", part["gap"], 0.10, at_least=False)
        target(f"batch, {name}: seconds", part["seconds"], BATCH_S, at_least=False)
    if "milp" in figures:
        target("sqpr_milp: p95 ms of CPU", figures["milp"]["p95_cpu_ms"], 2000, at_least=False)
    return rows


def _silent(line: str) -> None:
    """Says nothing."""
