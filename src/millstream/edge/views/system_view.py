"""What a manager asks of a processor for `sys.` streams: `GET /system`.

    GET /system?wanted=sys.operators,sys.steps&epoch=E&after=N

answers with a row for every operator (or query) as it stands, and the steps after number N of the
life E of this processor (another life: from its first; 0, somebody who has asked nothing before:
from now on). Steps are noted from the first question on, the latest of them only, and no more when
no question has come for a while.
"""

import threading
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from fastapi.concurrency import run_in_threadpool

from millstream.control.manager.system_streams import OPERATORS, QUERIES, STEPS
from millstream.edge.http.roles import reads
from millstream.edge.http.serving import Application
from millstream.engine.sources.system_rows import Row, operator_rows, query_rows, step_row
from millstream.engine.steps.reports import StepReport

if TYPE_CHECKING:
    from millstream.engine.engine import Engine

STEPS_KEPT = 5_000  # between two questions; older ones are let go
OPERATORS_MAX = 20_000
WANTED_S = 15.0  # after the last question


class SystemView:
    """Rows about one processor."""

    def __init__(self, name: str, engine: "Engine") -> None:
        self._name, self._engine = name, engine
        self._steps: deque[tuple[int, Row]] = deque(maxlen=STEPS_KEPT)
        self._last = 0
        self._asked_s = 0.0
        self._lock = threading.Lock()

    def rows(self, wanted: frozenset[str], epoch: int, after: int) -> dict[str, Any]:
        now_us, mine = int(time.time() * 1e6), self._engine.ledger.epoch
        found: dict[str, Any] = {"epoch": mine, "last": self._last}
        if OPERATORS in wanted:
            rows = islice(operator_rows(self._engine, self._name), OPERATORS_MAX)
            found[OPERATORS] = [{"at": now_us, **row} for row in rows]
        if QUERIES in wanted:
            found[QUERIES] = [{"at": now_us, **r} for r in query_rows(self._engine, self._name)]
        if STEPS in wanted:
            with self._lock:
                self._asked_s = time.monotonic()
                if self.stepped not in self._engine.on_step:
                    self._engine.on_step.append(self.stepped)
                least = {mine: after, 0: self._last}.get(epoch, 0)
                found[STEPS] = [row for number, row in self._steps if number > least]
                found["last"] = self._last
        return found

    def stepped(self, report: StepReport) -> None:
        with self._lock:
            if time.monotonic() - self._asked_s > WANTED_S:
                self._steps.clear()
                return
        row = step_row(self._engine, report, self._name)
        if row is not None:
            with self._lock:
                self._last += 1
                self._steps.append((self._last, {"at": int(time.time() * 1e6), **row}))

    def add_route(self, app: Application) -> None:
        @app.get("/system")
        @reads
        async def system(wanted: str = "", epoch: int = 0, after: int = 0) -> dict[str, Any]:
            names = frozenset(wanted.split(","))
            return await run_in_threadpool(self.rows, names, epoch, after)
