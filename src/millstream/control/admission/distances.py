"""How far processors are from each other, in milliseconds.

Given as properties of processors (`distance.p2=30`), or measured by them and reported
(`distance_ms.p2`); what is measured wins. A distance known in one direction holds for both; one
that nobody knows is the shortest way over others, or, without any, the greatest known.
"""

from collections.abc import Sequence

import numpy as np

from millstream.control.manager.state import ManagerState
from millstream.decide.place.network.distances import completed
from millstream.decide.place.problem import Matrix

GIVEN, MEASURED = "distance.", "distance_ms."


def distances_ms(state: ManagerState, processors: Sequence[str]) -> Matrix | None:
    """The distance of every pair, by position; None where nothing is known at all."""
    at = {name: number for number, name in enumerate(processors)}
    known = np.full((len(at), len(at)), np.nan)
    for prefix in (GIVEN, MEASURED):
        for name in processors:
            for other, ms in _told(state, name, prefix).items():
                if other in at:
                    known[at[name], at[other]] = ms
    if np.isnan(known).all():
        return None
    np.fill_diagonal(known, 0.0)
    full = completed(known)
    return np.where(np.isnan(full), np.nanmax(known), full)


def _told(state: ManagerState, processor: str, prefix: str) -> dict[str, float]:
    """What is given of a processor as properties, or what it has measured."""
    record, figures = state.processors.get(processor), state.statistics.processors.get(processor)
    if prefix == GIVEN:
        told = dict(record.properties) if record else {}
    else:
        told = dict(figures.values) if figures else {}
    return {
        key.removeprefix(prefix): float(value)
        for key, value in told.items()
        if key.startswith(prefix) and isinstance(value, int | float)
    }
