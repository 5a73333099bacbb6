"""Results to their sinks: those that are quick go together with one commit, a slow one alone.

A commit takes longer than handing over a few rows, and a hundred queries that one step has served
have rows for their readers all at once. Code that is not ours (a callback, a target elsewhere) is
called in a thread of its own: one that does not come back keeps nobody else from working.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from millstream.core.errors import AwayError, DamageError
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
QUICK_ALL_S = 0.5  # however many they are
PATIENCE_S = 30.0  # with a reader that does not come back, before its query is parked
TOGETHER_MAX = 1_000
TOGETHER_S = 1.0  # that those before one commit may take, as they took last


class _Call:
    """A batch on its way to a reader, and what has come of it."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.lock = threading.Lock()
        self.ended, self.left_behind = threading.Event(), False
        self.seconds = 0.0
        self._handed: Handed | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        clock = time.perf_counter()
        try:
            self._handed = self.delivery.hand_over()
        except BaseException as error:  # told by whoever waits
            self._error = error
        self.seconds = time.perf_counter() - clock
        with self.lock:
            self.ended.set()

    def outcome(self) -> Handed | None:
        if self._error is not None:
            raise self._error
        return self._handed


class _Calls:
    """Readers called one after the other, in a thread of their own; who hangs is left behind."""

    def __init__(self, calls: Sequence[_Call]) -> None:
        self._calls = deque(calls)
        self._lock = threading.Lock()
        self._all_called = threading.Event()
        self._quick_s = min(QUICK_S * (len(self._calls) + 1), QUICK_ALL_S)
        self._go_on()

    def _go_on(self) -> None:
        threading.Thread(target=self._run, name="millstream-reader", daemon=True).start()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            if call.left_behind:
                return  # another thread calls the rest
        self._all_called.set()

    def _next(self) -> _Call | None:
        with self._lock:
            return self._calls.popleft() if self._calls else None

    def wait_a_little(self) -> None:
        """For all of them at once, as long as that takes for readers that are quick.

        To be woken for each of hundreds takes longer than most of them do.
        """
        self._all_called.wait(self._quick_s)

    def wait_for(self, call: _Call) -> bool:
        """Whether it has come back in time; if not, those behind it do not wait any longer."""
        if call.ended.wait(PATIENCE_S):
            return True
        with call.lock:
            if call.ended.is_set():
                return True
            call.left_behind = True
        self._go_on()
        return False


class Delivering:
    """Hands over what is new of an engine's results."""

    def __init__(self, engine: Engine, damage: Damage, say: Callable[[str], None]) -> None:
        self._engine, self._damage, self._say = engine, damage, say
        self._seconds: dict[Delivery, float] = {}  # that each took when it was handed over last
        self._late: dict[Delivery, _Call] = {}  # readers that have not come back in time
        self._all_delivered: tuple[int, int] | None = None

    def due(self, busy: Collection[str]) -> list[Delivery]:
        """Those to go next, as far as they go together; results take turns."""
        taken: list[Delivery] = []
        expected_s = 0.0
        # asked for at every choice: where all was delivered, and nothing was made since
        seen = (self._engine.ledger.moves_seen, len(self._engine.deliveries))
        if seen == self._all_delivered:
            return []
        waiting = False
        for delivery in self._engine.deliveries:
            due = str(delivery.consumer) not in busy and self._may_go(delivery)
            slow = self._seconds.get(delivery, 0.0) > QUICK_S
            if not due or (slow and taken):
                waiting = True
                continue
            if not delivery.pending():
                continue
            taken.append(delivery)
            expected_s += self._seconds.get(delivery, 0.0)
            if slow or len(taken) >= TOGETHER_MAX or expected_s > TOGETHER_S:
                break
        self._all_delivered = None if taken or waiting else seen
        if taken:
            chosen = set(taken)
            others = [d for d in self._engine.deliveries if d not in chosen]
            self._engine.deliveries = [*others, *taken]
        return taken

    def _may_go(self, delivery: Delivery) -> bool:
        late = self._late.get(delivery)
        return delivery.retry.due if late is None else late.ended.is_set()

    def run(self, deliveries: Sequence[Delivery]) -> None:
        handed: list[tuple[Delivery, Handed]] = []
        for listener in self._engine.on_delivery:
            for delivery in deliveries:
                listener(delivery.result.stream)
        late = {d: self._late.pop(d) for d in deliveries if d in self._late}
        calls = {d: _Call(d) for d in deliveries if _called(d) and d not in late}
        under_way = _Calls(list(calls.values())) if calls else None
        if under_way is not None:
            under_way.wait_a_little()
        try:
            for delivery in deliveries:
                call = late.get(delivery) or calls.get(delivery)
                clock = time.perf_counter()
                given = self._hand_over(delivery, call, under_way)
                spent = time.perf_counter() - clock if call is None else call.seconds
                self._seconds[delivery] = spent
                if given is not None:
                    handed.append((delivery, given))
        finally:  # whatever the next one met, these have their rows
            if handed:
                with self._engine.ledger.transaction():
                    for delivery, given in handed:
                        delivery.note(given)
                faults.reach("delivery.committed")
        present = set(self._engine.deliveries)
        self._seconds = {d: s for d, s in self._seconds.items() if d in present}
        streams = {d.result.stream for d, given in handed if given.rows}
        if streams:
            self._engine.maintenance.retain(streams)

    def _hand_over(
        self, delivery: Delivery, call: _Call | None, calls: _Calls | None
    ) -> Handed | None:
        try:
            if call is None:
                return delivery.hand_over()
            if call.ended.is_set() or (calls is not None and calls.wait_for(call)):
                return call.outcome()
            self._leave_behind(delivery, call)
        except AwayError:
            return None  # too few others have it yet: later
        except SinkError:
            review(self._engine, self._say)
        except DamageError as error:
            if self._damage.of_ledger(error):
                raise
            self._damage.stop_delivery(delivery, error)
        return None

    def _leave_behind(self, delivery: Delivery, call: _Call) -> None:
        """Whoever takes too long is waited for by nobody."""
        self._late = {d: c for d, c in self._late.items() if d in self._engine.deliveries}
        self._late[delivery] = call
        delivery.retry.failed(f"it has not returned for {PATIENCE_S:g} s")
        review(self._engine, self._say)


def _called(delivery: Delivery) -> bool:
    """Whether its sink is code of others, which may not come back."""
    return isinstance(delivery.sink, CallbackSink | ConsoleSink | ResumingSink)
