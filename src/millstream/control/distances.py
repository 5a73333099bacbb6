"""How far processors are from each other, in milliseconds.

Given as properties of processors (`distance.p2=30`), or measured by them and reported
(`distance_ms.p2`); what is measured wins. A distance known in one direction holds for both; one
that nobody knows is the shortest way over others, or, without any, the greatest known.
"""

from collections.abc import Sequence

from millstream.control.manager_state import ManagerState

GIVEN, MEASURED = "distance.", "distance_ms."


def distances_ms(state: ManagerState, processors: Sequence[str]) -> dict[tuple[str, str], float]:
    """The distance of every pair; empty where nothing is known at all."""
    known: dict[tuple[str, str], float] = {}
    for name in processors:
        record = state.processors.get(name)
        for key, value in (record.properties if record else {}).items():
            if key.startswith(GIVEN) and isinstance(value, int | float):
                known[name, key.removeprefix(GIVEN)] = float(value)
    for name in processors:
        figures = state.statistics.processors.get(name)
        for key, value in (figures.values if figures else {}).items():
            if key.startswith(MEASURED):
                known[name, key.removeprefix(MEASURED)] = float(value)
    if not known:
        return {}
    full = _completed(known, processors)
    return {(a, b): full[a, b] for a in processors for b in processors}


def _completed(
    known: dict[tuple[str, str], float], processors: Sequence[str]
) -> dict[tuple[str, str], float]:
    """All pairs: both directions, then ways over others (Floyd and Warshall)."""
    far = max(known.values())
    full = {(a, b): 0.0 if a == b else known.get((a, b), known.get((b, a), -1.0))
            for a in processors for b in processors}  # fmt: skip
    for via in processors:
        for a in processors:
            for b in processors:
                if full[a, via] < 0 or full[via, b] < 0:
                    continue
                way = full[a, via] + full[via, b]
                if full[a, b] < 0:
                    full[a, b] = way
    return {pair: far if value < 0 else value for pair, value in full.items()}
