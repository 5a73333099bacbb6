"""Whether one condition is true wherever another is.

Decided over typed expressions and 'is true': a row for which a condition is null does not satisfy
it. Conditions are conjunctions. Comparisons of one value with constants are sets on an ordered line
(`constants`); anything else is implied only by an equal conjunct. Undecided means not implied.
"""

from collections.abc import Sequence

from millstream.language.plan.expressions import Call, Expr, total
from millstream.language.plan.keys import expression_key
from millstream.language.plan.schema import Schema
from millstream.language.share.constants import Constant, Test, test_of


def implies(stronger: Sequence[Expr], weaker: Sequence[Expr], schema: Schema) -> bool:
    """Whether every row that satisfies all of `stronger` satisfies all of `weaker`.

    >>> from millstream.language.plan.expressions import Column, Literal
    >>> from millstream.language.plan.schema import Field
    >>> above = lambda n: Call(">", (Column(0), Literal(str(n), "int")))
    >>> implies([above(20)], [above(10)], (Field("v", "int"),))
    True
    >>> implies([above(10)], [above(20)], (Field("v", "int"),))
    False
    """
    known = {expression_key(t) for t in stronger}
    tests = [t for t in (test_of(term, schema) for term in stronger) if t is not None]
    return all(expression_key(term) in known or _follows(tests, term, schema) for term in weaker)


def residual(stronger: Sequence[Expr], weaker: Sequence[Expr], schema: Schema) -> tuple[Expr, ...]:
    """What is left to ask of rows that satisfy `weaker`, to get those that satisfy `stronger`.

    Where a conjunct can raise, all that stand before it stay as its guards.
    """
    if not all(total(t) for t in stronger):
        return tuple(stronger)
    return tuple(t for t in stronger if not implies(weaker, [t], schema))


def _follows(known: Sequence[Test], term: Expr, schema: Schema) -> bool:
    """Whether tests of one value leave it no place at which the term is not true."""
    match term:
        case Call("or", args):
            return any(_follows(known, arg, schema) for arg in args)
    wanted = test_of(term, schema)
    if wanted is None:
        return False
    mine = [t for t in known if t.value == wanted.value]
    if not mine:
        return False
    if all(t.operator == "is_null" for t in mine):
        return wanted.operator == "is_null"
    if wanted.operator == "is_null":
        return False
    places = sorted({c for t in (*mine, wanted) for c in t.constants})
    stops: list[tuple[Constant, bool, bool]] = [(places[0] if places else 0, False, False)]
    for place in places:
        stops += [(place, True, False), (place, False, True)]
    return all(
        wanted.holds_at(place, exactly=exactly, after=after)
        for place, exactly, after in stops
        if all(t.holds_at(place, exactly=exactly, after=after) for t in mine)
    )
