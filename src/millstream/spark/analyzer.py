"""Types of expressions and of streams' times, by Spark's own analyser.

Nothing is executed: an empty frame with the columns c0, c1, ... and `_ts` is selected from, and the
analysed plan is asked. What may not be repeated is refused: by Spark's own word, and by a list of
functions that Spark calls deterministic although they depend on when or where they run.
"""

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.analyzer import AnalysisFailure
from millstream.language.cql.binding.streams import guarded_time
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.functions import WHY_UNREPEATABLE
from millstream.language.plan.schema import Schema
from millstream.spark.connect.explained_plans import ExplainedPlans
from millstream.spark.connect.sessions import is_connect
from millstream.spark.frames import spelling
from millstream.spark.plan_shapes import JavaPlans, Plans

FRAMES_KEPT_MAX = 256
ANSWERS_KEPT_MAX = 50_000


def _quiet_loggers() -> None:
    """PySpark logs every failed expression with its stack; ours are told to the user.

    Of PySpark's own class, which takes what it logs, and silenced by level: `disabled` is undone
    by whoever configures logging later, as uvicorn does.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


class SparkAnalyzer:
    """`cql.analyzer.Analyzer` over a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        answering: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`answering` surrounds each question (`deadlines.py`)."""
        self._answering = answering
        self._plans: Plans = ExplainedPlans(spark) if is_connect(spark) else JavaPlans(spark)
        self._frames: dict[tuple[str, ...], DataFrame] = {}
        self._answers: dict[tuple[tuple[str, ...], bool, str], str] = {}
        self._constants: dict[str, bool] = {}
        self._times: dict[tuple[tuple[str, ...], str], frozenset[int] | None] = {}
        _quiet_loggers()

    def analyse(
        self, columns: Schema, expressions: Sequence[str], *, aggregates: bool = False
    ) -> tuple[str, ...]:
        """The type of each expression; all at once, one by one only to find a culprit."""
        key = tuple(f.type for f in columns)
        new = [e for e in dict.fromkeys(expressions) if (key, aggregates, e) not in self._answers]
        if new:
            if len(self._answers) > ANSWERS_KEPT_MAX:
                self._answers.clear()
            with self._answering():
                types = self._types_or_blame(columns, new, expressions, aggregates)
            self._answers.update({(key, aggregates, e): t for e, t in zip(new, types, strict=True)})
        return tuple(self._answers[key, aggregates, e] for e in expressions)

    def _types_or_blame(
        self, columns: Schema, new: Sequence[str], expressions: Sequence[str], aggregates: bool
    ) -> tuple[str, ...]:
        try:
            return self._types(self._frame(tuple(f.type for f in columns)), new, aggregates)
        except (PySparkException, Py4JJavaError, _UnacceptableError):
            self._blame(columns, expressions, aggregates)
            raise

    def computable(self, constant: str) -> bool:
        """Spark's optimiser computes constants, without a job."""
        if constant not in self._constants:
            if len(self._constants) > ANSWERS_KEPT_MAX:
                self._constants.clear()
            try:
                with self._answering():
                    self._plans.optimised(self._frame(()).selectExpr(f"{constant} AS x"))
            except (PySparkException, Py4JJavaError):
                self._constants[constant] = False
            else:
                self._constants[constant] = True
        return self._constants[constant]

    def read_as_times(self, columns: Schema, expression: str) -> frozenset[int] | None:
        """By the optimised plan: there, functions made of others stand as what they are."""
        key = (tuple(f.type for f in columns), expression)
        if key not in self._times:
            if len(self._times) > ANSWERS_KEPT_MAX:
                self._times.clear()
            try:
                with self._answering():
                    selected = self._frame(key[0]).selectExpr(f"{expression} AS x")
                    plan = self._plans.optimised(selected)
            except (PySparkException, Py4JJavaError):
                self._times[key] = None
            else:
                found = re.findall(r"\bcast\(c(\d+)#\d+ as timestamp\)", plan)
                self._times[key] = frozenset(map(int, found))
        return self._times[key]

    def reads_texts_as_times(self, columns: Schema, expression: str) -> bool:
        frame = self._frame(tuple(f.type for f in columns))
        try:
            with self._answering():
                return self._plans.reads_texts(frame.selectExpr(f"{expression} AS x"), frame)
        except (PySparkException, Py4JJavaError):
            return False

    def forget(self) -> None:
        """After a function was registered anew: types may have changed."""
        self._answers.clear()
        self._times.clear()
        self._frames.clear()
        self._plans.forget()

    def check_time(self, definition: StreamDefinition) -> None:
        """Refuses a stream whose time Spark cannot compute, or that is none.

        What a query may not call, a time may not call either: it is refused before Spark sees it.
        """
        with self._answering():
            self._check_time(definition, guarded_time(definition, self))

    def _check_time(self, definition: StreamDefinition, guarded: str) -> None:
        ddl = ", ".join(f"`{f.name.replace('`', '``')}` {f.type}" for f in definition.columns)
        try:
            empty = self._plans.empty(ddl)
            kind = empty.selectExpr(f"({guarded}) AS t").schema[0].dataType
        except (PySparkException, Py4JJavaError) as error:
            raise UsageError(
                f"stream {definition.name}: the time {definition.time!r} cannot be computed",
                detail=str(error).strip().split("\n")[0],
                hint="a column, or an expression over the columns that gives a timestamp",
            ) from None
        self._refuse_texts(definition, empty, guarded)
        if kind.simpleString() not in ("timestamp", "timestamp_ntz", "date", "string"):
            raise UsageError(
                f"stream {definition.name}: the time {definition.time!r} is a "
                f"{kind.simpleString()}, not a timestamp",
                hint=f"timestamp_seconds({definition.time}) or timestamp_millis({definition.time})",
            )

    def _refuse_texts(self, definition: StreamDefinition, empty: DataFrame, guarded: str) -> None:
        """Refuses a time that reads texts where nothing can guard it."""
        time = f"CAST(({guarded}) AS TIMESTAMP)"
        if self._plans.reads_texts(empty.selectExpr(f"{time} AS t"), empty):
            raise UsageError(
                f"stream {definition.name}: the time {definition.time!r} reads a text as a "
                "timestamp in a way that is not known",
                detail="a text with a time of day alone would mean the day of the run",
                hint="write CAST(text AS timestamp), or to_timestamp(text, pattern)",
            )

    def _blame(self, columns: Schema, expressions: Sequence[str], aggregates: bool) -> None:
        frame = self._frame(tuple(f.type for f in columns))
        for index, expression in enumerate(expressions):
            try:
                self._types(frame, [expression], aggregates)
            except PySparkException as failure:
                raise self._told(index, failure, columns) from None
            except Py4JJavaError:  # Spark's own slip: a lambda where none belongs
                raise AnalysisFailure(index, "the expression makes no sense to Spark") from None
            except _UnacceptableError as failure:
                raise AnalysisFailure(index, failure.message, failure.hint) from None

    def _frame(self, key: tuple[str, ...]) -> DataFrame:
        if key not in self._frames:
            if len(self._frames) >= FRAMES_KEPT_MAX:
                self._frames.clear()
            fields = [f"c{i} {type_}" for i, type_ in enumerate(key)]
            schema = ", ".join([*fields, "_ts BIGINT"])
            self._frames[key] = self._plans.empty(schema)
        return self._frames[key]

    def _types(
        self, frame: DataFrame, expressions: Sequence[str], aggregates: bool
    ) -> tuple[str, ...]:
        named = [f"{text} AS x{i}" for i, text in enumerate(expressions)]
        selected = frame.selectExpr(*named)
        shape = self._plans.shape(selected, frame)
        if not shape.deterministic:
            raise _UnacceptableError("the expression is not deterministic", WHY_UNREPEATABLE)
        if shape.operator != ("Aggregate" if aggregates else "Project"):
            raise _unsupported(shape.operator)
        if shape.below:
            raise _unsupported(shape.below)  # Generate, Window, Expand
        return tuple(spelling(field.dataType) for field in selected.schema)

    def _told(self, index: int, failure: PySparkException, columns: Schema) -> AnalysisFailure:
        condition = failure.getCondition() or ""
        message = str(failure)
        if condition.startswith("UNRESOLVED_ROUTINE"):
            name = (failure.getMessageParameters() or {}).get("routineName", "").strip("`")
            near = did_you_mean(name, self._plans.functions())
            return AnalysisFailure(index, f"unknown function {name}{near}")
        return AnalysisFailure(index, sentence(message, columns))


