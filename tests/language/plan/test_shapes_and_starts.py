"""A node's start enters its fingerprint last: shapes are equal where only the start differs."""

from millstream.language.plan.expressions import Call, Column, Literal
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Node,
    Source,
    Windowed,
    canonical_order,
    starting,
)
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING, Range, Running
from millstream.language.share.dataflow import starting_at

COLUMNS = (Field("a", "int"), Field("b", "int"))


def positive(node: Node) -> Node:
    return Filter(node, Call(">", (Column(0), Literal("0", "int"))))


def joined(left: int, right: int) -> Join:
    inputs = (
        Windowed(Source("s", COLUMNS, left), Range(5)),
        Windowed(positive(Source("t", COLUMNS, right)), Range(7)),
    )
    return Join(inputs, Call("=", (Column(0), Column(2))))


def counted(node: Node, start: int) -> Aggregate:
    calls = (AggregateCall("count", None, "bigint"),)
    return Aggregate(node, (), calls, Running(), (Field("n", "bigint"),), start)


def test_the_fingerprint_is_the_shape_with_the_start() -> None:
    early, late = joined(BEGINNING, BEGINNING), joined(9, 9)
    assert early.shape == late.shape == early.fingerprint
    assert late.fingerprint == starting(early.shape, 9) != early.fingerprint
    assert canonical_order(early) == canonical_order(late)
    assert starting_at(f"o:{early.fingerprint}", 9) == f"o:{late.fingerprint}"
    assert starting_at("s:t", 9) == "s:t"


def test_an_aggregate_has_the_start_of_what_it_reads() -> None:
    plain, late = counted(joined(BEGINNING, BEGINNING), BEGINNING), counted(joined(9, 9), 9)
    assert late.shape == plain.fingerprint
    assert late.fingerprint == starting(plain.shape, 9)


def test_several_starts_below_one_node_are_told_apart() -> None:
    nodes = [joined(left, right) for left in (3, 9) for right in (3, 9)]
    nodes += [counted(joined(left, 9), start) for left in (3, 9) for start in (3, 9)]
    assert len({node.fingerprint for node in nodes}) == len(nodes)
    assert joined(3, 9).start_of_all is None
    assert positive(joined(3, 9)) != positive(joined(9, 3))
