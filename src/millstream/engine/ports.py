"""What the engine asks of whoever computes rows: to compile a query, and to evaluate a step.

A step comes with everything it reads: segments, tails, states, the columns of its streams and the
layouts of shared files. It gives segments that are written and not yet published. So nothing behind
these ports knows the ledger, and the engine does not know how rows are computed.
"""

import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from millstream.core.errors import MillstreamError, UsageError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.plan.nodes import Plan
from millstream.language.share.dataflow import Operator
from millstream.language.share.groups import Candidate
from millstream.language.share.shared_plan import Place
from millstream.store.arrivals.appending import Appender, Rows
from millstream.store.segments import Segment, SegmentStore, Written

Layout = Mapping[str, Place]  # by stream: which rows and columns of a shared file are its own

# -- a query --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """What a query means, and the operators that compute it, producers first."""

    plan: Plan
    operators: tuple[Operator, ...]
    stream: str  # the result
    refusal: UsageError | None = None  # why nobody should register it as it is written
    crossed: bool = False  # whether its text asks for every pair of rows


@dataclass(frozen=True, slots=True)
class MadeStream:
    """A stream that an operator makes."""

    suffix: str  # what follows the operator's id in its name; empty for the result
    kind: str
    columns: str  # hidden ones included, as the ledger keeps them


class Compiler(Protocol):
    """Turns a text into operators."""

    @property
    def analyzer(self) -> Analyzer:
        """Who knows the types of expressions."""
        ...

    def compile(self, cql: str, catalog: Catalog, start: int, reader: str = "") -> CompiledQuery:
        """The same text, catalog and start give the same operators everywhere.

        `reader` keeps every part of the query from being another's as well.
        """
        ...

    def functions_changed(self) -> None:
        """A function was registered anew: types of expressions may differ."""
        ...

    def check(self, definition: StreamDefinition) -> None:
        """Refuses a declared stream whose time cannot be computed."""
        ...

    def columns(self, definition: StreamDefinition) -> str:
        """The columns of a declared stream, as the ledger keeps them."""
        ...

    def made(self, operator: Operator, inputs: Mapping[str, str]) -> Sequence[MadeStream]:
        """The streams of an operator, given the columns of its inputs."""
        ...


# -- a step ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Input:
    """One input stream as a step sees it."""

    stream: str
    tail: tuple[Segment, ...]  # consumed before, still reachable
    new: tuple[Segment, ...]  # consumed by this step
    before: int  # watermark at the cursor before this step
    after: int  # and after it
    shed_rows: int = 0  # of the new segments, passed over by this step

    @property
    def fresh(self) -> bool:
        return any(s.rows for s in self.new)


@dataclass(frozen=True, slots=True)
class Step:
    """One operator's part of a step: what it reads, and how far it gets."""

    operator: Operator
    inputs: Mapping[str, Input]
    progress: Mapping[str, Any]  # the operator's own durable notes
    states: Mapping[int, tuple[Segment, ...]]  # its state streams
    own: tuple[Segment, ...]  # its own output, for those that read it back
    last_row: int  # greatest time of a row in the base streams, as far as consumed
    bounds: tuple[str, ...] = field(default=(), kw_only=True)  # of rules, for quickness alone

    @property
    def before(self) -> int:
        return min(i.before for i in self._leading())

    @property
    def after(self) -> int:
        return min(i.after for i in self._leading())

    def _leading(self) -> Iterator[Input]:
        """Inputs whose watermarks count."""
        sides = self.operator.sides
        return (i for s, i in self.inputs.items() if s not in sides)

    @property
    def new(self) -> list[Segment]:
        return [s for i in self.inputs.values() for s in i.new]

    @property
    def shed_rows(self) -> int:
        return sum(i.shed_rows for i in self.inputs.values())

    def segments(self) -> Iterator[Segment]:
        """Everything that it may read."""
        for source in self.inputs.values():
            yield from (*source.tail, *source.new)
        yield from self.own
        for state in self.states.values():
            yield from state


@dataclass(frozen=True, slots=True)
class TrainStep:
    """A step of one operator, or of several that go together as one job."""

    steps: tuple[Step, ...]
    members: tuple[Candidate, ...]  # how they go together; empty for one alone
    columns: Mapping[str, str]  # of every stream that is read or made
    layouts: Mapping[int, Layout]  # of shared files, by number
    collect: bool = True  # whether the result is taken to be small
    seconds_max: float = inf  # after which it is cut off

    def files(self) -> Collection[Segment]:
        """What it may read, a segment for each file."""
        return {s.file: s for s in self.segments() if s.file}.values()

    def segments(self) -> Iterator[Segment]:
        """Everything that any of its steps may read; what they have in common comes once."""
        inputs = {id(i): i for step in self.steps for i in step.inputs.values()}
        for source in inputs.values():
            yield from source.tail
            yield from source.new
        for step in self.steps:
            yield from step.own
            for state in step.states.values():
                yield from state


