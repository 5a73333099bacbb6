"""From a bound plan to fragments."""

from millstream.decide.balance.model.fragments import fragment_query
from millstream.decide.balance.model.plan_tree import OperatorStatistics, plan_tree
from millstream.language.plan.expressions import Literal
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Source,
    Union,
    Windowed,
)
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import Now, Range, Sliding, Unbounded

COLUMNS = (Field("a", "bigint"),)
TRUE = Literal("true", "boolean")


def source(name: str) -> Source:
    return Source(name, COLUMNS)


def window(node: Node, seconds: int) -> Windowed:
    return Windowed(node, Range(seconds * 1_000_000))


def known(node: Node) -> OperatorStatistics:
    match node:
        case Filter():
            return OperatorStatistics(2e-5, 0.5)
        case Join():
            return OperatorStatistics(8e-5, 0.7)
        case _:
            return OperatorStatistics(1e-5, 1.0)


def test_windows_become_state_and_filters_stay_with_their_stream() -> None:
    left = window(Filter(source("s"), TRUE), 5)
    right = window(source("t"), 20)
    tree = plan_tree("q", Emit(Join((left, right), TRUE), "istream", 1), known)
    shapes = [(o.id, o.inputs, o.window_s, o.selectivity) for o in tree.operators]
    assert shapes == [
        ("filter0", ("s",), 0.0, 0.5),
        ("join1", ("filter0", "t"), 20.0, 0.7),
    ]
    parts = fragment_query(tree, {"s": 100.0, "t": 60.0})
    assert [(f.stream, [o.id for o in f.operators]) for f in parts] == [
        ("s", ["filter0"]),
        ("t", ["join1"]),  # 60 rows a second against 50
    ]


def test_a_join_of_three_is_a_chain_and_only_its_end_is_selective() -> None:
    inputs = tuple(window(source(name), 5) for name in "stu")
    tree = plan_tree("q", Join(inputs, TRUE), known)
    assert [(o.inputs, o.selectivity) for o in tree.operators] == [
        (("s", "t"), 1.0),
        (("join0", "u"), 0.7),
    ]
    assert len({o.physical for o in tree.operators}) == 2


def test_equal_sub_plans_of_two_queries_are_one_physical_operator() -> None:
    one = plan_tree("q", Filter(source("s"), TRUE), known)
    two = plan_tree("r", Project(Filter(source("s"), TRUE), (TRUE,), COLUMNS), known)
    assert one.operators[0].physical == two.operators[0].physical
    assert one.operators[0].physical != two.operators[1].physical


def test_aggregates_unions_and_open_windows() -> None:
    call = AggregateCall("count", None, "bigint")
    rows = Union((source("s"), source("t")))
    fields = (Field("n", "bigint"),)
    sliding = Aggregate(rows, (), (call,), Sliding(10_000_000, 1_000_000), fields)
    tree = plan_tree("q", sliding, known)
    assert [(o.id, o.window_s) for o in tree.operators] == [("union0", 0.0), ("aggregate1", 10.0)]
    joined = Join((Windowed(source("s"), Unbounded()), Windowed(source("t"), Now())), TRUE)
    assert plan_tree("q", joined, known, unbounded_s=60.0).operators[0].window_s == 60.0


def test_a_bare_stream_is_still_a_query() -> None:
    tree = plan_tree("q", Emit(source("s"), "istream", 1), known)
    assert [o.id for o in tree.operators] == ["result"]
    assert [f.stream for f in fragment_query(tree, {"s": 1.0})] == ["s"]
