"""The index over predicates gives each row the members that would take it alone."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import product
from math import inf, nan

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from language.share.plan_values import RaisedError, Row, holds, value
from millstream.language.plan.expressions import Call, Cast, Column, Expr, Literal, conjuncts, walk
from millstream.language.plan.schema import Field, Schema
from millstream.language.share import constants, value_lines
from millstream.language.share.constants import constant_of
from millstream.language.share.predicate_index import (
    BITS,
    any_bit,
    bit_of,
    membership,
    narrowed,
    words_of,
)
from millstream.language.share.rowwise import TIME_US

SCHEMA = tuple(
    Field(n, t) for n, t in (("v", "bigint"), ("x", "double"), ("tag", "string"), ("b", "int"))
)
V, X, TAG, B = (Column(i) for i in range(4))
COMPARISONS = ("<", "<=", "=", "<>", ">=", ">")
LITERALS: dict[Column, tuple[Literal, ...]] = {
    V: (
        *(Literal(t, "bigint") for t in ("5L", "-1L", "0L", "10L", "7L")),
        Literal("5", "int"),
        Literal("5.5BD", "decimal(2,1)"),
        Literal("5.0BD", "decimal(2,1)"),
        Literal("5.5D", "double"),
        Literal("NULL", "bigint"),
    ),
    X: (
        *(Literal(t, "double") for t in ("0.0D", "-0.0D", "1.5D", "-2.0D", "1e1D")),
        Literal("1.5BD", "decimal(2,1)"),
        Literal("10", "int"),
    ),
    TAG: tuple(Literal(t, "string") for t in ("'a'", "'A'", "''", "'ab'", "'ß'", "'🙂'")),
    B: (Literal("0", "int"), Literal("2", "int"), Literal("1L", "bigint")),
}
VALUES = (
    st.sampled_from((None, -2, -1, 0, 4, 5, 6, 7, 10, 11)),
    st.sampled_from((None, nan, -0.0, 0.0, 1.5, 1.0, inf, -inf, -2.0, 10.0)),
    st.sampled_from((None, "", "A", "a", "aa", "ab", "b", "ß", "5", "🙂", "\uffff")),
    st.sampled_from((None, 0, 1, 2)),
)
ROWS = st.builds(Row, st.integers(-3, 12), st.tuples(*VALUES))
PATTERNS = ("a", "a%", "ab%", "%", "%%", "", "a_", "_", "%b", "a%b", "ß%", "A%%", "\uffff%", "&%")
LOWER = Call("lower", (TAG,))
MADE = (
    LOWER,
    Call("length", (TAG,)),
    Call("%", (V, Literal("3", "int"))),
    Call("%", (V, Literal("0", "int"))),
    Call("%", (V, B)),
)
RATIO = Call("/", (V, B))
NUMBER = Cast(TAG, "int")


@st.composite
def simple_terms(draw: st.DrawFn) -> Expr:
    column = draw(st.sampled_from(tuple(LITERALS)))
    literals = LITERALS[column]
    names = (*COMPARISONS, *COMPARISONS, "in", "is_null", "is_not_null", "ts", "text", "made")
    name = draw(st.sampled_from(names))
    if name == "ts":
        moment = Literal(f"{draw(st.integers(-2, 11))}L", "bigint")
        return Call(draw(st.sampled_from(COMPARISONS)), (TIME_US, moment))
    if name == "text":
        pattern = Literal(f"'{draw(st.sampled_from(PATTERNS))}'", "string")
        asked = Call(draw(st.sampled_from(("like", "like", "startswith"))), (TAG, pattern))
        return Call("not", (asked,)) if draw(st.booleans()) else asked
    if name == "made":
        made, literal = draw(st.sampled_from(MADE)), draw(st.sampled_from(LITERALS[B]))
        if made == LOWER:
            literal = draw(st.sampled_from(LITERALS[TAG]))
        return Call(draw(st.sampled_from(COMPARISONS)), (made, literal))
    if name == "in":
        chosen = draw(st.lists(st.sampled_from(literals), min_size=1, max_size=3))
        listed = Call("in", (column, *chosen))
        return Call("not", (listed,)) if draw(st.booleans()) else listed
    if name.startswith("is"):
        return Call(name, (column,))
    pair = (column, draw(st.sampled_from(literals)))
    return Call(name, pair if draw(st.booleans()) else pair[::-1])


RAISING = st.builds(
    lambda left, name, right: Call(name, (left, right)),
    st.sampled_from((RATIO, NUMBER)),
    st.sampled_from(COMPARISONS),
    st.just(Literal("2", "int")),
)


@st.composite
def offsets(draw: st.DrawFn) -> Expr:
    """Columns with a constant between them; B's sums overflow at the ends of an int."""
    left, right = draw(st.sampled_from(((V, B), (B, V), (B, B), (X, X), (V, X))))
    literals = [e for e in LITERALS[right] if e.text != "NULL"]
    literals += [Literal("2147483647", "int"), Literal("-2147483648", "int")] * (right == B)
    literal = draw(st.sampled_from(literals))
    pair = draw(st.sampled_from(((right, literal), (literal, right))))
    added = Call("+", pair) if draw(st.booleans()) else Call("-", (right, literal))
    sides = (left, added) if draw(st.booleans()) else (added, left)
    return Call(draw(st.sampled_from(COMPARISONS)), sides)


