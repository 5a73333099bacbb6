"""Compiled queries cut into fragments: against the rules of seed 002, section 3.1."""

import random
from itertools import pairwise

import pytest

from millstream.core.operator_graph import GraphOperator
from millstream.decide.balance.model.compiled_fragments import (
    compiled_fragments,
    distribution_limit,
    limit_problems,
)

Op = GraphOperator


def cut(operators: tuple[Op, ...], **rates: float) -> list[tuple[str, tuple[str, ...]]]:
    return [(f.stream, f.operators) for f in compiled_fragments("q", operators, rates)]


def test_unary_operators_stay_with_their_stream_and_a_join_with_the_larger_side() -> None:
    query = (Op("f", ("s",)), Op("g", ("t",)), Op("j", ("f", "g")), Op("a", ("j",)))
    assert cut(query, s=10, t=10, f=5, g=2, j=1, a=1) == [("s", ("f", "j", "a")), ("t", ("g",))]
    assert cut(query, s=10, t=10, f=2, g=5, j=1, a=1) == [("s", ("f",)), ("t", ("g", "j", "a"))]


def test_a_wide_join_is_one_operator_again_after_the_cut() -> None:
    query = (Op("f", ("s",)), Op("j", ("f", "t", "u")))
    assert cut(query, s=9, t=3, u=4, f=5, j=2) == [("s", ("f", "j"))]
    assert distribution_limit(query) == 3
    # the chain grows: what two sides give together may be more than the third
    assert cut(query, s=9, t=3, u=40, f=5, j=2) == [("s", ("f",)), ("u", ("j",))]


def test_a_result_that_is_read_twice_begins_two_fragments() -> None:
    query = (Op("f", ("s",)), Op("g", ("f",)), Op("h", ("f",)), Op("j", ("g", "h")))
    assert cut(query, s=9, f=5, g=2, h=3, j=1) == [("s", ("f", "g")), ("s", ("h", "j"))]
    assert distribution_limit(query) == 2
    assert cut((Op("j", ("s", "s")),), s=1, j=1) == [("s", ("j",))]


def test_the_checker_counts_for_itself() -> None:
    query = (Op("f", ("s",)), Op("g", ("f",)), Op("j", ("g", "t")))
    spread = {"f": "p1", "g": "p2", "j": "p3"}
    (problem,) = limit_problems("q", query, spread, lambda _: False)
    assert problem == "query q lies on p1, p2, p3, more than its limit of 2"
    assert limit_problems("q", query, spread, lambda o: o == "f") == ()


def brute(operators: tuple[Op, ...], fragments: list[tuple[str, tuple[str, ...]]]) -> None:
    """Every operator once, every fragment a path, no more of them than streams are accessed."""
    names = [o for _, part in fragments for o in part]
    assert sorted(names) == sorted(o.id for o in operators)
    by_id = {o.id: o for o in operators}
    for stream, part in fragments:
        assert stream.startswith("s")
        for below, above in pairwise(part):
            assert below in by_id[above].inputs
    accesses = sum(len(o.inputs) for o in operators) - sum(
        o.id in other.inputs for o in operators for other in operators if other is not o
    ) + sum(max(0, sum(o.id in p.inputs for p in operators) - 1) for o in operators)  # fmt: skip
    assert len(fragments) <= accesses == distribution_limit(operators)


@pytest.mark.parametrize("seed", range(200))
def test_any_query_is_cut_into_paths_within_its_limit(seed: int) -> None:
    chance = random.Random(seed)
    open_ones = [f"s{n}" for n in range(chance.randint(1, 5))]
    operators: list[Op] = []
    while len(open_ones) > 1 or not operators or chance.random() < 0.5:
        many = min(len(open_ones), chance.choice((1, 1, 2, 3)))
        inputs = chance.sample(open_ones, many)
        if operators and chance.random() < 0.2:  # some result is read once more
            again = chance.choice(operators).id
            inputs += [again] if again not in inputs else []
        name = f"o{len(operators)}"
        operators.append(Op(name, tuple(inputs)))
        open_ones = [one for one in open_ones if one not in inputs] + [name]
    rates = {name: chance.random() * 100 for name in {o.id for o in operators} | {
        s for o in operators for s in o.inputs}}  # fmt: skip
    brute(tuple(operators), cut(tuple(operators), **rates))
