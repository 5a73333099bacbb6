"""Operator graphs and processors for tests of patterns, cost models and policies."""

from hypothesis import strategies as st

from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.core.placement import ProcessorDescription


def chain(length: int, plan: str = "q") -> PlanGraph:
    """o0 reads a stream, each next one the one before."""
    return PlanGraph(
        tuple(
            GraphOperator(f"o{n}", (f"o{n - 1}" if n else "s",), plans=(plan,))
            for n in range(length)
        )
    )


def two_arms() -> PlanGraph:
    """Two chains of three below a join with one operator above it."""
    left = [GraphOperator(f"l{n}", (f"l{n - 1}" if n else "a",)) for n in range(3)]
    right = [GraphOperator(f"r{n}", (f"r{n - 1}" if n else "b",)) for n in range(3)]
    top = [GraphOperator("j", ("l2", "r2"), kind="join"), GraphOperator("t", ("j",))]
    return PlanGraph((*left, *right, *top))


def machines(count: int, **properties: object) -> tuple[ProcessorDescription, ...]:
    return tuple(ProcessorDescription(f"p{n + 1}", dict(properties)) for n in range(count))


@st.composite
def graphs(draw: st.DrawFn) -> PlanGraph:
    """Any dataflow: shared results, several roots, joins of one stream with itself."""
    operators: list[GraphOperator] = []
    for number in range(draw(st.integers(1, 14))):
        sources = [o.id for o in operators] + ["s", "t"]
        inputs = tuple(draw(st.lists(st.sampled_from(sources), min_size=1, max_size=2)))
        kind = "join" if len(inputs) == 2 else "map"
        plans = (f"q{draw(st.integers(0, 2))}",)
        operators.append(GraphOperator(f"o{number}", inputs, kind, plans))
    return PlanGraph(tuple(operators), {"q0": {"weight": 4}})
