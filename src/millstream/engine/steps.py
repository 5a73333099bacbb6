"""A step: read, one Spark job, write segments, one transaction.

A crash before the transaction leaves only files that nobody names; a crash after it loses nothing.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from millstream.plan.nodes import sources_of
from millstream.plan.windows import BEGINNING, FOREVER
from millstream.share.dataflow import Operator, base_stream, state_stream
from millstream.share.shapes import shape_of
from millstream.spark.collecting import collected
from millstream.spark.operators import LOGIC, SELF_READING
from millstream.spark.operators.base import Answer, Input, Output, Step
from millstream.spark.reading import SegmentReader
from millstream.store import faults
from millstream.store.ledger import Ledger
from millstream.store.segments import EMPTY, Segment, SegmentStore, Written

COLLECT_BYTES_MAX = 32 << 20  # input of a step below which its result is collected by the driver
RECORDS_OF_A_FILE = 1_000_000  # written by executors: a delivery reads a segment at a time


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did, for statistics and displays."""

    operator: str
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    seconds: float  # all of it
    commit_seconds: float
    tail_segments: int  # files of windows that were opened
    started: float
    arrived: float  # when the oldest rows behind the result entered the system
    collected: bool
    job: str = ""  # that it shared with others
    members: int = 1  # of that job


@dataclass(slots=True)
class Removals:
    """Files that may go once every step that began before has ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    clock: int = 0
    active: dict[int, int] = field(default_factory=dict)  # step -> clock at its start
    waiting: list[tuple[int, str]] = field(default_factory=list)

    def begin(self) -> int:
        with self.lock:
            self.clock += 1
            self.active[self.clock] = self.clock
            return self.clock

    def end(self, token: int) -> None:
        with self.lock:
            self.active.pop(token, None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keeps every file that is there now for as long as somebody reads."""
        token = self.begin()
        try:
            yield
        finally:
            self.end(token)

    def add(self, files: Sequence[str]) -> None:
        with self.lock:
            self.clock += 1
            self.waiting += [(self.clock, f) for f in files]

    def due(self) -> list[str]:
        with self.lock:
            oldest = min(self.active.values(), default=self.clock + 1)
            ready = [f for at, f in self.waiting if at < oldest]
            self.waiting = [(at, f) for at, f in self.waiting if at >= oldest]
            return ready


