"""Every example of docs/CQL.md runs and gives the rows printed below it.

The document's own streams, files and queries become one job; it is run as `millstream run` runs it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from millstream.app.config import load_job
from millstream.app.runs.folder import RunFolder
from millstream.app.runs.job_run import RunSettings, run_job
from millstream.core.errors import CqlError
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.explain import explain

DOCUMENT = Path(__file__).parents[2] / "docs" / "CQL.md"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES_LEAST = 24  # so that a broken pattern is noticed


@dataclass(frozen=True)
class Example:
    name: str
    cql: str
    expected: str


def blocks(kind: str) -> list[tuple[str, str]]:
    """Fenced blocks of a kind: the word after it, and the text."""
    found = FENCE.findall(DOCUMENT.read_text(encoding="utf-8"))
    return [(name, text) for word, name, text in found if word == kind]


def examples() -> list[Example]:
    """Each ```sql block with the ```text block right after it."""
    found = [(word, text) for word, _, text in FENCE.findall(DOCUMENT.read_text("utf-8"))]
    pairs = pairwise(found)
    queries = [(text, after) for (word, text), after in pairs if word == "sql"]
    assert all(word == "text" for _, (word, _) in queries), "an example without rows"
    return [Example(f"q{i}", cql, after) for i, (cql, (_, after)) in enumerate(queries)]


EXAMPLES = examples()


@pytest.fixture(scope="module")
def results(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The rows of every example, each as its values joined by bars."""
    folder = tmp_path_factory.mktemp("reference")
    for name, text in blocks("csv"):
        (folder / name).write_text(text, encoding="utf-8")
    ((_, streams),) = blocks("toml")
    queries = "".join(f"[queries.{e.name}]\ncql = {json.dumps(e.cql)}\n" for e in EXAMPLES)
    (folder / "job.toml").write_text(f"{streams}\n{queries}", encoding="utf-8")
    out = folder / "out"
    with RunFolder(out) as opened:
        run_job(load_job(folder / "job.toml"), opened, RunSettings())
    return {e.name: list(rows(out / e.name, e.expected)) for e in EXAMPLES}


def rows(folder: Path, expected: str) -> Iterator[str]:
    table = ds.dataset(folder, format="parquet", ignore_prefixes=[".", "_"]).to_table()
    names = header(expected)
    hidden = {"ts"} if expected.startswith("table\n") else set()
    assert set(table.column_names) - hidden == set(names)
    for row in table.to_pylist():
        yield " | ".join(shown(row[name]) for name in names)


def header(expected: str) -> list[str]:
    first = expected.removeprefix("table\n").split("\n")[0]
    return [name.strip() for name in first.split("|")]


def shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return value.time().isoformat()
    if isinstance(value, float):
        return str(round(value, 9))
    return str(value)


@pytest.mark.spark
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.cql.split("\n")[0][:60])
def test_an_example_gives_its_rows(example: Example, results: dict[str, list[str]]) -> None:
    printed = example.expected.removeprefix("table\n").strip().split("\n")[1:]
    expected = [" | ".join(part.strip() for part in line.split("|")) for line in printed]
    assert Counter(results[example.name]) == Counter(expected), example.cql


@pytest.mark.spark
def test_the_plan_and_the_error_shown_are_real(spark: Any, tmp_path: Path) -> None:
    from millstream.spark.analyzer import SparkAnalyzer  # noqa: PLC0415

    ((_, streams),) = blocks("toml")
    (tmp_path / "job.toml").write_text(f'{streams}\n[queries.q]\ncql = "SELECT 1"\n')
    for name, text in blocks("csv"):
        (tmp_path / name).write_text(text)
    catalog = Catalog(tuple(load_job(tmp_path / "job.toml").streams))
    analyzer = SparkAnalyzer(spark)
    ((_, plan),) = blocks("explain")
    (joined,) = [e for e in EXAMPLES if e.cql.startswith("SELECT i.sensor, i.kind, r.speed")]
    assert explain(bind(parse_query(joined.cql), catalog, analyzer)) == plan.strip()
    ((_, error),) = blocks("error")
    with pytest.raises(CqlError) as caught:
        bind(parse_query("SELECT sensor, sped FROM readings"), catalog, analyzer)
    assert str(caught.value) == error.rstrip()


def test_there_are_as_many_examples_as_there_should_be() -> None:
    assert len(EXAMPLES) >= EXAMPLES_LEAST
