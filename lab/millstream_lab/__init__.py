"""The experiments of the five works, one module each, with plots."""

from importlib import import_module

# Modules that register experiments; loaded on demand, because some import numpy and solvers.
MODULES: tuple[str, ...] = (
    "dcape.connections",
    "dcape.distribution",
    "dcape.patterns",
    "dcape.processes",
    "dcape.redistribution",
    "dcape.traffic",
    "network.analysis",
    "network.compare",
    "network.shape",
    "network.selectivity",
    "network.real",
    "raindrop.tables",
    "raindrop.figures",
    "raindrop.goals_claimed",
    "raindrop.unseen",
    "raindrop.selectors",
    "raindrop.worldcup",
    "sqpr.efficiency",
    "sqpr.scale",
    "sqpr.cluster",
    "placement.alpha",
    "placement.partners",
    "placement.selection",
    "placement.beyond",
)


def load() -> None:
    """Registers every experiment."""
    for name in MODULES:
        import_module(f"millstream_lab.{name}")
