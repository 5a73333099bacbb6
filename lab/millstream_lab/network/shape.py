"""Seed 003, figures 8 to 10: what the spread of sources and the shape of trees do.

All for In-Network, distributed as in the seed, with its centralised version and the optimum
beside it (and the other planners in the rows of network-8).
"""

from collections.abc import Callable, Mapping

import numpy as np

from millstream.sim.topologies.arrangements import Scenario
from millstream.sim.topologies.trees import TreeModel
from millstream_lab.claims import Claim, Rows, at_least, at_most, listed, values
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.network.plots import plot_lines
from millstream_lab.network.setup import (
    FULL,
    NEAR,
    VALUES,
    Bounds,
    Progress,
    Row,
    Workload,
    bounds_of,
    by_network,
    full,
    gathered,
    instances,
    mean,
    named,
    rows_of,
    scale,
)

SPREADS = (0.03, 0.06, 0.09, 0.12, 0.16, 0.2)  # ASD over the diameter
DELAYS_MS = (120.0, 140.0, 170.0, 210.0, 260.0, 320.0, 400.0, 500.0)
SHAPES = {
    "base": TreeModel(depths=(3, 3)),
    "deeper": TreeModel(depths=(5, 5)),
    "wider": TreeModel(depths=(3, 3), fanout=3),
}
# A network's 100 trees are spread over the values of what is varied: at least 250 trees a point.
SHARE = 0.25
ONLY = {"planner": "in_network", "mode": "distributed"}
_shaped: dict[tuple[int, bool], list[Row]] = {}  # figures 9 and 10 show the same runs