class _UnacceptableError(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def _unsupported(operator: str) -> _UnacceptableError:
    if operator == "Aggregate":
        return _UnacceptableError(
            "this aggregate is not supported",
            "docs/CQL.md lists those that are: count, sum, array_agg, max_by, median and more",
        )
    if operator == "Generate":
        return _UnacceptableError(
            "a function that gives many rows must stand alone", "FROM s, UNNEST(array) AS t(x)"
        )
    return _UnacceptableError(
        "the expression needs more than its own row", "windows stand in brackets after a stream"
    )


def sentence(message: str, columns: Schema) -> str:
    """Spark's message as one sentence over the user's column names.

    >>> from millstream.language.plan.schema import Field
    >>> sentence('[A.B] Cannot resolve "(c0 + 1)" due to x: y. SQLSTATE: 42; line 1 pos 0;\\n...',
    ...          (Field("speed", "string"),))
    'cannot resolve "(speed + 1)" due to x: y'
    """
    text = message.strip().split("\n")[0]
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.split(r"\s*SQLSTATE:", text)[0]
    text = re.split(r"\.\s+(?:To|Please|If|Use|Consider)\b", text)[0]
    text = re.sub(r"\bc(\d+)\b", lambda m: _column(m, columns), text)
    text = text.replace("timestamp_micros(_ts)", "ts").strip().rstrip(".").strip()
    return text[:1].lower() + text[1:]


def _column(match: re.Match[str], columns: Schema) -> str:
    index = int(match[1])
    return columns[index].name if index < len(columns) else match[0]