OFFSETS = offsets()
TERMS = st.one_of(
    simple_terms(),
    simple_terms(),
    simple_terms(),
    RAISING,
    st.just(Call("<", (B, V))),
    OFFSETS,
    OFFSETS,
    st.builds(lambda t: Call("not", (t,)), simple_terms()),
    st.builds(lambda *ts: Call("or", ts), simple_terms(), st.one_of(simple_terms(), RAISING)),
)
MEMBERS = st.lists(st.lists(TERMS, max_size=4).map(tuple), min_size=1, max_size=8)


def taken(members: Sequence[Sequence[Expr]], row: Row, schema: Schema = SCHEMA) -> list[bool]:
    """What the index says of a row, as a shared job asks it."""
    found = membership(members, schema)
    staged = row
    for stage in found.stages:
        staged = Row(row.ts, (*row.values, *(value(e, staged) for e in stage)))
    indexed = [value(w, staged) for w in found.by_index()]
    if not any(indexed):  # nothing more is asked of rows that nobody can want
        return [False] * len(members)
    wide = Row(row.ts, (*row.values, *indexed))
    columns = tuple(Column(len(row.values) + i) for i in range(len(indexed)))
    final = [value(w, wide) for w in narrowed(found, columns)]
    assert all(0 <= w < 1 << BITS for w in final)
    places = [bit_of(m) for m in range(len(members))]
    return [bool(final[word] & bit) for word, bit in places]


@pytest.fixture(params=(0, value_lines.IN_CODE_MAX), ids=("as data", "in code"))
def in_code_max(request: pytest.FixtureRequest) -> Iterator[int]:
    """Constants as data, however few, or in code."""
    before = value_lines.IN_CODE_MAX
    value_lines.IN_CODE_MAX = request.param
    yield request.param
    value_lines.IN_CODE_MAX = before


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(MEMBERS, st.lists(ROWS, min_size=1, max_size=6))
@pytest.mark.usefixtures("in_code_max")
def test_the_index_agrees_with_asking_everyone(
    members: Sequence[Sequence[Expr]], rows: list[Row]
) -> None:
    for row in rows:
        try:
            expected = [holds(terms, row) for terms in members]
        except RaisedError:
            with pytest.raises(RaisedError):  # who fails alone fails here as well
                taken(members, row)
        else:
            assert taken(members, row) == expected


