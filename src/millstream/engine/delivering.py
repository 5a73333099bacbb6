"""Results to their sinks: those that are quick go together with one commit, a slow one alone.

A commit takes longer than handing over a few rows, and a hundred queries that one step has served
have rows for their readers all at once. Code that is not ours (a callback, a target elsewhere) is
called in a thread of its own: one that does not come back keeps nobody else from working.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence

from millstream.core.errors import DamageError
from millstream.engine.engine import Engine
from millstream.engine.quota import review
from millstream.engine.troubles.damage import Damage
from millstream.store import faults
from millstream.store.delivery import (
    CallbackSink,
    ConsoleSink,
    Delivery,
    Handed,
    ResumingSink,
    SinkError,
)

QUICK_S = 0.02
PATIENCE_S = 30.0  # with a reader that does not come back, before its query is parked
TOGETHER_MAX = 200


class _Call:
    """A batch on its way to a reader, in a thread of its own."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._handed: Handed | None = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="millstream-reader", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._handed = self._delivery.hand_over()
        except BaseException as error:  # told by whoever waits
            self._error = error

    def outcome(self) -> Handed | None:
        if self._error is not None:
            raise self._error
        return self._handed


class Delivering:
    """Hands over what is new of an engine's results."""

    def __init__(self, engine: Engine, damage: Damage, say: Callable[[str], None]) -> None:
        self._engine, self._damage, self._say = engine, damage, say
        self._seconds: dict[Delivery, float] = {}  # that each took when it was handed over last
        self._late: dict[Delivery, _Call] = {}  # readers that have not come back in time

    def due(self, busy: Collection[str]) -> list[Delivery]:
        """Those to go next, as far as they go together; results take turns."""
        taken: list[Delivery] = []
        for delivery in self._engine.deliveries:
            due = str(delivery.consumer) not in busy and self._may_go(delivery)
            slow = self._seconds.get(delivery, 0.0) > QUICK_S
            if not due or (slow and taken) or not delivery.pending():
                continue
            taken.append(delivery)
            if slow or len(taken) >= TOGETHER_MAX:
                break
        if taken:
            chosen = set(taken)
            others = [d for d in self._engine.deliveries if d not in chosen]
            self._engine.deliveries = [*others, *taken]
        return taken

    def _may_go(self, delivery: Delivery) -> bool:
        late = self._late.get(delivery)
        return delivery.retry.due if late is None else not late.thread.is_alive()

    def run(self, deliveries: Sequence[Delivery]) -> None:
        handed: list[tuple[Delivery, Handed]] = []
        try:
            for delivery in deliveries:
                clock = time.perf_counter()
                given = self._hand_over(delivery)
                self._seconds[delivery] = time.perf_counter() - clock
                if given is not None:
                    handed.append((delivery, given))
        finally:  # whatever the next one met, these have their rows
            if handed:
                with self._engine.ledger.transaction():
                    for delivery, given in handed:
                        delivery.note(given)
                faults.reach("delivery.committed")
        self._seconds = {d: s for d, s in self._seconds.items() if d in self._engine.deliveries}
        streams = {d.result.stream for d, given in handed if given.rows}
        if streams:
            self._engine.maintenance.retain(streams)

    def _hand_over(self, delivery: Delivery) -> Handed | None:
        for listener in self._engine.on_delivery:
            listener(delivery.result.stream)
        try:
            return self._called(delivery)
        except SinkError:
            review(self._engine, self._say)
        except DamageError as error:
            if self._damage.of_ledger(error):
                raise
            self._damage.stop_delivery(delivery, error)
        return None

    def _called(self, delivery: Delivery) -> Handed | None:
        """What has come of a hand-over; whoever takes too long is waited for by nobody."""
        if not isinstance(delivery.sink, CallbackSink | ConsoleSink | ResumingSink):
            return delivery.hand_over()
        call = self._late.pop(delivery, None) or _Call(delivery)
        call.thread.join(PATIENCE_S)
        if not call.thread.is_alive():
            return call.outcome()
        self._late = {d: c for d, c in self._late.items() if d in self._engine.deliveries}
        self._late[delivery] = call
        delivery.retry.failed(f"it has not come back for {PATIENCE_S:g} s")
        review(self._engine, self._say)
        return None
