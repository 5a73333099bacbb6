"""A query is one tree."""

import pytest

from millstream.core.errors import UsageError
from millstream.decide.balance.model.operator_tree import Operator, QueryTree


def op(name: str, *inputs: str) -> Operator:
    return Operator(name, inputs, 1e-5, 0.5)


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ((), "no operator"),
        ((op("a", "s"), op("a", "s")), "twice"),
        ((op("a", "s"), op("b", "a"), op("c", "a")), "feeds two"),
        ((op("a", "s"), op("b", "t")), "not a tree"),
        ((op("a", "b"), op("b", "a"), op("c", "s")), "cycle"),
    ],
)
def test_what_is_no_tree_is_refused(operators: tuple[Operator, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QueryTree("q", operators)


def test_an_operator_has_one_or_two_inputs_and_no_negative_figures() -> None:
    with pytest.raises(UsageError, match="3 inputs"):
        op("a", "s", "t", "u")
    with pytest.raises(UsageError, match="negative"):
        Operator("a", ("s",), -1.0, 0.5)


def test_operators_may_come_in_any_order() -> None:
    tree = QueryTree("q", (op("c", "b"), op("b", "a", "t"), op("a", "s")))
    assert tree.root == "c"
    assert tree.streams == ("t", "s")
    assert tree.output_rates({"s": 40.0, "t": 20.0}) == {
        "t": 20.0,
        "s": 40.0,
        "a": 20.0,
        "b": 20.0,
        "c": 10.0,
    }
