"""Binding in tests: a catalog of small streams and a way to bind texts over it."""

from dataclasses import dataclass

import pytest

from millstream.core.errors import CqlError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.nodes import Plan
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING

COLUMNS = tuple(
    Field(name, type_)
    for name, type_ in (
        ("k", "string"),
        ("v", "int"),
        ("w", "bigint"),
        ("x", "double"),
        ("at", "timestamp"),
    )
)
SMALL = Catalog(tuple(StreamDefinition(name, COLUMNS, "at") for name in ("r", "s", "t")))


@dataclass(frozen=True)
class Binding:
    analyzer: Analyzer
    catalog: Catalog = SMALL

    def plan(self, text: str, start: int = BEGINNING) -> Plan:
        return bind(parse_query(text), self.catalog, self.analyzer, start=start)

    def fingerprint(self, text: str, start: int = BEGINNING) -> str:
        return self.plan(text, start).fingerprint

    def refuses(self, text: str, message: str, instead: str) -> None:
        """The text is refused with a message, and what its hint leads to is not."""
        with pytest.raises(CqlError) as refused:
            self.plan(text)
        assert message in str(refused.value)
        self.plan(instead)
