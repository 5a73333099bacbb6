"""How much a step may cost before it runs, and for how long it may.

A join of windows without an end that no equality links meets every row with every other: what a
step of it would combine is known before it begins. Above a limit it is refused by name; well
below it the executors write the result, for it may be far larger than the input.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from millstream.core.errors import MillstreamError
from millstream.engine.ports import Step, TrainStep
from millstream.language.plan.expressions import Call, columns_of, conjuncts
from millstream.language.plan.nodes import Join, Node, is_relation
from millstream.language.plan.windows import FOREVER, reach
from millstream.language.share.dataflow import leaves, stream_of
from millstream.store.reach import outermost_window

COLLECTED_PAIRS_MAX = 1_000_000


class StepRefusedError(MillstreamError):
    """A step that must not run, or not go on: its queries fail by name."""


def bounded(job: TrainStep, pairs_max: int, seconds_max: float) -> TrainStep:
    """The step with its limits; refuses one that is too much from the start."""
    most = max((pairs(step) for step in job.steps), default=0)
    if most > pairs_max:
        raise StepRefusedError(
            f"a join without a key over unbounded windows would combine {most:,} pairs of rows "
            f"in one step, more than {pairs_max:,}",
            hint="equate columns of its inputs, or give a window an end; pairs_max of [engine] "
            "allows for more",
        )
    collect = job.collect and most <= COLLECTED_PAIRS_MAX
    return replace(job, collect=collect, seconds_max=seconds_max)


def pairs(step: Step) -> int:
    """How many combinations of rows a step looks at; 0 where keys or windows keep them few."""
    join = step.operator.core
    if not isinstance(join, Join):
        return 0
    groups = _linked(join)
    if sum(any(_endless(join.inputs[m]) for m in group) for group in groups) < 2:
        return 0
    everything = prod(_rows(step, join, group, new=True) for group in groups)
    return everything - prod(_rows(step, join, group, new=False) for group in groups)


def _endless(member: Node) -> bool:
    if is_relation(member):
        return True
    window = outermost_window(member)
    return window is not None and reach(window.window) == FOREVER


def _rows(step: Step, join: Join, members: Iterable[int], *, new: bool) -> int:
    """Rows of the largest of some members, with those of this step or without."""
    found = [0]
    for member in members:
        inputs = [step.inputs[stream_of(leaf)] for leaf in leaves(join.inputs[member])]
        found.append(sum(s.rows for i in inputs for s in (*i.tail, *(i.new if new else ()))))
    return max(found)


def _linked(join: Join) -> list[set[int]]:
    """The inputs of a join in groups that equalities hold together."""
    owner = [number for number, node in enumerate(join.inputs) for _ in node.schema]
    groups = [{number} for number in range(len(join.inputs))]
    for term in conjuncts(join.predicate):
        match term:
            case Call("=" | "<=>", (left, right)):
                sides = [{owner[c] for c in columns_of(e)} for e in (left, right)]
                if all(len(side) == 1 for side in sides):
                    one = set().union(*(g for g in groups if g & (sides[0] | sides[1])))
                    groups = [g for g in groups if not g & one] + [one]
    return groups