@dataclass(frozen=True, slots=True)
class StepResult:
    """Segments that are written and synced, and how far each operator is with them."""

    written: Mapping[str, Sequence[Written]]  # by stream
    watermarks: Mapping[str, int]  # of the results, by operator
    progress: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by operator
    replaced: tuple[str, ...] = ()  # state streams whose segments take the place of the old ones
    places: Layout = field(default_factory=dict)  # who has what in shared files
    collected: bool = True  # else the executors have written it


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Segments of one stream, with what it takes to read them."""

    stream: str
    segments: tuple[Segment, ...]
    columns: str
    layouts: Mapping[int, Layout]


class Evaluator(Protocol):
    """Computes rows from rows. Writes segment files; publishes nothing."""

    def evaluate(self, job: TrainStep) -> StepResult:
        """One step, as one job where it has several operators."""
        ...

    def try_out(self, job: TrainStep) -> None:
        """The same for one operator, with the result thrown away; raises what a step would."""
        ...

    def merge(self, rows: StreamRows, *, changes: bool) -> Written:
        """Neighbours as one segment, sorted by time.

        Of `changes` only what was not taken back is kept: they are all there is of a relation's
        beginning.
        """
        ...

    def table(self, rows: StreamRows, staging: Path, *, collect: bool) -> Iterator[pa.Table]:
        """The table that changes of a relation add up to, one piece in memory at a time.

        The segments have been read when it returns; a large table lies in `staging` then.
        """
        ...

    def nothing(self, columns: str) -> pa.Table:
        """A table without rows."""
        ...

    def data_error(self, error: Exception) -> str | None:
        """One sentence where a query broke on its data; None where the machine is to blame."""
        ...


# -- rows from outside ----------------------------------------------------------------------------


class FileParser(Protocol):
    """Turns files into tables of declared columns, times and reasons."""

    def check(self, files: Sequence[Path]) -> None:
        """Mistakes in the declaration that show without reading much."""
        ...

    def pieces(self, files: Sequence[Path], numbers: Sequence[int]) -> Iterator[pa.Table]:
        """All rows of the files, in order; a row tells the number of its file."""
        ...


# rows of a producer, as an appender takes them
RowParser = Callable[[Rows, str], pa.Table]


class LiveSource(Protocol):
    """A source that brings rows by itself between start and stop."""

    failure: BaseException | None  # why it cannot go on

    @property
    def ended(self) -> bool:
        """Whether no more rows will come, ever."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def silent_since(self) -> float:
        """The time since which no row has come and none is on its way."""
        ...


@dataclass(frozen=True, slots=True)
class SourceSetting:
    """What a source may know of the engine that it feeds."""

    home: Path
    batch_rows: int
    arrived: Callable[[str], None]  # called with the stream's name after each commit
    congested: Callable[[], bool]  # whether it should wait
    say: Callable[[str], None] = lambda _: None  # what an operator should hear of
    step_seconds_max: float = inf  # in which a batch is read


class Machine(Protocol):
    """The process that computes, where it is another than this one."""

    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def address(self) -> str:
        """Where it computes, for people."""
        ...

    def memory(self) -> tuple[int | None, int | None]:
        """Bytes that it uses, and its limit."""
        ...

    def process(self) -> "subprocess.Popen[bytes] | None":
        """The process, where it is a child of this one."""
        ...

    def gone(self) -> MillstreamError | None:
        """What to say where it has ended; else None."""
        ...

    def within(self, seconds_max: float, *, by_task: bool) -> AbstractContextManager[None]:
        """What this thread asks of it inside the block ends in time, or is cut off with a
        `StepRefusedError`; `by_task`: so long without any part of it that ends."""
        ...


class DataPlane(Protocol):
    """Who computes for an engine; may serve several of them."""

    @property
    def compiler(self) -> Compiler: ...

    @property
    def machine(self) -> Machine | None: ...

    @property
    def files(self) -> type[SegmentStore]:
        """What segments look like in files: those that the evaluator reads."""
        ...

    def evaluator(self, files: SegmentStore) -> Evaluator:
        """One that reads and writes the segments of a folder."""
        ...

    def file_parser(self, definition: StreamDefinition, kind: str, staging: Path) -> FileParser: ...

    def row_parser(self, definition: StreamDefinition) -> RowParser: ...

    def open_stream(
        self, definition: StreamDefinition, appender: Appender, setting: SourceSetting
    ) -> LiveSource:
        """A stream that the data plane itself can read."""
        ...
