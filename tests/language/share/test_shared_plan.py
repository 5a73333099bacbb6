"""Operators of one class computed as one plan give each member what it gives alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from language.share.plan_values import Row, bag, part_of, rows_of
from millstream.language.plan.expressions import Call, Cast, Column, Expr, Literal, conjunction
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Plan,
    Project,
    Source,
    Union,
    Windowed,
)
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import (
    Instant,
    Now,
    Range,
    Rows,
    Running,
    Sliding,
    Unbounded,
    Window,
)
from millstream.language.share.dataflow import Operator, compile_plan, is_core
from millstream.language.share.groups import Candidate, candidate, split_by_sides
from millstream.language.share.rowwise import TIME_US, Rowwise, rowwise
from millstream.language.share.shapes import shape_of
from millstream.language.share.shared_plan import (
    JoinMember,
    Member,
    Together,
    bits_of,
    joins_together,
    maps_together,
)

FIELDS = tuple(Field(n, t) for n, t in (("k", "int"), ("v", "bigint"), ("tag", "string")))
K, V, TAG = (Column(i) for i in range(3))
S, T = Source("s", FIELDS), Source("t", FIELDS)
NUMBERS = tuple(Literal(f"{n}L", "bigint") for n in (3, 5, 8))
ROWS = st.builds(
    Row,
    st.integers(0, 12),
    st.tuples(
        st.sampled_from((1, 2, None)),
        st.sampled_from((None, 2, 3, 4, 5, 6, 8, 9)),
        st.sampled_from(("a", "A", None, "7")),
    ),
)
TABLES = st.fixed_dictionaries({"s": st.lists(ROWS, max_size=9), "t": st.lists(ROWS, max_size=9)})


def more_than(column: Expr, number: int) -> Expr:
    return Call(">", (column, Literal(f"{number}L", "bigint")))


@st.composite
def terms(draw: st.DrawFn, offset: int = 0) -> Expr:
    """Conditions that never raise, over one row of a stream."""
    v, tag, k = (Column(offset + c.index) for c in (V, TAG, K))
    number = draw(st.sampled_from(NUMBERS))
    return draw(
        st.sampled_from(
            (
                Call(">", (v, number)),
                Call("<=", (v, number)),
                Call("<", (number, v)),
                Call("=", (v, number)),
                Call("in", (v, *NUMBERS[:2])),
                Call("is_null", (v,)),
                Call("=", (tag, Literal("'a'", "string"))),
                Call("or", (Call(">", (v, number)), Call("is_null", (tag,)))),
                Call("<", (k, v)),
            )
        )
    )


@st.composite
def chains(draw: st.DrawFn, leaf: Source, *, starts: bool = True) -> Node:
    """Filters and projections over a stream; columns may change places."""
    start = draw(st.sampled_from((leaf.start, leaf.start, 4))) if starts else leaf.start
    node: Node = Source(leaf.stream, leaf.columns, start)
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.booleans()):
            found = draw(st.lists(terms(), min_size=1, max_size=2))
            predicate = conjunction(tuple(found))
            assert predicate is not None
            node = Filter(node, predicate)
        else:
            value = draw(st.sampled_from((V, Call("+", (V, Literal("1L", "bigint"))), TIME_US)))
            node = Project(node, (K, value if starts else V, TAG), FIELDS)
    return node


def as_map(node: Node) -> Operator:
    return Operator(f"o:{node.fingerprint}", "map", node, None, ("s:s",))


def families(operators: Sequence[Operator]) -> list[list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for operator in {o.id: o for o in operators}.values():
        member = candidate(operator)
        assert member is not None
        found.setdefault(member.family, []).append(member)
    return list(found.values())


@settings(max_examples=120, deadline=None)
@given(st.lists(chains(S), min_size=2, max_size=7), TABLES)
def test_selections_together(nodes: list[Node], tables: dict[str, list[Row]]) -> None:
    (group,) = families([as_map(n) for n in nodes])
    shared = maps_together([c.part for c in group if isinstance(c.part, Member)])
    compare(shared, group, tables)


def compare(shared: Together, group: Sequence[Candidate], tables: dict[str, list[Row]]) -> None:
    found = rows_of(shared.node, tables)
    assert set(shared.places) == {c.operator.id for c in group}
    for member in group:
        mine = part_of(found, shared.places[member.operator.id])
        assert bag(mine) == bag(rows_of(member.operator.node, tables))


WINDOWS = st.sampled_from(
    (Range(4), Range(2), Range(7), Now(), Unbounded(), Range(5), Range(4, half_open=True))
)


@st.composite
def joins(draw: st.DrawFn) -> Operator:
    leaves = draw(st.sampled_from(((S, T), (T, S), (S, S), (S, T, S))))
    sides: list[Node] = []
    for leaf in leaves:
        window: Window | None = draw(WINDOWS)
        chain = draw(chains(leaf, starts=False))
        sides.append(Windowed(chain, window) if window is not None else chain)
    width = len(FIELDS)
    found: list[Expr] = [
        Call("=", (Column(width * p), Column(width * (p + 1)))) for p in range(len(leaves) - 1)
    ]
    if draw(st.booleans()):
        found.append(Call("<", (Column(1), Column(width + 1))))
    if draw(st.integers(0, 5)) == 0:
        found = found[1:]
    join = Join(tuple(sides), conjunction(tuple(found)))
    node: Node = join
    if draw(st.booleans()):
        node = Filter(node, draw(terms(draw(st.sampled_from((0, width))))))
    if draw(st.booleans()):
        node = Project(node, (Column(width + 1), Column(0)), (FIELDS[1], FIELDS[0]))
    return Operator(f"o:{node.fingerprint}", "join", node, join, ("s:s", "s:t"))


@settings(max_examples=150, deadline=None)
@given(st.lists(joins(), min_size=2, max_size=6), TABLES)
def test_joins_together(operators: list[Operator], tables: dict[str, list[Row]]) -> None:
    for group in families(operators):
        parts = [c.part for c in group if isinstance(c.part, JoinMember)]
        shared = joins_together(parts, [c.operator.id for c in group])
        compare(shared, group, tables)


def test_a_join_of_istreams_has_no_ends() -> None:
    """ISTREAM of what another operator gives drops the ends that its rows have."""
    inner = Join((Windowed(S, Range(2)), Windowed(T, Range(2))), Call("=", (K, Column(3))))
    operators = []
    for number in (3, 5):
        side = Emit(inner, "istream", 0)
        join = Join((side, Windowed(S, Range(4))), Call("=", (K, Column(6))))
        node = Filter(join, more_than(Column(7), number))
        operators.append(Operator(f"o:{node.fingerprint}", "join", node, join, ("o:x", "s:s")))
    (group,) = families(operators)
    shared = joins_together([c.part for c in group if isinstance(c.part, JoinMember)], [])
    tables = {
        "s": [Row(1, (1, 4, "a")), Row(9, (1, 6, "a")), Row(10, (1, 4, "b"))],
        "t": [Row(2, (1, 9, "a"))],
    }
    compare(shared, group, tables)
    assert sum(len(rows_of(o.node, tables)) for o in operators) == 4


def test_equal_conditions_have_one_bit() -> None:
    above, mirrored = Call(">", (V, K)), Call("<", (K, V))
    bits, distinct = bits_of([(above,), (mirrored,), (), (above, above), ()])
    assert bits == [0, 0, 1, 2, 1]
    assert len(distinct) == 3


def test_a_column_that_can_raise_is_computed_for_its_own_rows() -> None:
    """Two members with other filters and one cast: only rows of those who select it are cast."""
    number = Cast(TAG, "int")
    nodes = [
        Project(Filter(S, Call("=", (TAG, Literal("'7'", "string")))), (number,), (FIELDS[0],)),
        Project(Filter(S, more_than(V, 3)), (V,), (FIELDS[1],)),
    ]
    (group,) = families([as_map(n) for n in nodes])
    shared = maps_together([c.part for c in group if isinstance(c.part, Member)])
    tables = {"s": [Row(0, (1, 5, "a")), Row(1, (1, 5, "7")), Row(2, (1, 1, "7"))]}
    compare(shared, group, tables)


# -- classes -------------------------------------------------------------------------------------


def family(operator: Operator) -> str | None:
    found = candidate(operator)
    return None if found is None else found.family


def the_join(
    lengths: tuple[int, ...] = (4_000_000, 4_000_000),
    leaves: tuple[Node, ...] = (S, T),
    keys: tuple[Expr, ...] = (Call("=", (K, Column(3))),),
) -> Operator:
    sides = tuple(
        s if isinstance(s, Windowed) else Windowed(s, Range(n))
        for s, n in zip(leaves, lengths, strict=True)
    )
    join = Join(sides, conjunction(keys))
    return Operator(f"o:{join.fingerprint}", "join", join, join, ("s:s", "s:t"))


def sliding(
    call: AggregateCall | None = None,
    grouping: Sliding | Instant | None = None,
    keys: tuple[Expr, ...] = (K,),
    below: Node = S,
) -> tuple[Operator, Operator]:
    """Panes and windows of an aggregate."""
    grouping = grouping or Sliding(10, 5)
    chosen = call or AggregateCall("count", None, "bigint")
    fields = (*(Field("", "int") for _ in keys), Field("", chosen.type))
    node = Aggregate(Windowed(below, Range(10)), keys, (chosen,), grouping, fields)
    panes, combined = compile_plan(Plan(node, node.fields, relation=False))
    assert (panes.kind, combined.kind) == ("partial", "combine")
    return panes, combined


def test_which_selections_go_together() -> None:
    plain, filtered = as_map(Project(S, (V,), (FIELDS[1],))), as_map(Filter(S, more_than(V, 3)))
    later = as_map(Filter(Source("s", FIELDS, 7), more_than(V, 3)))
    assert family(plain) == family(filtered) == family(later) is not None
    other_types = Source("s", tuple(Field(f.name, "string") for f in FIELDS))
    assert family(as_map(Filter(other_types, more_than(V, 3)))) != family(filtered)
    assert family(as_map(Filter(T, more_than(V, 3)))) != family(filtered)
    both = Union((S, T))
    assert family(replace(as_map(both), inputs=("s:s", "s:t"))) is None
    endless = as_map(Emit(Windowed(S, Range(5)), "istream", 0))
    assert family(endless) not in (None, family(filtered))


def test_which_joins_go_together() -> None:
    usual = family(the_join())
    assert usual is not None
    assert family(the_join((4_000_000, 3_000_000))) == usual
    assert family(the_join(leaves=(Filter(S, more_than(V, 3)), T))) == usual
    swapped = Call("=", (Column(3), K))
    assert family(the_join(leaves=(T, S), keys=(swapped,))) == usual
    assert family(the_join(leaves=(T, S))) == usual
    more = (Call("=", (K, Column(3))), Call("<", (V, Column(4))))
    assert family(the_join(keys=more)) == usual
    others = {
        "another key": the_join(keys=(Call("=", (V, Column(4))),)),
        "two keys": the_join(keys=(Call("=", (K, Column(3))), Call("=", (V, Column(4))))),
        "no key": the_join(keys=(Call("<", (K, Column(3))),)),
        "a self-join": the_join(leaves=(S, S)),
        "an open window": the_join(leaves=(Windowed(S, Unbounded()), T)),
        "three": the_join((4, 4, 4), (S, T, S)),
    }
    found = {name: family(o) for name, o in others.items()}
    assert usual not in found.values()
    assert len(set(found.values())) == len(found)


def test_a_join_that_looks_at_the_time_of_a_side_runs_alone() -> None:
    timed = Project(S, (K, TIME_US, TAG), FIELDS)
    assert family(the_join(leaves=(timed, T))) is None
    rows = Join((Windowed(S, Rows(3)), Windowed(T, Range(5))), Call("=", (K, Column(3))))
    assert candidate(Operator("o:x", "interval", rows, rows, ("s:s", "s:t"))) is None


def test_joins_that_filter_other_sides_run_apart() -> None:
    """Unless one takes everything: then the others come for free."""
    left = the_join(leaves=(Filter(S, more_than(V, 3)), T))
    right = the_join(leaves=(S, Filter(T, more_than(V, 3))))
    all_rows = the_join()

    def sizes(*operators: Operator) -> list[int]:
        (group,) = families(operators)
        return sorted(len(g) for g in split_by_sides(group))

    assert sizes(left, right) == [1, 1]
    assert sizes(left, right, all_rows) == [3]
    begun = the_join(leaves=(Filter(Source("s", FIELDS, 9), more_than(V, 5)), T))
    assert sizes(left, begun) == [2]
    assert sizes(all_rows, the_join((4_000_000, 30_000_000))) == [2]
    assert sizes(all_rows, the_join((4_000_000, 400_000_000))) == [1, 1]


def test_which_aggregates_go_together() -> None:
    panes, combined = sliding()
    summed = AggregateCall("sum", V, "bigint", "bigint")
    for other in (
        sliding(summed),
        sliding(below=Filter(S, more_than(V, 3))),
        sliding(below=Source("s", FIELDS, 9)),
    ):
        assert family(other[0]) == family(panes)
        assert family(other[1]) == family(combined)
    short_panes, short = sliding(grouping=Sliding(4, 2))
    assert family(short_panes) == family(panes)  # one scan for panes of both lengths
    assert family(short) != family(combined)
    (ending_panes, ending), (starting_panes, starting) = (
        sliding(grouping=Sliding(10, 4, offset)) for offset in (0, 2)
    )
    assert starting_panes.id == ending_panes.id  # panes are the same, windows are not
    assert starting.id != ending.id
    assert family(starting) not in (family(ending), None)
    now_panes, now = sliding(grouping=Instant())
    assert family(now_panes) == family(panes)
    assert family(now) not in (family(combined), family(short), None)
    for other in (sliding(keys=(TAG,)), sliding(keys=()), sliding(below=T)):
        assert family(other[0]) not in (family(panes), None)
    raising = sliding(keys=(Cast(TAG, "int"),))
    assert [family(o) for o in raising] == [None, None]


def test_first_and_last_of_rows_without_a_position_run_alone() -> None:
    first = AggregateCall("first", V, "bigint", "bigint")
    assert None not in [family(o) for o in sliding(first)]
    join = Join((Windowed(S, Range(5)), Windowed(T, Range(5))), Call("=", (K, Column(3))))
    over = Aggregate(
        Windowed(join, Range(10)), (K,), (first,), Sliding(10, 5), (FIELDS[0], FIELDS[1])
    )
    _, panes, combined = compile_plan(Plan(over, over.fields, relation=False))
    assert [family(o) for o in (panes, combined)] == [None, None]


@pytest.mark.parametrize(
    "node",
    [
        Aggregate(S, (K,), (AggregateCall("count", None, "bigint"),), Running(), FIELDS[:2]),
        Distinct(S),
        Emit(Windowed(S, Range(5)), "dstream", 0),
        Emit(Windowed(S, Range(5)), "rstream", 1),
    ],
    ids=("running", "distinct", "dstream", "rstream"),
)
def test_operators_with_a_state_of_their_own_run_alone(node: Node) -> None:
    for operator in compile_plan(Plan(node, node.schema, relation=False)):
        assert family(operator) is None


# -- chains --------------------------------------------------------------------------------------


def test_a_chain_as_conditions_and_columns() -> None:
    doubled = Call("*", (V, Literal("2L", "bigint")))
    low = Filter(Source("s", FIELDS, 7), conjunction((more_than(V, 3), more_than(K, 0))) or V)
    top = Filter(Project(low, (doubled, K), (FIELDS[1], FIELDS[0])), more_than(Column(0), 8))
    found = rowwise(Windowed(top, Range(5)), is_core)
    assert found is not None
    start = Call(">=", (TIME_US, Literal("7L", "bigint")))
    assert found.conditions == (start, more_than(V, 3), more_than(K, 0), more_than(doubled, 8))
    assert found.columns == (doubled, K)
    assert (found.leaf, found.interval) == (S, Range(5))


def test_what_is_more_than_a_chain() -> None:
    for node in (Union((S, T)), Windowed(S, Rows(3)), Filter(Union((S, T)), more_than(V, 3))):
        assert rowwise(node, is_core) is None
    aggregate = sliding()[1].node
    over = rowwise(Filter(aggregate, more_than(Column(1), 3)), is_core)
    assert over == Rowwise(aggregate, (more_than(Column(1), 3),), (Column(0), Column(1)), "own")
    emitted = rowwise(Emit(Windowed(S, Range(5)), "istream", 0), is_core)
    assert emitted is not None
    assert emitted.interval == "endless"


# -- shapes --------------------------------------------------------------------------------------


def test_constants_do_not_change_a_shape() -> None:
    three, five = (as_map(Filter(S, more_than(V, n))) for n in (3, 5))
    assert shape_of(three) == shape_of(five)
    assert three.id != five.id
    lists = [
        as_map(Filter(S, Call("in", (V, *NUMBERS[:n])))) for n in (1, 3)
    ]  # fmt: skip
    assert shape_of(lists[0]) == shape_of(lists[1])


def test_what_changes_the_columns_changes_the_shape() -> None:
    one, two = Literal("1", "int"), Literal("2", "int")
    text = Literal("'a'", "string")
    shapes = [
        shape_of(as_map(node))
        for node in (
            S,
            T,
            Filter(S, more_than(V, 3)),
            Filter(S, Call(">", (V, one))),
            Project(S, (V,), (FIELDS[1],)),
            Project(S, (K,), (FIELDS[0],)),
            Project(S, (Cast(V, "string"),), (FIELDS[2],)),
            Project(S, (text,), (FIELDS[2],)),
        )
    ]
    assert len(set(shapes)) == len(shapes)
    # of literals outside comparisons the type may hang on the value (decimals, say)
    literals = [shape_of(as_map(Project(S, (e,), (FIELDS[0],)))) for e in (one, two)]
    assert literals[0] != literals[1]
    panes = [shape_of(sliding(AggregateCall(f, V, "bigint", "bigint"))[0]) for f in ("sum", "max")]
    assert panes[0] != panes[1]
