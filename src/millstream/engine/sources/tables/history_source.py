"""The table of a stream's past as a stream: its rows before an instant, in order of time, then the
end.

The version is chosen once, when the reading begins. Rows come in pieces, each of which notes in its
transaction how many have come; whoever goes on after a kill puts the same rows in the same order
again, and leaves those out.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import MillstreamError
from millstream.core.secrets import without_secrets
from millstream.engine.changes.history import ROWS
from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import RowParser, SourceSetting
from millstream.engine.sources.broker_source import CONGESTED_S
from millstream.engine.sources.tables.table_source import TableSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.histories import KIND, UNTIL
from millstream.store.arrivals.appending import Appender
from millstream.store.arrivals.time_order import in_order_of_time
from millstream.store.versioned.opening import VERSIONED
from millstream.store.versioned.versions import Version, VersionedTable, refuse_missing

AHEAD_ROWS = 200_000  # that lie unread before more are brought: live streams are not to wait
TIME = "_ts"


class StoppedError(Exception):
    """The source is to end; what it has brought is kept."""


class HistorySource(TableSource):
    """One table of the past."""

    kind = KIND
    place = UNTIL
    of_message = ()

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        setting: SourceSetting,
        flow: Dataflow,
    ) -> None:
        super().__init__(definition, appender, parse, setting)
        self._flow = flow

    def _read(self, options: Mapping[str, Any]) -> None:
        source = self.definition.source
        table = VERSIONED.get(str(source["format"]))(source, self._options, options)
        self._topic = table.place.rpartition(" ")[2]
        try:
            self._bring(table)
        except StoppedError:
            return
        except MillstreamError as error:
            detail = without_secrets(error.detail or "", self._options, options)
            raise type(error)(error.message, detail=detail, hint=error.hint) from None

    def _bring(self, table: VersionedTable) -> None:
        identity = table.look()
        version = self._version(table, identity)
        if version is not None:
            refuse_missing(table, version, self._own_columns)
            taken = int(self._position().get("taken", 0))
            for piece in self._pieces(table, version, taken):
                taken += piece.num_rows
                self._wait_for_readers()
                self.appender.append(piece, {"taken": taken})
                self._setting.arrived(self.definition.name)
        self.appender.finish()
        self._setting.arrived(self.definition.name)

    def _version(self, table: VersionedTable, identity: str) -> Version | None:
        """The version that is read, chosen when the reading begins; None for an empty table."""
        noted = self._position()
        if "table" in noted:
            if noted["table"] != identity:
                raise MillstreamError(
                    f"{table.place} is another table than when its reading began",
                    detail=f"it is the history of stream {self._of}",
                    hint="drop the queries that begin with it and register them again",
                )
            return table.version(int(noted["version"]))
        named = self.definition.source.get("version")
        version = table.newest() if named is None else table.version(int(named))
        if version is not None:
            rows = table.count(version)
            self._note({"table": identity, "version": version.number, ROWS: rows})
        return version

    @property
    def _of(self) -> str:
        return self.definition.name.partition(".history.")[0]

    def _pieces(self, table: VersionedTable, version: Version, taken: int) -> Iterator[pa.Table]:
        """Rows in order of time, a batch at a time, behind those that were taken before."""
        until = int(self.definition.source[UNTIL])
        size = self._setting.batch_rows

        def parsed() -> Iterator[pa.Table]:
            for piece in table.rows(version, self._own_columns):
                for begun in range(0, piece.num_rows, size):
                    if self._stopped.is_set():
                        raise StoppedError
                    rows = self._parsed(piece.slice(begun, size))
                    before = pc.fill_null(pc.less(rows[TIME], until), True)  # no time: rejected
                    yield rows.filter(before)

        left = taken
        for run in in_order_of_time(parsed(), self._setting.home):
            rows = run.slice(left)
            left = max(0, left - run.num_rows)
            for begun in range(0, rows.num_rows, size):
                yield rows.slice(begun, size)

    def _wait_for_readers(self) -> None:
        """What lies unread of the past takes room; who rests or has failed keeps nobody waiting."""
        flow, stream = self._flow, self.appender.stream
        while not self._stopped.is_set():
            readers = [o for o in list(flow.operators.values()) if stream in o.inputs]
            places = {
                flow.ledger.cursor(o.id, stream).next
                for o in readers
                if o.id not in flow.paused_operators
            }
            unread = flow.ledger.segments(stream, min(places)) if places else []
            if sum(s.rows for s in unread) <= AHEAD_ROWS:
                return
            self._stopped.wait(CONGESTED_S)
        raise StoppedError
