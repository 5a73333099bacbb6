"""Steps as Spark jobs: segments in, segments out.

Small results are collected and written here; large ones are written by the executors. The ledger
is not known here: a job comes with the columns and layouts of everything that it reads.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StructType

from millstream.engine.ports import StepResult, StreamRows, TrainStep
from millstream.language.share.shared_plan import Place
from millstream.spark.collecting import collected, write_parquet
from millstream.spark.compiler import nullable
from millstream.spark.connect.sessions import TaggedJobs, is_connect
from millstream.spark.deadlines import Deadlines
from millstream.spark.failures import data_error
from millstream.spark.frames import Frame
from millstream.spark.operators import LOGIC
from millstream.spark.operators.base import Output, Step
from millstream.spark.operators.rules.bounds import RuleBounds
from millstream.spark.operators.running import present
from millstream.spark.operators.running import table as present_table
from millstream.spark.operators.shared import evaluate_together
from millstream.spark.prepared.plans import Computed
from millstream.spark.prepared.steps import PreparedSteps
from millstream.spark.reading import Schemas, SegmentReader
from millstream.spark.surroundings import all_written
from millstream.store import faults
from millstream.store.segments import SegmentStore, Written, parquet_pieces

RECORDS_OF_A_FILE = 1_000_000  # written by executors: a delivery reads a segment at a time


class SparkEvaluator:
    """`engine.ports.Evaluator` over a Spark session and a folder of segments."""

    def __init__(
        self,
        spark: SparkSession,
        files: SegmentStore,
        schemas: Schemas,
        prepared: PreparedSteps | None = None,
        *,
        counted: bool = False,  # rows that executors write: on another machine they may be lost
        deadlines: Deadlines | None = None,  # of all jobs of this session
    ) -> None:
        self._spark, self._files, self._schemas = spark, files, schemas
        self._prepared, self._counted = prepared, counted
        jobs = TaggedJobs(spark) if is_connect(spark) else spark.sparkContext
        self._deadlines = deadlines or Deadlines(jobs)
        self._bounds = RuleBounds(files.read)

    # -- steps ----------------------------------------------------------------------------------

    def evaluate(self, job: TrainStep) -> StepResult:
        if job.steps[0].operator.sides:
            steps = tuple(replace(step, bounds=self._bounds.of(step)) for step in job.steps)
            job = replace(job, steps=steps)
        with self._deadlines.within(job.seconds_max):
            computed = None if self._prepared is None else self._prepared.compute(job)
            if computed is not None:
                return self._written(job, computed)
            return self._together(job) if job.members else self._alone(job)

    def _written(self, job: TrainStep, computed: Computed) -> StepResult:
        """The result of a small step."""
        faults.reach("step.evaluated")
        written: dict[str, Sequence[Written]] = {}
        if computed.table is not None and job.members:
            found = self._files.write_wide(computed.table, computed.places)
            written = {s: [w] if w.rows else [] for s, w in found.items()}
        elif computed.table is not None:
            one = self._files.write(computed.table)
            written = {job.steps[0].operator.id: [one] if one.rows else []}
        marks = {s.operator.id: computed.watermark for s in job.steps}
        if not computed.places:
            return StepResult(written, marks)
        return StepResult(written, marks, places=computed.places)

    def _alone(self, job: TrainStep) -> StepResult:
        reader = self._reader(job)
        (step,) = job.steps
        name = step.operator.id
        answer = LOGIC[step.operator.kind].evaluate(Step.of(step, reader.frame))
        faults.reach("step.evaluated")
        collect, written = job.collect, {}
        for output in answer.outputs:
            written[output.stream], was = self._materialise(output, reader, collect)
            collect = collect and was
        return StepResult(
            written,
            {name: answer.watermark},
            {name: answer.progress},
            tuple(o.stream for o in answer.outputs if o.replaces),
            collected=collect,
        )

    def _together(self, job: TrainStep) -> StepResult:
        reader = self._reader(job)
        steps = [Step.of(step, reader.frame) for step in job.steps]
        answer = evaluate_together(job.members, steps, reader)
        faults.reach("step.evaluated")
        written: Mapping[str, Sequence[Written]] = {}
        collect = job.collect
        if answer.frame is not None:
            written, collect = self._materialise_wide(answer.frame, answer.places, collect)
        return StepResult(written, answer.watermarks, places=answer.places, collected=collect)

    def try_out(self, job: TrainStep) -> None:
        if self._prepared is not None and self._prepared.compute(job) is not None:
            return
        (step,) = job.steps
        reader = self._reader(job)
        for output in LOGIC[step.operator.kind].evaluate(Step.of(step, reader.frame)).outputs:
            if job.collect:
                output.data.toArrow()  # as a step of this size does
            else:
                output.data.write.format("noop").mode("overwrite").save()

    def data_error(self, error: Exception) -> str | None:
        return data_error(error)

    def _reader(self, job: TrainStep | StreamRows) -> SegmentReader:
        columns = job.columns if isinstance(job, TrainStep) else {job.stream: job.columns}
        return SegmentReader(self._spark, self._schemas, columns, job.layouts, self._files.path)

    # -- results --------------------------------------------------------------------------------

    def _materialise(
        self, output: Output, reader: SegmentReader, collect: bool
    ) -> tuple[list[Written], bool]:
        """Collects a small result and writes it here; lets the executors write a large one."""
        if collect:
            table = collected(with_nullable_parts(output.data, reader.schema(output.stream)))
            if table is not None:
                written = self._files.write(table)
                return ([written] if written.rows else []), True
        return self._files.adopt_spark_output(self._by_executors(output.data)), False

    def _materialise_wide(
        self, frame: Frame, places: Mapping[str, Place], collect: bool
    ) -> tuple[Mapping[str, Sequence[Written]], bool]:
        """The same for rows of several operators in one file."""
        if collect:
            table = collected(with_nullable_parts(frame.data, frame.data.schema))
            if table is not None:
                found = self._files.write_wide(table, places)
                return {s: [w] if w.rows else [] for s, w in found.items()}, True
        return self._files.adopt_wide(self._by_executors(frame.data), places), False

    def _by_executors(self, data: DataFrame, records_of_a_file: int = RECORDS_OF_A_FILE) -> str:
        """The folder into which they have written."""
        folder = self._files.path(f"{self._files.new_name()}.writing")
        with all_written(data, folder) if self._counted else nullcontext(data) as rows:
            write_parquet(rows, folder, compression="zstd", maxRecordsPerFile=records_of_a_file)
        return folder

    # -- streams as a whole ---------------------------------------------------------------------

    def merge(self, rows: StreamRows, *, changes: bool) -> Written:
        frame = self._reader(rows).frame(rows.stream, rows.segments)
        if changes:
            frame = present(frame)
        ordered = frame.data.coalesce(1).sortWithinPartitions("_ts")
        parts = self._files.adopt_spark_output(self._by_executors(ordered, 0))
        begin = rows.segments[0].ts_min
        return parts[0] if parts else Written(None, None, 0, 0, begin, begin, begin)

    def table(self, rows: StreamRows, staging: Path, *, collect: bool) -> Iterator[pa.Table]:
        data = present_table(self._reader(rows).frame(rows.stream, rows.segments))
        whole = collected(data) if collect else None
        if whole is not None:
            return iter([whole])
        write_parquet(data, staging)
        return _taken_from(staging)

    def nothing(self, columns: str) -> pa.Table:
        reader = SegmentReader(self._spark, self._schemas, {"": columns})
        return reader.frame("", []).data.toArrow()


def _taken_from(staging: Path) -> Iterator[pa.Table]:
    yield from parquet_pieces(staging)
    shutil.rmtree(staging, ignore_errors=True)


def with_nullable_parts(data: DataFrame, schema: StructType) -> DataFrame:
    """Spark's Arrow conversion refuses a null struct whose parts are declared non-null."""
    if any(isinstance(f.dataType, StructType | ArrayType | MapType) for f in schema.fields):
        return data.to(nullable(schema))
    return data