def run_spread(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Cluster with the proxy at a fixed distance and the sources ever farther apart."""
    rows = gathered(spread_on, seed, quick, progress)
    return by_network(rows, "bound", "asd")


def _by_spread(rows: Rows, bound: str) -> dict[float, float]:
    return {
        asd: mean(rows, "ratio", **ONLY, bound=bound, asd=asd)
        for asd in sorted(values(rows, "asd"))
    }


def _slope(rows: Rows, bound: str) -> float:
    found = _by_spread(rows, bound)
    return float(np.polyfit(list(found), list(found.values()), 1)[0])


def _told_spread(rows: Rows) -> str:
    return "; ".join(f"{bound}: {series(_by_spread(rows, bound))}" for bound in ("tight", "loose"))


SPREAD_CLAIMS = (
    Claim(
        "the ratio grows with ASD",
        at_least("lesser slope of the ratio, tight and loose",
                 lambda rows: min(_slope(rows, b) for b in ("tight", "loose")), 0.1),
        full(round(FULL.trees * SHARE)),
        _told_spread,
    ),
    Claim(
        "under tight bounds the rate of this increase is far greater",
        at_least("slope under tight bounds over that under loose ones",
                 lambda rows: _slope(rows, "tight") / _slope(rows, "loose"), 1.5, 0, "times"),
        full(round(FULL.trees * SHARE)),
        _told_spread,
        lambda rows: (
            "under tight bounds the ratio is "
            f"{next(iter(_by_spread(rows, 'tight').values())):.3f} already for the closest sources"
        ),
    ),
)  # fmt: skip


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


def run_shape(seed: int, quick: bool, progress: Progress) -> list[Row]:
    return by_network(shaped(seed, quick, progress), "shape", "bound_ms")


def _by_bound(rows: Rows, column: str, shape: str) -> dict[float, float]:
    return {
        bound: mean(rows, column, **ONLY, shape=shape, bound_ms=bound)
        for bound in sorted(values(rows, "bound_ms"))
    }


def _courses(column: str) -> Callable[[Rows], str]:
    return lambda rows: "; ".join(
        f"{shape}: {series(_by_bound(rows, column, shape))}" for shape in SHAPES
    )


def _change(rows: Rows, column: str, shape: str) -> float:
    """At the loosest bound, less at the tightest."""
    found = list(_by_bound(rows, column, shape).values())
    return found[-1] - found[0]


def _late(rows: Rows, column: str, shape: str) -> float:
    """Share of the whole change that the looser half of the bounds makes."""
    found = list(_by_bound(rows, column, shape).values())
    whole = found[-1] - found[0]
    return abs(found[-1] - found[len(found) // 2]) / max(abs(whole), 1e-9)


def _loosest(rows: Rows, column: str, shape: str) -> float:
    return list(_by_bound(rows, column, shape).values())[-1]


SHAPED = full(round(FULL.trees / len(SHAPES)))


def _where_not_flat(column: str) -> Callable[[Rows], str]:
    """The share of each shape: deep trees feel a bound for longer."""
    return lambda rows: (
        "by shape: " + listed({shape: _late(rows, column, shape) for shape in SHAPES}, ".0%")
    )


def _flat(column: str, what: str) -> Claim:
    return Claim(
        f"{what} then stays flat",
        at_most("share of the change in the looser half of the bounds, at worst",
                lambda rows: max(_late(rows, column, shape) for shape in SHAPES), 0.25, 0, "%"),
        SHAPED,
        _courses(column),
        _where_not_flat(column),
    )  # fmt: skip


SHAPE_RATIO_CLAIMS = (
    Claim(
        "the ratio falls as the bound loosens",
        at_most("least fall from the tightest to the loosest",
                lambda rows: max(_change(rows, "ratio", shape) for shape in SHAPES), -0.02),
        SHAPED,
        _courses("ratio"),
    ),
    _flat("ratio", "the ratio"),
    Claim(
        "deeper trees have a lower ratio",
        at_most("deeper less base, at the loosest bound",
                lambda rows: _loosest(rows, "ratio", "deeper") - _loosest(rows, "ratio", "base"),
                -0.01),
        SHAPED,
        _courses("ratio"),
    ),
    Claim(
        "wider trees have a higher ratio",
        at_least("wider less base, at the loosest bound",
                 lambda rows: _loosest(rows, "ratio", "wider") - _loosest(rows, "ratio", "base"),
                 0.01),
        SHAPED,
        _courses("ratio"),
    ),
)  # fmt: skip
SHAPE_STRETCH_CLAIMS = (
    Claim(
        "stretch rises as the bound loosens",
        at_least("least rise from the tightest to the loosest",
                 lambda rows: min(_change(rows, "stretch", shape) for shape in SHAPES), 0.02),
        SHAPED,
        _courses("stretch"),
    ),
    _flat("stretch", "stretch"),
    *(
        Claim(
            f"{shape} trees have a larger stretch",
            at_least(
                f"{shape} less base, at the loosest bound",
                lambda rows, s=shape: (  # type: ignore[misc]
                    _loosest(rows, "stretch", s) - _loosest(rows, "stretch", "base")
                ),
                0.01,
            ),
            SHAPED,
        )
        for shape in ("deeper", "wider")
    ),
)  # fmt: skip


def series(found: Mapping[float, float]) -> str:
    return ", ".join(f"{point:g}: {value:.3f}" for point, value in found.items())


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
        SPREAD_CLAIMS,
        VALUES,
    ),
)
EXPERIMENTS.add(
    "network-9",
    Experiment(
        "network-9",
        "bandwidth consumption ratio against the latency bound, by shape of tree",
        "network",
        run_shape,
        lambda rows, figure: plot_lines(
            rows, figure, "bound_ms", "ratio", "shape", ("latency bound (ms)", "bandwidth ratio")
        ),
        SHAPE_RATIO_CLAIMS,
        VALUES,
    ),
)
EXPERIMENTS.add(
    "network-10",
    Experiment(
        "network-10",
        "stretch against the latency bound, by shape of tree",
        "network",
        run_shape,
        lambda rows, figure: plot_lines(
            rows, figure, "bound_ms", "stretch", "shape", ("latency bound (ms)", "stretch")
        ),
        SHAPE_STRETCH_CLAIMS,
        VALUES,
    ),
)
