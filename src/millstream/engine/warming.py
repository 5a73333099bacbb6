"""A first step on Spark costs seconds: plans are compiled, code is generated, classes are loaded.

Before an operator runs in a process for the first time, it is evaluated on what lies there and the
result is thrown away. Changes nothing.
"""

from typing import TYPE_CHECKING

from millstream.plan.windows import BEGINNING, FOREVER
from millstream.share.dataflow import Operator
from millstream.spark.failures import first_line
from millstream.spark.operators import LOGIC, SELF_READING
from millstream.spark.operators.base import Input, Step
from millstream.store.segments import Segment

if TYPE_CHECKING:
    from millstream.engine.engine import Engine

ROUNDS = 2  # the second one runs on code that the first one generated


def warm_up(engine: "Engine", operator: Operator, rounds: int = ROUNDS) -> str:
    """Evaluates an operator on its inputs as they lie here, and throws the result away.

    Gives what went wrong, if anything did: a cold operator is slower, and nothing else.
    """
    try:
        for _ in range(rounds):
            try_out(engine, operator)
    except Exception as error:
        return first_line(error)
    return ""


def try_out(engine: "Engine", operator: Operator) -> bool:
    """One evaluation; says whether there was anything to evaluate."""
    with engine.runner.removals.reading():
        step = _sample(engine, operator)
        if step is None:
            return False
        for output in LOGIC[operator.kind].evaluate(step).outputs:
            if _size(step) <= engine.settings.collect_bytes_max:
                output.data.toArrow()  # as a step of this size does
            else:
                output.data.write.format("noop").mode("overwrite").save()
    return True


def _size(step: Step) -> int:
    return sum(s.size for i in step.inputs.values() for s in (*i.tail, *i.new))


def _sample(engine: "Engine", operator: Operator) -> Step | None:
    """A step over what is here: the last segment of each input as new, the others as its tail."""
    inputs: dict[str, Input] = {}
    latest = BEGINNING
    for stream in operator.inputs:
        filled = [s for s in engine.ledger.segments(stream) if s.file]
        new: tuple[Segment, ...] = tuple(filled[-1:])
        tail = tuple(filled[:-1])
        after = max((s.ts_max for s in filled), default=BEGINNING)
        before = max((s.ts_max for s in tail), default=BEGINNING)
        inputs[stream] = Input(stream, tail, new, min(before, after), after)
        latest = max(latest, after)
    if not any(i.new for i in inputs.values()) or latest in (BEGINNING, FOREVER):
        return None
    own = tuple(engine.ledger.segments(operator.id)) if operator.kind in SELF_READING else ()
    return Step(operator, inputs, {}, {}, own, latest, engine.runner.reader.frame)
