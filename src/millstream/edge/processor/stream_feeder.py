"""The stream feeder: rows come in here, and the execution engine hears of them.

Sources that bring rows by themselves, files and posted rows end in the ledger, as do the segments
that the receiver pulls; the feeder wakes the engine after each commit, so that nobody looks for
work that is not there (D-CAPE, section 4.3). Rows of a stream that has moved are passed on.
"""

from functools import partial
from typing import TYPE_CHECKING

from millstream.edge.http.rows_api import Elsewhere, on_its_way
from millstream.engine.sources.kinds import kind_of
from millstream.engine.sources.push_source import PushSource
from millstream.language.share.dataflow import base_stream

if TYPE_CHECKING:
    from millstream.edge.peers.peers import HttpPeers
    from millstream.edge.processor.execution_engine import ExecutionEngine
    from millstream.engine.processor import Processor


class StreamFeeder:
    def __init__(
        self, processor: "Processor", engine: "ExecutionEngine", peers: "HttpPeers"
    ) -> None:
        self.processor, self._engine, self._peers = processor, engine, peers
        processor.engine.ledger.on_publish.append(self.fed)

    def fed(self, streams: frozenset[str]) -> None:
        """Something was published: whoever reads it has work."""
        readers = list(self.processor.engine.operators.values())
        if any(s in o.inputs for o in readers for s in streams):
            self._engine.wake()

    def door(self, name: str) -> PushSource | Elsewhere | None:
        """Where rows of a stream are posted; none before it is started."""
        found = self.processor.engine.sources.get(name)
        if isinstance(found, PushSource):
            return found
        ownership, stream = self.processor.ownership, base_stream(name)
        if stream in ownership.arriving():
            raise on_its_way(f"stream {name} is on its way here")
        if ownership.owned(stream) is None:
            handed = ownership.handed(stream)
            if not handed:
                return None
            to = max(handed, key=lambda h: h.epoch).to
            return Elsewhere(partial(self._peers.passed_on, to))
        declared = ownership.declared().get(name)
        opening = declared is not None and declared.started and name not in self._stopped()
        if opening and kind_of(declared.definition) in ("http", "push"):  # type: ignore[union-attr]
            raise on_its_way(f"stream {name} has just come here")
        return None

    def _stopped(self) -> set[str]:
        return set(self.processor.engine.stopped)
