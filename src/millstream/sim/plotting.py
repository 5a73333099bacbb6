"""One style for all plots of the lab: fit for print, readable in grey, labelled with units."""

from pathlib import Path
from typing import Any

from millstream.core.extras import told_where_missing

STYLE: dict[str, Any] = {
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.handlelength": 4.0,  # long enough to show a whole pattern of dashes
    "axes.prop_cycle": None,  # filled below: needs matplotlib
}
COLOURS = ("#1f5fa8", "#c8531f", "#2b8a57", "#8a4fa3", "#9a8a1c", "#4a4a4a", "#c23b72", "#3aa3b5")
LINES = ("-", "--", "-.", ":", "-", "--", "-.", ":")


def new_figure() -> Any:
    """An empty figure in the lab's style, without a display."""
    with told_where_missing():
        import matplotlib as mpl  # noqa: PLC0415  (slow to import; only plots pay for it)

    mpl.use("Agg")
    from cycler import cycler  # noqa: PLC0415
    from matplotlib import pyplot as plt  # noqa: PLC0415

    style = dict(STYLE)
    style["axes.prop_cycle"] = cycler(color=COLOURS) + cycler(linestyle=LINES)
    settings: Any = mpl.rcParams  # its stubs know no plain dictionary
    settings.update(style)
    return plt.figure()


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure.savefig(path)
    plt.close(figure)


def mark_seed(axis: Any, *, x: float | None = None, y: float | None = None, text: str) -> None:
    """The seed's own figure among ours: a star at a point, or a line across at x or at y."""
    style = {"color": "black", "linewidth": 0.9, "linestyle": (0, (1, 1.5)), "zorder": 1}
    label = f"seed: {text}"
    if x is not None and y is not None:
        axis.plot([x], [y], "k*", markersize=9, linestyle="none", label=label, zorder=4)
    elif x is not None:
        axis.axvline(x, label=label, **style)
    elif y is not None:
        axis.axhline(y, label=label, **style)


def mark_claim(axis: Any, text: str) -> None:
    """Writes the seed's claim under the title, so that the picture carries both."""
    axis.set_title(f"seed: {text}", fontsize=7.5, loc="left", color="#555555")
