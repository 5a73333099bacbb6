"""Binding in tests: a catalog of small streams and a way to bind texts over it."""

from dataclasses import dataclass

from millstream.cql.analyzer import Analyzer
from millstream.cql.binder import bind
from millstream.cql.catalog import Catalog, StreamDefinition
from millstream.cql.parser import parse_query
from millstream.plan.nodes import Plan
from millstream.plan.schema import Field
from millstream.plan.windows import BEGINNING

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
