"""Results to their sinks: those that are quick go together with one commit, a slow one alone.

A commit takes longer than handing over a few rows, and a hundred queries that one step has served
have rows for their readers all at once.
"""

import time
from collections.abc import Callable, Collection, Sequence

from millstream.core.errors import DamageError
from millstream.engine.engine import Engine
from millstream.engine.quota import review
from millstream.engine.troubles.damage import Damage
from millstream.store import faults
from millstream.store.delivery import Delivery, Handed, SinkError

QUICK_S = 0.02
TOGETHER_MAX = 200


class Delivering:
    """Hands over what is new of an engine's results."""

    def __init__(self, engine: Engine, damage: Damage, say: Callable[[str], None]) -> None:
        self._engine, self._damage, self._say = engine, damage, say
        self._seconds: dict[Delivery, float] = {}  # that each took when it was handed over last

    def due(self, busy: Collection[str]) -> list[Delivery]:
        """Those to go next, as far as they go together; results take turns."""
        taken: list[Delivery] = []
        for delivery in self._engine.deliveries:
            due = str(delivery.consumer) not in busy and delivery.retry.due
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
            return delivery.hand_over()
        except SinkError:
            review(self._engine, self._say)
        except DamageError as error:
            if self._damage.of_ledger(error):
                raise
            self._damage.stop_delivery(delivery, error)
        return None
