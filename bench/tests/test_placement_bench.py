"""The placement benchmark gives every figure, and optima that are proven."""

from millstream.decide.place.network.planner import NETWORK_PLANNERS
from millstream.sim.topologies.families import TOPOLOGIES
from millstream_bench.planning import network as placement


def test_figures_are_complete_and_the_default_is_optimal(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    small = placement.Network(600, TOPOLOGIES.get("gt-itm-100")(0))
    monkeypatch.setattr(placement, "networks", lambda: (small,))
    lines: list[str] = []
    report = placement.run_placement_bench(trees=1, progress=lines.append)
    assert len(report["figures"]) == len(lines) == 4 * len(NETWORK_PLANNERS.names())
    for row in report["figures"]:
        assert row["above_optimum_percent"] >= 0.0
        if row["planner"] == "optimal_tree":
            assert row["proven_optimal"] == 3
            assert row["above_optimum_percent"] == 0.0
            assert row["target_ms"] == (50.0 if row["bound"] == "none" else 1000.0)
