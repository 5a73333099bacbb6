"""Select, project, union: each new row by itself."""

from collections.abc import Mapping

from millstream.share.dataflow import Operator, stream_of
from millstream.spark.frames import lower
from millstream.spark.operators.base import Answer, Output, Step
from millstream.store.segments import Segment


class MapLogic:
    def evaluate(self, step: Step) -> Answer:
        outputs: tuple[Output, ...] = ()
        if any(i.fresh for i in step.inputs.values()):
            frame = lower(
                step.operator.node,
                lambda leaf: step.read(stream_of(leaf), step.inputs[stream_of(leaf)].new),
            )
            outputs = (Output(step.operator.id, frame),)
        return Answer(outputs, step.after, {})

    def reachable(self, operator: Operator, segment: Segment, marks: Mapping[str, int]) -> bool:
        return False
