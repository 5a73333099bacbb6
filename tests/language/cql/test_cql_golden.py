"""Queries and what becomes of them, as text: tests/golden/cql/*.cql.

A fixture is a file of blocks: a directive line, a text, `----`, and what is expected. Directives:
`explain` (the plan), `error` (the message), `same` and `differ` (texts, separated by a line `;`,
with one fingerprint or all different ones). `MILLSTREAM_GOLDEN=write` rewrites expectations.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.core.errors import UsageError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.catalog import Catalog, UserFunction
from millstream.language.cql.parsing.parser import CreateStream, parse, parse_query
from millstream.language.plan.explain import explain
from millstream.language.plan.nodes import Plan
from millstream.language.plan.rewrite import starting_at

GOLDEN = Path(__file__).parents[2] / "golden" / "cql"
FILES = sorted(GOLDEN.glob("*.cql"))
START = 1_700_000_000_000_000
DIRECTIVES = ("explain", "error", "same", "differ")


@dataclass(frozen=True)
class Block:
    comment: str
    directive: str
    text: str
    expected: str

    def with_expected(self, expected: str) -> str:
        return f"{self.comment}{self.directive}\n{self.text}\n----\n{expected}\n"


def blocks(source: str) -> list[Block]:
    found = []
    for chunk in source.strip().split("\n\n"):
        lines = chunk.split("\n")
        comment = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            continue
        directive, *body = rest
        assert directive in DIRECTIVES, f"unknown directive {directive!r}"
        cut = body.index("----") if "----" in body else len(body)
        shown = "".join(f"{line}\n" for line in comment)
        found.append(Block(shown, directive, "\n".join(body[:cut]), "\n".join(body[cut + 1 :])))
    return found


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    made = Catalog(functions=(UserFunction("mask", "2"),))
    for statement in parse((GOLDEN / "streams.sql").read_text()):
        assert isinstance(statement, CreateStream)
        made = made.with_stream(statement.definition)
    return made


def outcome(block: Block, catalog: Catalog, analyzer: Analyzer) -> str:
    def plan(text: str) -> Plan:
        return bind(parse_query(text), catalog, analyzer)

    texts = block.text.split("\n;\n")
    try:
        plans = [plan(text) for text in texts]
    except UsageError as mistake:
        return f"{'' if block.directive == 'error' else 'unexpected: '}{mistake}"
    if block.directive == "error":
        return "no error"
    if block.directive == "explain":
        return explain(plans[0])
    prints = [plan.fingerprint for plan in plans]
    wanted = 1 if block.directive == "same" else len(prints)
    return "yes" if len(set(prints)) == wanted else f"no: {len(set(prints))} fingerprints"


@pytest.mark.spark
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_golden(path: Path, catalog: Catalog, analyzer: Analyzer) -> None:
    found = blocks(path.read_text())
    assert found
    got = [outcome(block, catalog, analyzer) for block in found]
    if os.environ.get("MILLSTREAM_GOLDEN") == "write":
        texts = [block.with_expected(text) for block, text in zip(found, got, strict=True)]
        path.write_text("\n".join(texts))
        return
    for block, text in zip(found, got, strict=True):
        assert text == block.expected, block.text


@pytest.mark.spark
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_plan_with_a_start_is_the_plan_started_there(
    path: Path, catalog: Catalog, analyzer: Analyzer
) -> None:
    """Whoever has the plan of all rows need not read the text again for those from a start on."""
    for block in blocks(path.read_text()):
        if block.directive == "explain":
            query = parse_query(block.text)
            whole = bind(query, catalog, analyzer)
            started = bind(parse_query(block.text), catalog, analyzer, start=START)
            assert starting_at(whole.root, START) == started.root, block.text
