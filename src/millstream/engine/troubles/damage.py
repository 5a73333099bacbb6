"""A damaged file stops only its readers.

Readers are parked, not failed: their cursors and states stay, so that they continue without a gap
once the file is back. They are tried again every minute, and by the next process.
"""

from collections.abc import Callable

from millstream.core.errors import DamageError
from millstream.engine.engine import Engine
from millstream.engine.query import DAMAGED
from millstream.store.delivery import Delivery


class Damage:
    """What this process has found damaged."""

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine, self._say = engine, say
        self.first: DamageError | None = None
        self.streams: set[str] = set()  # that are compacted no more

    def of_ledger(self, error: DamageError) -> bool:
        """Whether nothing at all can go on."""
        return error.file == str(self._engine.ledger.path)

    def park_readers(self, operator: str, error: DamageError) -> None:
        """Parks the queries of an operator that cannot read its input."""
        self.first = self.first or error
        for query in list(self._engine.queries_of(operator)):
            self._park(query.name, error)

    def stop_delivery(self, delivery: Delivery, error: DamageError) -> None:
        """Parks the query of a sink; others' sinks go on."""
        self.first = self.first or error
        delivery.retry.failed(error.message)
        if delivery.result.query in self._engine.queries:
            self._park(delivery.result.query, error)
        else:
            self._say(f"error: {error.message}: {error.detail}")

    def stop_compaction(self, stream: str, error: DamageError) -> None:
        """Leaves a stream as it is; its readers hear of the damage when they come to it."""
        self.first = self.first or error
        self.streams.add(stream)

    def _park(self, name: str, error: DamageError) -> None:
        query = self._engine.queries.get(name)
        if query is not None and query.state == "running":
            reason = f"{DAMAGED}{error.message}: {error.detail}; {error.hint}"
            self._engine.set_query_state(name, "parked", reason)
            self._say(f"query {name} is parked: {reason}")

    def try_again(self) -> None:
        """Lets queries that damage has parked go on: the file may be back."""
        self.first = None
        self.streams.clear()
        for query in list(self._engine.queries.values()):
            if query.damaged:
                self._engine.set_query_state(query.name, "running")
