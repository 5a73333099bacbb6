"""Where a manager posts the rows of a `sys.` stream: a push source that needs no Spark to read.

Rows come in the stream's own types, from the manager alone, once a second; numbered like anybody's,
so that a batch that is sent again is taken once.
"""

from collections.abc import Sequence

import pyarrow as pa

from millstream.cql.catalog import StreamDefinition
from millstream.cql.system_streams import columns_of
from millstream.engine.push_source import PushSource, Row
from millstream.engine.system_rows import table_of
from millstream.errors import UsageError


def about_the_system(definition: StreamDefinition) -> bool:
    """Whether a declared stream is one of those about the system itself."""
    return columns_of(definition.name) == definition.columns


class SystemDoor(PushSource):
    """The door of one stream about the system."""

    def _parsed(self, rows: Sequence[Row], producer: str) -> pa.Table:
        try:
            return table_of([dict(row) for row in rows], self.definition)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            name = self.definition.name
            raise UsageError(
                f"{producer} sent rows that are none of {name}", detail=f"{error}"[:300]
            ) from None
