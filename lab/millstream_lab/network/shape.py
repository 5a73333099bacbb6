"""Seed 003, figures 8 to 12: what the spread of sources, the shape of trees and selectivity do.

All for In-Network, distributed as in the seed, with its centralised version and the optimum
beside it (and the other planners in the rows of network-8, 11 and 12).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from millstream.sim.topologies.arrangements import Scenario
from millstream.sim.topologies.trees import TreeModel
from millstream_lab.experiment import EXPERIMENTS, Experiment, Outcome
from millstream_lab.network.plots import plot_lines, plot_locations
from millstream_lab.network.setup import (
    LOOSE_MS,
    NEAR,
    Bounds,
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
    with_selectivity,
)

SPREADS = (0.03, 0.06, 0.09, 0.12, 0.16, 0.2)  # ASD over the diameter
DELAYS_MS = (120.0, 140.0, 170.0, 210.0, 260.0, 320.0, 400.0, 500.0)
SHAPES = {
    "base": TreeModel(depths=(3, 3)),
    "deeper": TreeModel(depths=(5, 5)),
    "wider": TreeModel(depths=(3, 3), fanout=3),
}
SELECTIVITIES = (0.25, 0.5, 0.75, 1.0)
# A network's 100 trees are spread over the values of what is varied: at least 250 trees a point.
SHARE = 0.25
ONLY = {"planner": "in_network", "mode": "distributed"}
_shaped: dict[tuple[int, bool], list[Row]] = {}  # figures 9 and 10 show the same runs
_selective: dict[tuple[int, bool], list[Row]] = {}  # and so do 11 and 12


def run_spread(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Cluster with the proxy at a fixed distance and the sources ever farther apart."""
    spreads = _spreads(quick)
    rows = gathered(spread_on, seed, quick, progress)
    seen = {
        bound: [mean(rows, "ratio", **ONLY, bound=bound, asd=spread) for spread in spreads]
        for bound in ("tight", "loose")
    }
    slopes = {bound: float(np.polyfit(spreads, values, 1)[0]) for bound, values in seen.items()}
    return Outcome(
        rows,
        (
            judged(
                "the ratio grows with ASD",
                "; ".join(f"{bound}: {_series(spreads, values)}" for bound, values in seen.items()),
                all(values[-1] > values[0] for values in seen.values()),
            ),
            judged(
                "it grows faster under the tight bound",
                f"slope {slopes['tight']:.2f} tight, {slopes['loose']:.2f} loose",
                slopes["tight"] > slopes["loose"],
                "under the tight bound the ratio is near 1 already for close sources, and cannot "
                "grow much",
            ),
        ),
    )


def _spreads(quick: bool) -> tuple[float, ...]:
    return SPREADS[::2] if quick else SPREADS


def spread_on(seed: int, quick: bool, number: int) -> list[Row]:
    workloads = [
        Workload("cluster", Scenario(NEAR, spread, 0.235), labels=(("asd", spread),), share=SHARE)
        for spread in _spreads(quick)
    ]
    bounds = bounds_of(workloads[0].scenario)
    found = instances(workloads, seed, scale(quick), number)
    return [row for instance in found for row in rows_of(instance, bounds)]


def shaped(seed: int, quick: bool, progress: Progress) -> list[Row]:
    if (seed, quick) not in _shaped:
        _shaped[seed, quick] = gathered(shaped_on, seed, quick, progress)
    return _shaped[seed, quick]


def shaped_on(seed: int, quick: bool, number: int) -> list[Row]:
    delays = DELAYS_MS[::3] if quick else DELAYS_MS
    bounds: Bounds = {f"{delay:.0f}": delay for delay in delays}
    scenario = named("cluster").scenario
    workloads = [
        Workload("cluster", scenario, model, (("shape", shape),), share=1 / len(SHAPES))
        for shape, model in SHAPES.items()
    ]
    planners = ("in_network", "optimal_tree")
    return [
        row
        for instance in instances(workloads, seed, scale(quick), number)
        for row in rows_of(instance, bounds, planners=planners, distributed=("in_network",))
    ]


