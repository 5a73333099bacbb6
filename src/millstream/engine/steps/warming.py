"""A first step costs seconds: plans are compiled, code is generated, classes are loaded.

Before an operator runs in a process for the first time, it is evaluated on what lies there and the
result is thrown away. Changes nothing.
"""

from millstream.engine.ports import Input, Step
from millstream.engine.steps.runner import StepRunner
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.dataflow import Operator
from millstream.store.ledger import Ledger
from millstream.store.machine_failures import first_line
from millstream.store.reach import SELF_READING
from millstream.store.segments import Segment


def warm_up(runner: StepRunner, operator: Operator, rounds: int) -> str:
    """Evaluates an operator on its inputs as they lie here, and throws the result away.

    Gives what went wrong, if anything did: a cold operator is slower, and nothing else.
    """
    try:
        for _ in range(rounds):
            try_out(runner, operator)
    except Exception as error:
        return first_line(error)
    return ""


def try_out(runner: StepRunner, operator: Operator) -> bool:
    """One evaluation; says whether there was anything to evaluate."""
    with runner.streams.removals.reading():
        step = _sample(runner.ledger, operator)
        if step is None:
            return False
        job = runner.planner.job((step,))
        runner.streams.files.check(job.files())
        runner.evaluator.try_out(job)
    return True


def _sample(ledger: Ledger, operator: Operator) -> Step | None:
    """A step over what is here: the last segment of each input as new, the others as its tail."""
    inputs: dict[str, Input] = {}
    latest = BEGINNING
    for stream in operator.inputs:
        filled = [s for s in ledger.segments(stream) if s.file]
        new: tuple[Segment, ...] = tuple(filled[-1:])
        tail = tuple(filled[:-1])
        after = max((s.ts_max for s in filled), default=BEGINNING)
        before = max((s.ts_max for s in tail), default=BEGINNING)
        inputs[stream] = Input(stream, tail, new, min(before, after), after)
        latest = max(latest, after)
    if not any(i.new for i in inputs.values()) or latest in (BEGINNING, FOREVER):
        return None
    own = tuple(ledger.segments(operator.id)) if operator.kind in SELF_READING else ()
    return Step(operator, inputs, {}, {}, own, latest)
