"""A manager of managers in virtual time: every manager is the production state machine.

The top manager's processors are managers with virtual processors of their own. They share one time,
one network and one log of commits, so that the checkers judge rows across all tiers.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from millstream.control.manager import tiers
from millstream.control.manager.events import Event, FromAbove, Introduced, Joined
from millstream.control.protocol.commands import Compile
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Compiled, Refusal, Reply
from millstream.core.errors import MillstreamError, RefusedError
from millstream.engine.processor import Processor
from millstream.sim.managed.managed_cluster import ManagedCluster, Target, Trouble
from millstream.store.moves.ownership import Handed
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import Page

LOOK_S = 0.1
EVERYTHING = 1 << 60  # acknowledged: nothing is kept for the manager itself
PATIENCE_S = 2.0  # after which a command that takes long is answered with "ask again"


class Pointing:
    """A manager that is asked for rows: it says who has them, and hands on what concerns them."""

    def __init__(self, manager: "LowerManager") -> None:
        self._manager, self.distributor, self.log = manager, self, self

    def demand(self) -> None:
        """Of its log: what it says is kept below, and was safe there before it was said."""

    def page(self, stream: str, after: int, _: str, __: int) -> Page:
        name, url, epoch = self._where(stream)
        moved = Handed(stream, after, epoch, Place(name, url))
        return Page(stream, epoch, home_epoch=0, moved=moved)

    def _where(self, stream: str) -> tuple[str, str, int]:
        found = tiers.whereabouts(self._manager.state, stream)
        if found is None:
            raise RefusedError("not_owner", f"stream {stream} is not made below this manager")
        return found

    def __getattr__(self, word: str) -> Callable[..., Any]:
        """`expect`, `acknowledge`, `unexpect`."""

        def hand_on(stream: str, *told: Any) -> Any:
            owner = self._manager.peer(self._manager.name, self._where(stream)[1])
            try:
                return getattr(owner.distributor, word)(stream, *told)
            finally:
                owner.log.demand()

        return hand_on


class LowerManager(ManagedCluster):
    """A manager with processors, as a processor of the one above."""

    def __init__(
        self, name: str, names: tuple[str, ...], top: "TieredCluster", trouble: Trouble | None
    ) -> None:
        self.name, self.top = name, top
        self._introducing: set[tuple[str, str]] = set()
        super().__init__(0, names, top.plans, trouble, beside=top)
        self.kernel.every(1.0, self._join, first=self.kernel.now + 0.2)

    @property
    def url(self) -> str:
        return f"virtual://{self.name}"

    @property
    def up(self) -> bool:
        return self.manager_up

    def at(self, url: str) -> Processor | None:
        if url == self.url:
            return cast("Processor", Pointing(self)) if self.manager_up else None
        return super().at(url)

    def _join(self) -> None:
        known = self.top.state.processors.get(self.name)
        if self.manager_up and (known is None or known.epoch != self.state.epoch):
            self.top.feed(Joined(tiers.joining(self.state, self.name, self.url)))

    def feed(self, event: Event) -> None:
        super().feed(event)
        for stream, consumer in tiers.introductions(self.state) if self.manager_up else ():
            if (stream.id, consumer) not in self._introducing:
                self._introducing.add((stream.id, consumer))
                self.kernel.after(
                    LOOK_S, partial(self._introduce, stream.id, stream.source, consumer)
                )

    def _introduce(self, stream: str, source: Peer, consumer: str) -> None:
        """The owner keeps a stream for one of our processors, and with the last of them no more for
        this manager."""
        self._introducing.discard((stream, consumer))
        with suppress(MillstreamError):  # tried again with the next event
            owner = self.peer(self.name, source.url).distributor
            owner.expect(stream, consumer)
            self.feed(Introduced(stream, consumer))
            if tiers.all_introduced(self.state, stream):
                owner.acknowledge(stream, self.name, EVERYTHING)

    def take(self, envelope: Envelope, told: Callable[[tuple[Reply, ...]], None]) -> None:
        """A message from above; its answer comes when everything in it is known."""
        if tiers.stale(self.state, envelope):
            told(tuple(Refusal("stale", "overtaken") for _ in envelope.commands))
            return
        self.feed(FromAbove(envelope))
        self._answer(envelope, told, self.kernel.now + PATIENCE_S)

    def _answer(
        self, envelope: Envelope, told: Callable[[tuple[Reply, ...]], None], until_s: float
    ) -> None:
        if not self.manager_up:
            return
        replies: list[Reply] = []
        for command in envelope.commands:
            if isinstance(command, Compile):
                known = self.plans.get(command.cql)
                replies.append(known or Refusal("mistake", "no such text"))
                continue
            reply = tiers.answer(self.state, command)
            if reply is None:
                if self.kernel.now < until_s:
                    self.kernel.after(LOOK_S, partial(self._answer, envelope, told, until_s))
                    return
                reply = Refusal("busy", "not known yet")
            replies.append(reply)
        told(tuple(replies))


class TieredCluster(ManagedCluster):
    """The top manager."""

    def __init__(
        self,
        seed: int,
        lower: Mapping[str, tuple[str, ...]],
        plans: Mapping[str, Compiled],
        trouble: Trouble | None = None,
    ) -> None:
        super().__init__(seed, (), plans, trouble)
        self.lower = {name: LowerManager(name, own, self, trouble) for name, own in lower.items()}

    def target(self, name: str) -> Target:
        return self.lower[name]

    def problems(self) -> list[str]:
        """What is wrong over all tiers: owners, numbers, queries that do not run."""
        owners: dict[str, list[str]] = {}
        for cluster in self.lower.values():
            for name, processor in cluster.processors.items():
                for stream in processor.owned():
                    owners.setdefault(stream, []).append(name)
        found = [f"{s} is owned by {' and '.join(n)}" for s, n in owners.items() if len(n) > 1]
        found += self.truth.faults
        for query in self.state.queries.values():
            if query.phase != "running":
                found.append(f"query {query.name} is {query.phase}: {query.reason}")
        for cluster in self.lower.values():
            found += [
                f"{cluster.name}: {q.name} is {q.phase}: {q.reason}"
                for q in cluster.state.queries.values()
                if q.phase != "running"
            ]
        return found
