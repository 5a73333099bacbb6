"""The examples in the docstrings of the network-aware modules are true."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    "control.coordinator_driver",
    "place.network_bounds",
    "place.network_distances",
    "place.problem",
    "place.network_shipping",
    "sim.overlay",
    "sim.topologies",
    "sim.topology_files",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(import_module(f"millstream.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
