"""One Spark session for the process, set for many small steps.

Settings are measured, not guessed (docs/design/0002-engine.md). A user's own settings win.
"""

import logging
import os
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.conversion import SparkConversionMixin
from pyspark.sql.types import _parse_datatype_string

from millstream.core.errors import UsageError
from millstream.spark.connect import sessions as connect

JAVA_HINT = (
    "install Java 17 (Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17), or set JAVA_HOME to one"
)
JAVA_LEAST = 17
OWN_OPTIONS = "MILLSTREAM_JAVA_OPTIONS"  # of the environment: more options for the Java process
# a shared job's generated methods are long: HotSpot leaves those to its interpreter, and its
# default cache of compiled code is too small for thousands of them
COMPILE_ALL = "-XX:-DontCompileHugeMethods -XX:ReservedCodeCacheSize=512m"
# an XML text that names files and addresses: nobody opens them (`xpath` would)
XML_ALONE = {"javax.xml.accessExternalDTD": "", "javax.xml.accessExternalSchema": ""}


_made: "list[weakref.ref[SparkContext]]" = []  # the contexts that this module has started

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
COPIES = 16  # of a heap, what is collected at once: it lies there five times on its way to us
COLLECTED_MB_MOST = 256


def collected_max(heap: str) -> str:
    """How much a job may hand to the driver; whoever collects more lets the executors write it.

    A task's result is in the heap as Arrow, serialised, as it arrives, in one piece, and again as
    bytes. Where that does not fit the Java process ends, and with it everything under way.

    >>> collected_max("1g"), collected_max("512m"), collected_max("16g"), collected_max("1048576k")
    ('64m', '32m', '256m', '64m')
    """
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", heap.lower())
    if match is None:
        return f"{COLLECTED_MB_MOST}m"  # Spark says what is wrong with it
    megabytes = int(match[1]) * {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1 << 20}[match[2]]
    return f"{max(8, min(COLLECTED_MB_MOST, int(megabytes / COPIES)))}m"


def require_java() -> None:
    """Says in one line what to install where Java is missing; Spark itself would print pages."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        raise UsageError("Spark needs Java, and none was found", hint=JAVA_HINT)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = answer.stderr.partition('"')[2].partition('"')[0]
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < JAVA_LEAST:
        raise UsageError(
            f"Spark needs Java {JAVA_LEAST}, found {version or 'none'}", hint=JAVA_HINT
        )


@contextmanager
def _output_to(log: Path | None) -> Iterator[None]:
    """What a process started meanwhile prints goes to a file for as long as it lives.

    Spark's Java process inherits our standard output and error when it is launched, and would
    print its warnings, and much at its end, into the user's terminal.
    """
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for number, _ in kept:
            os.dup2(target, number)
        yield
    finally:
        for number, own in kept:
            os.dup2(own, number)
            os.close(own)
        os.close(target)


def sql_settings(cores: int) -> dict[str, str]:
    """What a session of ours is set to: results depend on some of it, speed on the rest."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.enableVectorizedReader": "true",
        # INT96, the default, reads back as nanoseconds, which end in the year 2262
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.caseSensitive": "true",
        # '${env:HOME}' in a query is a text, not a secret of this process
        "spark.sql.variable.substitute": "false",
        # Spark 4.3 breaks plans with a window over a union of one table with itself in this rule
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases"
        ),
        # else `b = 0 OR a / b > 2 OR a / b < 1` divides before it looks at b, alone but not shared
        "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        # what Spark keeps and writes down of each of many thousand small jobs
        "spark.sql.lightweightPlanChangeValidation": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "512",
    }


def _stays_here(master: str) -> bool:
    """Whether no executor is on another machine: then nobody else needs to reach the driver.

    >>> [_stays_here(m) for m in ("local[*]", "local-cluster[2,1,512]", "spark://127.0.0.1:7077")]
    [True, True, True]
    >>> [_stays_here(m) for m in ("spark://mill:7077", "yarn", "k8s://https://api:6443")]
    [False, False, False]
    """
    return re.match(r"local\b|spark://(127\.0\.0\.1|localhost)(:\d+)?$", master) is not None


def session(
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    *,
    log: Path | None = None,
) -> SparkSession:
    """The process's session, made on first use; `log` takes what Spark itself prints."""
    if remote := connect.remote_of(master):
        return connect.connected(remote, {**sql_settings(os.cpu_count() or 2), **(settings or {})})
    require_java()
    if _stays_here(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # functions of users run in this very Python; Spark would take the first on the path
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    closed = " ".join(f"-D{name}={value}" for name, value in XML_ALONE.items())
    chosen = {
        **(LOOPBACK if _stays_here(master) else {}),
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        **sql_settings(os.cpu_count() or 2),
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "50",
        "spark.driver.extraJavaOptions": f"{COMPILE_ALL} {os.environ.get(OWN_OPTIONS, '')}".strip(),
        "spark.executor.extraJavaOptions": f"{COMPILE_ALL} {closed}",
        "spark.log.level": "FATAL",  # what fails is told by us, not by pages of Java stacks
        **(settings or {}),
    }
    if master == "local" or master.startswith("local["):  # Spark makes the secret itself
        chosen.setdefault("spark.authenticate", "true")
    chosen.setdefault("spark.driver.maxResultSize", collected_max(chosen["spark.driver.memory"]))
    builder = SparkSession.builder.master(master).appName("millstream")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    # where Java has ended, the bridge to it logs every call that meets that, with its stack
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    with _output_to(log):
        made = builder.getOrCreate()
    java: Any = made.sparkContext._jvm
    for name, value in XML_ALONE.items():  # also where a user has options of Java's of their own
        java.java.lang.System.setProperty(name, value)
    _made.append(weakref.ref(made.sparkContext))
    return made


def running() -> SparkSession | None:
    """The session that runs in this process, if any, whichever thread started it."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.builder.getOrCreate()


def is_ours(spark: SparkSession) -> bool:
    """Whether `session` has started this Spark, with our settings; else it is the user's."""
    own = getattr(spark, "_sc", None)
    return own is not None and any(context() is own for context in _made)


def beside(spark: SparkSession) -> SparkSession:
    """Another session with the same settings and functions; what is set in it stays in it."""
    if connect.is_connect(spark):
        return connect.beside(spark)
    java: Any = spark._jsparkSession
    return known_to_python(spark, java.cloneSession())


def known_to_python(spark: SparkSession, java: Any) -> SparkSession:
    """A session that Java has made beside `spark`."""
    frames: Any = RDD
    patched = frames.toDF
    made = SparkSession(spark.sparkContext, java)
    frames.toDF = patched  # PySpark binds it to the newest session; the user's code means another
    return made


def frame_of(spark: SparkSession, rows: Any, schema: str = "") -> DataFrame:
    """A frame of an Arrow table, or of a list of rows.

    `createDataFrame` also makes `spark` the active session of the whole process, which may have a
    user with another one.
    """
    whole: Any = spark
    if connect.is_connect(spark):
        return cast(DataFrame, whole.createDataFrame(rows, schema or None))
    if not schema:
        return SparkConversionMixin.createDataFrame(whole, rows)
    return cast(
        DataFrame, whole._create_dataframe(rows, _parse_datatype_string(schema), None, True)
    )