def test_members_of_many_words() -> None:
    members = [
        (Call(">", (V, Literal(f"{n}L", "bigint"))), Call("<>", (B, Literal("1L", "bigint"))))
        if n % 3
        else (Call("=", (V, Literal(f"{n}L", "bigint"))),)
        for n in range(2 * BITS + 6)
    ]
    assert words_of(len(members)) == 3
    for v in (None, -1, 0, 3, 61, 62, 63, 100, 124, 129, 1_000):
        for b in (None, 1, 2):
            row = Row(0, (v, None, None, b))
            assert taken(members, row) == [holds(m, row) for m in members]


def test_words_keep_the_sign_clear() -> None:
    assert [words_of(n) for n in (0, 1, 62, 63, 124, 125)] == [1, 1, 1, 2, 2, 3]
    assert {bit_of(m)[0] for m in range(BITS)} == {0}
    assert bit_of(BITS) == (1, 1)
    assert value(any_bit((Column(0), Column(1))), Row(0, (0, 1 << 61))) is True


def test_what_is_indexed_is_asked_once() -> None:
    """A hundred thresholds are one search and one table, not a hundred comparisons."""
    members = [(Call(">", (V, Literal(f"{n}L", "bigint"))),) for n in range(60)]
    found = membership(members, SCHEMA)
    assert found.residuals == ()
    (word,) = found.indexed
    assert isinstance(word, Call)
    assert word.name == "element"


def test_the_plan_of_many_constants_does_not_grow_with_them() -> None:
    """Spark's code is the same for three hundred thresholds and for four hundred."""

    def nodes(count: int) -> list[int]:
        members = [(Call(">", (V, Literal(f"{n}L", "bigint"))),) for n in range(count)]
        found = membership(members, SCHEMA)
        assert found.stages
        return [sum(1 for _ in walk(e)) for stage in found.stages for e in stage]

    assert nodes(300) == nodes(400)


def test_nothing_behind_a_term_that_can_raise_is_indexed() -> None:
    cast = Call(">", (NUMBER, Literal("3", "int")))
    late = Call(">", (V, Literal("5L", "bigint")))
    behind, before = membership([(cast, late)], SCHEMA), membership([(late, cast)], SCHEMA)
    assert [conjuncts(c) for _, c in behind.residuals] == [(cast, late)]
    assert [conjuncts(c) for _, c in before.residuals] == [(cast,)]
    bad = Row(0, (1, None, "x", None))
    assert taken([(late, cast)], bad) == [False]
    with pytest.raises(RaisedError):
        taken([(cast, late)], bad)


def test_what_many_ask_is_asked_once() -> None:
    """A condition that is no test of a value: members that share it share its place in the code."""
    same = Call("like", (TAG, Literal("'%b%'", "string")))
    members = [(Call(">", (V, Literal(f"{n}L", "bigint"))), same) for n in range(40)]
    found = membership(members, SCHEMA)
    (word,) = narrowed(found, [Column(9)])
    assert sum(e == same for e in walk(word)) == 1
    for v, tag in ((7, "abc"), (7, "ac"), (7, None), (99, "b"), (None, "b")):
        row = Row(0, (v, None, tag, None))
        assert taken(members, row) == [holds(m, row) for m in members]


def agree(
    members: Sequence[Sequence[Expr]], schema: Schema, rows: Iterable[tuple[object, ...]]
) -> None:
    for row in (Row(0, values) for values in rows):
        try:
            expected = [holds(terms, row) for terms in members]
        except RaisedError:
            with pytest.raises(RaisedError):
                taken(members, row, schema)
        else:
            assert taken(members, row, schema) == expected, row


