"""A prepared plan: the operators' logic over hoppers, and how a step fills them.

A hopper has a role: the new rows of an input, its tail, or the files of one layout that hold panes
of many. Numbers that differ from step to step come as columns of the hoppers.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, LongType, StructField, StructType

from millstream.engine.ports import Input, TrainStep
from millstream.engine.ports import Step as PlannedStep
from millstream.language.plan.nodes import Aggregate
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.shared_panes import WindowMember, windows_together
from millstream.language.share.shared_plan import Place
from millstream.spark.compiler import nullable
from millstream.spark.frames import Frame
from millstream.spark.operators import LOGIC
from millstream.spark.operators.base import Step
from millstream.spark.operators.panes import CARRIED, by_blocks, promise, span_of
from millstream.spark.operators.shared import evaluate_together
from millstream.spark.prepared.hoppers import CAPACITY_MIN, Hopper, SmallSession, batch_of
from millstream.spark.reading import Schemas, SegmentReader
from millstream.spark.versions import arrow_schema
from millstream.store.reach import window_of
from millstream.store.segments import Segment, SegmentStore

KINDS = ("map", "partial", "combine", "join", "rules")
ROWS_MAX = 100_000  # that a step reads; of more of them, planning is the smaller part
BYTES_MAX = 8 << 20
MEMBERS_FEW = 16
THROUGH_GATEWAY_MAX = 1 << 18  # bytes of a result: more of them come through a socket
KEEPING = ("Exchange", "Subquery", "InMemory")  # parts of a plan that keep what they have seen
NEW, TAIL, LAYOUT = "new", "tail", "layout"
Key = tuple[Any, ...]
Role = tuple[str, str]  # what of what: a stream's name, or the number of a layout


class UnpreparedError(Exception):
    """The plan has no prepared form."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The rows of a small step (None where it gives none), and what is said with them."""

    table: pa.Table | None
    watermark: int
    places: Mapping[str, Place]


@dataclass(slots=True)
class _Leaf:
    """A hopper and the rows that lie in it, by file."""

    hopper: Hopper
    stream: str  # none for files of many streams
    tables: dict[str, pa.Table] = field(default_factory=dict)


def small(job: TrainStep) -> bool:
    """Whether a step is worth a prepared plan, and has any rows to put into it."""
    if not job.collect or any(s.operator.kind not in KINDS for s in job.steps):
        return False
    read = {s.file: s for s in job.segments() if s.file}
    if sum(s.rows for s in read.values()) > ROWS_MAX:
        return False
    if sum(s.size for s in read.values()) > BYTES_MAX:
        return False
    if job.steps[0].operator.kind == "combine":
        ended = any(step.after == FOREVER for step in job.steps)
        return not ended and bool(_layouts(job) if job.members else read)
    sides = job.steps[0].operator.sides
    return any(i.fresh for s, i in job.steps[0].inputs.items() if s not in sides)


def key_of(job: TrainStep) -> Key:
    """Steps with the same key have the same plan but for rows and numbers."""
    ids, bounds = tuple(s.operator.id for s in job.steps), job.steps[0].bounds
    return ids, bool(job.members), _layouts(job), bounds


def _layouts(job: TrainStep) -> tuple[int, ...]:
    if not job.members or job.steps[0].operator.kind != "combine":
        return ()
    return tuple(sorted({s.tag for s in job.segments() if s.tag is not None}))


