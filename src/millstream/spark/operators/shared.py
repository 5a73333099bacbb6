"""Steps of several operators as one: the shared plan is evaluated by the operators' own logic.

All steps of one call read the same new segments with the same tails; what differs is told apart by
bits (`share.shared_plan`). The answer is one frame, and each operator's place in its rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.engine.ports import Input
from millstream.language.plan.nodes import Emit
from millstream.language.share.dataflow import Operator, stream_of
from millstream.language.share.groups import Candidate
from millstream.language.share.shared_panes import (
    PaneMember,
    WindowMember,
    panes_together,
    windows_together,
)
from millstream.language.share.shared_plan import (
    JoinMember,
    Member,
    Place,
    Together,
    joins_together,
    maps_together,
)
from millstream.spark.frames import Frame, lower
from millstream.spark.operators.base import Step
from millstream.spark.operators.joining import JoinLogic
from millstream.spark.operators.mapping import MapLogic
from millstream.spark.operators.panes import CombineLogic
from millstream.spark.operators.wide_panes import panes_of_many, read_panes
from millstream.spark.reading import SegmentReader
from millstream.store.segments import Segment


@dataclass(frozen=True, slots=True)
class SharedAnswer:
    """Rows of all operators, where each one's lie, and the watermark of each result."""

    frame: Frame | None
    places: Mapping[str, Place]
    watermarks: Mapping[str, int]


def evaluate_together(
    members: Sequence[Candidate], steps: Sequence[Step], reader: SegmentReader
) -> SharedAnswer:
    """What one shared step gives; `steps` are those of the members, in order."""
    parts = [c.part for c in members]
    first = parts[0]
    if isinstance(first, WindowMember):
        return _windows([p for p in parts if isinstance(p, WindowMember)], steps, reader)
    marks = {s.operator.id: s.after for s in steps}
    fresh = any(i.fresh for i in steps[0].inputs.values())
    if not fresh:
        return SharedAnswer(None, {}, marks)
    step = steps[0]
    if isinstance(first, PaneMember):
        plan = panes_together([p for p in parts if isinstance(p, PaneMember)])
        rows = lower(
            plan.rows, lambda leaf: step.read(stream_of(leaf), step.inputs[stream_of(leaf)].new)
        )
        panes, places = panes_of_many(plan, rows)
        return SharedAnswer(panes, places, marks)
    if isinstance(first, Member):
        together = maps_together([p for p in parts if isinstance(p, Member)])
        if first.rows.interval == "endless":
            together = replace(together, node=Emit(together.node, "istream", 0))
        shared = _operator(together, step.operator)
        answer = MapLogic().evaluate(replace(step, operator=shared))
    else:
        ending = [c.operator.id for c in members if "_until" in reader.schema(c.operator.id).names]
        together = joins_together([p for p in parts if isinstance(p, JoinMember)], ending)
        shared = _operator(together, step.operator)
        answer = JoinLogic().evaluate(replace(step, operator=shared))
    frame = answer.outputs[0].frame if answer.outputs else None
    return SharedAnswer(frame, together.places, marks)


def _operator(together: Together, like: Operator) -> Operator:
    return Operator(f"{like.id}+", like.kind, together.node, together.core, like.inputs)


def _windows(
    members: Sequence[WindowMember], steps: Sequence[Step], reader: SegmentReader
) -> SharedAnswer:
    """All members' panes lie in the same files: they are read once."""
    plan = windows_together(members)
    shared = Operator(
        f"{steps[0].operator.id}+",
        "combine",
        plan.together.node,
        plan.aggregate,
        steps[0].operator.inputs,
    )
    step = replace(
        steps[0],
        operator=shared,
        inputs=_spanning(steps),
        read=lambda _, segments: read_panes(plan, members, segments, reader),
    )
    answer = CombineLogic().evaluate(step)
    marks = {s.operator.id: answer.watermark for s in steps}
    frame = answer.outputs[0].frame if answer.outputs else None
    return SharedAnswer(frame, plan.together.places, marks)


def _spanning(steps: Sequence[Step]) -> Mapping[str, Input]:
    """All members' files, each once, with the time at which anybody's panes in there begin."""
    (lead,) = steps[0].inputs.values()
    found: dict[str, Segment] = {}
    for step in steps:
        for source in step.inputs.values():
            for s in (*source.tail, *source.new):
                if s.file:
                    begin = min(s.ts_min, found[s.file].ts_min) if s.file in found else s.ts_min
                    found[s.file] = replace(s, ts_min=begin)
    return {lead.stream: replace(lead, tail=(), new=tuple(found.values()))}
