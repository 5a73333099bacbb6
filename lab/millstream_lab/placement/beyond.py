"""Beyond seed 002: a better policy than its own, the model against exact runs, growth with size."""

from collections.abc import Callable, Sequence
from statistics import fmean
from time import process_time
from typing import Any

import numpy as np

from millstream.decide.balance.model.dataflow import Stream, build
from millstream.decide.balance.model.fragments import fragment_query
from millstream.sim.cluster.cluster import Cluster, Run, Setting
from millstream.sim.cluster.network import NetworkModel
from millstream.sim.scenario import ClusterPart, NetworkPart, Scenario, WorkloadPart
from millstream.sim.workloads import Workload, random_queries
from millstream_lab.claims import (
    Claim,
    Row,
    Rows,
    about,
    at_least,
    at_most,
    change,
    chosen,
    mean,
    numbers,
    values,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.placement.exact import RowSimulation
from millstream_lab.placement.setup import averages, run, scenario, seeds, surge, traffic_mbps

# --- better than the seed -------------------------------------------------------------------------
OURS, THEIRS = "least_ratio", "flow_aware"
SPANS = {"skewed": (30.0, 60.0), "surge": (20.0, 50.0)}


def measure_better(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for number in seeds(seed, 2 if quick else 20):
        progress(f"seed {number}")
        for policy in (THEIRS, OURS):
            skewed = scenario(quick=quick, choice="zipf", policy=policy)
            rows.append(_better_row("skewed", policy, number, run(skewed, number)))
            rows.append(
                _better_row("surge", policy, number, run(surge(quick=quick, policy=policy), number))
            )
    return rows


def _better_row(setup: str, policy: str, seed: int, done: Run) -> dict[str, Any]:
    low, high = SPANS[setup]
    return {
        "setup": setup,
        "policy": policy,
        "seed": seed,
        "worst_ratio": done.mean("ratio_worst", low, high),
        "worst_ratio_whole_run": done.mean("ratio_worst"),
        "traffic_mbps": traffic_mbps(done),
        "state_mbps": done.mean("state_mbps"),
        "moves": sum(move.outcome == "done" for move in done.moves),
    }


def _changes(rows: Rows, setup: str, column: str) -> list[float]:
    """Ours against the seed's policy, seed by seed."""
    return [
        change(
            mean(rows, column, setup=setup, policy=OURS, seed=seed),
            mean(rows, column, setup=setup, policy=THEIRS, seed=seed),
        )
        for seed in values(chosen(rows, setup=setup), "seed")
    ]


def _range_of(setup: str, column: str) -> Callable[[Rows], str]:
    def tell(rows: Rows) -> str:
        found = _changes(rows, setup, column)
        return f"median {np.median(found):+.0%}, from {min(found):+.0%} to {max(found):+.0%}"

    return tell


def _missed_in(setup: str, column: str, most: float) -> Callable[[Rows], str]:
    """In how many seeds, and by how much in each of them."""

    def tell(rows: Rows) -> str:
        found = _changes(rows, setup, column)
        missed = sorted((value for value in found if value > most), reverse=True)
        told = ", ".join(f"{value:+.1%}" for value in missed[:5])
        return f"missed in {len(missed)} of {len(found)} seeds: {told}"

    return tell


TWENTY = (at_least("seeds", lambda rows: len(values(rows, "seed")), 20),)
BETTER_CLAIMS = tuple(
    Claim(
        f"target, not in the seed: {setup}, {text} in every seed",
        at_most(f"largest change of {what}",
                lambda rows, s=setup, c=column: max(_changes(rows, s, c)),  # type: ignore[misc]
                most, 0, "+%"),
        TWENTY,
        _range_of(setup, column),
        _missed_in(setup, column, most),
    )
    for setup in SPANS
    for column, what, text, most in (
        ("worst_ratio", "the worst ratio", "worst ratio at least 20 % lower", -0.2),
        ("traffic_mbps", "traffic", "no more traffic", 0.0),
    )
)  # fmt: skip


def plot_better(rows: Sequence[Row], figure: Any) -> None:
    figure.set_size_inches(8.4, 3.6)
    known = [dict(r) for r in rows]
    for axis, setup in zip(figure.subplots(1, 2), SPANS, strict=True):
        for policy, mark in ((THEIRS, "o"), (OURS, "s")):
            shown = [r for r in known if r["setup"] == setup and r["policy"] == policy]
            axis.plot(
                [r["traffic_mbps"] for r in shown],
                [r["worst_ratio"] for r in shown],
                mark,
                linestyle="none",
                label=policy,
            )
        axis.set_yscale("log")
        axis.set_xlim(left=0)
        axis.set_xlabel("traffic (Mbps)")
        axis.set_ylabel("worst performance ratio")
        axis.set_title(setup, fontsize=9, loc="left")
        axis.legend()


EXPERIMENTS.add(
    "placement-better",
    Experiment(
        "placement-better",
        "lowering the worst ratio directly, against the seed's policy, on 20 seeds",
        "placement",
        measure_better,
        plot_better,
        BETTER_CLAIMS,
        ("worst_ratio", "traffic_mbps"),
    ),
)

# --- the model against exact runs -----------------------------------------------------------------
HOSTS = ("h0", "h1", "h2", "h3")
WIDE = NetworkModel("switched", 1e6, 0.1)


def measure_model(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for rate in (100.0, 250.0) if quick else (100.0, 200.0, 300.0, 360.0):
        for number in seeds(seed, 1 if quick else 3):
            progress(f"{rate:.0f} rows a second, seed {number}")
            rows += _model_rows(rate, number, 10.0 if quick else 60.0)
    return rows


def _errors(rows: Rows) -> list[float]:
    exact = numbers(rows, "exact_s")
    return [m / e - 1 for m, e in zip(numbers(rows, "model_s"), exact, strict=True)]


def _spread_told(rows: Rows) -> str:
    low, high = np.quantile(_errors(rows), [0.05, 0.95])
    return (
        f"{len(rows)} paths, nine in ten between {low:+.0%} and {high:+.0%}, loads of hosts up to "
        f"{max(numbers(rows, 'load')):.2f}"
    )


MODEL_CLAIMS = (
    Claim(
        "check, not in the seed: the expected-value model gives the delays of an exact run",
        about("mean error of a path's delay", lambda rows: fmean(_errors(rows)), 0.0, 0.08, "+%"),
        (at_least("loads of hosts", lambda rows: max(numbers(rows, "load")), 0.8),),
        _spread_told,
    ),
)


def _model_rows(rate: float, seed: int, duration_s: float) -> list[dict[str, Any]]:
    streams = [Stream(f"s{n}", HOSTS[n % 4], rate) for n in range(8)]
    rates = {stream.id: stream.rate for stream in streams}
    random = np.random.default_rng(seed)
    trees = random_queries(Workload(queries=55, operators=440), list(rates), random)
    units = [f for tree in trees for f in fragment_query(tree, rates)]
    flow = build(HOSTS, streams, units)
    placement = flow.unit_native.copy()
    moved = random.random(len(placement)) < 0.3
    placement[moved] = random.integers(0, 4, int(moved.sum()))
    cluster = Cluster(Setting(flow, np.ones(4), WIDE, placement, duration_s=10.0), [])
    cluster.run()
    exact = RowSimulation(
        units,
        rates,
        {stream.id: stream.host for stream in streams},
        {unit.id: HOSTS[at] for unit, at in zip(units, placement, strict=True)},
        latency_s=WIDE.latency_ms / 1e3,
        seed=seed,
    )
    seen = exact.run(duration_s, warm_up_s=1.0)
    at_hosts, between = cluster.flows.path_delays_s(cluster.now_s)
    rows = []
    for n, start in enumerate(flow.path_starts):
        query = flow.queries[flow.path_query[n]]
        stream = flow.streams[flow.edge_stream[flow.path_edges[start]]].id
        found = seen.get((query, stream))
        if found is not None and found.count >= 100:
            rows.append(
                {
                    "rate": rate,
                    "seed": seed,
                    "query": query,
                    "stream": stream,
                    "load": float(cluster.hosts.busy.max()),
                    "exact_s": found.delay_s / found.count,
                    "model_s": float(at_hosts[n] + between[n]),
                }
            )
    return rows


def plot_model(rows: Sequence[Row], figure: Any) -> None:
    axis = figure.subplots()
    known: list[dict[str, Any]] = [dict(r) for r in rows]
    for rate in dict.fromkeys(r["rate"] for r in known):
        shown = [r for r in known if r["rate"] == rate]
        load = max(r["load"] for r in shown)
        axis.plot(
            [r["exact_s"] * 1e3 for r in shown],
            [r["model_s"] * 1e3 for r in shown],
            ".",
            linestyle="none",
            label=f"load up to {load:.2f}",
        )
    ends = [min(r["exact_s"] for r in known) * 1e3, max(r["exact_s"] for r in known) * 1e3]
    axis.plot(ends, ends, "k-", lw=0.8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("exact mean delay of a path (ms)")
    axis.set_ylabel("model (ms)")
    axis.legend()


EXPERIMENTS.add(
    "placement-model",
    Experiment(
        "placement-model",
        "the simulator's expected-value model against an exact one, path by path",
        "placement",
        measure_model,
        plot_model,
        MODEL_CLAIMS,
        ("exact_s", "model_s"),
    ),
)

# --- growth ---------------------------------------------------------------------------------------
SIZES = ((32, 500), (100, 2000), (316, 6320), (1000, 20_000))
QUICK_SIZES = ((16, 250), (32, 500))


def measure_growth(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for hosts, queries in QUICK_SIZES if quick else SIZES:
        for policy in (THEIRS, OURS):
            progress(f"{hosts} hosts, {queries} queries, {policy}")
            made = Scenario(
                name="growth",
                duration_s=60.0,
                cluster=ClusterPart(hosts=hosts),
                network=NetworkPart(bandwidth_mbps=100.0 * hosts / 32),
                workload=WorkloadPart(
                    queries=queries, operators=round(queries * 11.5), choice="zipf", zipf_theta=0.5
                ),
            )
            made = made.model_copy(
                update={"policy": made.policy.model_copy(update={"name": policy})}
            )
            begun = process_time()
            done = run(made, seed)
            rows.append(
                {
                    "hosts": hosts,
                    "queries": queries,
                    "policy": policy,
                    "cpu_s": process_time() - begun,
                    "worst_ratio": done.samples[-1].ratio_worst,
                    "load_mean": float(done.samples[-1].loads.mean()),
                    "moves": len(done.moves),
                    "messages": done.messages,
                }
            )
    return rows


def _growth_claim(policy: str, hosts: int, most_s: float) -> Claim:
    return Claim(
        f"target, not in the seed: 60 simulated seconds in at most {most_s:.0f} s at {hosts:,} "
        f"nodes [{policy}]",
        at_most("CPU time", lambda rows: mean(rows, "cpu_s", policy=policy, hosts=hosts), most_s,
                0, "s"),
        (),
        lambda rows: ", ".join(
            f"{r['hosts']}: {r['cpu_s']:.1f} s" for r in chosen(rows, policy=policy)
        ),
    )  # fmt: skip


GROWTH_CLAIMS = tuple(
    _growth_claim(policy, hosts, most_s)
    for policy in (THEIRS, OURS)
    for hosts, most_s in ((32, 60.0), (1000, 600.0))
)


def plot_growth(rows: Sequence[Row], figure: Any) -> None:
    axis = figure.subplots()
    known = [dict(r) for r in rows]
    for policy in (THEIRS, OURS):
        line = averages([r for r in known if r["policy"] == policy], "cpu_s", "hosts")
        axis.plot(list(line), list(line.values()), "o-", label=policy)
    axis.plot([32, 1000], [60, 600], "k*", markersize=9, linestyle="none", label="at most")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("hosts (with 15 to 20 queries each)")
    axis.set_ylabel("CPU seconds for 60 simulated ones")
    axis.legend()


EXPERIMENTS.add(
    "placement-growth",
    Experiment(
        "placement-growth",
        "what a simulated minute costs as the cluster grows",
        "placement",
        measure_growth,
        plot_growth,
        GROWTH_CLAIMS,
        ("cpu_s", "worst_ratio"),
    ),
)