class PreparedPlan:
    """A plan over hoppers; made for a step, it runs for all steps with its key."""

    def __init__(
        self, session: SmallSession, files: SegmentStore, schemas: Schemas, job: TrainStep
    ) -> None:
        self.generation = session.generation
        self._session, self._files = session, files
        self._lock = threading.Lock()
        self._leaves: dict[Role, _Leaf] = {}
        self._windows = _aggregate_of(job)
        self._plan(job, schemas)
        # of many members much is to be expected
        self._bytes_last = 0 if len(job.steps) <= MEMBERS_FEW else THROUGH_GATEWAY_MAX + 1

    # -- the plan -------------------------------------------------------------------------------

    def _plan(self, job: TrainStep, schemas: Schemas) -> None:
        carried = CARRIED.carried if self._windows is not None else ()

        def hopper(role: Role, schema: StructType) -> DataFrame:
            if role not in self._leaves:
                stream = "" if role[0] == LAYOUT else role[1]
                table = self._table(job, role, stream, arrow_schema(schema), {})
                more = [StructField(name, LongType()) for name in carried]
                room = len(batch_of(table)) + 8 * len(more) * table.num_rows
                capacity = CAPACITY_MIN << max(0, (2 * room // CAPACITY_MIN).bit_length())
                made = Hopper(self._session, StructType([*schema.fields, *more]), capacity)
                self._leaves[role] = _Leaf(made, stream)
            return self._leaves[role].hopper.frame

        reader = _HopperReader(self._session, schemas, job, carried, hopper)
        steps = [
            Step.of(_standing_for(s, _layouts(job)), reader.frame, prepared=True) for s in job.steps
        ]
        self.places: Mapping[str, Place] = {}
        if job.members:
            answer = evaluate_together(job.members, steps, reader)
            frame, self.places = answer.frame, answer.places
        else:
            (output,) = LOGIC[steps[0].operator.kind].evaluate(steps[0]).outputs
            frame = output.frame
        if frame is None:
            raise UnpreparedError
        schema = nullable(frame.data.schema)
        self._data = frame.data.to(schema)
        self._schema = arrow_schema(schema)
        java: Any = self._data._jdf
        _refuse_keeping(java.queryExecution().executedPlan())
        self._batches = java.toArrowBatchRdd()

    # -- a step ---------------------------------------------------------------------------------

    def run(self, job: TrainStep) -> Computed:
        """The rows of one step."""
        numbers: Mapping[str, int] = {}
        watermark = job.steps[0].after
        if self._windows is not None:
            (source,) = job.steps[0].inputs.values()
            watermark = promise(window_of(self._windows), source.after)
            span = span_of(self._windows, source.before, source.after)
            if span is None:
                return Computed(None, watermark, self.places)
            numbers = span.columns()
        with self._lock:
            for role, leaf in self._leaves.items():
                known = leaf.tables
                table = self._table(job, role, leaf.stream, leaf.hopper.schema, known)
                for name, value in numbers.items():
                    column = pa.repeat(pa.scalar(value, pa.int64()), table.num_rows)
                    table = table.append_column(name, column)
                leaf.hopper.fill(batch_of(table))
            return Computed(self._result(), watermark, self.places)

    def _table(
        self, job: TrainStep, role: Role, stream: str, schema: pa.Schema, known: dict[str, pa.Table]
    ) -> pa.Table:
        """The rows of a role; what was read for the step before is at hand."""
        names = [n for n in schema.names if n not in CARRIED.carried]
        plain = pa.schema([schema.field(n) for n in names])
        tables = {}
        for segment in _segments(job, role):
            assert segment.file is not None
            table = known.get(segment.file)
            if table is None:
                whole = self._files.read(segment) if stream else self._files.read_wide(segment)
                table = whole.select(names).cast(plain)
            tables[segment.file] = table
        known.clear()
        known.update(tables)
        return pa.concat_tables(tables.values()) if tables else plain.empty_table()

    def _result(self) -> pa.Table:
        if self._bytes_last > THROUGH_GATEWAY_MAX:
            table = self._data.toArrow()
        else:
            parts = [bytes(part) for part in self._batches.collect()]
            batches = [pa.ipc.read_record_batch(pa.py_buffer(p), self._schema) for p in parts]
            table = pa.Table.from_batches(batches, self._schema)
        self._bytes_last = table.nbytes
        return table


class _HopperReader(SegmentReader):
    """Reads roles instead of files."""

    def __init__(
        self,
        session: SmallSession,
        schemas: Schemas,
        job: TrainStep,
        carried: Sequence[str],
        hopper: Any,
    ) -> None:
        super().__init__(session.spark, schemas, job.columns, job.layouts)
        self.carried = tuple(carried)
        self._hopper = hopper

    def frame(self, stream: str, segments: Sequence[Segment]) -> Frame:
        schema = self.schema(stream)
        hidden = tuple(n for n in schema.names if n.startswith("_"))
        data: DataFrame | None = None
        for segment in segments:
            rows = self._hopper(_role(segment), schema)
            data = rows if data is None else data.unionByName(rows).coalesce(1)
        assert data is not None
        return Frame(data, (*hidden, *self.carried), len(schema.names) - len(hidden))

    def wide(self, files: Sequence[str], columns: Mapping[str, DataType]) -> DataFrame:
        (file,) = files
        kind, _, name = file.partition(" ")
        plain = [StructField(n, t) for n, t in columns.items() if n not in self.carried]
        rows: DataFrame = self._hopper((kind, name), StructType(plain))
        return rows


def _standing_for(step: PlannedStep, layouts: Sequence[int]) -> PlannedStep:
    """The step with roles in the place of its segments."""
    inputs: dict[str, Input] = {}
    for stream in step.inputs:
        if layouts:
            panes = tuple(_role_segment(stream, LAYOUT, str(tag), tag) for tag in layouts)
            inputs[stream] = Input(stream, (), panes, BEGINNING, FOREVER)
        else:
            tail, new = _role_segment(stream, TAIL, stream), _role_segment(stream, NEW, stream)
            inputs[stream] = Input(stream, (tail,), (new,), BEGINNING, FOREVER)
    return replace(step, inputs=inputs)


def _role_segment(stream: str, kind: str, name: str, tag: int | None = None) -> Segment:
    return Segment(stream, 1, 1, f"{kind} {name}", tag, 1, 1, 0, 0, FOREVER, FOREVER, 0.0)


def _role(segment: Segment) -> Role:
    kind, _, name = (segment.file or "").partition(" ")
    return kind, name


def _segments(job: TrainStep, role: Role) -> Iterator[Segment]:
    """The segments of a step that have a role in it, those with rows, each file once."""
    kind, name = role
    if kind != LAYOUT:
        source = job.steps[0].inputs[name]
        yield from (s for s in (source.new if kind == NEW else source.tail) if s.file)
        return
    found = {s.file: s for s in job.segments() if s.file}
    yield from (s for s in found.values() if str(s.tag) == name)


def _aggregate_of(job: TrainStep) -> Aggregate | None:
    """Whose windows the step combines, if it does."""
    operator = job.steps[0].operator
    if operator.kind != "combine":
        return None
    parts = [c.part for c in job.members]
    node = operator.core
    if parts:
        node = windows_together([p for p in parts if isinstance(p, WindowMember)]).aggregate
    assert isinstance(node, Aggregate)
    if by_blocks(window_of(node)):
        raise UnpreparedError
    return node


def _refuse_keeping(plan: Any) -> None:
    """Refuses a plan that would give old rows when it runs again."""
    if any(word in plan.nodeName() for word in KEEPING):
        raise UnpreparedError
    children = plan.children()
    for index in range(children.size()):
        _refuse_keeping(children.apply(index))
