"""A cluster whose homes are kept at several processors: machines are lost with their homes, or cut
off while they still work, and a holder of a copy continues in their place.

Commits that never had an outside effect may be gone with a machine, and are made again: the log of
commits is cut back to the copy. This module checks that nothing outside had seen them, from the
other ledgers and from the answers to readers and producers, independently of the deciding code.
"""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from millstream.control.manager.events import Joined
from millstream.control.protocol.commands import HOME_TAKEN
from millstream.core.errors import AwayError, MillstreamError, RefusedError
from millstream.engine.processor import Processor
from millstream.engine.sources.push_source import PushSource
from millstream.sim.managed.managed_cluster import ManagedCluster, Nowhere
from millstream.sim.managed.virtual_processor import Rows, VirtualProcessor

PUSH_S = 0.7
Made = tuple[VirtualProcessor, int]  # who made a segment, in which commit


class ReplicatedCluster(ManagedCluster):
    def __init__(self, *args: Any, **settings: Any) -> None:
        self.cut_off: set[str] = set()  # names whose process nobody reaches, and which goes on
        self.ghosts: list[VirtualProcessor] = []  # others go on in their place
        self.made: dict[str, list[Made]] = {}  # beside the log of a stream's present life
        self.acknowledged: dict[str, int] = {}  # by pushed stream: batches that were answered
        self.takeovers = 0
        super().__init__(*args, **settings)

    # -- who reaches whom -----------------------------------------------------------------------

    def peer(self, me: str, url: str) -> Processor:
        name = next((p.name for p in self.processors.values() if p.url == url), "")
        if name in self.cut_off:
            raise AwayError(f"no server answers at {url}")
        return super().peer(me, url)

    def target(self, name: str) -> Any:
        known = self.processors.get(name)
        if known is None or name in self.cut_off:
            return Nowhere()
        return known

    def follow(self, owner: str) -> None:
        log = self.processors[owner].processor.log
        for name in log.configuration.followers:
            if self._reachable(name) and name not in self.cut_off:
                for _ in range(4):
                    with suppress(MillstreamError):
                        self.processors[name].keeper.turn(owner)

    def _announce(self, name: str) -> None:
        if name not in self.cut_off:
            super()._announce(name)

    # -- rows that are posted -------------------------------------------------------------------

    def push(self, stream: str, batches: int) -> None:
        """A producer posts numbered batches, each again until it is answered."""
        self.acknowledged[stream] = 0
        self.kernel.every(PUSH_S, partial(self._push, stream, batches))

    def _push(self, stream: str, batches: int) -> None:
        number = self.acknowledged[stream] + 1
        if number > batches:
            return
        for processor in (*self.processors.values(), *self.ghosts):
            door = processor.processor.engine.sources.get(stream) if processor.up else None
            if not isinstance(door, PushSource) or processor.name in self.paused:
                continue
            with suppress(MillstreamError):
                door.push("producer", number, [{"ts": number, "c0": f"{stream}{number}"}])
                processor.processor.log.demand()
                self.acknowledged[stream] = number
                return

    def _take(self, query: str, stream: str, processor: VirtualProcessor) -> None:
        with suppress(AwayError):
            processor.processor.log.demand()
            super()._take(query, stream, processor)

    # -- what was made --------------------------------------------------------------------------

    def published(
        self, stream: str, epoch: int, number: int, rows: Rows, maker: VirtualProcessor
    ) -> None:
        if self.processors.get(maker.name) is not maker:
            return  # told to nobody
        lives = self.truth.logs.get(stream, [])
        if number == 1 and lives and lives[-1] and stream.startswith("s:") and self.state.lost:
            self.truth.begin(stream)
        super().published(stream, epoch, number, rows, maker)
        made = self.made.setdefault(stream, [])
        del made[number - 1 :]
        made.append((maker, maker.ledger.changes))

    def adopted(self, heir: str, name: str, home: Path) -> None:
        present = self.processors.get(name)
        if present is not None and present.heir == heir:
            return
        gone = present or self.dead.pop(name)
        if present is not None:
            self.ghosts.append(gone)
            gone.replaced = True
            if name not in self.cut_off:  # paused, or killed: it comes back on its own home
                self.kernel.after(12.0, partial(self._come_back, gone))
            self.cut_off.discard(name)
            self.paused.discard(name)
        reached = self.processors[heir].keeper.replicas[name].number
        fresh = VirtualProcessor(name, self, home, heir)
        fresh.starts = gone.starts + 1
        self.processors[name] = fresh
        self.takeovers += 1
        self._disturbed += 1
        for stream in sorted(self.truth.logs):
            self._cut_back(stream, gone, reached, fresh)
        self._announce_until_heard(name)

    def ended(self, heir: str, name: str) -> None:
        for ghost in [g for g in self.ghosts if (g.heir, g.name) == (heir, name)]:
            ghost.up = False
            ghost.close()
            self.ghosts.remove(ghost)

    def _cut_back(
        self, stream: str, gone: VirtualProcessor, reached: int, fresh: VirtualProcessor
    ) -> None:
        """What the lost one made after the last commit of the copy was never there."""
        log, made = self.truth.logs[stream][-1], self.made.get(stream, [])
        kept = len(log)
        untold = [maker is gone and commit > reached for maker, commit in made]
        while kept and kept <= len(untold) and untold[kept - 1]:
            kept -= 1
        if any(untold[:kept]):
            self.truth.faults.append(f"{stream}: others went on from what {gone.name} had not told")
        if kept == len(log):
            return
        for other in self.processors.values():
            head = other.ledger.stream(stream) if other is not fresh else None
            if head is not None and head["next"] > kept + 1:
                self.truth.faults.append(f"{stream}: {other.name} has what {gone.name} never told")
        for query in self.state.queries.values():
            if query.result == stream and max(self.received.get(query.name, ()), default=0) > kept:
                self.truth.faults.append(f"{stream}: a reader of {query.name} has what is gone")
        del log[kept:], made[kept:]
        if not log:
            self.truth.epochs[stream] = 0

    # -- faults ---------------------------------------------------------------------------------

    def burn(self, name: str) -> None:
        """A processor and its home are gone for good, whoever has a copy."""
        gone = self.processors.pop(name)
        gone.up = False
        self.cut_off.discard(name)
        self._disturbed += 1
        self.dead[name] = gone

    def isolate(self, name: str, seconds: float) -> None:
        """Nobody reaches a processor, and it reaches nobody; it goes on with what it has."""
        if name not in self.processors or name in self.cut_off:
            return
        self.cut_off.add(name)
        self.processors[name].alone = True
        self._disturbed += 1
        self.kernel.after(seconds, partial(self._heal, self.processors[name]))

    def _heal(self, processor: VirtualProcessor) -> None:
        self._disturbed += 1
        if self.processors.get(processor.name) is processor:
            self.cut_off.discard(processor.name)
            processor.alone = False
        elif processor in self.ghosts:
            self._refuse(processor)

    def _come_back(self, ghost: VirtualProcessor) -> None:
        if ghost in self.ghosts and not ghost.up:
            ghost.restart(moved=True)
        self.kernel.after(1.0, partial(self._refuse, ghost))

    def _refuse(self, ghost: VirtualProcessor) -> None:
        """Another stands in its place: it hears so when it says where it is, and ends."""
        if ghost not in self.ghosts:
            return
        if not self.manager_up:
            self.kernel.after(1.0, partial(self._refuse, ghost))
            return
        try:
            self.feed(Joined(ghost.join()))
            self.truth.faults.append(f"{ghost.name} was let in beside the one in its place")
        except RefusedError as refusal:
            if refusal.code != HOME_TAKEN:
                self.truth.faults.append(f"{ghost.name} was refused as {refusal.code}")
        ghost.up = False
        fresh = f"n{len(self.processors)}"  # its machine is of use, with an empty home
        self.processors[fresh] = VirtualProcessor(fresh, self)
        self._begin(fresh)

    def _work(self, name: str) -> None:
        super()._work(name)
        for ghost in self.ghosts:
            if ghost.up and ghost.name == name:
                ghost.work()

    def close(self) -> None:
        for ghost in self.ghosts:
            ghost.close()
        super().close()
