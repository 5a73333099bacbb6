"""Failed queries that are restarted by themselves, where the settings say so.

The count lies in the ledger, so that the next process goes on with it; when a query failed is
noted by the process that sees it.
"""

import json
import time
from collections.abc import Callable

from millstream.control.recovery.restarts import BACKOFF, Restarts, worth_it
from millstream.engine.engine import Engine
from millstream.engine.query import Query, restarts_of
from millstream.store.ledger import Ledger


class Restarting:
    """Of one loop."""

    def __init__(
        self,
        engine: Engine,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine, self._say, self._clock = engine, say, clock
        self._failed_s: dict[str, float] = {}

    @property
    def waits(self) -> bool:
        """Whether a query is yet to be restarted."""
        if self._engine.settings.restart != BACKOFF:
            return False
        return any(self._willing(q) for q in list(self._engine.queries.values()))

    def look(self) -> None:
        """Restarts who is due."""
        if self._engine.settings.restart != BACKOFF:
            return
        now = self._clock()
        failed = {q.name: q for q in list(self._engine.queries.values()) if q.state == "failed"}
        self._failed_s = {n: s for n, s in self._failed_s.items() if n in failed}
        for name, query in failed.items():
            since = self._failed_s.setdefault(name, now)
            if not self._willing(query):
                continue
            counted = self._counted(name).at_failure(since)
            if now < counted.due_s(since):
                continue
            counted = counted.once_more(now)
            self._say(
                f"query {name} is restarted, {counted.count} of "
                f"{self._engine.settings.restarts_max}: it failed because {query.reason}"
            )
            del self._failed_s[name]  # its next failure is another
            self._engine.restart_query(name)
            with self._engine.ledger.transaction() as ledger:
                ledger.set_meta(restarts_of(name), json.dumps([counted.count, counted.last_s]))

    def _willing(self, query: Query) -> bool:
        if not query.restartable or not worth_it(query.reason):
            return False
        since = self._failed_s.get(query.name, self._clock())
        most = self._engine.settings.restarts_max
        return self._counted(query.name).at_failure(since).count < most

    def _counted(self, name: str) -> Restarts:
        return restarts(self._engine.ledger, name)


def restarts(ledger: Ledger, query: str) -> Restarts:
    """How often a policy has restarted a query."""
    return Restarts(*json.loads(ledger.meta(restarts_of(query)) or "[]"))
