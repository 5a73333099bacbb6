"""Seed 003, figures 11 and 12: what selectivity does to ratio, stretch and places.

For In-Network, distributed as in the seed, with its centralised version and the optimum beside it.
"""

from collections.abc import Callable
from dataclasses import replace

from millstream_lab.claims import Claim, Rows, at_least, at_most, smallest_step, values
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.network.plots import plot_lines, plot_locations
from millstream_lab.network.setup import (
    FULL,
    LOOSE_MS,
    VALUES,
    Progress,
    Row,
    by_network,
    full,
    gathered,
    instances,
    mean,
    named,
    rows_of,
    scale,
    with_selectivity,
)
from millstream_lab.network.shape import ONLY, SHARE, series

SELECTIVITIES = (0.25, 0.5, 0.75, 1.0)
_selective: dict[tuple[int, bool], list[Row]] = {}  # both figures show the same runs


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


def run_selective(seed: int, quick: bool, progress: Progress) -> list[Row]:
    return by_network(selective(seed, quick, progress), "arrangement", "selectivity_max")


def _by_selectivity(
    rows: Rows, column: str, arrangement: str, **where: object
) -> dict[float, float]:
    where = where or dict(ONLY)
    return {
        value: mean(rows, column, **where, arrangement=arrangement, selectivity_max=value)
        for value in sorted(values(rows, "selectivity_max"))
    }


def _rise(rows: Rows, column: str, arrangement: str, **where: object) -> float:
    """From the least selectivity to the greatest."""
    found = list(_by_selectivity(rows, column, arrangement, **where).values())
    return found[-1] - found[0]


PLACES = ("cluster", "star")
SELECTIVE = full(round(FULL.trees * SHARE))


def _told_selectivity(column: str) -> Callable[[Rows], str]:
    return lambda rows: "; ".join(
        f"{a}: {series(_by_selectivity(rows, column, a))}" for a in PLACES
    )


def _star_lead(rows: Rows) -> float:
    star, cluster = (_by_selectivity(rows, "ratio", a) for a in ("star", "cluster"))
    return min(star[value] - cluster[value] for value in star)


SELECTIVITY_CLAIMS = (
    Claim(
        "the ratio rises with selectivity",
        at_least("least step of the ratio",
                 lambda rows: min(smallest_step(list(_by_selectivity(rows, "ratio", a).values()))
                                  for a in PLACES), 0.0),
        SELECTIVE,
        _told_selectivity("ratio"),
    ),
    Claim(
        "stars have higher ratios than clusters",
        at_least("star less cluster, at worst", _star_lead, 0.0),
        SELECTIVE,
        _told_selectivity("ratio"),
    ),
    Claim(
        "stretch falls with selectivity",
        at_most("largest change from least to greatest",
                lambda rows: max(_rise(rows, "stretch", a) for a in PLACES), -0.01),
        SELECTIVE,
        _told_selectivity("stretch"),
    ),
)  # fmt: skip


def _knowing_all(rows: Rows) -> str:
    """The same where every node is known: what the overlay's few hops leave out."""
    found = {
        f"{name} {a}": _rise(rows, "inside", a, planner=planner, mode="centralised")
        for planner, name in (("in_network", "centralised"), ("optimal_tree", "optimum"))
        for a in PLACES
    }
    told = ", ".join(f"{name} {value:+.3f}" for name, value in found.items())
    return f"change of the share inside where all nodes are known: {told}"


def _at_one(rows: Rows, column: str, arrangement: str) -> float:
    return list(_by_selectivity(rows, column, arrangement).values())[-1]


LOCATION_CLAIMS = (
    Claim(
        "less selective operators lie more often inside the network",
        at_least("least change of the share inside",
                 lambda rows: min(_rise(rows, "inside", a) for a in PLACES), 0.005),
        SELECTIVE,
        _told_selectivity("inside"),
        _knowing_all,
    ),
    Claim(
        "less selective operators lie more often at the proxy",
        at_least("least change of the share at the proxy",
                 lambda rows: min(_rise(rows, "at_proxy", a) for a in PLACES), 0.005),
        SELECTIVE,
        _told_selectivity("at_proxy"),
    ),
    Claim(
        "clusters use the inside of the network more than stars",
        at_least("share inside, cluster less star, at 1.0",
                 lambda rows: _at_one(rows, "inside", "cluster") - _at_one(rows, "inside", "star"),
                 0.005),
        SELECTIVE,
        _told_selectivity("inside"),
        lambda rows: "; ".join(
            f"optimum, {a}: " + series(_by_selectivity(
                rows, "inside", a, planner="optimal_tree", mode="centralised"))
            for a in PLACES
        ),
    ),
    Claim(
        "stars use the proxy more than clusters",
        at_least("share at the proxy, star less cluster, at 1.0",
                 lambda rows: _at_one(rows, "at_proxy", "star")
                 - _at_one(rows, "at_proxy", "cluster"), 0.005),
        SELECTIVE,
        _told_selectivity("at_proxy"),
    ),
)  # fmt: skip


EXPERIMENTS.add(
    "network-11",
    Experiment(
        "network-11",
        "bandwidth consumption ratio and stretch against selectivity",
        "network",
        run_selective,
        lambda rows, figure: plot_lines(
            rows,
            figure,
            "selectivity_max",
            "ratio",
            "arrangement",
            ("greatest selectivity", "bandwidth ratio"),
            second=("stretch", "stretch"),
        ),
        SELECTIVITY_CLAIMS,
        VALUES,
    ),
)
EXPERIMENTS.add(
    "network-12",
    Experiment(
        "network-12",
        "where operators lie: proxy, sources, inside the network",
        "network",
        run_selective,
        plot_locations,
        LOCATION_CLAIMS,
        VALUES,
    ),
)
