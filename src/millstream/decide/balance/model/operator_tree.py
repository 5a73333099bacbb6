"""The plain model of a query that balancing works on: a tree of operators over streams.

It holds what a decision needs (cost, selectivity, window, who reads whom) and derives rates from
the rates of the streams. Selectivity here is output per input row, as in the seed's section 2.2; a
join reads the rows of both inputs. It never holds expressions or schemas: those stay with the
engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.core.errors import UsageError
from millstream.core.operator_graph import OperatorGraph

MAX_INPUTS = 2


@dataclass(frozen=True, slots=True)
class Operator:
    """One logical operator.

    Operators with the same `physical` name are one physical operator where they run on one node; an
    empty name means that nothing is shared.
    """

    id: str
    inputs: tuple[str, ...]  # ids of operators of this query, or of streams
    cost_s: float  # CPU seconds an input row
    selectivity: float  # output rows an input row
    window_s: float = 0.0  # how long rows stay in its state
    physical: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.inputs) <= MAX_INPUTS:
            raise UsageError(
                f"operator {self.id!r} has {len(self.inputs)} inputs",
                hint="an operator reads one or two inputs; write a wider join as several",
            )
        if self.cost_s < 0 or self.selectivity < 0 or self.window_s < 0:
            raise UsageError(f"operator {self.id!r} has a negative cost, selectivity or window")

    @property
    def unary(self) -> bool:
        return len(self.inputs) == 1


class QueryTree(OperatorGraph[Operator]):
    """A query: operators whose inputs are each other or streams; exactly one feeds no other.

    >>> tree = QueryTree("q", (Operator("f", ("s",), 2e-5, 0.5), Operator("g", ("f",), 2e-5, 0.8)))
    >>> tree.root, tree.streams
    ('g', ('s',))
    """

    def __init__(self, query: str, operators: tuple[Operator, ...]) -> None:
        self.id = query
        if not operators:
            raise UsageError(f"query {query!r} has no operator")
        if len({operator.id for operator in operators}) != len(operators):
            raise UsageError(f"query {query!r} names an operator twice")
        super().__init__(operators)
        read = [name for operator in self for name in operator.inputs if name in self.by_id]
        if len(set(read)) != len(read):
            raise UsageError(f"query {query!r} is not a tree: an operator feeds two others")
        if self.circle or len(self.roots) != 1:
            raise UsageError(f"query {query!r} is not a tree: it has a cycle or several results")

    @property
    def root(self) -> str:
        return self.roots[0]

    def output_rates(self, stream_rates: Mapping[str, float]) -> dict[str, float]:
        """Rows a second that each operator gives, and each stream it reads.

        >>> tree = QueryTree("q", (Operator("j", ("s", "t"), 8e-5, 0.5),))
        >>> tree.output_rates({"s": 100.0, "t": 50.0})["j"]
        75.0
        """
        return self.rates(stream_rates, lambda operator: operator.selectivity)
