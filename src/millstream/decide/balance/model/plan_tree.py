"""A bound query as the plain tree that fragments are cut from.

Takes the plan's nodes and, for each, what statistics say of it; gives operators with one or two
inputs. Windows and emission are no operators of their own here: a window's length becomes the state
of the operator above it. A join of many inputs becomes a chain of joins of two, in order. Operators
with one fingerprint are one physical operator where they meet on a node. Estimates nothing itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.decide.balance.model.operator_tree import Operator, QueryTree
from millstream.language.plan.nodes import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Join,
    Matched,
    Node,
    Over,
    Project,
    Ranked,
    Ruled,
    Semijoin,
    Source,
    Union,
    Unnest,
    Windowed,
    inputs_of,
    is_relation,
)
from millstream.language.plan.windows import MICROSECONDS, Range, Sliding, Unbounded


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """What is known of a node: measured on the engine, or estimated."""

    cost_s: float  # CPU seconds an input row
    selectivity: float  # output rows an input row


Statistics = Callable[[Node], OperatorStatistics]


def plan_tree(
    query: str, root: Node, statistics: Statistics, *, unbounded_s: float = 3600.0
) -> QueryTree:
    """The tree of a query; `unbounded_s` stands for windows without an end."""
    maker = _Maker(statistics, unbounded_s)
    top, _ = maker.visit(root)
    if not maker.operators:  # a bare stream: the way to its reader is all there is to do
        maker.operators.append(Operator("result", (top,), 0.0, 1.0))
    return QueryTree(query, tuple(maker.operators))


class _Maker:
    def __init__(self, statistics: Statistics, unbounded_s: float) -> None:
        self.statistics, self.unbounded_s = statistics, unbounded_s
        self.operators: list[Operator] = []

    def visit(self, node: Node) -> tuple[str, float]:
        """The name of a node's output, and how long the window above which it stands keeps rows."""
        match node:
            case Source():
                return node.stream, 0.0
            case Windowed():
                below, _ = self.visit(node.input)
                return below, self._window_s(node)
            case Emit():
                return self.visit(node.input)
            case Filter() | Project() | Unnest() | Ruled():
                below, window_s = self.visit(node.input)
                return self._add(node, (below,), 0.0), window_s
            case Aggregate() | Distinct() | Ranked() | Over() | Matched():
                below, window_s = self.visit(node.input)
                return self._add(node, (below,), max(window_s, self._grouping_s(node))), 0.0
            case Join() | Semijoin() | Union():
                return self._many(node), 0.0
            case _:
                raise TypeError(f"not a plan node: {node!r}")

    def _many(self, node: Join | Semijoin | Union) -> str:
        inputs = [self.visit(part) for part in inputs_of(node)]
        below, kept_s = inputs[0]
        for n, (other, window_s) in enumerate(inputs[1:], 1):
            last = n == len(inputs) - 1
            state_s = max(kept_s, window_s) if isinstance(node, Join | Semijoin) else 0.0
            below = self._add(node, (below, other), state_s, step="" if last else f"#{n}")
        return below

    def _add(self, node: Node, inputs: tuple[str, ...], window_s: float, step: str = "") -> str:
        known = self.statistics(node)
        name = f"{type(node).__name__.lower()}{len(self.operators)}"
        # Of a chain only the last join gives the node's rows; those before pass theirs on.
        selectivity = 1.0 if step else known.selectivity
        physical = f"{node.fingerprint}{step}"
        self.operators.append(Operator(name, inputs, known.cost_s, selectivity, window_s, physical))
        return name

    def _window_s(self, node: Windowed) -> float:
        match node.window:
            case Range(length):
                return length / MICROSECONDS
            case Unbounded():
                return self.unbounded_s
            case _:  # NOW keeps nothing; how long ROWS keep depends on the rate
                return 0.0

    def _grouping_s(self, node: Aggregate | Distinct | Ranked | Over | Matched) -> float:
        if isinstance(node, Over) and (node.frames[0].unbounded or is_relation(node)):
            return self.unbounded_s
        if isinstance(node, Over) and node.frames[0].by == "time":
            return max(f.last - f.first for f in node.frames) / MICROSECONDS
        if isinstance(node, Matched):
            within = node.spec.within
            return self.unbounded_s if within is None else within / MICROSECONDS
        if isinstance(node, Aggregate) and isinstance(node.grouping, Sliding):
            return node.grouping.length / MICROSECONDS
        return 0.0
