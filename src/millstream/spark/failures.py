"""Tells a query's own mistake on its data from trouble with the machine."""

import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, PySparkException

from millstream.core.errors import ResourceError
from millstream.store.machine_failures import shortened

# SQLSTATE classes of what a query does with its rows: data exceptions, a key twice in a map, a
# user's function, a list too long, an error raised by name. Others are the machine's: files (58,
# KD), memory (53), Spark itself (XX).
DATA_STATES = ("22", "23", "38", "54", "P0")
FORMAT_STATE = "42"  # a wrong pattern or format, where rows meet it; in an analysis, a wrong plan
CONDITION = re.compile(
    r"\[[A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] (.*?)(?: *SQLSTATE: (\w+)|\n\tat |\Z)", re.DOTALL
)
# What the Java library throws at expressions that use it wrongly ...
THROWN_BY_VALUES = re.compile(
    r"java\.(?:util|text|time)\.(?!concurrent)[\w.$]+|com\.fasterxml\.jackson\.[\w.$]+"
    r"|java\.lang\.(?:IllegalArgument|NumberFormat|Arithmetic|NegativeArraySize|\w*OutOfBounds)"
    r"Exception|org\.apache\.spark\.Spark\w+Exception"
)
# ... where the code that called the library is that of expressions, not of files or the network.
LIBRARIES = ("java.", "jdk.", "scala.", "com.fasterxml.jackson.", "org.apache.spark.sql.errors.")
EXPRESSIONS = ("org.apache.spark.sql.catalyst.", "org.apache.spark.unsafe.types.")


JAVA_ENDS_S = 1.0  # a lost connection is seen a moment before the process is gone


class JavaGoneError(ResourceError):
    """Spark's Java process has ended: nothing more can be done in this process."""


def java_process(spark: Any) -> "subprocess.Popen[bytes] | None":
    """Spark's Java process, where it is a child of ours."""
    gateway = getattr(getattr(spark, "sparkContext", None), "_gateway", None)
    found: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return found


def stopped(spark: Any) -> bool:
    """Whether somebody has ended this Spark, in a Java process that may live on."""
    context: Any = getattr(spark, "sparkContext", None)
    with suppress(Exception):  # Java may be gone
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    return False


def java_gone(spark: Any) -> JavaGoneError | None:
    """What to say where errors come from the end of Spark or its Java process; else None."""
    process = java_process(spark)
    code: int | None = None
    with suppress(subprocess.TimeoutExpired):
        code = None if process is None else process.wait(JAVA_ENDS_S)
    if code is not None:
        return JavaGoneError(
            "Spark's Java process has ended",
            detail=f"its exit code is {code}",
            hint="it may have run out of memory; run the same command again: nothing is lost",
        )
    if stopped(spark):
        return JavaGoneError(
            "Spark has been stopped",
            hint="start it again, and attach to it: what a home holds continues where it was",
        )
    return None


def data_error(error: Exception) -> str | None:
    """One sentence where the query broke on its data (a cast, a pattern, a function); else None.

    Anything else, such as a full disk or a lost executor, is not the query's fault; nor is a plan
    that Spark refuses as such, which is ours.
    """
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if state:
        planned = isinstance(error, AnalysisException)
        met = state.startswith(DATA_STATES) or (state.startswith(FORMAT_STATE) and not planned)
        return _sentence(str(error)) if met else None
    for thrown in _thrown(getattr(error, "_stackTrace", None) or str(error)):
        told = CONDITION.search(thrown.message)
        if told and told[2]:
            return _sentence(thrown.message) if told[2].startswith(DATA_STATES) else None
        if thrown.by_an_expression():
            return shortened(thrown.sentence())
    return None


def _sentence(text: str) -> str:
    """What Spark says, without its advice."""
    match = CONDITION.search(text)
    if text.startswith("An exception was thrown from the Python worker"):
        return shortened(text.strip().rpartition("\n")[2])  # the last line of a traceback
    lines = (match[1] if match else text).strip().split("\n")
    message = lines[1] if lines[0].endswith(":") and len(lines) > 1 else lines[0]
    return shortened(re.split(r"\. (?:Use|If|To|Correct) ", message)[0].strip().rstrip("."))


@dataclass(frozen=True, slots=True)
class _Thrown:
    """One Java exception of a chain of causes."""

    kind: str
    message: str
    frames: tuple[str, ...]

    def by_an_expression(self) -> bool:
        """Whether values met an expression that cannot take them."""
        caller = next((f for f in self.frames if not f.startswith(LIBRARIES)), "")
        return bool(THROWN_BY_VALUES.fullmatch(self.kind)) and caller.startswith(EXPRESSIONS)

    def sentence(self) -> str:
        """The exception's name and message, as words."""
        message = " ".join(self.message.split())
        if self.kind.startswith("org.apache.spark."):
            return message
        name = self.kind.rpartition(".")[2].rpartition("$")[2].removesuffix("Exception")
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
        return f"{words}: {message}"


def _thrown(trace: str) -> list[_Thrown]:
    """The exceptions of a Java stack trace, from the outermost to its cause.

    >>> _thrown("a.B: no\\n\\tat x.Y.f(1)\\nCaused by: c.D: why\\nso\\n\\tat java.base/z.Z.g(2)")[1]
    _Thrown(kind='c.D', message='why\\nso', frames=('z.Z.g(2)',))
    """
    found = []
    for part in re.split(r"^(?:Caused by)?: ", trace, flags=re.MULTILINE):
        kind, _, rest = part.partition(": ")
        message, *frames = re.split(r"\n\tat (?:[\w.]+/)?", rest)
        frames = [f.split("\n")[0] for f in frames]
        found.append(_Thrown(kind, message, tuple(frames)))
    return found


def read_failure(error: Exception) -> bool:
    """Whether the content of a file broke a job."""
    return "[FAILED_READ_FILE" in str(error) or "[CANNOT_READ" in str(error)


def result_too_large(error: Exception) -> bool:
    """Whether a result was only too large to be collected."""
    return "spark.driver.maxResultSize" in str(error)