def run_shape_ratio(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows = shaped(seed, quick, progress)
    delays, seen = _by_shape(rows, "ratio", **ONLY)
    _, central = _by_shape(rows, "ratio", planner="in_network", mode="centralised")
    falls = all(values[-1] < values[0] for values in seen.values())
    early = {s: v[0] - v[len(v) // 2] for s, v in seen.items()}
    late = {s: v[len(v) // 2] - v[-1] for s, v in seen.items()}
    loose = {shape: values[-1] for shape, values in seen.items()}
    return Outcome(
        rows,
        (
            judged(
                "the ratio falls as the bound loosens, then stays flat",
                "; ".join(f"{s}: {_series(delays, v)}" for s, v in seen.items()),
                falls and all(late[s] <= early[s] for s in seen),
            ),
            judged(
                "deeper trees have a lower ratio",
                f"loosest: {_listed(loose)}; centralised "
                + _listed({s: v[-1] for s, v in central.items()}),
                loose["deeper"] < loose["base"],
            ),
            judged(
                "wider trees have a higher ratio",
                f"loosest: base {loose['base']:.3f}, wider {loose['wider']:.3f}",
                loose["wider"] > loose["base"],
                "at equal depth a wider tree also has more sources, and an operator over more "
                "inputs drops more rows: sigma x sum is the same share of a larger sum",
            ),
        ),
    )


def run_shape_stretch(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows = shaped(seed, quick, progress)
    delays, seen = _by_shape(rows, "stretch", **ONLY)
    loose = {shape: values[-1] for shape, values in seen.items()}
    # Flat means: the last step adds no more than a tenth of what the bound itself gained.
    flat = all(v[-1] - v[-2] <= 0.1 * v[-2] for v in seen.values())
    return Outcome(
        rows,
        (
            judged(
                "stretch rises as the bound loosens, then stays flat",
                "; ".join(f"{s}: {_series(delays, v)}" for s, v in seen.items()),
                flat and all(v[-1] > v[0] for v in seen.values()),
                "the deepest trees still use the room that the last step of the bound gives",
            ),
            judged(
                "deeper and wider trees have a larger stretch",
                f"loosest: {_listed(loose)}",
                loose["deeper"] > loose["base"] and loose["wider"] > loose["base"],
            ),
        ),
    )


def selective(seed: int, quick: bool, progress: Progress) -> list[Row]:
    if (seed, quick) not in _selective:
        _selective[seed, quick] = gathered(selective_on, seed, quick, progress)
    return _selective[seed, quick]


def selective_on(seed: int, quick: bool, number: int) -> list[Row]:
    workloads = [
        replace(with_selectivity(named(name), value), share=SHARE)
        for name in ("cluster", "star")
        for value in SELECTIVITIES
    ]
    found = instances(workloads, seed, scale(quick), number)
    return [row for instance in found for row in rows_of(instance, {"loose": LOOSE_MS})]


def run_selectivity(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows = selective(seed, quick, progress)
    ratio = {a: _by_selectivity(rows, "ratio", a) for a in ("cluster", "star")}
    stretch = {a: _by_selectivity(rows, "stretch", a) for a in ("cluster", "star")}
    return Outcome(
        rows,
        (
            judged(
                "the ratio rises with selectivity",
                "; ".join(f"{a}: {_series(SELECTIVITIES, v)}" for a, v in ratio.items()),
                all(v == sorted(v) for v in ratio.values()),
            ),
            judged(
                "stars have higher ratios than clusters",
                f"at 1.0: star {ratio['star'][-1]:.3f}, cluster {ratio['cluster'][-1]:.3f}",
                all(s > c for s, c in zip(ratio["star"], ratio["cluster"], strict=True)),
            ),
            judged(
                "stretch falls with selectivity",
                "; ".join(f"{a}: {_series(SELECTIVITIES, v)}" for a, v in stretch.items()),
                all(v[-1] < v[0] for v in stretch.values()),
            ),
        ),
    )


def run_locations(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows = selective(seed, quick, progress)
    inside = {a: _by_selectivity(rows, "inside", a) for a in ("cluster", "star")}
    proxy = {a: _by_selectivity(rows, "at_proxy", a) for a in ("cluster", "star")}
    knowing = {
        (planner, a): [
            mean(
                rows,
                "inside",
                planner=planner,
                mode="centralised",
                arrangement=a,
                selectivity_max=value,
            )
            for value in SELECTIVITIES
        ]
        for planner in ("in_network", "optimal_tree")
        for a in ("cluster", "star")
    }
    elsewhere = "; ".join(
        f"{'optimum' if planner == 'optimal_tree' else 'centralised'} {a}: "
        + _series(SELECTIVITIES, values)
        for (planner, a), values in knowing.items()
    )
    follows = all(values[-1] > values[0] for values in knowing.values())
    few = (
        "a route has two or three hops, so that few peers are met and few of them lie between "
        "sources; with all nodes known the claim "
        + ("holds" if follows else "does not hold either")
    )
    return Outcome(
        rows,
        (
            judged(
                "less selective operators lie more often inside the network",
                "; ".join(f"{a}: {_series(SELECTIVITIES, v)}" for a, v in inside.items())
                + f"; {elsewhere}",
                all(v[-1] > v[0] for v in inside.values()),
                few,
            ),
            judged(
                "and more often at the proxy",
                "; ".join(f"{a}: {_series(SELECTIVITIES, v)}" for a, v in proxy.items()),
                all(v[-1] > v[0] for v in proxy.values()),
            ),
            judged(
                "clusters use the inside of the network more than stars, stars the proxy more",
                f"at 1.0 inside: cluster {inside['cluster'][-1]:.3f}, "
                f"star {inside['star'][-1]:.3f}; "
                f"proxy: cluster {proxy['cluster'][-1]:.3f}, star {proxy['star'][-1]:.3f}",
                inside["cluster"][-1] > inside["star"][-1]
                and proxy["star"][-1] > proxy["cluster"][-1],
                "between the far-apart sources of a star lie more nodes: the optimum has "
                f"{knowing['optimal_tree', 'star'][-1]:.3f} inside for stars, "
                f"{knowing['optimal_tree', 'cluster'][-1]:.3f} for clusters",
            ),
        ),
    )


def _by_shape(
    rows: Sequence[Row], column: str, **where: str
) -> tuple[list[float], dict[str, list[float]]]:
    delays = sorted({row["bound_ms"] for row in rows})
    return delays, {
        shape: [mean(rows, column, shape=shape, bound_ms=delay, **where) for delay in delays]
        for shape in SHAPES
    }


def _by_selectivity(rows: Sequence[Row], column: str, arrangement: str) -> list[float]:
    return [
        mean(rows, column, **ONLY, arrangement=arrangement, selectivity_max=value)
        for value in SELECTIVITIES
    ]


def _series(points: Sequence[float], values: Sequence[float]) -> str:
    return ", ".join(f"{p:g}: {v:.3f}" for p, v in zip(points, values, strict=True))


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


EXPERIMENTS.add(
    "network-8",
    Experiment(
        "network-8",
        "bandwidth consumption ratio against the distance between sources",
        "network",
        run_spread,
        lambda rows, figure: plot_lines(
            rows, figure, "asd", "ratio", "bound", ("ASD / network diameter", "bandwidth ratio")
        ),
    ),
)
EXPERIMENTS.add(
    "network-9",
    Experiment(
        "network-9",
        "bandwidth consumption ratio against the latency bound, by shape of tree",
        "network",
        run_shape_ratio,
        lambda rows, figure: plot_lines(
            rows, figure, "bound_ms", "ratio", "shape", ("latency bound (ms)", "bandwidth ratio")
        ),
    ),
)
EXPERIMENTS.add(
    "network-10",
    Experiment(
        "network-10",
        "stretch against the latency bound, by shape of tree",
        "network",
        run_shape_stretch,
        lambda rows, figure: plot_lines(
            rows, figure, "bound_ms", "stretch", "shape", ("latency bound (ms)", "stretch")
        ),
    ),
)
EXPERIMENTS.add(
    "network-11",
    Experiment(
        "network-11",
        "bandwidth consumption ratio and stretch against selectivity",
        "network",
        run_selectivity,
        lambda rows, figure: plot_lines(
            rows,
            figure,
            "selectivity_max",
            "ratio",
            "arrangement",
            ("greatest selectivity", "bandwidth ratio"),
            second=("stretch", "stretch"),
        ),
    ),
)
EXPERIMENTS.add(
    "network-12",
    Experiment(
        "network-12",
        "where operators lie: proxy, sources, inside the network",
        "network",
        run_locations,
        plot_locations,
    ),
)
