"""What a processor is believed to have after it has carried out a command.

Belief begins with what a processor says (`inventory`) and follows the replies from then on, so that
it need not be asked again. Decides nothing.
"""

from dataclasses import replace

from millstream.control.protocol.commands import (
    Command,
    Connect,
    Declare,
    Disconnect,
    Expect,
    Forget,
    Hold,
    Host,
    Release,
    StartStream,
    TakeFrom,
    Unexpect,
    Unhost,
)
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Expected, HostedQuery, Inventory, Refusal, Reply


def after(have: Inventory, command: Command, reply: Reply) -> Inventory:
    """What a processor is believed to have once a command was carried out."""
    if isinstance(reply, Refusal):
        return have
    match command:
        case Declare(stream, ingest):
            return replace(have, declared={**have.declared, str(stream["name"]): ingest})
        case Forget(stream):
            declared = {k: v for k, v in have.declared.items() if k != stream}
            started = tuple(s for s in have.started if s != stream)
            return replace(have, declared=declared, started=started)
        case StartStream(stream):
            return replace(have, started=(*have.started, stream))
        case Hold(query, streams):
            held = tuple(sorted({*have.holds.get(query, ()), *streams}))
            return replace(have, holds={**have.holds, query: held})
        case Release(query, streams):
            kept = tuple(s for s in have.holds.get(query, ()) if s not in streams)
            holds = {k: v for k, v in have.holds.items() if k != query}
            return replace(have, holds={**holds, query: kept} if kept else holds)
        case Host() | Unhost():
            return _after_hosting(have, command)
        case Expect() | Unexpect():
            return _after_expecting(have, command, reply)
        case Connect(stream, source):
            # of a copy that a move has ended the relay is forgotten: it is told again
            connected = {**have.connected, stream: source}
            return replace(have, connected=connected, relays=_relays(have, stream, None))
        case Disconnect(stream):
            rest = {k: v for k, v in have.connected.items() if k != stream}
            return replace(have, connected=rest, relays=_relays(have, stream, None))
        case TakeFrom(stream, relay):
            return replace(have, relays=_relays(have, stream, relay))
        case _:
            return have


def _relays(have: Inventory, stream: str, relay: Peer | None) -> dict[str, Peer] | None:
    if have.relays is None:
        return None
    rest = {k: v for k, v in have.relays.items() if k != stream}
    return rest if relay is None else {**rest, stream: relay}


def _after_hosting(have: Inventory, command: Host | Unhost) -> Inventory:
    queries = dict(have.queries)
    known = queries.get(command.query)
    if isinstance(command, Host):
        before = known.operators if known else ()
        hosted = tuple(dict.fromkeys((*before, *command.operators)))
        result = command.result or (known.result if known else False)
        queries[command.query] = HostedQuery(
            command.cql, command.start, hosted, result, command.restarts, pauses=command.pauses
        )
    elif known is not None:
        kept = tuple(o for o in known.operators if o not in command.operators)
        if kept:
            queries[command.query] = replace(known, operators=kept)
        else:
            del queries[command.query]
    still = {o for q in queries.values() for o in q.operators}
    owned = {o: have.owned.get(o, 1) for o in sorted(still)}
    bases = {s: e for s, e in have.owned.items() if s.startswith("s:")}
    expected = {s: c for s, c in have.expected.items() if s in still or s.startswith("s:")}
    if isinstance(command, Host):
        expected = dict(have.expected)
    pending = tuple(q for q in have.pending if q != command.query)
    return replace(
        have, queries=queries, owned={**bases, **owned}, expected=expected, pending=pending
    )


def _after_expecting(have: Inventory, command: Expect | Unexpect, reply: Reply) -> Inventory:
    others = [c for c in have.expected.get(command.stream, ()) if c != command.consumer]
    expected = {k: v for k, v in have.expected.items() if k != command.stream}
    owned = have.owned
    if isinstance(command, Expect):
        others.append(command.consumer)
        if isinstance(reply, Expected) and reply.epoch:
            owned = {**owned, command.stream: reply.epoch}
    if others:
        expected[command.stream] = tuple(sorted(others))
    return replace(have, expected=expected, owned=owned)
