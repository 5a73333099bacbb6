"""Says commands to processors over HTTP, as a manager would."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from millstream.control.protocol.commands import (
    Compile,
    Complete,
    Connect,
    Declare,
    Expect,
    Hold,
    Host,
    Prepare,
    Progress,
    Release,
    Seal,
    StartStream,
    TakeOver,
)
from millstream.control.protocol.records import Peer
from millstream.edge.processor.client import ProcessorClient


class Control(ProcessorClient):
    """One processor, as its manager talks to it."""

    def rows(self, query: str) -> list[dict[str, Any]]:
        """All rows that are kept for subscribers."""
        found: list[dict[str, Any]] = []
        following = 0
        while True:
            answer = self.get(f"/queries/{query}/rows", after=following)
            found += answer["rows"]
            if answer["next"] == following or not answer["rows"]:
                return found
            following = answer["next"]


def until(what: Callable[[], bool], seconds: float = 90.0, every: float = 0.05) -> None:
    """Waits for something to become true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(every)


def deploy(
    query: str, cql: str, where: Callable[[str], Control], first: Control, bases: Sequence[str]
) -> dict[str, Any]:
    """Registers a query over processors; gives what was compiled."""
    (held,) = first.do(Hold(query, tuple(bases)))
    start = max(m.watermark for m in held.streams.values())
    compiled = first.do(Compile(cql))[0].starting(start)
    places = {o.id: where(o.id) for o in compiled.operators}
    for control in {c.name: c for c in places.values()}.values():
        chosen = tuple(o for o, place in places.items() if place.name == control.name)
        control.do(Host(query, cql, start, chosen, compiled.result in chosen))
    for operator in compiled.operators:
        for stream in operator.inputs:
            source, to = places.get(stream, first), places[operator.id]
            if source.name != to.name:
                (expected,) = source.do(Expect(stream, to.name))
                to.do(Connect(stream, source.peer(expected.epoch)))
    first.do(Release(query, tuple(bases)))
    return {"places": places, "compiled": compiled, "start": start}


def move(
    name: str,
    hosts: Sequence[Host],
    old: Control,
    new: Control,
    inputs: dict[str, Peer],
) -> None:
    """All steps of a move."""
    command = Prepare(name, tuple(hosts), inputs, old.peer())
    for stream, peer in inputs.items():
        if peer.processor == old.name:
            old.do(Expect(stream, new.name))
    new.do(command)

    def phase(control: Control) -> str:
        (found,) = control.do(Progress(name))
        return str(found.phase)

    until(lambda: phase(new) == "ready")
    old.do(Seal(name, command.operators, new.peer()))
    new.do(TakeOver(name, old.peer()))
    until(lambda: phase(new) == "owned")
    old.do(Complete(name))
    new.do(Complete(name))


def declare(controls: Sequence[Control], table: dict[str, Any]) -> None:
    """Declares a stream everywhere; rows enter at the first."""
    for number, control in enumerate(controls):
        control.do(Declare(json.loads(json.dumps(table)), ingest=number == 0))


def start(control: Control, *streams: str) -> None:
    control.do(*(StartStream(s) for s in streams))
