"""What a processor that runs plans carries out and makes, for those who look on."""

from collections.abc import Callable, Sequence
from typing import Any

from millstream.control.protocol.commands import Compile, Configure
from millstream.control.protocol.envelope import Message
from millstream.control.protocol.replies import Compiled, Reply
from millstream.edge.processor.connection_manager import ConnectionManager, Parts
from millstream.engine.processor import Processor
from millstream.sim.managed.plan_plane import PlanPlane
from millstream.store.moves.ownership import Owned
from millstream.store.segments import Segment


class ObservedConnections(ConnectionManager):
    """Keeps a diary, and compiles a text to its plan."""

    def __init__(self, parts: Parts, plane: PlanPlane, diary: list[str]) -> None:
        super().__init__(parts)
        self._plane, self.carried_out = plane, diary
        self.quality: dict[str, Any] = {}
        self.schedule: dict[str, Any] = {}

    def perform(self, command: Message) -> Reply:
        self.carried_out.append(command.do)
        reply = super().perform(command)
        if isinstance(command, Configure):
            self.quality = self.quality if command.quality is None else dict(command.quality)
            self.schedule = self.schedule if command.schedule is None else dict(command.schedule)
        return reply

    def _compiled(self, command: Compile) -> Compiled:
        """As the plan has it: ids are the same for every start."""
        self.processor.hosting.compile(command.cql, None)
        return self._plane.compiler.plans[command.cql]


class Publications:
    """Tells of every segment that a processor has made, after the commit."""

    def __init__(
        self, processor: Processor, made: Callable[[Owned, Sequence[Segment]], None]
    ) -> None:
        self._ownership, self._ledger, self._made = (
            processor.ownership, processor.engine.ledger, made
        )  # fmt: skip
        self._following: dict[str, int] = {}  # by stream
        for owned in self._ownership.all_owned():
            head = self._ledger.stream(owned.stream)
            self._following[owned.stream] = int(head["next"]) if head else 1
        self._ledger.on_publish.append(self._published)
        self._ledger.on_drop.append(self._dropped)

    def _dropped(self, stream: str) -> None:
        self._following.pop(stream, None)

    def _published(self, streams: frozenset[str]) -> None:
        for stream in sorted(streams):
            owned = self._ownership.owned(stream)
            if owned is None:
                continue
            since = max(self._following.get(stream, 0), owned.since)
            fresh = self._ledger.segments(stream, since)
            if fresh:
                self._following[stream] = fresh[-1].last + 1
                self._made(owned, fresh)
