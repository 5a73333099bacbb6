"""What sources that read a table elsewhere have in common: its columns, the time of its changes.

A change has the time of its commit, which never goes back for one stream. Beside the columns of the
table a member of the family has words of its own about a change; they hide columns of that name.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa

from millstream.core.errors import MillstreamError
from millstream.engine.ports import RowParser, SourceSetting
from millstream.engine.sources.broker_source import BrokerSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Appender, Rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableSource(BrokerSource):
    """One table as a stream of its rows, or of its changes."""

    place: ClassVar[str] = "table"

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        setting: SourceSetting,
    ) -> None:
        super().__init__(definition, appender, parse, setting)
        self._finite = definition.source.get("trigger") == "available_now"
        self._key = tuple(definition.source.get("key", ()))
        self._types = {field.name: field.type for field in definition.columns}
        self._own_columns = tuple(n for n in self._names if n not in self.of_message)

    def _say_hidden(self, there: Iterable[str]) -> None:
        for name in (n for n in self.of_message if n in there):
            self._setting.say(
                f"stream {self.definition.name}: {name} is what a change says, "
                f"not the column of that name in table {self._topic}"
            )

    def _not_before(self) -> int:
        """The least time of a change that is not late (called while nobody else appends).

        Clocks of commits may go back a little, and streams that are ahead may have moved this one's
        watermark while it was silent: a change of a table must not be lost for either.
        """
        position = self._position()
        return max(int(position.get(k, 0)) for k in ("committed", "floor", "highest"))

    def _moment(self, microseconds: int) -> Any:
        """A text that is a time, or a number where the column wants a number."""
        if not self._wants_time("committed"):
            return microseconds
        return (EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")

    def _parsed(self, rows: Rows) -> pa.Table:
        return self._parse(rows, f"{self.kind} {self._topic}")

    def _note(self, more: Mapping[str, Any]) -> None:
        appender, stream = self.appender, self.appender.stream
        with appender.lock, appender.ledger.transaction() as ledger:
            ledger.set_ingest_position(stream, {**ledger.ingest_position(stream), **more})

    def _trouble(self, words: str) -> MillstreamError:
        return MillstreamError(
            f"table {self._topic} of stream {self.definition.name} cannot be read", detail=words,
            hint="see that it is there and that the options are right: it is tried again",
        )  # fmt: skip
