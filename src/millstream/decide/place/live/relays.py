"""Who sends a copy of a base stream on: besides its owner, whoever reads the stream itself.

A reader takes the bytes of a stream from another reader where the owner has no room left to send
them once more. What operators give comes from its owner: its segments may lie in files with those
of other streams, so that a relay could not prove that it has the same bytes. Nobody has a copy only
to pass it on: what is read where stays as the operators' places say. Works on a state, which it
changes; the steps are journalled.
"""

from collections.abc import Iterator, Mapping

from millstream.decide.place.reuse.catalog import fits
from millstream.decide.place.reuse.state import PlanState

Held = tuple[int, int]  # (stream, host)
Routes = dict[tuple[str, str], str]  # (stream, reader) -> the reader that sends it on


def routed(
    state: PlanState, source: dict[Held, int], routes: Mapping[tuple[str, str], str]
) -> None:
    """Puts relays into a table of sources in which owners send everything themselves; a route
    whose ends do not both read the stream, or that leads back to itself, is left out."""
    catalog = state.catalog
    for (name, reader), relay in routes.items():
        stream = catalog.stream_at.get(name, -1)
        here, there = catalog.host_at.get(reader, -1), catalog.host_at.get(relay, -1)
        if source.get((stream, here), 0) >= 0 or source.get((stream, there), 0) >= 0:
            continue  # not read there by now
        if catalog.by_owner_alone(stream):
            continue
        place = there
        while place != here and source.get((stream, place), 0) < 0:
            place = ~source[stream, place]
        if place != here:
            source[stream, here] = ~there


def routes_of(state: PlanState) -> Routes:
    """Who is not served by a stream's owner, and by whom instead."""
    catalog = state.catalog
    found: Routes = {}
    for (stream, host), origin in state.source.items():
        if origin < 0 and ~origin != state.owner(stream):
            names = catalog.stream_ids[stream], catalog.host_ids[host]
            found[names] = catalog.host_ids[~origin]
    return found


def sender_for(state: PlanState, stream: int, target: int) -> int:
    """Who sends a stream to a host that does not have it: its owner, or, where that has no room,
    the reader with the most; -1 where it is nowhere."""
    owner = state.owner(stream)
    if owner < 0 or not _full(state, stream, owner):
        return owner
    return _other_sender(state, stream, target, owner)


def lightened(state: PlanState) -> None:
    """Hosts that send more than they offer leave copies to readers with room."""
    for host in (state.out_used > state.catalog.out_offered).nonzero()[0].tolist():
        for stream, target in list(_sent(state, host)):
            if fits(float(state.out_used[host]), 0.0, float(state.catalog.out_offered[host])):
                break
            sender = _other_sender(state, stream, target, host)
            if sender != host:
                state.reroute(stream, target, sender)


def without_idle_relays(state: PlanState) -> None:
    """Copies that nobody reads where they are go; who had them from there has others send them,
    the owner if nobody has room."""
    base = state.catalog.base
    relays = {
        (stream, ~origin): None
        for (stream, _), origin in state.source.items()
        if origin < 0 <= base[stream] != ~origin
    }
    for stream, host in relays:
        if _read(state, (stream, host)):
            continue
        for target in [t for t in state.holders[stream] if state.source.get((stream, t)) == ~host]:
            owner = state.owner(stream)
            sender = owner
            if _full(state, stream, owner):
                sender = _other_sender(state, stream, target, owner, host)
            state.reroute(stream, target, sender)


def _other_sender(state: PlanState, stream: int, target: int, *but: int) -> int:
    """The reader with the most room to send a stream; the first of `but` where none has any."""
    catalog = state.catalog
    best, most = but[0], 0.0
    if catalog.by_owner_alone(stream):
        return best
    for holder in state.holders[stream]:
        free = float(catalog.out_offered[holder] - state.out_used[holder])
        if holder in but or free <= most or _full(state, stream, holder):
            continue
        real = state.source.get((stream, holder), 0) >= 0 or _read(state, (stream, holder))
        if catalog.alive[holder] and real and not _below(state, stream, holder, target):
            best, most = holder, free
    return best


def _full(state: PlanState, stream: int, host: int) -> bool:
    used, offered = float(state.out_used[host]), float(state.catalog.out_offered[host])
    return not fits(used, state.catalog.rate[stream], offered)


def _below(state: PlanState, stream: int, host: int, above: int) -> bool:
    """Whether a host has a stream from another one, or is that one."""
    while host != above:
        origin = state.source.get((stream, host), 0)
        if origin >= 0:
            return False
        host = ~origin
    return True


def _read(state: PlanState, held: Held) -> bool:
    """Whether an operator reads a stream at a host, or it is delivered there."""
    stream, host = held
    if held in state.clients:
        return True
    inputs = state.catalog.inputs
    made = (state.source[output, host] for output in state.streams_at[host])
    return any(origin >= 0 and stream in inputs[origin] for origin in made)


def _sent(state: PlanState, host: int) -> Iterator[Held]:
    """Copies that a host sends, the largest first."""
    rate = state.catalog.rate
    sent = [held for held, origin in state.source.items() if origin == ~host]
    yield from sorted(sent, key=lambda held: (-rate[held[0]], held))
