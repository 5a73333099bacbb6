"""A join of windows without an end that no equality links is asked for by name, or refused."""

from collections.abc import Sequence

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError
from millstream.language.cql.binding.joins.products import HINT, MESSAGE, unasked_product
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.schema import Schema

REFUSED = (
    "SELECT a.v FROM r [UNBOUNDED] a, r [UNBOUNDED] b",
    "SELECT a.v FROM r a, s b",  # without a window: unbounded
    "SELECT a.v FROM r [UNBOUNDED] a JOIN s [UNBOUNDED] b ON a.v < b.v",
    "SELECT a.v FROM r [UNBOUNDED] a, s [UNBOUNDED] b WHERE a.k = 'x' AND b.k = 'x'",
    "SELECT a.v FROM r [UNBOUNDED] a, s [UNBOUNDED] b, t [UNBOUNDED] c WHERE a.k = b.k",
    "SELECT x.n FROM (SELECT a.v AS n FROM r a, s b) [ROWS 2] x",
)
TAKEN = (
    "SELECT a.v FROM r [UNBOUNDED] a CROSS JOIN r [UNBOUNDED] b",
    "SELECT a.v FROM r a CROSS JOIN s b WHERE a.v < b.v",
    "SELECT a.v FROM r [UNBOUNDED] a, s [UNBOUNDED] b WHERE a.k = b.k",
    "SELECT a.v FROM r a JOIN s b ON a.k = b.k AND a.v < b.v",
    "SELECT a.v FROM r [UNBOUNDED] a, s [NOW] b WHERE a.v < b.v",  # each row of b once
    "SELECT a.v FROM r [RANGE 1 MINUTE] a, s [RANGE 1 MINUTE] b WHERE a.v < b.v",
    "SELECT a.v FROM r [RANGE 1 MINUTE] a, s [RANGE 1 MINUTE] b",
    "SELECT a.v FROM r [ROWS 5] a, s [ROWS 5] b",
)


class Types:
    """Enough of an analyser for these texts: no Spark is needed to see what is linked."""

    def analyse(
        self, columns: Schema, expressions: Sequence[str], *, aggregates: bool = False
    ) -> tuple[str, ...]:
        del columns, aggregates
        return tuple("boolean" if set("=<") & set(text) else "int" for text in expressions)

    def computable(self, constant: str) -> bool:
        return bool(constant)

    def read_as_times(self, columns: Schema, expression: str) -> frozenset[int] | None:
        del columns, expression
        return frozenset()

    def reads_texts_as_times(self, columns: Schema, expression: str) -> bool:
        return not (columns or expression)


def refusal(text: str) -> CqlError | None:
    return unasked_product(parse_query(text), Binding(Types()).plan(text))


@pytest.mark.parametrize("text", REFUSED)
def test_a_product_without_end_is_refused(text: str) -> None:
    found = refusal(text)
    assert found is not None
    assert (found.message, found.hint) == (MESSAGE, HINT)
    assert found.length < len(text)


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_asked_for_or_bounded_is_taken(text: str) -> None:
    assert refusal(text) is None