@pytest.mark.usefixtures("in_code_max")
def test_columns_with_a_constant_between_them() -> None:
    """All comparisons at once, as a search over the constants; sums that overflow raise."""
    schema = (Field("x", "int"), Field("y", "int"))
    x, y = Column(0), Column(1)
    literals = [Literal(str(c), "int") for c in (-3, 0, 2, 3)]
    members: list[tuple[Expr, ...]] = [
        (Call(name, sides),)
        for c in literals
        for name in COMPARISONS
        for sides in ((x, Call("+", (y, c))), (Call("-", (y, c)), x), (x, Call("+", (c, y))))
    ]
    assert membership(members, schema).residuals == ()
    numbers = (None, -5, -3, -2, 0, 1, 2, 3, 4)
    agree(members, schema, product(numbers, numbers))
    most = (1 << 31) - 1
    edges = (-most - 1, -most, -most + 2, most - 3, most - 2, most)
    agree(members, schema, product((0, *edges), (0, *edges)))
    for guard in (Call(">", (x, literals[3])), Call("like", (TAG, Literal("'%b%'", "string")))):
        guarded = [(guard, *terms) for terms in members]
        wide = (*schema, Field("tag", "string"))
        agree(guarded, wide, product((1, 4), (0, most), ("abc", "ac", None)))
    within = [
        (Call(">=", (x, Call("-", (y, c)))), Call("<=", (x, Call("+", (y, c))))) for c in literals
    ]
    assert membership(within, schema).residuals == ()
    agree(within, schema, product((*numbers, *edges), (*numbers, *edges)))


@pytest.mark.usefixtures("in_code_max")
def test_sums_that_are_rounded_keep_their_sides() -> None:
    """Beside 1e17 four constants are one: their sums are equal, and they are not."""
    schema = (Field("x", "double"), Field("y", "double"))
    x, y = Column(0), Column(1)
    members = [
        (Call(name, (x, Call(sign, (y, Literal(text, "double"))))),)
        for text in ("0.0D", "1.0D", "2.0D", "-3.0D", "0.1D", "40.0D")
        for name in COMPARISONS
        for sign in ("+", "-")
    ]
    numbers = (None, nan, inf, -inf, 0.0, -0.0, 0.1, 0.2, 1.0, 1e17, 1e17 + 16, 1e17 + 48, -3.0)
    agree(members, schema, product(numbers, numbers))
    ordered = [m for m in members if isinstance(m[0], Call) and m[0].name not in ("=", "<>")]
    assert membership(ordered, schema).residuals == ()


@pytest.mark.usefixtures("in_code_max")
def test_patterns_and_lists_and_what_they_are_not() -> None:
    texts = ("", "a", "ab", "abc", "abd", "ac", "b", "B", "ß", "ßa", "à", None)
    plain = [Call("like", (TAG, Literal(f"'{p}'", "string"))) for p in (*PATTERNS, "abc")]
    plain += [Call("startswith", (TAG, Literal(f"'{t}'", "string"))) for t in texts if t]
    plain += [Call("in", (TAG, *(Literal(f"'{t}'", "string") for t in ("a", "abc", "b"))))]
    members = [(term,) for term in plain] + [(Call("not", (term,)),) for term in plain]
    agree(members, SCHEMA, ((None, None, text, None) for text in texts))


def test_texts_that_begin_with_something_are_a_part_of_the_line() -> None:
    """A thousand beginnings are one search; whatever stands behind it."""
    members = [
        (Call("like", (TAG, Literal(f"'item {n}%'", "string"))),) for n in range(200)
    ]  # fmt: skip
    found = membership(members, SCHEMA)
    assert found.residuals == ()
    assert found.stages
    for tag in (
        None,
        "",
        "item",
        "item 1",
        "item 19",
        "item 199x",
        "item 2\U0010ffff",
        "itemA",
        "j",
    ):
        row = Row(0, (None, None, tag, None))
        assert taken(members, row) == [holds(m, row) for m in members]


