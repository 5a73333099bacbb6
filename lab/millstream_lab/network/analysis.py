"""Seed 003, figure 5 and section 5: arrangements of sources, chance of a gain, messages.

The analysis of section 5 (probability of beating the baseline, message counts) beside measurements
over full trees of each depth, without a bound.
"""

from collections.abc import Callable

import numpy as np

from millstream.decide.place.network.bounds import message_bounds, probability_of_saving
from millstream.sim.topologies.arrangements import SCENARIOS
from millstream.sim.topologies.trees import TreeModel
from millstream_lab.claims import Bound, Claim, Rows, about, at_most, values
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.network.plots import plot_messages
from millstream_lab.network.setup import (
    DISTRIBUTED,
    FULL,
    VALUES,
    Progress,
    Row,
    Workload,
    by_network,
    full,
    gathered,
    instances,
    mean,
    rows_of,
    scale,
)

ARRANGEMENTS = SCENARIOS.names()
DEPTHS = (2, 3, 4, 5)  # of the trees of section 5
ANALYSED_SHARE = 0.1  # of the trees, for each depth and arrangement


def run_analysis(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Full trees of each depth, zones of one and two levels, no bound; and section 5's figures."""
    rows = gathered(analysed_on, seed, quick, progress)
    extra = ("apd_ms", "asd_ms", "bound_initialization", "bound_topology", "bound_total")
    spread: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("topology", "arrangement", "depth", "zone_levels"))
        spread.setdefault(key, []).append(row)
    draws = _independent_rates(seed)
    return [
        row
        | {
            name: float(
                np.mean(
                    [
                        r[name]
                        for r in spread[
                            row["topology"], row["arrangement"], row["depth"], row["zone_levels"]
                        ]
                    ]
                )
            )
            for name in extra
        }
        | {"out_sends": draws}
        for row in by_network(rows, "arrangement", "depth", "zone_levels")
    ]


def analysed_on(seed: int, quick: bool, number: int) -> list[Row]:
    rows: list[Row] = []
    workloads = [
        Workload(name, SCENARIOS.get(name), TreeModel(depths=(d, d)), share=ANALYSED_SHARE)
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
                "bound_initialization": bounds.initialization,
                "bound_topology": bounds.topology,
                "bound_total": bounds.total,
            }
            found = rows_of(instance, {"none": None}, planners=(), levels=levels)
            rows.extend(row | extra for row in found)
    return rows


def _independent_rates(seed: int) -> float:
    rng = np.random.default_rng([seed, 5])
    costs = rng.uniform(size=(100_000, 3))
    return float(np.mean(costs[:, 0] > costs[:, 1:].max(axis=1)))


ANALYSED = full(round(FULL.trees * ANALYSED_SHARE))


def _p_s_claim(planner: str, depth: int) -> Claim:
    """P_S as it stands for the planners at sources; for In-Network the seed calls it a bound."""
    figure, lower = probability_of_saving(2, depth), planner == "in_network"
    return Claim(
        f"the baseline is beaten with probability {'at least ' * lower}P_S "
        f"[{planner}, depth {depth}]",
        Bound("share of trees in which it is beaten",
              lambda rows: mean(rows, "won", planner=planner, depth=depth, zone_levels=1),
              figure, None if lower else figure, 0.01 if lower else 0.05),
        ANALYSED,
        why=_dependent,
    )  # fmt: skip


def _dependent(rows: Rows) -> str:
    """P_S takes costs for independent; an operator's rate is a share of its inputs' sum."""
    return (
        f"with independent costs an operator out-sends its inputs in {rows[0]['out_sends']:.3f} of "
        "the draws, as P_S has it; in the trees an operator's rate is a share of its inputs' sum"
    )


def _distance(arrangement: str) -> Callable[[Rows], float]:
    return lambda rows: (
        mean(rows, "asd_ms", arrangement=arrangement)
        / mean(rows, "apd_ms", arrangement=arrangement)
    )


def _by_networks(arrangement: str) -> Callable[[Rows], str]:
    """The ratio's spread over the networks."""

    def tell(rows: Rows) -> str:
        found = [
            mean(rows, "asd_ms", arrangement=arrangement, topology=name)
            / mean(rows, "apd_ms", arrangement=arrangement, topology=name)
            for name in values(rows, "topology")
        ]
        told = f"from {min(found):.2f} to {max(found):.2f} by network"
        if arrangement == "star":
            told += "; 2 only where every way between two sources leads over the proxy"
        return told

    return tell


def _shares(planner: str, column: str, bound: str) -> Callable[[Rows], list[float]]:
    """Measured over the bound of section 5, by depth."""
    return lambda rows: [
        mean(rows, column, planner=planner, depth=d, zone_levels=1)
        / mean(rows, bound, planner=planner, depth=d, zone_levels=1)
        for d in sorted(values(rows, "depth"))
    ]


def _message_claim(planner: str, column: str, bound: str) -> Claim:
    shares = _shares(planner, column, bound)
    return Claim(
        f"{planner}: {column.replace('_', ' ')} grow as {bound.replace('_', ' ')}",
        at_most("measured over bound at the deepest over that at the shallowest",
                lambda rows: shares(rows)[-1] / shares(rows)[0], 1.0, 0.3, "times"),
        ANALYSED,
        lambda rows: ", ".join(f"{share:.2f}" for share in shares(rows)),
    )  # fmt: skip


def _zones(rows: Rows) -> float:
    deepest = max(values(rows, "depth"))
    count = {
        levels: mean(rows, "messages", planner="in_network", depth=deepest, zone_levels=levels)
        for levels in (1, 2)
    }
    return count[2] / count[1]


ANALYSIS_CLAIMS = (
    *(
        Claim(
            f"ASD is {figure:g} times APD in {arrangement}",
            about("ASD over APD", _distance(arrangement), figure, 0.15 * figure),
            ANALYSED,
            why=_by_networks(arrangement),
        )
        for arrangement, figure in (("star", 2.0), ("uniform", 1.0), ("cluster", 0.5))
    ),
    *(_p_s_claim(planner, depth) for planner in DISTRIBUTED for depth in DEPTHS),
    Claim(
        "independent uniform costs: an operator out-sends both inputs with 1 / (d + 1)",
        about("share of 100,000 draws", lambda rows: float(rows[0]["out_sends"]), 1 / 3, 0.01),
    ),
    _message_claim("edge", "messages", "bound_initialization"),
    _message_claim("edge_plus", "probed_pairs", "bound_topology"),
    _message_claim("in_network", "messages", "bound_total"),
    Claim(
        "larger zones need fewer messages",
        at_most("messages with zones of two levels over those with one", _zones, 0.95),
        ANALYSED,
    ),
)  # fmt: skip


EXPERIMENTS.add(
    "network-5",
    Experiment(
        "network-5",
        "arrangements of sources; chance of beating the baseline; messages against section 5",
        "network",
        run_analysis,
        plot_messages,
        ANALYSIS_CLAIMS,
        (*VALUES, "won", "apd_ms", "asd_ms", "out_sends"),
    ),
)
