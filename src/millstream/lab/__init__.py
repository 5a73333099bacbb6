"""The experiments of the five works, one module each, with plots."""

from importlib import import_module

# Modules that register experiments; loaded on demand, because some import numpy and solvers.
MODULES: tuple[str, ...] = (
    "dcape_connections",
    "dcape_distribution",
    "dcape_patterns",
    "dcape_processes",
    "dcape_redistribution",
    "dcape_traffic",
    "network_compare",
    "network_real",
    "network_shape",
    "raindrop_tables",
    "raindrop_figures",
    "raindrop_selectors",
    "raindrop_worldcup",
    "sqpr_efficiency",
    "sqpr_scale",
    "sqpr_cluster",
    "placement_alpha",
    "placement_partners",
    "placement_selection",
    "placement_beyond",
)


def load() -> None:
    """Registers every experiment."""
    for name in MODULES:
        import_module(f"millstream.lab.{name}")
