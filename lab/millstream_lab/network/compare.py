"""Seed 003, figures 5 to 7: the algorithms compared in three arrangements, and section 5's bounds.

network-5 draws the arrangements and sets the analysis of section 5 (probability of beating the
baseline, message counts) beside measurements; network-6 is the bandwidth consumption ratio,
network-7 the stretch, for tight and loose latency bounds.
"""

from collections.abc import Sequence

import numpy as np

from millstream.decide.place.network.bounds import message_bounds, probability_of_saving
from millstream.sim.topologies.arrangements import SCENARIOS
from millstream.sim.topologies.trees import TreeModel
from millstream_lab.experiment import EXPERIMENTS, Experiment, Finding, Outcome
from millstream_lab.network.plots import plot_bars, plot_messages
from millstream_lab.network.setup import (
    DISTRIBUTED,
    Progress,
    Row,
    Workload,
    bounds_of,
    gathered,
    instances,
    judged,
    mean,
    named,
    rows_of,
    scale,
)

ARRANGEMENTS = SCENARIOS.names()
DEPTHS = (2, 3, 4, 5)  # of the trees of section 5
_compared: dict[tuple[int, bool], list[Row]] = {}  # figures 6 and 7 show the same runs


def compared(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """All planners, three arrangements; tight and loose as in the seed, and without a bound."""
    if (seed, quick) not in _compared:
        _compared[seed, quick] = gathered(compared_on, seed, quick, progress)
    return _compared[seed, quick]


def compared_on(seed: int, quick: bool, number: int) -> list[Row]:
    rows: list[Row] = []
    workloads = [named(name) for name in ARRANGEMENTS]
    for instance in instances(workloads, seed, scale(quick), number):
        scenario = SCENARIOS.get(instance.labels["arrangement"])
        spread = {
            "apd_ms": instance.arrangement.proxy_distance_ms,
            "asd_ms": instance.arrangement.server_distance_ms,
        }
        bounds = {**bounds_of(scenario), "none": None}
        rows.extend(row | spread for row in rows_of(instance, bounds))
    return rows


def run_ratio(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows = compared(seed, quick, progress)
    seen = {
        (planner, arrangement, bound): mean(
            rows,
            "ratio",
            planner=planner,
            arrangement=arrangement,
            bound=bound,
            mode="distributed" if planner in DISTRIBUTED else "centralised",
        )
        for planner in (*DISTRIBUTED, "optimal_tree")
        for arrangement in ARRANGEMENTS
        for bound in ("tight", "loose")
    }
    gains = {a: seen["in_network", a, "loose"] for a in ARRANGEMENTS}
    cluster = all(
        seen[p, "cluster", b] == min(seen[p, a, b] for a in ARRANGEMENTS)
        for p in DISTRIBUTED
        for b in ("tight", "loose")
    )
    below = {
        (p, a, b): seen[p, a, b] - seen["edge", a, b]
        for p in ("edge_plus", "in_network")
        for a in ARRANGEMENTS
        for b in ("tight", "loose")
    }
    looser = {a: seen["in_network", a, "tight"] - gains[a] for a in ARRANGEMENTS}
    return Outcome(
        rows,
        (
            judged(
                "the cluster arrangement gains most",
                "In-Network, loose: " + _listed(gains),
                cluster,
            ),
            judged(
                "Edge+ and In-Network stay below Edge in every arrangement",
                f"differences from {min(below.values()):+.3f} to {max(below.values()):+.3f}",
                max(below.values()) <= 0.005,
                "within half a percent where the bound leaves hardly any choice",
            ),
            judged(
                "relaxing the bound has little effect on the ratio",
                "tight minus loose, In-Network: " + _listed(looser),
                max(looser.values()) < 0.1,
                "sources lie up to 117 ms from the proxy here, so that 120 ms forbids almost every "
                "detour; the seed does not say how far they lie",
            ),
            _price_of_distribution(rows),
        ),
    )


def _price_of_distribution(rows: Sequence[Row]) -> Finding:
    parts = []
    for planner in DISTRIBUTED:
        central = mean(rows, "ratio", planner=planner, mode="centralised")
        spread = mean(rows, "ratio", planner=planner, mode="distributed")
        parts.append(f"{planner} {central:.3f} centralised, {spread:.3f} distributed")
    best = mean(rows, "ratio", planner="optimal_tree")
    return judged(
        "distributed Edge+ knows less than centralised Edge+ (section 4.3); no optimum is given",
        "; ".join(parts) + f"; optimum {best:.3f}",
        True,
    )


def run_stretch(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows = compared(seed, quick, progress)
    seen = {
        (planner, bound): {
            a: mean(
                rows, "stretch", planner=planner, bound=bound, arrangement=a, mode="distributed"
            )
            for a in ARRANGEMENTS
        }
        for planner in DISTRIBUTED
        for bound in ("tight", "loose")
    }
    edge_worst = all(
        seen["edge", "loose"][a] >= max(seen[p, "loose"][a] for p in DISTRIBUTED[1:])
        for a in ARRANGEMENTS
    )
    loose = {
        a: seen["in_network", "loose"][a] - seen["edge_plus", "loose"][a] for a in ARRANGEMENTS
    }
    tight = {
        a: seen["in_network", "tight"][a] - seen["edge_plus", "tight"][a] for a in ARRANGEMENTS
    }
    central = {
        p: mean(rows, "stretch", planner=p, bound="loose", mode="centralised") for p in DISTRIBUTED
    }
    free = {
        p: mean(rows, "stretch", planner=p, bound="none", mode="distributed") for p in DISTRIBUTED
    }
    return Outcome(
        rows,
        (
            judged(
                "under loose bounds Edge has the worst stretch",
                "; ".join(f"{p}: {_listed(seen[p, 'loose'])}" for p in DISTRIBUTED)
                + f"; centralised {_listed(central)}",
                edge_worst,
                "the bound caps every planner's stretch alike; without any bound Edge is "
                + ("worst" if free["edge"] == max(free.values()) else "not worst either")
                + f", {_listed(free)}",
            ),
            judged(
                "under loose bounds In-Network stays below Edge+",
                "difference: " + _listed(loose, "+.3f"),
                max(loose.values()) <= 0.0,
                "In-Network spends the room that the bound leaves on bandwidth; without a bound it "
                f"has {free['in_network']:.3f} against {free['edge_plus']:.3f} of Edge+",
            ),
            judged(
                "under tight bounds In-Network lies above Edge+",
                "difference: " + _listed(tight, "+.3f"),
                min(tight.values()) >= 0.0,
            ),
        ),
    )


def run_analysis(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Full trees of each depth, zones of one and two levels, no bound; and section 5's figures."""
    rows = gathered(analysed_on, seed, quick, progress)
    return Outcome(rows, (*_probability_findings(rows, seed), *_message_findings(rows, DEPTHS)))


def analysed_on(seed: int, quick: bool, number: int) -> list[Row]:
    rows: list[Row] = []
    workloads = [
        Workload(name, SCENARIOS.get(name), TreeModel(depths=(d, d)), share=0.1)
        for name in ARRANGEMENTS
        for d in DEPTHS
    ]
    for instance in instances(workloads, seed, scale(quick), number):
        for levels in (1, 2):
            depth = instance.labels["depth"]
            bounds = message_bounds(2, depth, levels)
            extra = {
                "zone_levels": levels,
                "apd_ms": instance.arrangement.proxy_distance_ms,
                "asd_ms": instance.arrangement.server_distance_ms,
                "saving_probability": probability_of_saving(2, depth),
                "bound_initialization": bounds.initialization,
                "bound_topology": bounds.topology,
                "bound_total": bounds.total,
            }
            found = rows_of(instance, {"none": None}, planners=(), levels=levels)
            rows.extend(row | extra for row in found)
    return rows


def _probability_findings(rows: Sequence[Row], seed: int) -> tuple[Finding, ...]:
    parts = []
    for depth in (2, 3, 4, 5):
        some = [row for row in rows if row["depth"] == depth and row["zone_levels"] == 1]
        wins = {
            planner: float(
                np.mean([r["ratio"] < 1 - 1e-9 for r in some if r["planner"] == planner])
            )
            for planner in DISTRIBUTED
        }
        parts.append(f"depth {depth}: {_listed(wins)} (P_S {probability_of_saving(2, depth):.3f})")
    in_network = float(
        np.mean([r["ratio"] < 1 - 1e-9 for r in rows if r["planner"] == "in_network"])
    )
    independent = _independent_rates(seed)
    spread = {
        a: f"{mean(rows, 'apd_ms', arrangement=a):.0f}/{mean(rows, 'asd_ms', arrangement=a):.0f} ms"
        for a in ARRANGEMENTS
    }
    return (
        judged(
            "APD : ASD is 1 : 2 in a star, 1 : 1 in uniform, 2 : 1 in a cluster",
            "; ".join(f"{a} {text}" for a, text in spread.items())
            + " (1 : 2 is the limit of the triangle inequality)",
            abs(
                mean(rows, "asd_ms", arrangement="star") / mean(rows, "apd_ms", arrangement="star")
                - 2
            )
            < 0.25,
            "real stub nodes do not lie on opposite sides of the proxy's: a star stays below 1 : 2",
        ),
        judged(
            "the baseline is beaten with probability P_S, rising with the tree",
            "; ".join(parts),
            in_network >= 0.9,
        ),
        judged(
            "P_S follows from independent uniform costs: 1 / (d + 1) for each lowest operator",
            f"an operator out-sends both inputs in {independent:.4f} of 100,000 draws (1/3)",
            abs(independent - 1 / 3) < 0.01,
        ),
    )


def _independent_rates(seed: int) -> float:
    rng = np.random.default_rng([seed, 5])
    costs = rng.uniform(size=(100_000, 3))
    return float(np.mean(costs[:, 0] > costs[:, 1:].max(axis=1)))


def _message_findings(rows: Sequence[Row], depths: Sequence[int]) -> tuple[Finding, ...]:
    findings = []
    for planner, column, bound in (
        ("edge", "messages", "bound_initialization"),
        ("edge_plus", "probed_pairs", "bound_topology"),
        ("in_network", "messages", "bound_total"),
    ):
        shares = {}
        for depth in depths:
            where = {"planner": planner, "depth": depth, "zone_levels": 1}
            shares[f"depth {depth}"] = mean(rows, column, **where) / mean(rows, bound, **where)
        last, first = shares[f"depth {depths[-1]}"], shares[f"depth {depths[0]}"]
        findings.append(
            judged(
                f"{planner}: {column.replace('_', ' ')} grow as {bound.replace('_', ' ')}",
                "measured over bound: " + _listed(shares, ".2f"),
                last <= 1.3 * first,
            )
        )
    deepest = max(depths)
    counts = {
        f"{levels} level(s)": mean(
            rows, "messages", planner="in_network", depth=deepest, zone_levels=levels
        )
        for levels in (1, 2)
    }
    findings.append(
        judged(
            "larger zones need fewer messages",
            f"In-Network, depth {deepest}: " + _listed(counts, ".0f"),
            counts["2 level(s)"] < counts["1 level(s)"],
        )
    )
    return tuple(findings)


def _listed(values: dict[str, float], form: str = ".3f") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


EXPERIMENTS.add(
    "network-5",
    Experiment(
        "network-5",
        "arrangements of sources; chance of beating the baseline; messages against section 5",
        "network",
        run_analysis,
        plot_messages,
    ),
)
EXPERIMENTS.add(
    "network-6",
    Experiment(
        "network-6",
        "bandwidth consumption ratio by arrangement, tight and loose bounds",
        "network",
        run_ratio,
        lambda rows, figure: plot_bars(rows, figure, "ratio", "bandwidth consumption ratio"),
    ),
)
EXPERIMENTS.add(
    "network-7",
    Experiment(
        "network-7",
        "latency stretch by arrangement, tight and loose bounds",
        "network",
        run_stretch,
        lambda rows, figure: plot_bars(rows, figure, "stretch", "stretch"),
    ),
)
