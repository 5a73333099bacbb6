"""Select, project, union: each new row by itself."""

from millstream.language.share.dataflow import stream_of
from millstream.spark.frames import lower
from millstream.spark.operators.base import Answer, Output, Step


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
