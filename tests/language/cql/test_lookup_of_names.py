"""Names that mean nothing or several things: told by their type, not by the words of a message."""

import pytest
from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.binding.resolution import resolve_parts, resolver
from millstream.language.cql.binding.scope import (
    AmbiguousNameError,
    Member,
    Named,
    NameLookupError,
    Scope,
)
from millstream.language.cql.parsing.parser import parse_expression
from millstream.language.plan.expressions import Column
from millstream.language.plan.schema import Field

TWO = Scope(
    (Member("a", (Named("city", 0), Named("n", 1))), Member("b", (Named("city", 0),), offset=2)),
    tuple(Field(f"c{i}", "string") for i in range(3)),
)


def test_a_name_that_means_several_things_has_an_error_of_its_own() -> None:
    assert resolve_parts(TWO, ["n"], "WHERE") == Column(1)
    assert resolve_parts(TWO, ["b", "city"], "WHERE") == Column(2)
    with pytest.raises(AmbiguousNameError, match="column city is ambiguous"):
        resolve_parts(TWO, ["city"], "WHERE")
    with pytest.raises(AmbiguousNameError, match="ts is ambiguous in WHERE of a join"):
        resolve_parts(TWO, ["ts"], "WHERE")
    with pytest.raises(NameLookupError, match="unknown column cty; did you mean city") as unknown:
        resolve_parts(TWO, ["cty"], "WHERE")
    assert not isinstance(unknown.value, AmbiguousNameError)
    assert unknown.value.near == "; did you mean city?"


@pytest.mark.parametrize(
    ("value", "quotes"), [("Ulm", True), ("cityy", False), ("city", False), ("“Ulm”", True)]
)
def test_only_what_could_be_nothing_else_is_taken_for_a_text(value: str, quotes: bool) -> None:
    text, comparison = parse_expression(f"n = `{value}`")
    node = next(c for c in comparison.find_all(exp.Column) if c.name == value)
    with pytest.raises(CqlError) as refused:
        resolver(text, TWO, "WHERE")(node)
    assert ("put text in single quotes: 'Ulm'" in refused.value.hint) == quotes
