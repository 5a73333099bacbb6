"""What becomes of a step that has failed: by damage, by its limits, on its rows, or otherwise.

Damage parks, rows and limits fail by name, the end of Java is noted against who was in flight. What
is left is tried again: of a train by halves, alone with rests between, until it is clear whether
the step or the machine is to blame.
"""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.core.errors import DamageError, MillstreamError
from millstream.engine.culprits import find_culprits
from millstream.engine.engine import Engine
from millstream.engine.steps.bounds import StepRefusedError
from millstream.engine.steps.trains import Unit
from millstream.engine.troubles.damage import Damage
from millstream.engine.troubles.failing import Failing
from millstream.engine.troubles.suspects import Suspects
from millstream.store.machine_failures import disk_full, first_line


@dataclass(frozen=True, slots=True)
class StepsAgain:
    """What the loop does for whoever handles a failure."""

    run: Callable[[Unit, int], object]
    give_up: Callable[[Unit], None]  # its operators go together no more
    done: Callable[[], int]  # steps so far
    stopping: Callable[[], bool]


class StepFailures:
    """Of one loop."""

    def __init__(
        self, engine: Engine, damage: Damage, suspects: Suspects, steps: StepsAgain
    ) -> None:
        self._engine, self._damage, self._suspects = engine, damage, suspects
        self._steps = steps
        self._failing = Failing()

    def resting(self) -> set[str]:
        """Operators that are not to be chosen yet."""
        live = set(self._engine.operators) - self._engine.paused_operators
        self._failing.forget_all_but(live)
        return self._failing.resting()

    @property
    def waits(self) -> bool:
        return self._failing.waits

    def succeeded(self, unit: Unit) -> None:
        for operator in unit.operators:
            self._failing.succeeded(operator.id)

    def handle(self, unit: Unit, rows: int, error: Exception) -> None:
        """Raises what ends the loop."""
        if isinstance(error, DamageError) and not self._damage.of_ledger(error):
            if unit.members:
                self._each_alone(unit, rows)
            else:
                self._damage.park_readers(unit.id, error)
        elif isinstance(error, StepRefusedError):
            if unit.members:
                self._each_alone(unit, rows)
            else:
                self._suspects.fail_by_name(unit.id, f"{error.message}; {error.hint}")
        elif isinstance(error, MillstreamError):
            raise error
        elif full := disk_full(error):
            raise full from error
        else:
            self._of_unknown_cause(unit, rows, error)

    def _of_unknown_cause(self, unit: Unit, rows: int, error: Exception) -> None:
        ended = self._suspects.java_ended()
        reason = None if ended else self._engine.evaluator.data_error(error)
        machine = self._engine.plane.machine
        if reason is None and machine is not None and machine.gone() is not None:
            self._suspects.blame()
            raise error
        if unit.members and self._steps.stopping():
            raise error  # after the restart it is tried again
        if unit.members and reason is not None:
            self._each_alone(unit, rows)
        elif unit.members:
            self._by_halves(unit, rows)
        elif reason is not None:
            self._fail_queries(unit, rows, reason)
        else:
            self._judge(unit, error)

    def _runs(self, operator: str) -> bool:
        """Whether it is there, and nobody has stopped it meanwhile."""
        engine = self._engine
        return operator in engine.operators and operator not in engine.paused_operators

    def _each_alone(self, unit: Unit, rows: int) -> None:
        """Who fails alone fails, and the others have lost nothing."""
        for part in unit.apart():
            if self._runs(part.operators[0].id):
                self._steps.run(part, rows)

    def _by_halves(self, unit: Unit, rows: int) -> None:
        """Who fails alone leaves the train; where nobody does, it was too much for one job."""
        for half in unit.halves():
            if all(self._runs(o.id) for o in half.operators):
                self._steps.run(half, rows)
        for part in [p for p in unit.apart() if self._failing.count(p.id)] or [unit]:
            self._steps.give_up(part)

    def _judge(self, unit: Unit, error: Exception) -> None:
        """A step alone has failed, and not on its rows."""
        match self._failing.failed(unit.id, self._steps.done(), self._machine_works):
            case "end":
                raise error
            case "fail":
                told = f"its steps fail, and not on their rows: {first_line(error)}"
                self._suspects.fail_by_name(unit.id, told)

    def _machine_works(self) -> bool:
        """Whether a job that does nothing comes to its end."""
        stream = next(iter(self._engine.operators), "")
        try:
            self._engine.evaluator.nothing(self._engine.ledger.columns(stream))
        except Exception:
            return False
        return True

    def _fail_queries(self, unit: Unit, rows: int, reason: str) -> None:
        """The queries of an operator that has broken on its rows cannot go on."""
        culprits = find_culprits(self._engine, self._engine.runner, unit, rows)
        for query in list(self._engine.queries_of(unit.id)):
            if query.state == "running":
                self._engine.fail_query(query.name, reason, culprits)
