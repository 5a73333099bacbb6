"""Seed 003, figures 6 and 7: the algorithms compared in three arrangements.

network-6 is the bandwidth consumption ratio, network-7 the stretch, for tight and loose latency
bounds. How many sources share a node is open in the seed (its k): one, two and four here.
"""

from collections.abc import Callable
from dataclasses import replace

from millstream.sim.topologies.arrangements import SCENARIOS
from millstream_lab.claims import Claim, Rows, at_least, at_most, chosen, listed
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.network.plots import plot_bars
from millstream_lab.network.setup import (
    DISTRIBUTED,
    FULL,
    VALUES,
    Progress,
    Row,
    bounds_of,
    by_network,
    full,
    gathered,
    instances,
    interval,
    mean,
    named,
    rows_of,
    scale,
)

ARRANGEMENTS = SCENARIOS.names()
SHARED = (1, 2, 4)  # sources a node: the seed's k common locations, which it leaves open
BOUNDS = ("tight", "loose")
SHARED_SHARE = 0.25  # of the trees, where sources share nodes
_compared: dict[tuple[int, bool], list[Row]] = {}  # figures 6 and 7 show the same runs


def compared(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """All planners, three arrangements; tight and loose as in the seed, and without a bound."""
    if (seed, quick) not in _compared:
        _compared[seed, quick] = gathered(compared_on, seed, quick, progress)
    return _compared[seed, quick]


def compared_on(seed: int, quick: bool, number: int) -> list[Row]:
    rows: list[Row] = []
    workloads = [
        replace(named(name), labels=(("sources_a_node", k),), sources_a_node=k,
                share=1.0 if k == 1 else SHARED_SHARE)
        for name in ARRANGEMENTS
        for k in SHARED
    ]  # fmt: skip
    for instance in instances(workloads, seed, scale(quick), number):
        bounds = {**bounds_of(SCENARIOS.get(instance.labels["arrangement"])), "none": None}
        rows.extend(rows_of(instance, bounds))
    return rows


def run_compared(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows = compared(seed, quick, progress)
    return by_network(rows, "arrangement", "bound", "sources_a_node")


def _of(rows: Rows, column: str, planner: str, k: int, **where: object) -> float:
    mode = "distributed" if planner in DISTRIBUTED else "centralised"
    return mean(rows, column, planner=planner, mode=mode, sources_a_node=k, **where)


def _told(column: str, k: int, *bounds: str) -> Callable[[Rows], str]:
    """Every planner in every arrangement, with intervals over networks."""

    def tell(rows: Rows) -> str:
        return "; ".join(
            f"{arrangement}, {bound}: " + ", ".join(
                f"{planner} " + interval(rows, column, planner=planner, mode="distributed",
                                         sources_a_node=k, arrangement=arrangement, bound=bound)
                for planner in DISTRIBUTED
            )
            for bound in bounds
            for arrangement in ARRANGEMENTS
        )  # fmt: skip

    return tell


def _cluster_lead(k: int) -> Callable[[Rows], float]:
    """The ratio in clusters over the least in the others, at worst over planners and bounds."""
    return lambda rows: max(
        _of(rows, "ratio", p, k, arrangement="cluster", bound=b)
        / min(_of(rows, "ratio", p, k, arrangement=a, bound=b) for a in ("star", "uniform"))
        for p in DISTRIBUTED
        for b in BOUNDS
    )


def _over_edge(column: str, k: int) -> Callable[[Rows], float]:
    """The largest difference of Edge+ or In-Network to Edge."""
    return lambda rows: max(
        _of(rows, column, p, k, arrangement=a, bound=b)
        - _of(rows, column, "edge", k, arrangement=a, bound=b)
        for p in ("edge_plus", "in_network")
        for a in ARRANGEMENTS
        for b in BOUNDS
    )


def _relaxed(k: int) -> Callable[[Rows], float]:
    return lambda rows: max(
        abs(
            _of(rows, "ratio", p, k, arrangement=a, bound="tight")
            - _of(rows, "ratio", p, k, arrangement=a, bound="loose")
        )
        for p in DISTRIBUTED
        for a in ARRANGEMENTS
    )


def _why_bounds_matter(k: int) -> Callable[[Rows], str]:
    """Where the difference is largest, and of how many trees each ratio is the mean."""

    def tell(rows: Rows) -> str:
        def ratio(bound: str, planner: str, arrangement: str) -> float:
            return _of(rows, "ratio", planner, k, arrangement=arrangement, bound=bound)

        planner, arrangement = max(
            ((p, a) for p in DISTRIBUTED for a in ARRANGEMENTS),
            key=lambda pair: abs(ratio("tight", *pair) - ratio("loose", *pair)),
        )
        where = {"planner": planner, "mode": "distributed", "sources_a_node": k}
        parts = []
        for bound in BOUNDS:
            mine = chosen(rows, arrangement=arrangement, bound=bound, **where)
            placed, trees = (sum(row[column] for row in mine) for column in ("placed", "trees"))
            found = ratio(bound, planner, arrangement)
            parts.append(f"{bound} {found:.3f}, {placed} of {trees} trees placed")
        return f"{planner} in {arrangement}: {'; '.join(parts)}"

    return tell


def _ratio_claims(k: int) -> tuple[Claim, ...]:
    share = 1.0 if k == 1 else SHARED_SHARE
    needs = full(round(FULL.trees * share), sources_a_node=k)
    shared = f"[{k} source{'s' * (k > 1)} a node]"
    beside = _told("ratio", k, *BOUNDS)
    return (
        Claim(
            f"the cluster arrangement gains most {shared}",
            at_most("ratio in clusters over the least of the others, at worst", _cluster_lead(k),
                    1.0),
            needs,
            beside,
        ),
        Claim(
            f"Edge+ and In-Network stay below Edge in every arrangement {shared}",
            at_most("largest difference to Edge", _over_edge("ratio", k), 0.0, 0.005),
            needs,
            beside,
        ),
        Claim(
            f"relaxing the bound has little effect on the ratio {shared}",
            at_most("largest difference between tight and loose", _relaxed(k), 0.1),
            needs,
            beside,
            _why_bounds_matter(k),
        ),
    )  # fmt: skip


def _lost(rows: Rows) -> float:
    """What the distributed Edge+ has more than the centralised one."""
    return mean(rows, "ratio", planner="edge_plus", mode="distributed") - mean(
        rows, "ratio", planner="edge_plus", mode="centralised"
    )


def _modes(rows: Rows) -> str:
    return (
        "; ".join(
            f"{p} {mean(rows, 'ratio', planner=p, mode='centralised'):.3f} centralised, "
            f"{mean(rows, 'ratio', planner=p, mode='distributed'):.3f} distributed"
            for p in DISTRIBUTED
        )
        + f"; optimum {mean(rows, 'ratio', planner='optimal_tree'):.3f}"
    )


RATIO_CLAIMS = (
    *(claim for k in SHARED for claim in _ratio_claims(k)),
    Claim(
        "distributed Edge+ knows less than centralised Edge+ (section 4.3)",
        at_least("its ratio, less the centralised one's", _lost, 0.0, 0.001),
        full(round(FULL.trees * SHARED_SHARE)),
        _modes,
    ),
)


def _stretch(rows: Rows, planner: str, bound: str, arrangement: str) -> float:
    return _of(rows, "stretch", planner, 1, bound=bound, arrangement=arrangement)


def _edge_lead(rows: Rows) -> float:
    """Edge's stretch, less the worst other's, where that is least."""
    return min(
        _stretch(rows, "edge", "loose", a)
        - max(_stretch(rows, p, "loose", a) for p in DISTRIBUTED[1:])
        for a in ARRANGEMENTS
    )


def _unbounded(rows: Rows) -> str:
    free = {p: _of(rows, "stretch", p, 1, bound="none") for p in DISTRIBUTED}
    return f"without any bound: {listed(free, '.3f')}"


def _in_network_over(bound: str, choose: Callable[..., float]) -> Callable[[Rows], float]:
    return lambda rows: choose(
        _stretch(rows, "in_network", bound, a) - _stretch(rows, "edge_plus", bound, a)
        for a in ARRANGEMENTS
    )


STRETCH_CLAIMS = (
    Claim(
        "under loose bounds Edge has the worst stretch",
        at_least("Edge's stretch, less the worst other's", _edge_lead, 0.0),
        full(FULL.trees, sources_a_node=1),
        _told("stretch", 1, "loose"),
        _unbounded,
    ),
    Claim(
        "under tight bounds Edge is comparable to Edge+ and In-Network",
        at_most(
            "largest difference to Edge",
            lambda rows: max(
                abs(_stretch(rows, p, "tight", a) - _stretch(rows, "edge", "tight", a))
                for p in DISTRIBUTED[1:]
                for a in ARRANGEMENTS
            ),
            0.05,
        ),
        full(FULL.trees, sources_a_node=1),
        _told("stretch", 1, "tight"),
    ),
    Claim(
        "under loose bounds In-Network stays below Edge+",
        at_most("In-Network's stretch less Edge+'s, at worst", _in_network_over("loose", max), 0.0),
        full(FULL.trees, sources_a_node=1),
        _told("stretch", 1, "loose"),
        _unbounded,
    ),
    Claim(
        "under tight bounds In-Network lies above Edge+",
        at_least(
            "In-Network's stretch less Edge+'s, at worst", _in_network_over("tight", min), 0.0
        ),
        full(FULL.trees, sources_a_node=1),
        _told("stretch", 1, "tight"),
    ),
)


EXPERIMENTS.add(
    "network-6",
    Experiment(
        "network-6",
        "bandwidth consumption ratio by arrangement, tight and loose bounds",
        "network",
        run_compared,
        lambda rows, figure: plot_bars(rows, figure, "ratio", "bandwidth consumption ratio"),
        RATIO_CLAIMS,
        VALUES,
    ),
)
EXPERIMENTS.add(
    "network-7",
    Experiment(
        "network-7",
        "latency stretch by arrangement, tight and loose bounds",
        "network",
        run_compared,
        lambda rows, figure: plot_bars(rows, figure, "stretch", "stretch"),
        STRETCH_CLAIMS,
        VALUES,
    ),
)
