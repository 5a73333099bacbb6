"""The stream feeder: rows come in here, and the execution engine hears of them.

Sources that bring rows by themselves, files and posted rows end in the ledger, as do the segments
that the receiver pulls; the feeder wakes the engine after each commit, so that nobody looks for
work that is not there (D-CAPE, section 4.3).
"""

from typing import TYPE_CHECKING

from millstream.engine.sources.push_source import PushSource

if TYPE_CHECKING:
    from millstream.edge.processor.execution_engine import ExecutionEngine
    from millstream.engine.processor import Processor


class StreamFeeder:
    def __init__(self, processor: "Processor", engine: "ExecutionEngine") -> None:
        self.processor, self._engine = processor, engine
        processor.engine.ledger.on_publish.append(self.fed)

    def fed(self, streams: frozenset[str]) -> None:
        """Something was published: whoever reads it has work."""
        readers = list(self.processor.engine.operators.values())
        if any(s in o.inputs for o in readers for s in streams):
            self._engine.wake()

    def door(self, name: str) -> PushSource | None:
        """Where rows of a stream are posted; none before it is started."""
        found = self.processor.engine.sources.get(name)
        return found if isinstance(found, PushSource) else None
