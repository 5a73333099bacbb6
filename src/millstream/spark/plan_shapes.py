"""What is asked of plans that Spark has analysed: their shape, and which texts they read as times.

A session in this process shows its plans as Java's objects; one of Connect as text
(`connect/explained_plans.py`).
"""

from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from millstream.language.cql.times_of_text import becomes_time
from millstream.spark.session import frame_of


@dataclass(frozen=True, slots=True)
class Shape:
    """The operator that selects expressions, and one that they put below themselves, if any."""

    operator: str
    below: str
    deterministic: bool


class Plans(Protocol):
    """Of one session. All raise what Spark raises where it refuses a plan."""

    def empty(self, ddl: str) -> DataFrame:
        """A frame without rows."""
        ...

    def shape(self, selected: DataFrame, frame: DataFrame) -> Shape:
        """Of expressions that were selected from a frame."""
        ...

    def optimised(self, selected: DataFrame) -> str:
        """The text of the plan in which constants are computed."""
        ...

    def reads_texts(self, selected: DataFrame, frame: DataFrame) -> bool:
        """Whether a text is cast to a timestamp anywhere, except a guarded one."""
        ...

    def functions(self) -> list[str]:
        """All names that Spark knows, user functions included."""
        ...

    def forget(self) -> None:
        """Functions have changed."""
        ...


class JavaPlans:
    """`Plans` of a session whose Java process is ours to ask. Nothing is executed."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def empty(self, ddl: str) -> DataFrame:
        return frame_of(self._spark, [], ddl)

    def shape(self, selected: DataFrame, frame: DataFrame) -> Shape:
        plan = _analysed(selected)
        own: str = _analysed(frame).nodeName()
        below = plan.children().head()
        while below.nodeName() == "Project" != own:  # a SQL function's parameters
            below = below.children().head()
        between = "" if below.nodeName() == own else str(below.nodeName())
        return Shape(str(plan.nodeName()), between, deterministic=bool(plan.deterministic()))

    def optimised(self, selected: DataFrame) -> str:
        return str(selected._jdf.queryExecution().optimizedPlan().toString())

    def reads_texts(self, selected: DataFrame, frame: DataFrame) -> bool:
        return any(_reads_texts(e) for e in _listed(_analysed(selected).expressions()))

    def functions(self) -> list[str]:
        """By one call and without a job."""
        java: Any = self._spark._jsparkSession
        listed: str = java.sessionState().functionRegistry().listFunction().mkString(",")
        return [name.replace("`", "").rpartition(".")[2] for name in listed.split(",")]

    def forget(self) -> None:
        """The session knows them by itself."""


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _reads_texts(expression: Any) -> bool:
    below = _listed(expression.children())
    if expression.nodeName() == "Cast" and (wanted := expression.dataType().simpleString()):
        guarded = below[0].nodeName() == "CaseWhen" and "(no date)" in below[0].toString()
        if not guarded and becomes_time(below[0].dataType().simpleString(), wanted):
            return True
    return any(_reads_texts(child) for child in below)
