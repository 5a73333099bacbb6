"""Sessions of a Spark Connect server: ours beside a user's, with our settings, and their jobs.

Connect shows neither Spark's context nor its Java process. What the engine needs of them is asked
in the ways that Connect has: jobs are cut off by a tag, plans are read as `EXPLAIN` prints them.
"""

import atexit
import os
import socket
import weakref
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.core.errors import ResourceError, UsageError
from millstream.core.extras import told_where_missing
from millstream.store.machine_failures import first_line

SCHEME = "sc://"
PORT = 15002  # Spark's default
ANSWERS_S = 10.0
# whole plans are read as text; and rules that take a frame without rows for nothing would leave
# none of it to read
READ_AS_TEXT = {
    "spark.sql.debug.maxToStringFields": "10000",
    "spark.sql.maxPlanStringLength": str(1 << 24),
}
OF_EMPTY_FRAMES = (
    "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation",
)
RULES = "spark.sql.optimizer.excludedRules"


_made: "weakref.WeakSet[Any]" = weakref.WeakSet()  # sessions of ours that may be open


@atexit.register
def _close_all() -> None:
    """While threads still run: a client that is closed after them waits for ever."""
    for spark in list(_made):
        spark.stop()


def is_connect(spark: Any) -> bool:
    """Whether a session is one of Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def remote_of(master: str) -> str:
    """The address of the server that is meant, if one is: named, or by the environment.

    >>> remote_of("sc://mill:15002"), remote_of("local[2]")
    ('sc://mill:15002', '')
    """
    if master.startswith(SCHEME):
        return master
    return os.environ.get("SPARK_REMOTE", "")


def connected(url: str, settings: Mapping[str, str]) -> SparkSession:
    """A session of ours at a server."""
    with told_where_missing():
        import grpc  # noqa: F401, PLC0415  (the extra `connect` brings it)
    builder: Any = SparkSession.builder
    try:
        _reach(url)
        made = _ours(builder.remote(url).create())
        set_up(made, settings)
    except (PySparkException, OSError) as error:
        raise ResourceError(
            f"no Spark Connect server answers at {url}",
            detail=first_line(error),
            hint="start one (start-connect-server.sh of Spark), or name a master instead",
        ) from None
    return made


def _reach(url: str) -> None:
    """Raises at once where nobody listens: Spark's client would try again for minutes."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname or "", at.port or PORT), ANSWERS_S):
        return


def set_up(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Settings of the session; those of the whole server are its owner's and stay."""
    for key, value in {**settings, **READ_AS_TEXT}.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)


def beside(spark: SparkSession) -> SparkSession:
    """Another session with the same settings and functions; what is set in it stays in it."""
    clone = getattr(spark, "cloneSession", None)
    if clone is None:
        raise UsageError(
            f"this client of Spark Connect is too old: {spark.version}",
            hint="pip install 'pyspark[connect]>=4.3,<4.4'",
        )
    return _ours(clone())


def new(spark: SparkSession) -> SparkSession:
    """Another session of the same server, which has nothing of this one."""
    client: Any = spark
    return _ours(client.newSession())


def _ours(spark: Any) -> SparkSession:
    _made.add(spark)
    return cast(SparkSession, spark)


def for_reading_plans(spark: SparkSession) -> SparkSession:
    """A session beside, in which the plan of a frame without rows still says what it does."""
    own = beside(spark)
    left_out = [rule for rule in (own.conf.get(RULES, "") or "").split(",") if rule]
    own.conf.set(RULES, ",".join([*left_out, *OF_EMPTY_FRAMES]))
    return own


def parallelism(spark: SparkSession) -> int:
    """How many tasks the server runs at once, by how it divides rows of its own."""
    parts = spark.range(1024).selectExpr("spark_partition_id() AS part").distinct().count()
    return max(1, int(parts))


class TaggedJobs:
    """What deadlines need of a context: jobs of a thread with a name, and their end by it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark

    def setJobGroup(self, group: str, *_: Any) -> None:  # noqa: N802  (as a context calls it)
        self._spark.addTag(group)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self._spark.interruptTag(group)
