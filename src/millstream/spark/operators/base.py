"""What an operator sees of a step, and what it answers.

An operator is a pure function from the new segments of its inputs and the tail of them that its
windows can still reach to new rows; it has no other state. The tail is what lies before its own
cursor; it uses the watermark at its cursor, never the head's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame

from millstream.engine.ports import Step as PlannedStep
from millstream.spark.frames import Frame
from millstream.store.segments import Segment

Reader = Callable[[str, Sequence[Segment]], Frame]


@dataclass(frozen=True, slots=True)
class Step(PlannedStep):
    """A step with a way to read its segments.

    A prepared one stands for all steps of its shape: its segments are roles, it has no numbers of
    one step in its text, and nothing in its plan may be exchanged (`spark.prepared`).
    """

    read: Reader
    prepared: bool = False

    @staticmethod
    def of(planned: PlannedStep, read: Reader, *, prepared: bool = False) -> "Step":
        return Step(
            planned.operator,
            planned.inputs,
            planned.progress,
            planned.states,
            planned.own,
            planned.last_row,
            read,
            prepared,
            bounds=planned.bounds,
        )


@dataclass(frozen=True, slots=True)
class Output:
    """Rows for one stream. `replaces` marks state that takes the place of what was there."""

    stream: str
    frame: Frame
    replaces: bool = False

    @property
    def data(self) -> DataFrame:
        return self.frame.data


@dataclass(frozen=True, slots=True)
class Answer:
    outputs: tuple[Output, ...]
    watermark: int  # of the operator's result stream
    progress: Mapping[str, Any]


class Logic(Protocol):
    """One kind of operator."""

    def evaluate(self, step: Step) -> Answer:
        """What this step gives; without outputs where no Spark job is needed."""
        ...
