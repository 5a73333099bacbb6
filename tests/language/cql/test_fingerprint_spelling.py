"""Spelling does not change a fingerprint; meaning does."""

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from language.cql.binding import Binding
from millstream.language.cql.analyzer import Analyzer

pytestmark = pytest.mark.spark

MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "<>": "<>"}
STREAMS = ("r", "s", "t")
NUMBERS = ("v", "w")


@dataclass(frozen=True)
class Compare:
    """`left operator right`; operands are (member, column) or a constant."""

    operator: str
    left: tuple[int, str]
    right: tuple[int, str] | int


@dataclass(frozen=True)
class Model:
    """A join of windowed streams with a conjunction and a select list."""

    members: tuple[tuple[str, int], ...]  # stream and range in seconds
    conjuncts: tuple[Compare, ...]
    columns: tuple[tuple[int, str], ...]


@st.composite
def models(draw: st.DrawFn) -> Model:
    count = draw(st.integers(1, 3))
    members = tuple((draw(st.sampled_from(STREAMS)), draw(st.integers(1, 3))) for _ in range(count))
    operand = st.tuples(st.integers(0, count - 1), st.sampled_from(NUMBERS))
    compare = st.builds(
        Compare, st.sampled_from(sorted(MIRROR)), operand, operand | st.integers(0, 3)
    )
    conjuncts = tuple(draw(st.lists(compare, max_size=4)))
    columns = tuple(draw(st.lists(operand, min_size=1, max_size=3)))
    return Model(members, conjuncts, columns)


def plain(model: Model) -> str:
    return spelled(model, random.Random(0), shuffled=False)


def spelled(model: Model, dice: random.Random, *, shuffled: bool = True) -> str:
    """The query in one of many spellings."""
    names = [f"m{i}" if not shuffled else f"n{dice.randrange(10**6)}_{i}" for i in range(3)]

    def operand(part: tuple[int, str] | int) -> str:
        return str(part) if isinstance(part, int) else f"{names[part[0]]}.{part[1]}"

    terms = []
    for c in model.conjuncts:
        left, operator, right = operand(c.left), c.operator, operand(c.right)
        if shuffled and dice.random() < 0.5:
            left, operator, right = right, MIRROR[operator], left
        terms.append(f"{left} {operator} {right}")
    order = list(range(len(model.members)))
    if shuffled:
        dice.shuffle(terms)
        dice.shuffle(order)
    items = []
    for i in order:
        stream, seconds = model.members[i]
        items.append(f"{stream} AS {names[i]} [RANGE {_length(seconds, dice, shuffled)}]")
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    select = ", ".join(
        f"{operand(c)} AS {'o' if not shuffled else names[0]}{i}"
        for i, c in enumerate(model.columns)
    )
    joint = dice.choice((", ", " CROSS JOIN ", " JOIN ")) if shuffled else ", "
    return f"SELECT {select} FROM {joint.join(items)}{where}"


def _length(seconds: int, dice: random.Random, shuffled: bool) -> str:
    spellings = (f"{seconds} SECONDS", f"{seconds}s", f"{seconds * 1000} ms", f"'{seconds}' second")
    return dice.choice(spellings) if shuffled else spellings[0]


def changed(model: Model, dice: random.Random) -> Model:
    """Another meaning: a constant, an operator, a window or a column differs."""
    members, conjuncts = list(model.members), list(model.conjuncts)
    choice = dice.randrange(3)
    if choice == 0 and conjuncts:
        at = dice.randrange(len(conjuncts))
        conjuncts[at] = replace(conjuncts[at], right=99)
        return replace(model, conjuncts=tuple(conjuncts))
    if choice == 1 and len(members) > 1:
        at = dice.randrange(len(members))
        members[at] = (members[at][0], members[at][1] + 10)
        return replace(model, members=tuple(members))
    return replace(model, columns=(*model.columns, (0, "x")))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(models(), st.integers(0, 2**32))
def test_spelling_does_not_matter(analyzer: Analyzer, model: Model, seed: int) -> None:
    binding = Binding(analyzer)
    dice = random.Random(seed)
    expected = binding.fingerprint(plain(model))
    for _ in range(2):
        text = spelled(model, dice)
        assert binding.fingerprint(text) == expected, text


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(models(), st.integers(0, 2**32))
def test_meaning_matters(analyzer: Analyzer, model: Model, seed: int) -> None:
    binding = Binding(analyzer)
    dice = random.Random(seed)
    other = changed(model, dice)
    assert binding.fingerprint(spelled(other, dice)) != binding.fingerprint(plain(model))
