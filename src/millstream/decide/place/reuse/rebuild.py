"""Placements from their sources: build one anew, and tell what differs between two.

A source says why a host holds a stream. `rebuilt` keeps only what deliveries need, in causal
order, and gives None if that does not fit or hangs in the air. Decides nothing.
"""

from collections.abc import Mapping

from millstream.decide.place.reuse.state import PlanState

Held = tuple[int, int]  # (stream, host)


def rebuilt(
    old: PlanState, sources: Mapping[Held, int], served: Mapping[str, Held]
) -> PlanState | None:
    """A fresh state with these deliveries and what they need of these sources."""
    state = PlanState(old.catalog)
    state.pinned, state.bounds = old.pinned, old.bounds
    catalog = old.catalog
    for key in dict.fromkeys(served.values()):
        stack: list[tuple[Held, bool]] = [(key, False)]
        opened: set[Held] = set()
        while stack:
            held, leaving = stack.pop()
            if state.has(*held):
                continue
            origin = sources.get(held)
            if origin is None or (not leaving and held in opened):
                return None  # nothing provides it, or it would provide itself
            stream, host = held
            if leaving:
                short = (
                    state.run(origin, host) if origin >= 0 else state.ship(stream, ~origin, host)
                )
                if short is not None:
                    return None
                continue
            opened.add(held)
            stack.append((held, True))
            if origin >= 0:
                stack.extend(((name, host), False) for name in catalog.inputs[origin])
            else:
                stack.append(((stream, ~origin), False))
    for query, (stream, host) in served.items():
        if state.deliver(query, stream, host) is not None:
            return None
    state.commit()
    return state


def recounted(old: PlanState) -> PlanState:
    """The same placement, its use counted anew: rates, costs or capacities have changed.

    Unlike `rebuilt` it keeps what no longer fits, because it runs.
    """
    state = PlanState(old.catalog)
    state.pinned, state.bounds = old.pinned, old.bounds
    state.adopt(old)
    return state


def differing_steps(
    old: PlanState, new: PlanState
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, str], ...]]:
    """Operators and flows of the new placement that the old one lacks."""
    catalog = new.catalog
    started: list[tuple[str, str]] = []
    shipped: list[tuple[str, str, str]] = []
    for (stream, host), origin in new.source.items():
        if old.source.get((stream, host)) == origin:
            continue
        if origin >= 0:
            started.append((catalog.operator_ids[origin], catalog.host_ids[host]))
        else:
            shipped.append(
                (catalog.stream_ids[stream], catalog.host_ids[~origin], catalog.host_ids[host])
            )
    return tuple(sorted(started)), tuple(sorted(shipped))
