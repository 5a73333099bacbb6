"""Millstream in a Spark that somebody else started: a session of our own beside the user's.

Ours shares the user's context, executors and catalogs, and nothing else: it has the settings that
our own Spark would have, so that results do not depend on the surroundings. Spark also asks the
session that is active in a thread, so that ours is active there while we work, and the user's again
when we return. The user's session is never set, never replaced and never stopped.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import GeneratorType
from typing import Any, cast

from pyspark.sql import SparkSession

from millstream.core.errors import UsageError
from millstream.engine.ports import (
    Compiler,
    DataPlane,
    Evaluator,
    FileParser,
    LiveSource,
    RowParser,
    SourceSetting,
)
from millstream.language.cql.catalog import StreamDefinition
from millstream.spark.connect.plane import ConnectPlane
from millstream.spark.connect.sessions import is_connect, new, parallelism, set_up
from millstream.spark.failures import stopped
from millstream.spark.plane import SparkMachine, SparkPlane
from millstream.spark.session import known_to_python, sql_settings
from millstream.store.arrivals.appending import Appender
from millstream.store.segments import SegmentStore

KEPT = ("spark.sql.catalog.", "spark.sql.catalogImplementation", "spark.sql.warehouse.dir")
PARTITIONS_MAX = 200  # of an exchange, however large the user's cluster is
# of each plan that is cut Spark warns, which the user's log shows and ours does not
QUIETLY = {"spark.sql.maxPlanStringLength": "8192"}


def attached_session(spark: SparkSession) -> SparkSession:
    """A session of ours in the user's Spark."""
    _require_running(spark)
    if is_connect(spark):
        beside = new(spark)
        set_up(beside, sql_settings(max(2, min(PARTITIONS_MAX, parallelism(spark)))))
        return beside
    java: Any = spark._jsparkSession
    own = known_to_python(spark, java.newSession())
    for key in own.conf.getAll:  # what the user has set for the whole Spark
        if key.startswith("spark.sql.") and not key.startswith(KEPT) and own.conf.isModifiable(key):
            own.conf.unset(key)
    cores = max(2, min(PARTITIONS_MAX, spark.sparkContext.defaultParallelism))
    for key, value in {**sql_settings(cores), **QUIETLY}.items():
        if own.conf.isModifiable(key):
            own.conf.set(key, value)
    return own


def _require_running(spark: Any) -> None:
    """Refuses what is no session, and one that was stopped: Spark would tell of it in pages."""
    if is_connect(spark):
        over = bool(getattr(spark, "is_stopped", False))
    elif isinstance(spark, SparkSession):
        over = stopped(spark)
    else:
        raise UsageError(
            f"attach takes a session of Spark, not {type(spark).__name__}",
            hint="in notebooks it is called spark; millstream.Session() starts one of its own",
        )
    if over:
        raise UsageError(
            "this session of Spark has been stopped",
            hint="take the one that runs: SparkSession.builder.getOrCreate()",
        )


@contextmanager
def inside(spark: SparkSession) -> Iterator[None]:
    """In the block, this thread's calls of Spark happen in a session of ours."""
    if is_connect(spark):  # where frames know their session
        yield
        return
    sessions: Any = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def plane_of(spark: SparkSession, *, attached: bool) -> DataPlane:
    """The data plane of a session of ours; `attached`: in somebody else's Spark."""
    if is_connect(spark):
        return ConnectPlane(spark)
    return AttachedPlane(spark) if attached else SparkPlane(spark)


class AttachedPlane:
    """`engine.ports.DataPlane` in the user's Spark, over a session of ours."""

    files = SegmentStore

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._plane = SparkPlane(spark, foreign=True)
        self.compiler = cast(Compiler, _Inside(self._plane.compiler, spark))
        self.machine = SparkMachine(spark, foreign=True)

    def evaluator(self, files: SegmentStore) -> Evaluator:
        return cast(Evaluator, _Inside(self._plane.evaluator(files), self._spark))

    def file_parser(self, definition: StreamDefinition, kind: str, staging: Path) -> FileParser:
        with inside(self._spark):
            made = self._plane.file_parser(definition, kind, staging)
        return cast(FileParser, _Inside(made, self._spark))

    def row_parser(self, definition: StreamDefinition) -> RowParser:
        with inside(self._spark):
            made = self._plane.row_parser(definition)
        return cast(RowParser, _called_inside(made, self._spark))

    def open_stream(
        self, definition: StreamDefinition, appender: Appender, setting: SourceSetting
    ) -> LiveSource:
        with inside(self._spark):
            made = self._plane.open_stream(definition, appender, setting)
        return cast(LiveSource, _Inside(made, self._spark))


class _Inside:
    """A part of the data plane, each call of which happens in our session."""

    def __init__(self, part: Any, spark: SparkSession) -> None:
        self._part, self._spark = part, spark

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name == "analyzer":
            return _Inside(found, self._spark)
        return _called_inside(found, self._spark) if callable(found) else found


def _called_inside(function: Callable[..., Any], spark: SparkSession) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        with inside(spark):
            answer = function(*arguments, **named)
        return _advanced_inside(answer, spark) if isinstance(answer, GeneratorType) else answer

    return call


def _advanced_inside(pieces: Iterator[Any], spark: SparkSession) -> Iterator[Any]:
    """Between two pieces the thread is the user's."""
    while True:
        with inside(spark):
            try:
                piece = next(pieces)
            except StopIteration:
                return
        yield piece
