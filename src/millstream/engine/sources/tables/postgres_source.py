"""A table of PostgreSQL as a stream of its changes: all rows once, then every transaction.

Where the log was read to is recorded in the transaction that publishes the rows, and the server's
slot is moved only after it: what was not noted comes again, what was noted is passed over. All
rows of the beginning are one batch: a snapshot cannot be gone on with.
"""

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from millstream.core.errors import MillstreamError
from millstream.core.secrets import without_secrets
from millstream.engine.ports import RowParser, SourceSetting
from millstream.engine.sources.broker_source import CONGESTED_S
from millstream.engine.sources.tables.table_source import TableSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Appender
from millstream.store.arrivals.postgres.messages import (
    READ,
    Begun,
    Change,
    Columns,
    Ended,
    Messages,
)
from millstream.store.arrivals.postgres.table_log import TableLog, lsn_of, lsn_text
from millstream.store.arrivals.postgres.values import value_of

POLL_S = 0.25
NOTE_S = 10.0  # between two notes of a log in which nothing is for us
NAME_LENGTH_MAX = 63  # of anything in PostgreSQL


class PostgresSource(TableSource):
    """One table as a stream."""

    kind = "postgres"
    place = "table"
    of_message = ("op", "committed", "lsn")

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        setting: SourceSetting,
    ) -> None:
        super().__init__(definition, appender, parse, setting)
        self._publication = str(self._options.get("publication", ""))

    # -- reading --------------------------------------------------------------------------------

    def _read(self, options: Mapping[str, Any]) -> None:
        try:
            log = TableLog(self.definition.name, options, self._topic)
            try:
                self._check(log)
                if self._finite:
                    self._take_once(log)
                else:
                    self._follow(log, self._begun(log))
            finally:
                log.close()
        except MillstreamError as error:
            detail = without_secrets(error.detail or "", self._options, options)
            raise type(error)(error.message, detail=detail, hint=error.hint) from None

    def _check(self, log: TableLog) -> None:
        there = log.check([*self._own_columns], self._key, followed=not self._finite)
        self._say_hidden(there)
        self._gained.look(there)

    def _take_once(self, log: TableLog) -> None:
        if not self._position().get("taken"):
            self._take_all(log, "", {"taken": True})
        self.appender.finish()
        self._setting.arrived(self.definition.name)

    def _begun(self, log: TableLog) -> str:
        """The slot's name; makes it, and takes all rows of its moment, where that is not done."""
        position = self._position()
        name = str(position.get("slot") or _slot_name(self.definition.name))
        self._publication = self._publication or name
        if "lsn" in position:
            self._resume(log, name, lsn_of(str(position["lsn"])))
            return name
        self._note({"slot": name})  # so that one that a crash leaves behind is found again
        begins, snapshot = log.make_slot(name, self._publication)
        self._take_all(log, snapshot, {"slot": name, "lsn": lsn_text(begins)})
        return name

    def _resume(self, log: TableLog, name: str, noted: int) -> None:
        at = log.slot_at(name)
        if at is None or at > noted:
            what = "is gone" if at is None else "was moved by another client"
            raise MillstreamError(
                f"stream {self.definition.name}: slot {name} {what}",
                detail=f"changes of table {self._topic} after {lsn_text(noted)} may be lost",
                hint="begin in a new folder, and let no other client read or drop the slot",
            )
        if at < noted:
            self._advance(log, name, noted)

    def _advance(self, log: TableLog, name: str, lsn: int) -> None:
        """The server need not keep what is noted here, and at as many others as are wanted."""
        self._demand_safety()
        log.advance(name, lsn)

    def _follow(self, log: TableLog, name: str) -> None:
        noted_s = time.monotonic()
        while not self._stopped.is_set():
            if self._setting.congested():
                self._stopped.wait(CONGESTED_S)
                continue
            end = log.end()
            if (lsn := self._take_changes(log, name)) is not None:
                self._advance(log, name, lsn)
                continue
            if time.monotonic() - noted_s > NOTE_S:  # others' changes need not be kept for us
                self._note({"lsn": lsn_text(end)})
                self._advance(log, name, end)
                noted_s = time.monotonic()
            self._stopped.wait(POLL_S)

    # -- rows -----------------------------------------------------------------------------------

    def _take_all(self, log: TableLog, snapshot: str, position: dict[str, Any]) -> None:
        place = str(position.get("lsn", ""))

        def pieces() -> Iterator[pa.Table]:
            moment = position["committed"] = max(log.now_us(), self._not_before())
            for page in log.snapshot(self._own_columns, snapshot):
                rows = [self._changed(Change(READ, row), moment, place) for row in page]
                yield self._parsed(rows)

        self.appender.append_all(pieces(), position)
        self._setting.arrived(self.definition.name)

    def _take_changes(self, log: TableLog, name: str) -> int | None:
        """Publishes transactions that are new, whole; gives where the log goes on."""
        noted = lsn_of(str(self._position()["lsn"]))
        messages = log.peek(name, self._publication, self._setting.batch_rows)
        first = next(messages, None)
        if first is None:
            return None
        position: dict[str, Any] = {}

        def contents() -> Iterator[bytes]:
            yield first
            yield from messages

        self.appender.append_all(self._pieces(log, contents(), noted, position), position)
        self._setting.arrived(self.definition.name)
        return lsn_of(str(self._position()["lsn"]))

    def _pieces(
        self, log: TableLog, contents: Iterator[bytes], noted: int, position: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Rows of transactions, a table at a time; `position` is where they have got."""
        reader = Messages(self._topic, self._key)
        moment = self._not_before()
        rows: list[dict[str, Any]] = []
        whole = 0  # of these rows belong to transactions that have ended
        for content in contents:
            for event in reader.events(content):
                if isinstance(event, Begun):
                    moment = max(moment, event.committed_us)
                elif isinstance(event, Columns):
                    log.check_columns(self._own_columns, event.names)
                    self._gained.look(event.names)
                elif isinstance(event, Change):
                    rows.append(self._changed(event, moment, ""))
                elif isinstance(event, Ended):
                    if event.lsn <= noted:  # was taken before a crash
                        del rows[whole:]
                    for row in rows[whole:] if "lsn" in self._types else ():
                        row["lsn"] = lsn_text(event.lsn)
                    whole = len(rows)
                    position |= {"lsn": lsn_text(max(event.lsn, noted)), "committed": moment}
            if whole >= self._setting.batch_rows:
                yield self._parsed(rows[:whole])
                rows, whole = rows[whole:], 0
        if whole:
            yield self._parsed(rows[:whole])

    def _changed(self, change: Change, moment: int, place: str) -> dict[str, Any]:
        row = {
            name: value_of(self._types[name], change.values.get(name)) for name in self._own_columns
        }
        own = {"op": change.op, "committed": self._moment(moment), "lsn": place}
        return row | {name: value for name, value in own.items() if name in self._types}


def _slot_name(stream: str) -> str:
    """A name that no other slot has; of the letters that a slot's name may have."""
    plain = re.sub(r"[^a-z0-9_]", "_", stream.lower())[: NAME_LENGTH_MAX - 20]
    return f"millstream_{plain}_{uuid.uuid4().hex[:8]}"
