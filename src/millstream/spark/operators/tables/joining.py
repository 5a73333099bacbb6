"""Inner joins of tables that change.

A join is linear in each input, so that the changes of the result are the joined changes: a `-`
with a `+` is a `-`. For inputs 1..n a step gives the sum over i of: old changes of the inputs
before i, new ones of i, all of those after. What was added and taken back again cancels out in the
sum, and a `-` has the very values of its `+`, which a join only copies.
"""

from collections.abc import Sequence

from millstream.language.plan.expressions import Column, substitute
from millstream.language.plan.nodes import Join, Project
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import leaves, stream_of
from millstream.spark.frames import Frame, lower
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.joining import BROADCAST, BROADCAST_BYTES, combine
from millstream.spark.operators.running import PLUS
from millstream.store.segments import Segment

OP = Field("op", "tinyint")


class TableJoinLogic:
    def evaluate(self, step: Step) -> Answer:
        join = step.operator.core
        assert isinstance(join, Join)
        terms = [_term(step, join, position) for position in range(len(join.inputs))]
        joined = [term for term in terms if term is not None]
        if not joined:
            return Answer((), step.after, {})
        whole = joined[0]
        for other in joined[1:]:
            whole = whole.union(other)
        frame = lower(step.operator.node, lambda _: whole)
        return Answer((Output(step.operator.id, frame),), step.after, {})


def _term(step: Step, join: Join, newest: int) -> Frame | None:
    """Combinations with a new change of one input and only old ones of the inputs before it."""
    members: list[Frame] = []
    size = 0
    for position, member in enumerate(join.inputs):
        inputs = [step.inputs[s] for s in {stream_of(leaf) for leaf in leaves(member)}]
        chosen: list[Segment] = []
        for source in inputs:
            chosen += source.tail if position != newest else ()
            chosen += source.new if position >= newest else ()
        if not any(s.rows for s in chosen):
            return None
        size = sum(s.size for s in chosen) if position == newest else size
        members.append(_signed(step, join, position, chosen))
    hint = BROADCAST if size < BROADCAST_BYTES else None
    made = combine(_with_signs(join), members, start=newest, hint=hint)
    return _result(join, made)


def _signed(step: Step, join: Join, position: int, segments: Sequence[Segment]) -> Frame:
    """The changes of a member with their sign as a last column."""
    by_stream: dict[str, list[Segment]] = {}
    for segment in segments:
        by_stream.setdefault(segment.stream, []).append(segment)
    frame = lower(
        join.inputs[position],
        lambda leaf: step.read(stream_of(leaf), by_stream.get(stream_of(leaf), [])),
    )
    sign = "_op" if "_op" in frame.hidden else PLUS
    columns = [*(f"c{i}" for i in range(frame.width)), sign]
    return frame.select({"_ts": "_ts", "_until": f"{FOREVER}L"}, columns)


def _with_signs(join: Join) -> Join:
    """The join over inputs with the sign as a last column."""
    inputs, places, width = [], [], 0
    for node in join.inputs:
        own = tuple(Column(i) for i in range(len(node.schema)))
        inputs.append(Project(node, (*own, Column(0)), (*node.schema, OP)))
        places += [Column(width + i) for i in range(len(node.schema))]
        width += len(node.schema) + 1
    predicate = None if join.predicate is None else substitute(join.predicate, tuple(places))
    return Join(tuple(inputs), predicate)


def _result(join: Join, made: Frame) -> Frame:
    columns, signs, width = [], [], 0
    for node in join.inputs:
        columns += [f"c{width + i}" for i in range(len(node.schema))]
        width += len(node.schema) + 1
        signs.append(f"c{width - 1}")
    return made.select({"_ts": "_ts", "_op": f"CAST({' * '.join(signs)} AS TINYINT)"}, columns)
