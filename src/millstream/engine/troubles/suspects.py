"""Who may have ended Spark's Java process: the steps in flight when it died.

The process that survives it notes their operators in the ledger. The next one runs each of them
with nothing beside it before anything else happens; who is alone when Java dies again is the one,
and its queries fail by name. A kill of the whole service, or a loss of power, blames nobody.
"""

from collections.abc import Callable

from millstream.control.recovery.restarts import GUILTY
from millstream.engine.engine import Engine
from millstream.engine.steps.trains import Unit
from millstream.store.reach import pending

DEATHS = "deaths:"  # where the ledger counts them, by operator
DEATHS_MAX = 2


class Suspects:
    """Of one loop: who is in flight now, and who still has to be tried alone."""

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine, self._say = engine, say
        self.in_flight: dict[str, Unit] = {}
        self._waiting: list[str] = []
        self._blamed = False

    def take_up(self) -> None:
        """What the process before has noted: fails the guilty, lets the others be tried alone."""
        for operator, deaths in self._noted().items():
            if deaths < DEATHS_MAX:
                self._waiting.append(operator)
                continue
            self.fail_by_name(operator, GUILTY)
            self.clear(operator)

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
                ledger.set_meta(f"{DEATHS}{operator}", str(known.get(operator, 0) + 1))

    def next(self) -> str | None:
        """An operator to be run alone now; None where nobody is under suspicion."""
        while self._waiting:
            operator = self._waiting[0]
            known = self._engine.operators.get(operator)
            if known is None or not any(pending(self._engine.ledger, known).values()):
                self.clear(operator)
            elif operator in self._engine.paused_operators:
                self._waiting.remove(operator)  # it stays noted
            else:
                return operator
        return None

    def clear(self, operator: str) -> None:
        """It has run alone and Java lives, or it is gone."""
        if operator in self._waiting:
            self._waiting.remove(operator)
        with self._engine.ledger.transaction() as ledger:
            ledger.drop_meta(f"{DEATHS}{operator}")

    def _noted(self) -> dict[str, int]:
        rows = self._engine.ledger.rows(
            "SELECT key, value FROM meta WHERE key LIKE ? ORDER BY key", (f"{DEATHS}%",)
        )
        return {r["key"].removeprefix(DEATHS): int(r["value"]) for r in rows}
