"""One processor: an engine that hosts operators, exchanges segments and hands operators over.

Puts the parts together; what each does stands in its own module. Knows no network and no threads:
whoever drives it calls `exchange` and runs steps, or lets the server's components do both.
"""

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from millstream.control.moves.table import ARRIVING
from millstream.core.errors import MillstreamError, StateError
from millstream.engine.engine import Engine
from millstream.engine.ports import DataPlane
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.reports import StepReport
from millstream.store.moves.new_owner import NewOwner
from millstream.store.moves.old_owner import OldOwner
from millstream.store.moves.receiving import Receiver
from millstream.store.moves.transfer import Distributor, Peers
from millstream.store.replicas.commit_log import CommitLog
from millstream.store.replicas.gated_peer import gated

WHO = "processor"  # where the ledger keeps the processor's id


class Processor:
    """Everything that one home is and does; opening it again goes on where it was."""

    def __init__(
        self,
        name: str,
        home: Path,
        plane: DataPlane,
        peers: Peers,
        settings: EngineSettings | None = None,
    ) -> None:
        self.engine = Engine(home, plane, settings)
        self.id = self._identity(name)
        self.log = CommitLog(self.engine.ledger)
        self.engine.streams.removals.needed = self.log.needs
        self.log.on_passed.append(lambda: self.engine.streams.remove(()))
        peers = gated(peers, self.log)
        self.hosting = self.engine.hosting
        self.ownership = self.hosting.ownership
        paths = self.engine.path_times
        self.distributor = Distributor(self.engine.maintenance, self.ownership, paths.path)
        self.receiver = Receiver(self.id, self.engine.streams, self.ownership, peers)
        self.receiver.may_copy = self.hosting.may_copy
        self.receiver.crowded, self.receiver.pulled = self.engine.crowded, paths.pulled
        self.old_owner = OldOwner(self.id, self.hosting, self._quiesce)
        self.new_owner = NewOwner(self.id, self.hosting, self.receiver, peers)
        self.pauses: dict[str, dict[str, float]] = {}  # how long operators stood still
        self.quiesce: Callable[[frozenset[str]], None] | None = None  # set by whoever runs steps
        self.engine.on_step.append(self._stepped)
        self.distributor.on_acknowledged.append(self._acknowledged)

    def _identity(self, name: str) -> str:
        """The id lies in the home: whoever opens it is that processor."""
        known = self.engine.ledger.meta(WHO)
        if known is None:
            name = name or f"p-{uuid.uuid4().hex[:8]}"
            with self.engine.ledger.transaction() as ledger:
                ledger.set_meta(WHO, name)
        elif name and name != known:
            raise StateError(
                f"this home belongs to processor {known}",
                hint=f"start it as {known}, or choose another home",
            )
        return known or name

    def restore(self) -> None:
        """Goes on with everything that the ledger has; needs no manager."""
        self.hosting.restore()

    def close(self) -> None:
        self.engine.close()

    def reset(self) -> None:
        """Forgets all queries, streams and rows."""
        for query, operators in self.ownership.hosted().items():
            self.hosting.unhost(query, operators)
        for copy in self.ownership.copies():
            self.receiver.disconnect(copy.stream)
        for name in self.ownership.declared():
            self.hosting.forget(name)
        with self.engine.ledger.transaction() as ledger:
            for table in ("moves", "handed", "last_rows", "counters"):
                ledger.change(f"DELETE FROM {table}")

    def _quiesce(self, operators: frozenset[str]) -> None:
        if self.quiesce is not None:
            self.quiesce(operators)

    def _stepped(self, report: StepReport) -> None:
        """Notes when operators last committed: a move's pause lies between two such moments."""
        now = time.time()
        self.old_owner.committed[report.operator] = now
        handed = self.new_owner.handed_at.pop(report.operator, None)
        if handed is not None:
            last, owned = handed
            waiting = max(last, report.arrived)  # without input nothing stands still
            self.pauses[report.operator] = {
                "pause_s": max(0.0, now - waiting),
                "handover_s": max(0.0, owned - waiting),  # until this processor was the owner
                "first_step_s": report.seconds,
            }

    def _acknowledged(self, stream: str) -> None:
        gone = self.ownership.owned(stream) is None and self.ownership.copy(stream) is None
        if gone and self.ownership.handed(stream):
            self.hosting.tidy(stream)

    # -- one round, for drivers without threads -------------------------------------------------

    def exchange(self) -> bool:
        """Pulls every copy once and goes on with every move; gives whether anything came of it."""
        worked = False
        self.receiver.say_farewells()
        for copy in self.ownership.copies():
            try:
                worked = self.receiver.pull(copy.stream) > 0 or worked
            except MillstreamError:
                continue  # asked again in the next round
        for move in self.ownership.moves("new", ARRIVING):
            try:
                worked = self.new_owner.advance(move.id) or worked
            except MillstreamError:
                continue
        return worked
