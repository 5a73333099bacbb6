"""Whether an engine does its work, for supervisors of a daemon: alive is not ready.

An engine is ready if its loop runs, its Java process answers, it has not restarted too often, and
it has done something lately or has nothing to do. Asks only for figures that cost nothing.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from millstream.edge.http.roles import for_all
from millstream.edge.http.serving import Application

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.loop import Loop

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Patience:
    """What is borne before an engine counts as not ready."""

    step_s: float = 120.0  # without progress while rows wait
    java_s: float = 5.0  # for an answer of Spark's Java process
    restarts_max: int = 5  # in an hour


def add_readiness(app: Application, look: Callable[[], dict[str, Any]]) -> None:
    """`/live` answers while the process does; `/ready` as `look` finds, 503 with the reasons."""

    @app.get("/live")
    @for_all
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready")
    @for_all
    async def ready() -> JSONResponse:
        found = await run_in_threadpool(look)
        return JSONResponse(found, 200 if found["ready"] else 503)


def told(reasons: Sequence[str], **figures: Any) -> dict[str, Any]:
    return {"ready": not reasons, "reasons": list(reasons), **figures}


class Readiness:
    """One engine, watched; `restarts_s` tells when its loop began again, by the monotonic clock."""

    def __init__(
        self,
        engine: "Engine",
        loop: Callable[[], "Loop | None"],
        restarts_s: Callable[[], Sequence[float]] = tuple,
        patience: Patience | None = None,
    ) -> None:
        self._engine, self._loop, self._restarts_s = engine, loop, restarts_s
        self._patience = patience or Patience()
        self._waiting_since_s: float | None = None
        self._progress_s = time.monotonic()
        self._lock = threading.Lock()
        self._answered: threading.Event | None = None  # of the question to Java in flight
        engine.ledger.on_publish.append(self._progressed)

    def _progressed(self, _: frozenset[str]) -> None:
        self._progress_s = time.monotonic()

    def look(self) -> dict[str, Any]:
        now_s, reasons = time.monotonic(), []
        loop = self._loop()
        if loop is None:
            reasons.append("the engine is about to begin again")
        elif loop.failure is not None:
            reasons.append("the engine has stopped")
        stuck_s = self._stuck_s(now_s)
        if stuck_s > self._patience.step_s:
            reasons.append(f"rows wait, and nothing was done for {stuck_s:.0f} s")
        if not self._java_answers():
            reasons.append(f"Java did not answer within {self._patience.java_s:g} s")
        restarts = sum(now_s - at_s < HOUR_S for at_s in self._restarts_s())
        if restarts > self._patience.restarts_max:
            reasons.append(f"the engine began again {restarts} times in an hour")
        states = Counter(query.state for query in list(self._engine.queries.values()))
        figures = {"progress_age_s": round(now_s - self._progress_s, 1), "restarts": restarts}
        return told(reasons, **figures, queries=dict(states))

    def _stuck_s(self, now_s: float) -> float:
        """How long rows have waited while nothing was done."""
        if not self._rows_wait():
            self._waiting_since_s = None
            return 0.0
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        return now_s - max(self._waiting_since_s, self._progress_s)

    def _rows_wait(self) -> bool:
        engine = self._engine
        with engine.lock:
            running = [o for o in engine.operators.values() if o.id not in engine.paused_operators]
        return any(found for o in running for found in engine.pending(o).values())

    def _java_answers(self) -> bool:
        """One question at a time: a process that is frozen keeps one thread, however often."""
        if self._engine.plane.machine is None:
            return True
        with self._lock:
            if self._answered is None:
                self._answered = threading.Event()
                asking = threading.Thread(
                    target=self._ask_java,
                    args=(self._answered,),
                    name="millstream-ask",
                    daemon=True,
                )
                asking.start()
            answered = self._answered
        return answered.wait(self._patience.java_s)

    def _ask_java(self, answered: threading.Event) -> None:
        machine = self._engine.plane.machine
        heap, _ = machine.memory() if machine is not None else (0, 0)
        if heap is None:  # it ends, or has ended
            return
        with self._lock:
            self._answered = None
        answered.set()
