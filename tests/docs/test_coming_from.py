"""Each pair of spellings on the page for newcomers is one query: one plan, one fingerprint."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_cql_reference import blocks

from millstream.app.config import load_job
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.explain import explain

PAGE = Path(__file__).parents[2] / "docs" / "COMING_FROM.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
THEIRS = ("flink", "spark", "ksql", "risingwave")
PAIRS_LEAST = 14  # so that a broken pattern is noticed


def pairs() -> list[tuple[str, str]]:
    """Each text of another system with the CQL right after it."""
    found = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    both = [(a, b) for a, b in pairwise(found) if a[0] in THEIRS]
    assert all(after[0] == "cql" for _, after in both), "a spelling without its CQL"
    assert len(found) == 2 * len(both), "a block that stands alone"
    return [(theirs[1], ours[1]) for theirs, ours in both]


@pytest.mark.spark
def test_both_spellings_are_one_query(spark: Any, tmp_path: Path) -> None:
    from millstream.spark.analyzer import SparkAnalyzer  # noqa: PLC0415

    ((_, streams),) = blocks("toml")
    (tmp_path / "job.toml").write_text(f'{streams}\n[queries.q]\ncql = "SELECT 1"\n')
    for name, text in blocks("csv"):
        (tmp_path / name).write_text(text)
    catalog = Catalog(tuple(load_job(tmp_path / "job.toml").streams))
    analyzer = SparkAnalyzer(spark)
    known = pairs()
    assert len(known) >= PAIRS_LEAST
    for theirs, ours in known:
        there, here = (bind(parse_query(text), catalog, analyzer) for text in (theirs, ours))
        assert there.fingerprint == here.fingerprint, theirs
        assert explain(there) == explain(here), theirs