# -- constants -----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(simple_terms(), ROWS)
def test_a_test_of_a_value_is_the_term_itself(term: Expr, row: Row) -> None:
    """Before, at and after a constant: the pieces of the line say what the term says."""
    test = constants.test_of(term, SCHEMA)
    if test is None or not test.constants:
        return
    found = value(test.value, row)
    places = sorted(set(test.constants))  # type: ignore[type-var]
    if found is None:
        assert value(term, row) is not True
        return
    exactly = next((p for p in places if value(Call("=", _pair(found, p)), row)), None)
    if exactly is not None:
        assert test.holds_at(exactly, exactly=True, after=False) == (value(term, row) is True)
        return
    below = [p for p in places if value(Call("<", _pair(p, found)), row)]
    place = below[-1] if below else places[0]
    assert test.holds_at(place, exactly=False, after=bool(below)) == (value(term, row) is True)


def _pair(left: object, right: object) -> tuple[Expr, Expr]:
    def constant(found: object) -> Expr:
        text = f"'{found}'" if isinstance(found, str) else str(found)
        return Literal(text, "any")

    return constant(left), constant(right)


@pytest.mark.parametrize(
    ("text", "type_", "wanted"),
    [
        ("5L", "bigint", 5),
        ("-7", "int", -7),
        ("3S", "smallint", 3),
        ("1.5D", "double", 1.5),
        ("-2.5E-3D", "double", -0.0025),
        ("'ab'", "string", "ab"),
        ("''", "string", ""),
        ("'it''s'", "string", None),
        (r"'a\n'", "string", None),
        ("CAST('NaN' AS DOUBLE)", "double", None),
        ("1e999D", "double", None),
        ("NULL", "bigint", None),
        ("1.50BD", "decimal(3,2)", Decimal("1.5")),
        ("TRUE", "boolean", None),
        ("1.5F", "float", None),
        ("DATE '2020-01-01'", "date", None),
    ],
)
def test_constants_whose_order_is_known(text: str, type_: str, wanted: object) -> None:
    assert constant_of(Literal(text, type_), type_) == wanted


def test_constants_of_another_type_than_the_value() -> None:
    assert constant_of(Literal("5", "int"), "bigint") == 5
    assert constant_of(Literal("5.5BD", "decimal(2,1)"), "int") == Decimal("5.5")
    assert constant_of(Literal("5", "int"), "double") == 5.0
    for literal, type_ in (
        (Literal("'5'", "string"), "bigint"),  # cast by Spark, and then it may raise
        (Literal("5", "int"), "string"),
        (Literal("5.0D", "double"), "bigint"),  # compared as doubles, which do not tell all apart
        (Literal(f"{2**60}L", "bigint"), "double"),
        (Literal("5", "int"), "float"),
        (Literal("5", "int"), "timestamp"),
    ):
        assert constant_of(literal, type_) is None
    assert constant_of(Column(1), "bigint") is None


def test_terms_that_are_no_tests() -> None:
    five = Literal("5L", "bigint")
    for term in (
        Call("<", (V, Column(3))),
        Call(">", (Call("+", (V, five)), five)),
        Call("<=>", (V, five)),
        *(
            Call("like", (TAG, Literal(text, "string")))
            for text in ("'a%b'", "'%a'", "'a_'", "'%'", r"'a\\%'", "'a''%'", "'&%'", "'[%'")
        ),
        Call("like", (TAG, TAG)),
        Call("like_escape", (TAG, Literal("'a%'", "string"), Literal("'!'", "string"))),
        Call("not", (Call("in", (V, five, Literal("NULL", "bigint"))),)),
        Call("=", (Call("%", (V, Literal("0", "int"))), five)),
        Call("=", (Call("%", (V, V)), five)),
        Call("=", (Call("lower", (V,)), Literal("'a'", "string"))),
        Call("=", (Call("substring", (TAG, B)), Literal("'a'", "string"))),
        Call("not", (Call(">", (V, five)),)),
        Call("in", (V, five, Column(3))),
        Call("is_null", (Call("+", (V, five)),)),
    ):
        assert constants.test_of(term, SCHEMA) is None
    mirrored = constants.test_of(Call("<", (five, V)), SCHEMA)
    assert mirrored is not None
    assert (mirrored.value, mirrored.operator) == (V, ">")
