"""What the binder asks of Spark: the types of expressions, and whether they may be repeated.

The binder never imports Spark; `spark/analyzer.py` answers with Spark's own analyser.
"""

from collections.abc import Sequence
from typing import Protocol

from millstream.core.errors import UsageError
from millstream.language.plan.schema import Schema


class AnalysisFailure(Exception):  # noqa: N818  (a verdict, not a fault)
    """The expression at `index` is not acceptable; `message` is one sentence for people."""

    def __init__(self, index: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.index, self.message, self.hint = index, message, hint


class UnansweredError(UsageError):
    """Spark did not come to an end with an expression: it computes constants while it reads."""


class Analyzer(Protocol):
    """Types of Spark SQL expressions over columns c0, c1, ... and the time `_ts BIGINT`."""

    def analyse(
        self, columns: Schema, expressions: Sequence[str], *, aggregates: bool = False
    ) -> tuple[str, ...]:
        """The type of each; raises AnalysisFailure for the first that is not acceptable.

        `aggregates`: the expressions are calls of aggregates, else none may be.
        """
        ...

    def computable(self, constant: str) -> bool:
        """Whether Spark can compute an expression of constants."""
        ...

    def read_as_times(self, columns: Schema, expression: str) -> frozenset[int] | None:
        """Which columns Spark casts to timestamps by itself; None where it refuses the whole."""
        ...

    def reads_texts_as_times(self, columns: Schema, expression: str) -> bool:
        """Whether Spark casts a text to a timestamp anywhere, except a `dated` one."""
        ...