class StepRunner:
    """Runs operators' steps on one ledger, store and Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        ledger: Ledger,
        store: SegmentStore,
        collect_bytes_max: int = COLLECT_BYTES_MAX,
    ) -> None:
        self.spark, self.ledger, self.store = spark, ledger, store
        self.reader = SegmentReader(spark, ledger, store)
        self.removals = Removals()
        self.collect_bytes_max = collect_bytes_max
        self._columns: dict[str, dict[str, tuple[str, str]]] = {}  # by shape

    # -- what there is to do --------------------------------------------------------------------

    def install(self, operator: Operator) -> None:
        """Makes room for an operator's streams in the ledger (inside a transaction).

        An operator of each shape is evaluated once over inputs without rows: Spark analyses it,
        nothing runs, and the columns of its streams are known from then on.
        """
        self.ledger.add_stream(operator.id, operator.kind)
        if self.ledger.columns(operator.id):
            return
        shape = shape_of(operator)
        if shape not in self._columns:
            self._columns[shape] = self._columns_of(operator)
        for suffix, (kind, columns) in self._columns[shape].items():
            self.ledger.add_stream(operator.id + suffix, kind)
            self.ledger.set_columns(operator.id + suffix, columns)

    def _columns_of(self, operator: Operator) -> dict[str, tuple[str, str]]:
        """Kind and columns of the operator's streams, by what follows its id in their names."""
        inputs = {s: Input(s, (), (_placeholder(s),), BEGINNING, FOREVER) for s in operator.inputs}
        step = Step(operator, inputs, {}, {}, (), 0, self.reader.frame)
        return {
            output.stream.removeprefix(operator.id): (
                "state" if output.replaces else operator.kind,
                nullable(output.data.schema).json(),
            )
            for output in LOGIC[operator.kind].evaluate(step).outputs
        }

    def pending(self, operator: Operator) -> dict[str, list[Segment]]:
        """Segments each input has beyond the operator's cursor."""
        found = {}
        for stream in operator.inputs:
            following, _ = self.ledger.cursor(operator.id, stream)
            found[stream] = self.ledger.segments(stream, following)
        return found

    def marks(self, operator: Operator) -> dict[str, int]:
        return {s: self.ledger.cursor(operator.id, s)[1] for s in operator.inputs}

    # -- one step -------------------------------------------------------------------------------

    def run(
        self, operator: Operator, rows_max: int, limits: Mapping[str, int] | None = None
    ) -> StepReport | None:
        """One step on at most about `rows_max` new rows; None where there is nothing new.

        `limits` are numbers of input segments before which the step stops.
        """
        with self.removals.reading():
            return self._run(operator, rows_max, limits)

    def _run(
        self, operator: Operator, rows_max: int, limits: Mapping[str, int] | None
    ) -> StepReport | None:
        started = time.time()
        clock = time.perf_counter()
        step = self.prepare(operator, rows_max, limits)
        if step is None:
            return None
        logic = LOGIC[operator.kind]
        answer = logic.evaluate(step)
        faults.reach("step.evaluated")
        new = [s for i in step.inputs.values() for s in i.new]
        tails = [s for i in step.inputs.values() for s in i.tail if s.file]
        size = sum(s.size for s in (*new, *tails))
        collected = size <= self.collect_bytes_max
        written = {}
        for output in answer.outputs:
            written[output.stream], was = self._materialise(output, collected)
            collected = collected and was
        faults.reach("step.written")
        clock_commit = time.perf_counter()
        gone = self._commit(step, answer, written, time.perf_counter() - clock)
        faults.reach("step.committed")
        done = time.perf_counter()
        self.removals.add(gone)
        result = written.get(operator.id, [])
        return StepReport(
            operator.id,
            rows_in=sum(s.rows for s in new),
            rows_out=sum(w.rows for w in result),
            bytes_in=sum(s.size for s in new),
            bytes_out=sum(w.size for w in result),
            seconds=done - clock,
            commit_seconds=done - clock_commit,
            tail_segments=len(tails),
            started=started,
            arrived=arrived_of(new),
            collected=collected,
        )

    def prepare(
        self, operator: Operator, rows_max: int, limits: Mapping[str, int] | None = None
    ) -> Step | None:
        """What a step would read; None where there is nothing new."""
        inputs: dict[str, Input] = {}
        logic = LOGIC[operator.kind]
        marks = self.marks(operator)
        anything = False
        for stream in operator.inputs:
            following, before = self.ledger.cursor(operator.id, stream)
            segments = self.ledger.segments(stream)
            tail = tuple(
                s
                for s in segments
                if s.last < following and s.file and logic.reachable(operator, s, marks)
            )
            stop = FOREVER if limits is None else limits[stream]
            new = _limited([s for s in segments if following <= s.last < stop], rows_max)
            after = new[-1].watermark if new else before
            anything = anything or bool(new)
            inputs[stream] = Input(stream, tail, new, before, max(before, after))
        if not anything:
            return None
        states = self._states(operator)
        own = tuple(self.ledger.segments(operator.id)) if operator.kind in SELF_READING else ()
        return Step(
            operator,
            inputs,
            self.ledger.progress(operator.id),
            states,
            own,
            self._last_row(operator),
            self.reader.frame,
        )

    def _states(self, operator: Operator) -> dict[int, tuple[Segment, ...]]:
        found: dict[int, tuple[Segment, ...]] = {}
        if operator.kind in ("interval", "running_emit"):
            part = 0
            while self.ledger.stream(state_stream(operator.id, part)) is not None:
                found[part] = tuple(self.ledger.segments(state_stream(operator.id, part)))
                part += 1
        return found

    def _last_row(self, operator: Operator) -> int:
        latest = BEGINNING
        for source in sources_of(operator.node):
            latest = max(latest, self.ledger.last_row(base_stream(source.stream)))
        return latest

    # -- results --------------------------------------------------------------------------------

    def _materialise(self, output: Output, collect: bool) -> tuple[list[Written], bool]:
        """Collects a small result and writes it here; lets the executors write a large one."""
        if collect:
            table = collected(self._with_nullable_parts(output))
            if table is not None:
                written = self.store.write(table)
                return ([written] if written.rows else []), True
        folder = self.store.path(f"{self.store.new_name()}.writing")
        writer = output.data.write.option("compression", "zstd")
        writer.option("maxRecordsPerFile", RECORDS_OF_A_FILE).parquet(folder)
        return self.store.adopt_spark_output(folder), False

    def _with_nullable_parts(self, output: Output) -> DataFrame:
        return with_nullable_parts(output.data, self.reader.schema(output.stream))

    def _commit(
        self,
        step: Step,
        answer: Answer,
        written: Mapping[str, Sequence[Written]],
        seconds: float,
    ) -> list[str]:
        """Publishes, advances, records; gives files that nobody names any more."""
        gone: list[str] = []
        operator = step.operator
        with self.ledger.transaction() as ledger:
            for output in answer.outputs:
                if output.replaces:
                    gone += ledger.replace(ledger.segments(output.stream), None)
                    ledger.publish(output.stream, written[output.stream] or [EMPTY], BEGINNING)
            new = [s for i in step.inputs.values() for s in i.new]
            ledger.publish(
                operator.id, written.get(operator.id, ()), answer.watermark, arrived_of(new)
            )
            rows_out = sum(w.rows for w in written.get(operator.id, ()))
            for source in step.inputs.values():
                if source.new:
                    ledger.set_cursor(
                        operator.id, source.stream, source.new[-1].last + 1, source.after
                    )
            rows_in = sum(s.rows for s in new)
            ledger.record_step(operator.id, answer.progress, rows_in, rows_out, seconds)
        return gone


def arrived_of(segments: Sequence[Segment]) -> float:
    """When the oldest of the segments entered the system."""
    return min((s.arrived for s in segments), default=time.time())


def with_nullable_parts(data: DataFrame, schema: StructType) -> DataFrame:
    """Spark's Arrow conversion refuses a null struct whose parts are declared non-null."""
    if any(isinstance(f.dataType, StructType | ArrayType | MapType) for f in schema.fields):
        return data.to(nullable(schema))
    return data


def nullable(kind: Any) -> Any:
    """A type in which every part may be null, as it may be in Parquet."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, nullable(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType))
    return kind


def _placeholder(stream: str) -> Segment:
    return Segment(stream, 1, 1, None, None, 1, 0, 0, 0, 0, FOREVER, 0.0)


def _limited(segments: Sequence[Segment], rows_max: int) -> tuple[Segment, ...]:
    """A prefix of about as many rows, one segment at least."""
    taken: list[Segment] = []
    rows = 0
    for segment in segments:
        if taken and rows + segment.rows > rows_max:
            break
        taken.append(segment)
        rows += segment.rows
    return tuple(taken)
