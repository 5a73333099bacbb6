"""Queries and declarations through Spark's analyser: what they mean, and which columns they have.

Nothing runs here: Spark analyses expressions and plans over inputs without rows.
"""

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StructField,
    StructType,
    _parse_datatype_string,
)

from millstream.engine.ports import CompiledQuery, Input, MadeStream
from millstream.engine.ports import Step as PlannedStep
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.binding.joins.products import crosses, unasked_product
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.parsing.parser import SelectStatement, parse_query
from millstream.language.plan.nodes import Plan
from millstream.language.plan.rewrite import read_by, starting_at
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.dataflow import Operator, compile_plan, result_stream
from millstream.language.share.shapes import shape_of
from millstream.spark.analyzer import SparkAnalyzer
from millstream.spark.connect.sessions import TaggedJobs, is_connect
from millstream.spark.deadlines import Deadlines
from millstream.spark.operators import LOGIC
from millstream.spark.operators.base import Step
from millstream.spark.reading import Schemas, SegmentReader
from millstream.store.segments import Segment

SHAPES_KEPT_MAX = 10_000
PLANS_KEPT_MAX = 10_000


class SparkCompiler:
    """`engine.ports.Compiler` over a Spark session. Engines in several threads may share it."""

    def __init__(
        self,
        spark: SparkSession,
        on_functions: Callable[[], None] = lambda: None,
        java: "subprocess.Popen[bytes] | None" = None,  # which is ended where it does not answer
    ) -> None:
        self._spark, self._on_functions = spark, on_functions
        jobs = TaggedJobs(spark) if is_connect(spark) else spark.sparkContext
        self._deadlines = Deadlines(jobs, java)
        self.analyzer = SparkAnalyzer(spark, self._deadlines.answering)
        self._schemas = Schemas()
        self._lock = threading.RLock()  # what is known of types is forgotten between two questions
        self._catalog: Catalog | None = None  # with which the plans were bound
        self._plans: dict[str, tuple[SelectStatement, Plan]] = {}  # by text, over all rows
        self._made: dict[tuple[str, ...], tuple[MadeStream, ...]] = {}

    def compile(self, cql: str, catalog: Catalog, start: int, reader: str = "") -> CompiledQuery:
        with self._lock:
            statement, whole = self._whole(cql, catalog)
        plan = replace(whole, root=starting_at(whole.root, start))
        if reader:
            plan = replace(plan, root=read_by(plan.root, reader))
        refusal, crossed = unasked_product(statement, plan), crosses(statement)
        return CompiledQuery(plan, compile_plan(plan), result_stream(plan), refusal, crossed)

    def _whole(self, cql: str, catalog: Catalog) -> tuple[SelectStatement, Plan]:
        """A query over all rows. A text is read once: its start is known only afterwards."""
        if self._catalog is not catalog or len(self._plans) > PLANS_KEPT_MAX:
            self._catalog, self._plans = catalog, {}
        if cql not in self._plans:
            statement = parse_query(cql)
            self._plans[cql] = (statement, bind(statement, catalog, self.analyzer))
        return self._plans[cql]

    def functions_changed(self) -> None:
        with self._lock:
            self._plans.clear()
            self.analyzer.forget()
        self._on_functions()

    def check(self, definition: StreamDefinition) -> None:
        self.analyzer.check_time(definition)

    def columns(self, definition: StreamDefinition) -> str:
        fields = [StructField("_ts", LongType()), StructField("_pos", LongType())]
        for index, column in enumerate(definition.columns):
            fields.append(StructField(f"c{index}", _parse_datatype_string(column.type)))
        return str(StructType(fields).json())

    def made(self, operator: Operator, inputs: Mapping[str, str]) -> Sequence[MadeStream]:
        """An operator of each shape is evaluated once over inputs without rows: Spark analyses it,
        nothing runs, and the columns of its streams are known from then on."""
        key = (shape_of(operator), *(inputs[s] for s in operator.inputs))
        with self._lock:
            if key not in self._made:
                if len(self._made) > SHAPES_KEPT_MAX:
                    self._made.clear()
                with self._deadlines.answering():
                    self._made[key] = tuple(self._evaluated(operator, inputs))
            return self._made[key]

    def _evaluated(self, operator: Operator, columns: Mapping[str, str]) -> list[MadeStream]:
        inputs = {s: Input(s, (), (_without_rows(s),), BEGINNING, FOREVER) for s in operator.inputs}
        reader = SegmentReader(self._spark, self._schemas, columns)
        step = Step.of(PlannedStep(operator, inputs, {}, {}, (), 0), reader.frame)
        return [
            MadeStream(
                output.stream.removeprefix(operator.id),
                "state" if output.replaces else operator.kind,
                nullable(output.data.schema).json(),
            )
            for output in LOGIC[operator.kind].evaluate(step).outputs
        ]


def nullable(kind: Any) -> Any:
    """A type in which every part may be null, as it may be in Parquet."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, nullable(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType))
    return kind


def _without_rows(stream: str) -> Segment:
    """A segment that says it has a row and has no file: operators take it for news."""
    return Segment(stream, 1, 1, None, None, 1, 0, 0, 0, 0, FOREVER, 0.0)
