"""Suspects for the end of Spark's Java process: the steps in flight when it died.

The process that survives it notes their operators in the ledger. The next one runs each of them
alone before anything else happens. If Java dies again, the operator that runs alone is the cause,
and its queries fail by name. An operator that is not declared yet, or has no rows yet, stays under
suspicion: in a session queries are declared again after the start, and rows come down from
operators before it. A kill of the whole service, or a loss of power, blames no query.
"""

from collections.abc import Callable

from millstream.control.recovery.restarts import GUILTY
from millstream.engine.engine import Engine
from millstream.engine.query import DEATHS, deaths_of
from millstream.engine.steps.trains import Unit
from millstream.store.reach import pending

DEATHS_MAX = 2


class Suspects:
    """Of one loop: who is in flight now, and who still has to be tried alone."""

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine, self._say = engine, say
        self.in_flight: dict[str, Unit] = {}
        self._deaths: dict[str, int] = {}  # of who has to be tried, or is guilty
        self._blamed = False

    def take_up(self) -> None:
        """What the process before has noted."""
        self._deaths = self._noted()

    def fail_by_name(self, operator: str, reason: str) -> None:
        """Fails the queries of an operator that is its own trouble."""
        for query in list(self._engine.queries_of(operator)):
            if query.state == "running":
                self._engine.fail_query(query.name, reason)
                self._say(f"query {query.name} has failed: {reason}")

    def java_ended(self) -> bool:
        """Whether it is gone already: its errors cannot be asked for words then."""
        machine = self._engine.plane.machine
        process = None if machine is None else machine.process()
        return process is not None and process.poll() is not None

    def blame(self) -> None:
        """Java has died: notes whose steps were in flight. Once, whoever sees it first."""
        units = list(self.in_flight.values())
        if self._blamed or not units:
            return
        self._blamed = True
        known = self._noted()
        with self._engine.ledger.transaction() as ledger:
            for operator in {o.id for unit in units for o in unit.operators}:
                ledger.set_meta(deaths_of(operator), str(known.get(operator, 0) + 1))

    def next(self) -> str | None:
        """An operator to be run alone now, if any; those that did it again fail by name."""
        for operator, deaths in list(self._deaths.items()):
            known = self._engine.operators.get(operator)
            if known is None or operator in self._engine.paused_operators:
                continue
            if deaths >= DEATHS_MAX:
                self.fail_by_name(operator, GUILTY)
                self.clear(operator)
            elif any(pending(self._engine.ledger, known).values()):
                return operator
        return None

    def clear(self, operator: str) -> None:
        """It has run alone and Java lives, or it has failed."""
        self._deaths.pop(operator, None)
        with self._engine.ledger.transaction() as ledger:
            ledger.drop_meta(deaths_of(operator))

    def _noted(self) -> dict[str, int]:
        rows = self._engine.ledger.rows(
            "SELECT key, value FROM meta WHERE key LIKE ? ORDER BY key", (f"{DEATHS}%",)
        )
        return {r["key"].removeprefix(DEATHS): int(r["value"]) for r in rows}
