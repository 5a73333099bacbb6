"""How much a step may cost before it runs, and for how long it may.

Inputs of a join that no equality links meet every row with every other that is in its window at the
same time: what a step of it would combine is known before it begins, exactly where windows have no
end, else by how far apart its rows lie. Above a limit it is refused by name; well below it the
executors write the result, for it may be far larger than the input. When a query is registered the
same is estimated from the rows that its streams have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from millstream.core.errors import MillstreamError, UsageError
from millstream.engine.ports import Step, TrainStep
from millstream.language.plan.nodes import Join, Node, Plan, is_relation, sources_of
from millstream.language.plan.products import endless_groups, joins_of, linked, outermost_window
from millstream.language.plan.windows import FOREVER, Rows, reach
from millstream.language.share.dataflow import base_stream, leaves, stream_of
from millstream.store.ledger import Ledger

COLLECTED_PAIRS_MAX = 1_000_000
ESTIMATED = 10  # times the limit: rows may lie further apart than their number says
RATE_ROWS_MIN = 100  # below which a stream says nothing about its rate


class StepRefusedError(MillstreamError):
    """A step that must not run, or not go on: its queries fail by name."""


class ProductError(StepRefusedError):
    """One that combines too many rows: with fewer new ones it may do."""


def bounded(job: TrainStep, pairs_max: int, seconds_max: float) -> TrainStep:
    """The step with its limits; refuses one that is too much from the start."""
    most = max((pairs(step) for step in job.steps), default=0)
    endless = any(_endless(step) for step in job.steps)
    if most > pairs_max * (1 if endless else ESTIMATED):
        windows = "unbounded windows" if endless else "windows of this length"
        raise ProductError(
            f"a join without a key over {windows} would combine {most:,} pairs of rows "
            f"in one step, more than {pairs_max:,}",
            hint="equate columns of its inputs, or give a window an earlier end; pairs_max of "
            "[engine] allows for more",
        )
    collect = job.collect and most <= COLLECTED_PAIRS_MAX
    return replace(job, collect=collect, seconds_max=seconds_max)


def _endless(step: Step) -> bool:
    join = step.operator.core
    return isinstance(join, Join) and endless_groups(join) > 1


def pairs(step: Step) -> int:
    """How many combinations of rows a step looks at; 0 where keys keep them few."""
    join = step.operator.core
    if not isinstance(join, Join):
        return 0
    groups = linked(join)
    if len(groups) < 2 or any(_counted(member) for member in join.inputs):
        return 0
    everything = prod(_rows(step, join, group, new=True) for group in groups)
    new = everything - prod(_rows(step, join, group, new=False) for group in groups)
    segments = [s for i in step.inputs.values() for s in (*i.tail, *i.new) if s.rows]
    span = max((s.ts_max for s in segments), default=0) - min(
        (s.ts_min for s in segments), default=0
    )
    return int(new * _near(join, groups, span + 1))


def _near(join: Join, groups: Sequence[Iterable[int]], span: int) -> float:
    """What part of all combinations lies near enough in time to meet."""
    lengths = [max(_length(join.inputs[m]) for m in group) for group in groups]
    return prod(min(1.0, (lengths[0] + length + 1) / span) for length in lengths[1:])


def _counted(member: Node) -> int:
    """How many rows a window of rows holds; 0 for one of time."""
    window = outermost_window(member)
    return window.window.count if window is not None and isinstance(window.window, Rows) else 0


def _length(member: Node) -> int:
    """How long a row of a join's input stays; for ever where that is not known."""
    if is_relation(member):
        return FOREVER
    window = outermost_window(member)
    return FOREVER if window is None else reach(window.window)


def _rows(step: Step, join: Join, members: Iterable[int], *, new: bool) -> int:
    """Rows of the largest of some members, with those of this step or without."""
    found = [0]
    for member in members:
        inputs = [step.inputs[stream_of(leaf)] for leaf in leaves(join.inputs[member])]
        found.append(sum(s.rows for i in inputs for s in (*i.tail, *(i.new if new else ()))))
    return max(found)


# -- when a query is registered -------------------------------------------------------------------


def check_estimate(plan: Plan, ledger: Ledger, pairs_max: int) -> None:
    """Refuses a query whose windows would hold too many combinations at the present rates."""
    most = max((_in_one_window(join, ledger) for join in joins_of(plan.root)), default=0)
    if most > pairs_max:
        raise UsageError(
            f"this join has no key, and within one window about {most:,} pairs of rows would meet",
            detail=f"at the rates that its streams have now; more than {pairs_max:,}",
            hint="equate columns of its inputs, or take a shorter window; where every pair is "
            "meant, say CROSS JOIN",
        )


def _in_one_window(join: Join, ledger: Ledger) -> int:
    groups = linked(join)
    if len(groups) < 2:
        return 0
    held = [max(_held(join.inputs[m], ledger) for m in group) for group in groups]
    return int(prod(held))


def _held(member: Node, ledger: Ledger) -> float:
    """Rows that the window of a join's input holds, as far as its streams tell; 0 where unknown."""
    if rows := _counted(member):
        return rows
    length = _length(member)
    streams = {base_stream(source.stream) for source in sources_of(member)}
    found = 0.0
    for segments in (ledger.segments(s) for s in sorted(streams)):
        full = [s for s in segments if s.rows]
        rows = sum(s.rows for s in full)
        if rows >= RATE_ROWS_MIN:
            span = max(s.ts_max for s in full) - min(s.ts_min for s in full) + 1
            found += rows if length == FOREVER else rows * (length + 1) / span
    return found
