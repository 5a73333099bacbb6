"""What those need of an engine who put one query in another's place."""

from abc import abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from millstream.engine.changes.history import Histories
from millstream.engine.dataflow import Dataflow
from millstream.engine.hosting import Hosting
from millstream.engine.maintenance import Maintenance
from millstream.engine.ports import CompiledQuery


class ChangingFlow(Dataflow):
    """A dataflow whose queries come, change and go."""

    hosting: Hosting
    histories: Histories
    maintenance: Maintenance

    @abstractmethod
    def check_new(self, compiled: CompiledQuery) -> None:
        """Refuses what would combine too many rows, unless its text says that this is meant."""

    @abstractmethod
    def stored_table(self, stream: str) -> Iterator[pa.Table]:
        """The present table of a stream of changes, as it is stored."""
