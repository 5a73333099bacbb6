"""What an operator sees of a step, and what it answers.

An operator is a pure function from the new segments of its inputs and the tail of them that its
windows can still reach to new rows; it has no other state. The tail is what lies before its own
cursor; it uses the watermark at its cursor, never the head's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame

from millstream.plan.windows import FOREVER
from millstream.share.dataflow import Operator
from millstream.spark.frames import Frame
from millstream.store.segments import Segment


@dataclass(frozen=True, slots=True)
class Input:
    """One input stream as a step sees it."""

    stream: str
    tail: tuple[Segment, ...]  # consumed before, still reachable
    new: tuple[Segment, ...]  # consumed by this step
    before: int  # watermark at the cursor before this step
    after: int  # and after it

    @property
    def fresh(self) -> bool:
        return any(s.rows for s in self.new)


Reader = Callable[[str, Sequence[Segment]], Frame]


@dataclass(frozen=True, slots=True)
class Step:
    operator: Operator
    inputs: Mapping[str, Input]
    progress: Mapping[str, Any]  # the operator's own durable notes
    states: Mapping[int, tuple[Segment, ...]]  # its state streams
    own: tuple[Segment, ...]  # its own output, for those that read it back
    last_row: int  # greatest time of a row in the base streams, as far as consumed
    read: Reader

    @property
    def before(self) -> int:
        return min(i.before for i in self.inputs.values())

    @property
    def after(self) -> int:
        return min(i.after for i in self.inputs.values())


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

    def reachable(self, operator: Operator, segment: Segment, marks: Mapping[str, int]) -> bool:
        """Whether a later step can still need a segment that was consumed.

        `marks` has the watermark of each input at the operator's cursor.
        """
        ...


def later(ts: int, by: int) -> int:
    """ts + by, without leaving the range of times."""
    return FOREVER if FOREVER in (ts, by) else ts + by
