"""A manager as a processor of another manager: what it does with the messages from above.

D-CAPE, section 4.2: a manager of a higher tier allocates plans to managers below it. To the one
above, a manager is a processor with the sum of its processors' resources: the same messages, split
among its own. Its own decision maker places the operators that it has to host. Those of its
processors that read a stream from outside pull it. A reader that asks it for rows of a stream gets
a pointer to the processor that has them, as after a move. Operators do not move into or out of a
manager; whole queries go by dropping and submitting them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millstream.control.manager import quality as manager_quality
from millstream.control.manager.connections import (
    EARLY,
    hold_places,
    owner_of,
    readers,
)
from millstream.control.manager.state import (
    NOBODY,
    PLACED,
    Above,
    ManagerState,
    OutsideStream,
    Promise,
    Query,
    StreamRecord,
)
from millstream.control.manager.turn import Turn
from millstream.control.protocol.commands import (
    QUESTIONS,
    Command,
    Compile,
    Configure,
    Connect,
    Declare,
    Disconnect,
    Expect,
    Forget,
    Hold,
    Host,
    Join,
    Release,
    Report,
    StartStream,
    TakeInventory,
    Unexpect,
    Unhost,
)
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.replies import (
    Done,
    Expected,
    Held,
    HostedQuery,
    Inventory,
    Refusal,
    Reply,
    Reported,
    StreamMark,
)
from millstream.control.recovery import failed_queries, pausing
from millstream.core.names import problem_of

SUMMED = ("cpu", "cores", "memory", "memory_rows", "slots", "processors")


def joining(state: ManagerState, name: str, url: str) -> Join:
    """This manager as the one above sees it: the sum of what its processors say of themselves."""
    properties: dict[str, Any] = {"processors": 0, "kind": "manager"}
    for processor in state.processors.values():
        properties["processors"] += 1
        for key in SUMMED:
            value = processor.properties.get(key)
            if isinstance(value, int | float) and key != "processors":
                properties[key] = properties.get(key, 0) + value
    return Join(name, url, state.epoch, properties)


def receive(turn: Turn, envelope: Envelope) -> None:
    """Takes note of a message; `answer` tells when its commands are carried out."""
    above = turn.state.above.get("above", Above())
    said = (envelope.epoch, envelope.number)
    if envelope.number and said > (above.epoch, above.number):
        told = replace(above, epoch=envelope.epoch, number=envelope.number)
        if any(not isinstance(command, QUESTIONS) for command in envelope.commands):
            told = replace(told, lineage=envelope.lineage, revision=envelope.revision)
        turn.put(told)
    elif envelope.number and said < (above.epoch, above.number):
        return
    for command in envelope.commands:
        _carry_out(turn, command)


def stale(state: ManagerState, envelope: Envelope) -> bool:
    above = state.above.get("above", Above())
    if envelope.number == 0:
        return envelope.epoch < above.epoch
    return (envelope.epoch, envelope.number) < (above.epoch, above.number)


def _misnamed(table: Mapping[str, Any]) -> str:
    name = table.get("name")
    return problem_of(name) if isinstance(name, str) else "a declared stream needs a name"


def _carry_out(turn: Turn, command: Command) -> None:
    above = turn.state.above.get("above", Above())
    match command:
        case Declare(table, ingest) if not _misnamed(table):
            _declare(turn, str(table["name"]), dict(table), ingest)
        case StartStream(name) if name in turn.state.streams:
            turn.put(replace(turn.state.streams[name], start_wanted=True))
        case Forget(name):
            turn.remove("streams", name)
            turn.remove("outside", f"s:{name}")
        case Hold(query, streams):
            held = tuple(sorted({*above.holds.get(query, ()), *streams}))
            turn.put(replace(above, holds={**above.holds, query: held}))
            turn.remove("marks", query)
        case Release(query, streams):
            kept = tuple(s for s in above.holds.get(query, ()) if s not in streams)
            holds = {k: v for k, v in above.holds.items() if k != query}
            turn.put(replace(above, holds={**holds, query: kept} if kept else holds))
        case Host():
            _host(turn, command)
        case Unhost(query, operators):
            _unhost(turn, query, operators)
        case Expect(stream, consumer):
            known = turn.state.promises.get(stream, Promise(stream, ()))
            turn.put(Promise(stream, tuple(sorted({*known.consumers, consumer}))))
        case Unexpect(stream, consumer):
            known = turn.state.promises.get(stream, Promise(stream, ()))
            left = tuple(c for c in known.consumers if c != consumer)
            if left:
                turn.put(Promise(stream, left))
            else:
                turn.remove("promises", stream)
        case Connect(stream, source):
            before = turn.state.outside.get(stream)
            introduced = before.introduced if before else frozenset()
            turn.put(OutsideStream(stream, source, introduced))
        case Disconnect(stream):
            turn.remove("outside", stream)
        case Configure():
            manager_quality.from_above(turn, command)


def _declare(turn: Turn, name: str, table: dict[str, Any], ingest: bool) -> None:
    if name in turn.state.streams:
        return
    place = NOBODY
    if ingest:
        counts = {p: 0 for p, live in turn.state.live.items() if live.state != "silent"}
        for stream in turn.state.streams.values():
            if stream.processor in counts:
                counts[stream.processor] += 1
        place = min(counts, key=lambda p: (counts[p], p), default=NOBODY)
    turn.put(StreamRecord(name, table, place))


def _host(turn: Turn, command: Host) -> None:
    known = turn.state.queries.get(command.query)
    wanted = tuple(sorted({*(known.given if known else ()), *command.operators}))
    if known is not None and command.restarts > known.restarts:
        failed_queries.restarted_above(turn, known, command.restarts)
    if known is not None:
        pausing.paused_above(turn, known, command.pauses)
    if known is not None and known.given == wanted and known.phase != "dropping":
        return
    turn.put(
        Query(
            command.query, command.cql, submitted_s=turn.now_s, start=command.start, given=wanted,
            restarts=command.restarts, pauses=command.pauses,
        )
    )  # fmt: skip


def _unhost(turn: Turn, query: str, operators: tuple[str, ...]) -> None:
    known = turn.state.queries.get(query)
    if known is None:
        return
    left = tuple(o for o in known.given if o not in operators)
    if left:
        turn.query(query, given=left, operators=tuple(o for o in known.operators if o in left))
    else:
        turn.query(query, phase="dropping")


# -- answers --------------------------------------------------------------------------------------


def answer(state: ManagerState, command: Command) -> Reply | None:
    """The reply to a command that was carried out; None while it is not known yet."""
    match command:
        case Declare(table) if problem := _misnamed(table):
            return Refusal("mistake", problem)
        case Declare(table, True) if state.streams[str(table["name"])].processor == NOBODY:
            return Refusal("busy", "no processor of this manager answers")
        case Hold(query, streams):
            return _marks(state, query, streams)
        case Host(query):  # what is held for it above is let go of with the answer
            hosted = state.queries.get(query)
            return None if hosted is not None and hosted.phase in EARLY else Done()
        case Expect(stream, _):
            epoch = state.operators[stream].epoch if stream in state.operators else 0
            return Expected(1, max(1, epoch))
        case Report(since):
            return _report(state, since)
        case TakeInventory():
            return _inventory(state)
        case Compile():
            return None  # asked of a processor
        case _ if command.do in ("prepare", "progress", "seal", "take_over", "undo", "complete"):
            return Refusal("unknown", "operators do not move into or out of a manager")
        case _:
            return Done()


def _marks(state: ManagerState, query: str, streams: tuple[str, ...]) -> Held | None:
    """How far streams are, over all places below that have them."""
    marks, reading = state.marks.get(query, {}), readers(state)
    found = {}
    for stream in streams:
        places = hold_places(state, stream, reading)
        if any((place, stream) not in marks for place in places):
            return None
        mine = [marks[place, stream] for place in places]
        if not mine:
            return None
        found[stream] = StreamMark(
            max(m.watermark for m in mine),
            max(m.retained_from for m in mine),
            max(m.ts_max for m in mine),
        )
    return Held(found)


def _report(state: ManagerState, since: int) -> Reported:
    """What has changed below; versions are times in ms."""
    known, limit = state.statistics, since / 1000.0
    operators = {k: dict(f.values) for k, f in known.operators.items() if f.at_s > limit}
    streams = {k: dict(f.values) for k, f in known.streams.items() if f.at_s > limit}
    edges = {k: dict(f.values) for k, f in known.edges.items() if f.at_s > limit}
    loads = [f.values.get("load", 0.0) for f in known.processors.values()]
    settled = all(f.values.get("settled", 0.0) for f in known.processors.values())
    own = {
        "load": sum(loads) / len(loads) if loads else 0.0,
        "settled": float(settled),
        "processors": float(sum(live.state == "up" for live in state.live.values())),
    }
    hosted = {
        name: dict(told)
        for name, told in known.queries.items()
        if name in state.queries and state.queries[name].phase in PLACED
    }
    failed = {
        q.name: {
            "state": "failed",
            "reason": q.reason,
            "restartable": q.resumable,
            "restarts": q.restarts,
        }
        for q in state.queries.values()
        if q.phase == "failed"
    }
    lost = {
        name: {"state": "failed", "reason": refusal.message}
        for name, refusal in state.refusals.items()
        if name not in state.queries
    }
    version = max(since, int(state.now_s * 1000))
    return Reported(version, operators, streams, edges, own, {**hosted, **failed, **lost})


def _inventory(state: ManagerState) -> Inventory:
    above = state.above.get("above", Above())
    queries = {
        q.name: HostedQuery(
            q.cql, q.start or 0, q.given, bool(q.result), q.restarts, pauses=q.pauses
        )
        for q in state.queries.values()
        if q.given and q.phase != "dropping"
    }
    owned = {o: max(1, state.operators[o].epoch) for q in queries.values() for o in q.operators
             if o in state.operators}  # fmt: skip
    bases = {s.id: 1 for s in state.streams.values() if s.processor != NOBODY}
    started = tuple(s.name for s in state.streams.values() if s.start_wanted)
    return Inventory(
        {s.name: s.processor != NOBODY for s in state.streams.values()},
        started,
        queries,
        {**bases, **owned},
        dict(above.holds),
        {p.id: p.consumers for p in state.promises.values()},
        {o.id: o.source for o in state.outside.values()},
        {},
        pending=tuple(q for q in queries if state.queries[q].phase in EARLY),
        led_by=above.lineage,
        revision=above.revision,
        tables={s.name: dict(s.table) for s in state.streams.values()},
    )


def introductions(state: ManagerState) -> list[tuple[OutsideStream, str]]:
    """Outside streams, and processors of ours that read them and are not known to the owner."""
    reading = readers(state)
    return [
        (stream, place)
        for stream in state.outside.values()
        for place in sorted(reading.get(stream.id, set()) - stream.introduced)
        if place in state.processors
    ]


def tidy(turn: Turn) -> None:
    """Who has ended its copy of an outside stream has said so to the owner, and is introduced anew
    when it reads the stream again."""
    if not turn.state.outside:
        return
    reading = readers(turn.state)
    for stream in turn.state.outside.values():
        ended = {
            p for p in stream.introduced - reading.get(stream.id, set())
            if (live := turn.state.live.get(p)) is not None and live.actual is not None
            and stream.id not in live.actual.connected
        }  # fmt: skip
        if ended:
            turn.put(replace(stream, introduced=stream.introduced - ended))


def all_introduced(state: ManagerState, stream: str) -> bool:
    """Whether every processor of ours that reads an outside stream is known to its owner, so that
    nothing needs to be kept for this manager besides."""
    known = state.outside.get(stream)
    return known is not None and readers(state).get(stream, set()) <= known.introduced


def whereabouts(state: ManagerState, stream: str) -> tuple[str, str, int] | None:
    """The processor, its address and the epoch of a stream that is made below."""
    owner = owner_of(state, stream)
    if owner not in state.processors:
        return None
    epoch = state.operators[stream].epoch if stream in state.operators else 1
    return owner, state.processors[owner].url, max(1, epoch)
