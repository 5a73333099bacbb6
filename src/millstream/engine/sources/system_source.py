"""Rows about the engine itself, for queries over `sys.` streams.

Opened when the first query reads such a stream; collects nothing while none does. Rows are
gathered in a bounded buffer and appended once a second without a Spark job. Operators that only
serve queries over the system itself are left out, so that watching does not feed on itself. When
all other streams have ended and nothing is left to do, these end too: a run with such a query comes
to its end.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from millstream.engine.dataflow import Dataflow
from millstream.engine.sources.alarm_look import AlarmLook
from millstream.engine.sources.system_rows import (
    operator_rows,
    query_rows,
    step_row,
    table_of,
    watches,
)
from millstream.engine.steps.reports import StepReport
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.system_streams import PREFIX
from millstream.language.share.dataflow import base_stream
from millstream.store.arrivals.appending import Appender

EVERY_SECONDS = 1.0
ROWS_KEPT = 20_000  # between two appends; older ones are let go and counted
PROCESSOR = "local"


class SystemSource:
    """Feeds one stream about the engine."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        flow: Dataflow,
        arrived: Callable[[str], None],
    ) -> None:
        self.definition, self.appender = definition, appender
        self._flow, self._arrived = flow, arrived
        self.failure: BaseException | None = None
        self.lost = 0
        self._rows: deque[dict[str, Any]] = deque(maxlen=ROWS_KEPT)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: dict[str, str] = {}
        self._alarms = AlarmLook(flow, PROCESSOR)
        self._lock = threading.Lock()

    # -- as a source of the loop ----------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return bool(self.appender.ledger.ingest_position(self.appender.stream).get("ended"))

    def start(self) -> None:
        if self._thread is not None or self.ended:
            return
        self._stop.clear()
        if self.definition.name == "sys.steps":
            self._flow.on_step.append(self.stepped)
        self._thread = threading.Thread(
            target=self._work, name=f"millstream-{self.definition.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None
        if self.stepped in self._flow.on_step:
            self._flow.on_step.remove(self.stepped)

    def silent_since(self) -> float:
        return self.appender.arrived

    def _work(self) -> None:
        quiet = False
        try:
            while not self._stop.wait(EVERY_SECONDS):
                # A step is told a moment after its commit: what was quiet must still be so when we
                # look again, with what was told meanwhile appended.
                before, quiet = quiet, self._nothing_else()
                self.look()
                self.flush()
                if before and quiet:
                    self.appender.finish()
                    self._arrived(self.definition.name)
                    return
        except BaseException as error:
            self.failure = error

    # -- rows -----------------------------------------------------------------------------------

    def used(self) -> bool:
        """Whether an operator reads this stream now."""
        stream = base_stream(self.definition.name)
        return any(stream in o.inputs for o in list(self._flow.operators.values()))

    def stepped(self, report: StepReport) -> None:
        if self.used() and (row := step_row(self._flow, report, PROCESSOR)) is not None:
            self.note(**row)

    def note(self, **row: Any) -> None:
        """One row, at the present time."""
        with self._lock:
            if len(self._rows) == ROWS_KEPT:
                self.lost += 1
            self._rows.append({"at": int(time.time() * 1e6), **row})

    def look(self) -> None:
        """What is seen by looking, not told."""
        if not self.used():
            self._seen = {}
            return
        match self.definition.name:
            case "sys.operators":
                self._look_at_operators()
            case "sys.queries":
                for row in query_rows(self._flow, PROCESSOR):
                    self.note(**row)
            case "sys.admissions":
                self._look_at_queries()
            case "sys.moves":
                self._look_for_moves()
            case "sys.alarms":
                for row in self._alarms.rows():
                    self.note(**row)

    def _look_at_operators(self) -> None:
        for row in operator_rows(self._flow, PROCESSOR):
            self.note(**row)

    def _look_at_queries(self) -> None:
        flow = self._flow
        now = {q.name: q for q in list(flow.queries.values())}
        for name, query in now.items():
            if self._seen.get(name) == query.state:
                continue
            decision = query.state if name in self._seen else "admitted"
            self._seen[name] = query.state
            users = [q for q in now.values() if q is not query]
            shared = sum(any(o in q.operators for q in users) for o in query.operators)
            self.note(query=name, decision=decision, reason=query.reason,
                      operators=len(query.operators), shared=shared)  # fmt: skip
        for name in sorted(set(self._seen) - set(now)):
            del self._seen[name]
            self.note(query=name, decision="dropped", reason="", operators=0, shared=0)

    def _look_for_moves(self) -> None:
        """Operators that come or go while the queries they serve stay: they were moved."""
        flow = self._flow
        now = {o.id: o.kind for o in list(flow.operators.values())}
        serving = {o for q in list(flow.queries.values()) for o in q.operators}
        if self._seen:
            for operator in sorted(set(now) - set(self._seen)):
                if operator not in serving:
                    self._moved(operator, now[operator], "in")
            for operator in sorted(set(self._seen) - set(now)):
                if operator in serving:
                    self._moved(operator, self._seen[operator], "out")
        self._seen = dict(now)

    def _moved(self, operator: str, kind: str, direction: str) -> None:
        self.note(operator=operator, kind=kind, processor=PROCESSOR, direction=direction, reason="")

    # -- appending ------------------------------------------------------------------------------

    def flush(self) -> int:
        """Appends what was gathered; gives the number of rows."""
        with self._lock:
            rows, self._rows = list(self._rows), deque(maxlen=ROWS_KEPT)
        if not rows or not self.used():
            return 0
        self.appender.append(table_of(rows, self.definition), {})
        self._arrived(self.definition.name)
        return len(rows)

    def _nothing_else(self) -> bool:
        """Whether all other streams have ended and nothing about them is left to do."""
        flow = self._flow
        others = [s for s in flow.sources.values() if not isinstance(s, SystemSource)]
        files = list(flow.ingests.values())
        if not (files or others):
            return False  # there is nothing but the system: somebody will end it
        if not all(i.ended for i in files) or not all(s.ended for s in others):
            return False
        return not any(
            any(flow.pending(o).values())
            for o in list(flow.operators.values())
            if not any(i.startswith(base_stream(PREFIX)) for i in o.inputs)
            and not watches(flow, o.id)
        )
