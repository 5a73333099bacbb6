"""What Spark's analyser made of an expression, read from what `EXPLAIN` prints.

Connect hands out no plan, but the text of one, and types of expressions. A cast in the text tells
what it casts to; what it casts from is asked again. Where the text cannot be asked, it counts as a
text that becomes a time: then a query is refused rather than answered by the day of the run.
"""

import re
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.language.cql.times_of_text import becomes_time
from millstream.spark.connect.sessions import for_reading_plans
from millstream.spark.plan_shapes import Shape

NODE = re.compile(r"^[ :]*(?:[+:]- )?([A-Z]\w*)", re.MULTILINE)
NUMBERED = re.compile(r"#\d+L?")  # Spark's numbers of columns
COLUMN = re.compile(r"c(\d+)#\d+L?")


class ExplainedPlans:
    """`plan_shapes.Plans` of a session of Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._own = spark
        self._spark: SparkSession | None = None

    def empty(self, ddl: str) -> DataFrame:
        if self._spark is None:
            self._spark = for_reading_plans(self._own)
        return self._spark.createDataFrame([], ddl)

    def shape(self, selected: DataFrame, frame: DataFrame) -> Shape:
        """Names alone tell what may be repeated: a client does not see what a function is."""
        nodes, own = _nodes(_section(selected, "Analyzed")), _nodes(_section(frame, "Analyzed"))
        between = [node for node in nodes[1 : len(nodes) - len(own)] if node != "Project"]
        return Shape(nodes[0], between[0] if between else "", deterministic=True)

    def optimised(self, selected: DataFrame) -> str:
        return _section(selected, "Optimized")

    def reads_texts(self, selected: DataFrame, frame: DataFrame) -> bool:
        top = _section(selected, "Analyzed").partition("\n+- ")[0]
        return any(self._text(frame, inner, wanted) for inner, wanted in casts(top))

    def _text(self, frame: DataFrame, inner: str, wanted: str) -> bool:
        if inner.startswith("CASE WHEN") and "(no date)" in inner:
            return False
        try:
            kind = frame.selectExpr(f"{NUMBERED.sub('', inner)} AS x").schema[0].dataType
        except PySparkException:
            return True
        return becomes_time(kind.simpleString(), wanted)

    def functions(self) -> list[str]:
        listed = self._own.sql("SHOW FUNCTIONS").toArrow()
        return [name.rpartition(".")[2] for name in listed.column(0).to_pylist()]

    def forget(self) -> None:
        """Functions have changed: the session beside ours does not know them."""
        self._spark = None


def _section(frame: DataFrame, name: str) -> str:
    whole: Any = frame
    text = str(whole._explain_string(extended=True))
    part = text.partition(f"== {name} Logical Plan ==\n")[2].partition("\n\n==")[0]
    # the analysed plan begins with its columns and types
    return part.partition("\n")[2] if name == "Analyzed" else part


def _nodes(plan: str) -> list[str]:
    """The operators of a plan that has one branch.

    >>> _nodes("Project [c0#1 AS x#2]\\n+- Filter false\\n   +- OneRowRelation")
    ['Project', 'Filter', 'OneRowRelation']
    """
    return NODE.findall(plan)


def casts(text: str) -> Iterator[tuple[str, str]]:
    """What is cast, and to which type, for every cast to one with timestamps in it.

    >>> list(casts("upper(cast(c0#1 as timestamp)) + cast(f(a as b) as array<timestamp>)"))
    [('c0#1', 'timestamp'), ('f(a as b)', 'array<timestamp>')]
    """
    for match in re.finditer(r"\bcast\(", text):
        inside = text[match.end() : _closing(text, match.end())]
        inner, _, wanted = inside.rpartition(" as ")
        if "timestamp" in wanted:
            yield inner, wanted


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that is open at `start` is closed."""
    open_ = 1
    for index in range(start, len(text)):
        open_ += {"(": 1, ")": -1}.get(text[index], 0)
        if open_ == 0:
            return index
    return len(text)
