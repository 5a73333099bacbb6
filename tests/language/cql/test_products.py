"""A join of windows without an end that no equality links is asked for by name, or refused."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError
from millstream.language.cql.binding.joins.products import HINT, MESSAGE, unasked_product
from millstream.language.cql.parsing.parser import parse_query

REFUSED = (
    "SELECT a.v FROM r [UNBOUNDED] a, r [UNBOUNDED] b",
    "SELECT a.v FROM r a, s b",  # without a window: unbounded
    "SELECT a.v FROM r [UNBOUNDED] a JOIN s [UNBOUNDED] b ON a.v < b.v",
    "SELECT a.v FROM r [UNBOUNDED] a, s [UNBOUNDED] b WHERE a.k = 'x' AND b.k = 'x'",
    "SELECT a.v FROM r [UNBOUNDED] a, s [UNBOUNDED] b, t [UNBOUNDED] c WHERE a.k = b.k",
    "SELECT x.n FROM (SELECT a.v AS n FROM r a, s b) [ROWS 2] x",
    "SELECT a.v FROM r a, s b CROSS JOIN UNNEST(split(a.k, ',')) AS u(e)",
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


@pytest.mark.spark
def test_products_without_end_are_asked_for(binding: Binding) -> None:
    for text in REFUSED:
        found = unasked_product(parse_query(text), binding.plan(text))
        assert isinstance(found, CqlError), text
        assert (found.message, found.hint) == (MESSAGE, HINT)
        assert found.length < len(text)
    for text in TAKEN:
        assert unasked_product(parse_query(text), binding.plan(text)) is None, text
