"""Ways to compute joins: which parts there are, and that one part has one id in every query."""

from collections.abc import Sequence

import pytest

from millstream.language.plan.expressions import Call, Column, Expr, conjunction
from millstream.language.plan.nodes import Join, Plan, Project, Source, Windowed
from millstream.language.plan.rewrite import rewrite
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import Range, Rows, Window
from millstream.language.share.dataflow import Operator, compile_plan
from millstream.language.share.join_orders import by_ways, other_ways

COLUMNS = (Field("k", "int"), Field("v", "int"))
TEN = Range(10_000_000)


def compiled(
    streams: str, equal: Sequence[str], *more: Expr, window: Window = TEN
) -> tuple[Operator, ...]:
    """A join in this order whose keys are equal in these pairs of streams."""
    at = {name: 2 * place for place, name in enumerate(streams)}
    keys = [Call("=", (Column(at[a]), Column(at[b]))) for a, b in equal]
    inputs = tuple(Windowed(Source(name, COLUMNS), window) for name in streams)
    join = Join(inputs, conjunction((*keys, *more)))
    values = tuple(Column(at[name] + 1) for name in sorted(streams))
    fields = tuple(Field(name, "int") for name in sorted(streams))
    root = rewrite(Project(join, values, fields))
    return compile_plan(Plan(root, fields, relation=False))


def ids(operators: Sequence[Operator]) -> set[str]:
    return {o.id for o in operators}


def test_a_part_has_one_id_in_whatever_order_queries_were_written() -> None:
    three = compiled("abc", ("ab", "bc"))
    assert compiled("cab", ("ac", "cb")) == three, "equal by way of another stream is equal"
    four = compiled("dbca", ("da", "cb", "ac"))
    shared = ids(other_ways(three)) & ids(other_ways(four))
    assert len(shared) == 4, "three pairs, and all three without the query's columns"
    other = compiled("abd", ("ab", "bd"))
    assert len(ids(other_ways(three)) & ids(other_ways(other))) == 1


def test_ways_begin_with_what_the_text_says_and_read_parts() -> None:
    (whole,) = compiled("abc", ("ab", "bc"))
    ways = [o for o in other_ways((whole,)) if o.id == whole.id]
    assert sorted(len(w.inputs) for w in ways) == [1, 2, 2, 2]
    assert {w.kind for w in ways} == {"map", "join"}
    part = next(o for o in other_ways((whole,)) if o.inputs == ("s:a", "s:b"))
    way = next(w for w in ways if part.id in w.inputs)
    chosen = by_ways((whole,), other_ways((whole,)), {whole.id: way.inputs}, (whole.id,))
    assert [o.id for o in chosen.values()] == [part.id, whole.id]
    assert by_ways((whole,), other_ways((whole,)), {}, (whole.id,)) == {whole.id: whole}


@pytest.mark.parametrize(
    "operators",
    [
        compiled("abc", ("ab", "bc"), Call("/", (Column(1), Column(3)))),  # it can raise
        compiled("abc", ("ab", "bc"), window=Rows(3, ())),  # ends are open
        compiled("abcdef", ("ab", "bc", "cd", "de", "ef")),
    ],
    ids=["raises", "rows", "six"],
)
def test_some_joins_stay_as_they_are(operators: tuple[Operator, ...]) -> None:
    assert other_ways(operators) == ()


def test_a_product_is_no_part() -> None:
    (whole,) = compiled("abcd", ("ab", "cd"))
    inputs = {w.inputs for w in other_ways((whole,)) if len(w.inputs) == 2}
    assert ("s:a", "s:c") not in inputs
    assert len(ids(other_ways((whole,)))) == 4, "ab, cd, all four, and the query's own"
