"""Tells a query's own mistake on its data from trouble with the machine."""

import errno
import re
import subprocess
from typing import Any

from pyspark.errors import PySparkException

from millstream.errors import ResourceError

VALUE_MAX, MESSAGE_MAX = 120, 600  # characters of a message that people read
DATA_STATES = ("22",)  # SQLSTATE class 22: data exceptions


JAVA_ENDS_S = 1.0  # a lost connection is seen a moment before the process is gone


class JavaGoneError(ResourceError):
    """Spark's Java process has ended: nothing more can be done in this process."""


def java_process(spark: Any) -> "subprocess.Popen[bytes] | None":
    """Spark's Java process, where it is a child of ours."""
    gateway = getattr(getattr(spark, "sparkContext", None), "_gateway", None)
    found: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return found


def java_gone(spark: Any) -> JavaGoneError | None:
    """What to say where errors come from the end of Spark's Java process; else None."""
    process = java_process(spark)
    if process is None:
        return None
    try:
        code = process.wait(JAVA_ENDS_S)
    except subprocess.TimeoutExpired:
        return None
    return JavaGoneError(
        "Spark's Java process has ended",
        detail=f"its exit code is {code}",
        hint="it may have run out of memory; run the same command again: nothing is lost",
    )


def data_error(error: Exception) -> str | None:
    """One sentence where the data broke an expression (a cast, a division); else None.

    Anything else, such as a full disk or a lost executor, is not the query's fault.
    """
    text = str(error)
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    match = re.search(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] (.*?)(?: SQLSTATE: (\w+)|\n|$)", text)
    found = state or (match[3] if match else None)
    if not found or not str(found).startswith(DATA_STATES):
        return None
    message = match[2] if match else text.split("\n", maxsplit=1)[0]
    return shortened(re.split(r"\. (?:Use|If|To|Correct) ", message)[0].strip())


def shortened(message: str) -> str:
    """A message whose quoted values are cut: rows of a megabyte are no news.

    >>> shortened("The value '" + "x" * 1000 + "' is malformed")[100:]
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' is malformed"
    """
    long_value = rf"'([^']{{{VALUE_MAX}}})[^']*'"
    cut = re.sub(long_value, r"'\1...'", message)
    return cut if len(cut) <= MESSAGE_MAX else f"{cut[:MESSAGE_MAX]}..."


def first_line(error: BaseException) -> str:
    """What Spark has to say in one line: the innermost cause, else its own message.

    >>> first_line(ValueError("[A.B] Bad.  SQLSTATE: 42\\n at x\\nCaused by: java.io.E: why\\n"))
    'why'
    >>> first_line(ValueError("An error occurred while calling o1.f.\\n: java.lang.E: heap\\n"))
    'java.lang.E: heap'
    """
    text = str(error)
    causes = re.findall(r"^Caused by: [\w.$]+: (.+)$", text, re.MULTILINE)
    if causes:
        return str(causes[-1]).strip()[:300]
    match = re.search(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] (.*?)\s*(?:SQLSTATE: \w+|\n|$)", text)
    match = match or re.match(r"An error occurred while calling .*\n: (.+)", text)
    return (match[1] if match else text.strip().split("\n")[0])[:300]


def read_failure(error: Exception) -> bool:
    """Whether the content of a file broke a job."""
    return "[FAILED_READ_FILE" in str(error) or "[CANNOT_READ" in str(error)


def result_too_large(error: Exception) -> bool:
    """Whether a result was only too large to be collected."""
    return "spark.driver.maxResultSize" in str(error)


def disk_full(error: BaseException) -> ResourceError | None:
    """The error to raise instead where a disk is full, however the machine says so."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not full and "No space left on device" not in str(error):
        return None
    return ResourceError(
        "the disk is full",
        detail=str(error) if full else "Spark could not write",
        hint="free some space and run the same command again: nothing is lost",
    )
