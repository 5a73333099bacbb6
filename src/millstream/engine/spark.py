"""One Spark session for the process, set for many small steps.

Settings are measured, not guessed (docs/design/0002-engine.md). A user's own settings win.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping

from pyspark.sql import SparkSession

from millstream.errors import UsageError

JAVA_HINT = (
    "install Java 17 (Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17), or set JAVA_HOME to one"
)
JAVA_LEAST = 17


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


def session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session, made on first use."""
    require_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 2
    chosen = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.maxResultSize": "256m",
        "spark.sql.parquet.enableVectorizedReader": "true",
        "spark.sql.caseSensitive": "true",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.log.level": "ERROR",
        **(settings or {}),
    }
    builder = SparkSession.builder.master(master).appName("millstream")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
