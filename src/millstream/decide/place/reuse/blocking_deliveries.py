"""Blocking deliveries: those that alone hold the resource that a new query lacks.

From a shortage it lists deliveries whose withdrawal would give the resource back, because nothing
else uses what they use there; and it says whether a newcomer is worth moving others for. Reads a
placement; moves nothing.
"""

from collections.abc import Iterator

from millstream.decide.place.reuse.catalog import Closure
from millstream.decide.place.reuse.state import CPU, IN, LINK, MEMORY, OUT, PlanState, Shortage

Held = tuple[int, int]  # (stream, host)
SLACK = 1e-9


def free_amount(state: PlanState, short: Shortage) -> float:
    """What is free now of the resource that was short."""
    if short.resource == LINK:
        return state.links.free(short.sender, short.host)
    used, offered = state.use(short.resource)
    return float(offered[short.host] - used[short.host])


def least_cpu(state: PlanState, closure: Closure) -> float:
    """CPU that a stream still needs at least: what is held anywhere is free, shipping too."""
    catalog = state.catalog
    need = dict.fromkeys(closure.streams, 0.0)
    for stream in closure.streams[closure.roots :]:  # in topological order
        if not state.holders.get(stream):
            need[stream] = min(
                catalog.cpu[operator] + sum(need[name] for name in catalog.inputs[operator])
                for operator in catalog.producers[stream]
            )
    return need[closure.streams[-1]]


def worth_room(state: PlanState, closure: Closure, most: float) -> bool:
    """Whether a newcomer needs at most so many times the CPU of an average delivery.

    Room made for a costly newcomer is missing later to several cheap ones, with or without moves.
    """
    average = float(state.cpu_used.sum()) / max(1, len(state.clients))
    return least_cpu(state, closure) <= most * average + SLACK


def in_the_way(state: PlanState, short: Shortage, looks: int) -> Iterator[Held]:
    """Deliveries that are the only reason for a use of the short resource."""
    seen: set[Held] = set()
    for number, user in enumerate(list(_users(state, short))):
        if number >= looks:
            return
        delivery = sole_delivery(state, user)
        if delivery is not None and delivery not in seen:
            seen.add(delivery)
            yield delivery


def _users(state: PlanState, short: Shortage) -> Iterator[Held]:
    """Every (stream, host) whose source uses the resource, the latest first."""
    host = short.host
    there = list(reversed(state.streams_at[host]))
    if short.resource in (CPU, MEMORY):
        yield from ((stream, host) for stream in there if state.source[stream, host] >= 0)
    elif short.resource == IN:
        yield from ((stream, host) for stream in there if state.source[stream, host] < 0)
    elif short.resource == LINK:
        wanted = ~short.sender
        yield from ((stream, host) for stream in there if state.source[stream, host] == wanted)
    elif short.resource == OUT:
        for stream in (*state.catalog.base_at[host], *there):
            for target in state.holders[stream]:
                if state.source.get((stream, target)) == ~host:
                    yield stream, target


def sole_delivery(state: PlanState, held: Held) -> Held | None:
    """The one delivery that needs this, or None if several do."""
    found = dependents(state, held, 1)
    return found[0] if found else None


def dependents(state: PlanState, held: Held, most: int) -> list[Held] | None:
    """The deliveries that rest on this, or None if there are more than that."""
    found: list[Held] = []
    stack, seen = [held], {held}
    while stack:
        key = stack.pop()
        if key in state.clients:
            if len(found) == most:
                return None
            found.append(key)
        for above in _consumers(state, key):
            if above not in seen:
                seen.add(above)
                stack.append(above)
    return found


def _consumers(state: PlanState, held: Held) -> Iterator[Held]:
    stream, host = held
    if state.uses[held] == 0:
        return
    inputs = state.catalog.inputs
    for output in state.streams_at[host]:
        origin = state.source[output, host]
        if origin >= 0 and stream in inputs[origin]:
            yield output, host
    sent = ~host
    for target in state.holders[stream]:
        if state.source.get((stream, target)) == sent:
            yield stream, target
