"""Rules pushed from Python or posted over HTTP: each holds from the moment when it is added.

That moment is an event time: one after the greatest that has come so far on the streams whose rows
the rules are for. Rows that have come count for the rules as they were, rows that come later for
the rules as they are, in whatever steps they are computed; a rule in another's place begins where
that ends. Rules that are there before anybody uses them hold from the beginning.
"""

import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.core.errors import UsageError
from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import RowParser, SourceSetting
from millstream.engine.sources.push_source import PushSource
from millstream.engine.sources.rule_file import changes, rules_in
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.rule_tables import REMOVED, SINCE, parameters_of
from millstream.language.plan.nodes import sources_of
from millstream.language.plan.walks import rule_tables_of
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import base_stream
from millstream.store.arrivals.appending import TIME_MIN, Appended, Appender, Rows
from millstream.store.consumers import keeper

FILE_PRODUCER = "file"
LOOK_SECONDS = 1.0  # between two looks at a file of rules
ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # until the rows are given theirs


class RuleSource(PushSource):
    """The door of one rule table. It has no end of its own: it ends with the streams it is for."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        flow: Dataflow,
        setting: SourceSetting,
    ) -> None:
        super().__init__(definition, appender, self._stamped, setting.arrived, setting.say)
        self._flow, self._parse_rows = flow, parse
        self._since = TIME_MIN
        path = definition.source.get("path")
        self._path = None if path is None else Path(str(path))
        self._seen: tuple[int, int] | None = None  # the file when it was last read
        self._thread: threading.Thread | None = None
        self._stop, self._say = threading.Event(), setting.say
        with appender.ledger.transaction() as ledger:
            ledger.set_cursor(keeper(definition.name), appender.stream, 1, BEGINNING)

    def push(self, producer: str, number: int | None, rows: Rows) -> Appended:
        """Adds, replaces or, where `removed` is true, ends rules."""
        with self._flow.lock, ExitStack() as held:
            # nothing comes on the streams between the look at their times and the commit
            streams = self._ruled_streams()
            for name in streams:
                if (appender := self._flow.appenders.get(name)) is not None:
                    held.enter_context(appender.lock)
            self._since = self._present(streams)
            return super().push(producer, number, rows)

    # -- a file of rules ------------------------------------------------------------------------

    def start(self) -> None:
        """Rules of a file are there before the first row, and follow it from then on."""
        if self._path is None or self._thread is not None:
            return
        self._stop.clear()
        self._follow(first=True)
        self._thread = threading.Thread(
            target=self._work, name=f"millstream-{self.definition.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def _work(self) -> None:
        try:
            while not self._stop.wait(LOOK_SECONDS):
                self._follow()
        except BaseException as error:
            self.failure = error

    def _follow(self, *, first: bool = False) -> None:
        """Makes the table what the file says; one that cannot be read changes nothing."""
        assert self._path is not None
        try:
            state = self._path.stat()
            seen = (state.st_mtime_ns, state.st_size)
            if seen == self._seen:
                return
            names = [f.name for f in parameters_of(self.definition.columns)]
            wanted = rules_in(self._path, str(self.definition.source["format"]), names)
            self._seen = seen
        except (OSError, UsageError) as error:
            if first:
                raise
            self._say(f"rules of {self.definition.name} stay as they are: {error}")
            return
        if rows := changes(self.present(), wanted, names):
            self.push(FILE_PRODUCER, None, rows)

    def present(self) -> dict[Any, dict[str, Any]]:
        """The rules that hold now, by name, in order of being added."""
        ledger, store = self.appender.ledger, self.appender.store
        tables = [store.read(s) for s in ledger.segments(self.appender.stream) if s.rows]
        if not tables:
            return {}
        whole = pa.concat_tables(tables, promote_options="permissive")
        whole = whole.sort_by([("_ts", "ascending"), ("_pos", "ascending")])
        names = [f.name for f in self.definition.columns]
        rows = whole.select([f"c{i}" for i in range(len(names))]).rename_columns(names)
        found: dict[Any, dict[str, Any]] = {}
        for row in rows.to_pylist():
            name = row[names[0]]
            found.pop(name, None)
            if not row.pop(REMOVED):
                found[name] = row
        return found

    @property
    def ended(self) -> bool:
        return True

    def finish(self) -> None:
        """Rules may change as long as their streams go on."""

    def _refuse_ended(self) -> None:
        pass

    def _ruled_streams(self) -> list[str]:
        """The streams whose rows these rules are for now, in order of name."""
        found: set[str] = set()
        for query in self._flow.queries.values():
            root = query.plan.root
            tables = {table.stream for table in rule_tables_of(root)}
            if self.definition.name in tables:
                found |= {source.stream for source in sources_of(root)} - tables
        return sorted(found)

    def _present(self, streams: list[str]) -> int:
        """One after the greatest time so far; never before that of rules added earlier."""
        ledger = self.appender.ledger
        heads = (ledger.stream(base_stream(name)) for name in streams)
        times = [int(head["ts_max"]) + 1 for head in heads if head is not None]
        before = int(ledger.ingest_position(self.appender.stream).get("highest", TIME_MIN))
        return max(TIME_MIN, before, *times)

    def _stamped(self, rows: Rows, producer: str) -> pa.Table:
        """The rows as an appender takes them, with the time from which they hold."""
        table = self._parse_rows(_with_any_time(rows), producer)
        if table["c0"].null_count:
            raise UsageError(
                f"a rule of {self.definition.name} has no {self.definition.columns[0].name}",
                hint="the first column names the rule",
            )
        place = table.column_names.index(f"c{len(self.definition.columns) - 1}")
        count = table.num_rows
        since = pa.repeat(pa.scalar(self._since, pa.int64()), count)
        stamped = since.cast(table.schema.field(place).type)
        table = table.set_column(place, table.column_names[place], stamped)
        return table.set_column(table.column_names.index("_ts"), "_ts", since)


def _with_any_time(rows: Rows) -> Rows:
    if not isinstance(rows, pa.Table):
        return [{**row, SINCE: ANY_TIME} for row in rows]
    if SINCE in rows.column_names:
        rows = rows.drop_columns([SINCE])
    times: Any = pa.repeat(pa.scalar(ANY_TIME, pa.timestamp("us", "UTC")), rows.num_rows)
    return rows.append_column(SINCE, times)
