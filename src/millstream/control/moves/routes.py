"""Who sends a stream on: readers that take its bytes from another reader instead of its owner.

A route is a hint. The owner says what a stream is, keeps every segment until each reader has it,
and hears from each; only the bytes may come from another reader, which are believed where their
digest is the owner's. So no order of words, no loss and no wrong route can cost a row. Keeps the
records and says which of them hold; who is to send what is planned elsewhere.
"""

from collections.abc import Iterable, Mapping

from millstream.control.manager.state import ManagerState, Route
from millstream.control.manager.turn import Turn


def told(routes: Mapping[tuple[str, str], str]) -> dict[str, Route]:
    """Records of routes by (stream, reader)."""
    records = (Route(f"{s}>{reader}", s, reader, relay) for (s, reader), relay in routes.items())
    return {record.id: record for record in records}


def keep(turn: Turn, routes: Mapping[tuple[str, str], str]) -> None:
    """From now on these routes, and no others."""
    wanted, known = told(routes), turn.state.routes
    for name in known.keys() - wanted.keys():
        turn.remove("routes", name)
    for name, record in wanted.items():
        if known.get(name) != record:
            turn.put(record)


def standing(
    state: ManagerState, reading: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, str]]:
    """By reader and stream who sends it on: routes between two that read it, of whom the sender
    answers and is not fed by the reader."""
    if not state.settings.relays:
        return {}
    relay = {(r.stream, r.reader): r.relay for r in state.routes.values()}
    found: dict[str, dict[str, str]] = {}
    for (stream, reader), sender in relay.items():
        live = state.live.get(sender)
        if not stream.startswith("s:"):
            continue
        if live is None or live.state != "up" or not {reader, sender} <= {*reading.get(stream, ())}:
            continue
        place, seen = sender, {reader}
        while place not in seen and (stream, place) in relay:
            seen.add(place)
            place = relay[stream, place]
        if place not in seen:
            found.setdefault(reader, {})[stream] = sender
    return found
