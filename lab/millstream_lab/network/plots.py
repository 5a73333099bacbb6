"""Plots of the network experiments: distributed versions as in the seed, ours beside them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from millstream.sim.plotting import COLOURS, mark_claim
from millstream_lab.claims import MissingError
from millstream_lab.network.setup import DISTRIBUTED, mean

Rows = Sequence[Mapping[str, Any]]
LABELS = {
    "edge": "Edge",
    "edge_plus": "Edge+",
    "in_network": "In-Network",
    "optimal_tree": "optimum",
}
CLAIMS = {
    "ratio": "cluster gains most; Edge+ and In-Network below Edge",
    "stretch": "Edge worst when loose; In-Network below Edge+ when loose, above when tight",
}
BOUND_ORDER = {"tight": 0, "loose": 1, "none": 2}
LINE_CLAIMS = {
    ("asd", "ratio"): "grows with the distance between sources, faster when tight",
    ("bound_ms", "ratio"): "falls with the bound, then flat; deeper lower, wider higher",
    ("bound_ms", "stretch"): "rises with the bound, then flat; deeper and wider larger",
    ("selectivity_max", "ratio"): "selectivity up: ratio up, stretch down",
}


def _mean(rows: Rows, column: str, **where: object) -> float:
    """NaN, which leaves a gap, where nothing was placed."""
    try:
        return mean(rows, column, **where)
    except MissingError:
        return float("nan")


def plot_bars(rows: Rows, figure: Any, column: str, label: str) -> None:
    """Groups by arrangement and bound: bars distributed, dots centralised, a line the optimum."""
    shared = sorted({row["sources_a_node"] for row in rows})
    figure.set_size_inches(6.4, 2.6 * len(shared) + 1.0)
    axes = figure.subplots(len(shared), 1, squeeze=False, sharex=True)[:, 0]
    for axis, k in zip(axes, shared, strict=True):
        _bars([row for row in rows if row["sources_a_node"] == k], axis, column)
        axis.set_ylabel(f"{label}\n{k} source{'s' * (k > 1)} a node", fontsize=8)
        axis.set_ylim(0, None)
    axes[-1].legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7.5)
    mark_claim(axes[0], CLAIMS[column])


def _bars(rows: Rows, axis: Any, column: str) -> None:
    groups = sorted(
        {(r["arrangement"], r["bound"]) for r in rows}, key=lambda g: (BOUND_ORDER[g[1]], g[0])
    )
    for number, planner in enumerate(DISTRIBUTED):
        at = np.arange(len(groups)) + (number - 1) * 0.25
        for mode in ("distributed", "centralised"):
            values = [
                _mean(rows, column, planner=planner, mode=mode, arrangement=a, bound=b)
                for a, b in groups
            ]
            if mode == "distributed":
                axis.bar(at, values, 0.23, label=LABELS[planner], color=COLOURS[number], zorder=2)
            else:
                shown = "centralised" if number == 0 else None
                axis.plot(at, values, "o", color="white", mec="black", ms=4, label=shown, zorder=3)
    for position, (arrangement, bound) in enumerate(groups):
        best = _mean(rows, column, planner="optimal_tree", arrangement=arrangement, bound=bound)
        shown = "optimum" if position == 0 else None
        axis.plot(
            [position - 0.4, position + 0.4], [best, best], "-", color=COLOURS[5], label=shown
        )
    axis.set_xticks(range(len(groups)), [f"{a}\n{b}" for a, b in groups], fontsize=7.5)


def plot_lines(
    rows: Rows,
    figure: Any,
    x: str,
    y: str,
    group: str,
    labels: tuple[str, str],
    second: tuple[str, str] | None = None,
) -> None:
    """One colour a group: distributed In-Network solid, centralised dashed, the optimum dotted."""
    panels = [(y, labels[1])] + ([second] if second else [])
    axes = np.atleast_1d(figure.subplots(1, len(panels)))
    points = sorted({row[x] for row in rows})
    names = list(dict.fromkeys(row[group] for row in rows))
    for axis, (column, label) in zip(axes, panels, strict=True):
        for number, name in enumerate(names):
            for planner, mode, line in (
                ("in_network", "distributed", "o-"),
                ("in_network", "centralised", "s--"),
                ("optimal_tree", "centralised", ":"),
            ):
                where = {group: name, "planner": planner, "mode": mode}
                values = [_mean(rows, column, **where, **{x: point}) for point in points]
                shown = f"{name}, {'optimum' if planner == 'optimal_tree' else mode}"
                axis.plot(points, values, line, color=COLOURS[number], label=shown)
        axis.set_xlabel(labels[0])
        axis.set_ylabel(label)
        axis.set_ylim(0, None)
    handles, shown_names = axes[0].get_legend_handles_labels()
    figure.legend(handles, shown_names, ncols=3, fontsize=6.5, loc="outside lower center")
    mark_claim(axes[0], LINE_CLAIMS[x, y])


def plot_locations(rows: Rows, figure: Any) -> None:
    """Shares of operators by place, In-Network distributed beside the optimum."""
    axes = figure.subplots(1, 2, sharey=True)
    values = sorted({row["selectivity_max"] for row in rows})
    parts = (("at_sources", "sources"), ("inside", "inside"), ("at_proxy", "proxy"))
    for axis, arrangement in zip(axes, ("cluster", "star"), strict=True):
        for shift, (planner, mode) in enumerate(
            (("in_network", "distributed"), ("optimal_tree", "centralised"))
        ):
            at = np.arange(len(values)) + (shift - 0.5) * 0.4
            bottom = np.zeros(len(values))
            for number, (column, label) in enumerate(parts):
                share = np.array(
                    [
                        _mean(
                            rows,
                            column,
                            planner=planner,
                            mode=mode,
                            arrangement=arrangement,
                            selectivity_max=value,
                        )
                        for value in values
                    ]
                )
                shown = f"{label}{'' if shift == 0 else ' (optimum)'}"
                axis.bar(
                    at,
                    share,
                    0.36,
                    bottom=bottom,
                    color=COLOURS[number],
                    alpha=1.0 if shift == 0 else 0.45,
                    label=shown,
                )
                bottom += share
        axis.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        axis.set_xlabel(f"greatest selectivity, {arrangement}")
    axes[0].set_ylabel("share of operators")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=6, fontsize=6.5, loc="outside lower center")
    mark_claim(axes[0], "less selective: more inside the network and at the proxy")


def plot_messages(rows: Rows, figure: Any) -> None:
    """Messages and probes by depth, with the bound of section 5, on a logarithmic scale."""
    axes = figure.subplots(1, 2, sharey=True)
    depths = sorted({row["depth"] for row in rows})
    for axis, column in zip(axes, ("messages", "probed_pairs"), strict=True):
        for number, planner in enumerate(DISTRIBUTED):
            for levels, line in ((1, "o-"), (2, "s--")):
                where = {"planner": planner, "zone_levels": levels}
                values = [_mean(rows, column, depth=depth, **where) for depth in depths]
                shown = f"{LABELS[planner]}, zones of {levels}"
                axis.plot(depths, values, line, color=COLOURS[number], label=shown)
        bound = "bound_total" if column == "messages" else "bound_topology"
        values = [_mean(rows, bound, depth=depth, zone_levels=1) for depth in depths]
        axis.plot(depths, values, ":", color=COLOURS[5], label="section 5, constants 1")
        axis.set_yscale("symlog")
        axis.set_xlabel("depth of the tree")
        axis.set_ylabel(column.replace("_", " "))
        axis.set_xticks(depths)
    axes[0].legend(fontsize=6)
