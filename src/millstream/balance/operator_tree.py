"""The plain model of a query that balancing works on: a tree of operators over streams.

It holds what a decision needs (cost, selectivity, window, who reads whom) and derives rates from
the rates of the streams. Selectivity here is output per input row, as in the seed's section 2.2; a
join reads the rows of both inputs. It never holds expressions or schemas: those stay with the
engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.errors import UsageError

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


@dataclass(frozen=True, slots=True)
class QueryTree:
    """A query: operators whose inputs are each other or streams; exactly one feeds no other.

    >>> tree = QueryTree("q", (Operator("f", ("s",), 2e-5, 0.5), Operator("g", ("f",), 2e-5, 0.8)))
    >>> tree.root, tree.streams()
    ('g', ('s',))
    """

    id: str
    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        ids = [operator.id for operator in self.operators]
        if not ids:
            raise UsageError(f"query {self.id!r} has no operator")
        if len(set(ids)) != len(ids):
            raise UsageError(f"query {self.id!r} names an operator twice")
        read = [name for operator in self.operators for name in operator.inputs if name in set(ids)]
        if len(set(read)) != len(read):
            raise UsageError(f"query {self.id!r} is no tree: an operator feeds two others")
        roots = [name for name in ids if name not in read]
        if len(roots) != 1 or len(self.bottom_up()) != len(ids):
            raise UsageError(f"query {self.id!r} is no tree: it has a cycle or several results")

    @property
    def by_id(self) -> dict[str, Operator]:
        return {operator.id: operator for operator in self.operators}

    @property
    def root(self) -> str:
        return self.bottom_up()[-1].id

    def bottom_up(self) -> tuple[Operator, ...]:
        """Operators, each after those it reads; those on a cycle are left out."""
        waiting = list(self.operators)
        own = {operator.id for operator in self.operators}
        ready: dict[str, Operator] = {}
        while waiting:
            later = []
            for operator in waiting:
                if all(name in ready or name not in own for name in operator.inputs):
                    ready[operator.id] = operator
                else:
                    later.append(operator)
            if len(later) == len(waiting):
                break
            waiting = later
        return tuple(ready.values())

    def streams(self) -> tuple[str, ...]:
        """Streams read, each once, in the order of the operators."""
        own = {operator.id for operator in self.operators}
        names = (name for op in self.operators for name in op.inputs if name not in own)
        return tuple(dict.fromkeys(names))

    def output_rates(self, stream_rates: Mapping[str, float]) -> dict[str, float]:
        """Rows a second that each operator gives, and each stream it reads.

        >>> tree = QueryTree("q", (Operator("j", ("s", "t"), 8e-5, 0.5),))
        >>> tree.output_rates({"s": 100.0, "t": 50.0})["j"]
        75.0
        """
        rates = {name: float(stream_rates[name]) for name in self.streams()}
        for operator in self.bottom_up():
            rates[operator.id] = operator.selectivity * sum(rates[i] for i in operator.inputs)
        return rates
