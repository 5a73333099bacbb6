"""MATCH_RECOGNIZE agrees with brute force, whatever the batches, the disorder and the company."""

import random
from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction

from millstream.engine.settings import EngineSettings
from oracle.compare import difference
from oracle.model import Column, Stream
from oracle.plain_sql import made_up
from oracle.row_patterns import Search, expected, random_search

pytestmark = pytest.mark.spark

COLUMNS = (Column("k", "string"), Column("v", "int"), Column("x", "double"))
VALUES = {"k": ("a", "b", None), "v": (1, 2, 3, None), "x": (0.5, 1.5, -2.0, 2.5)}


def disagreements(
    searches: dict[str, Search], stream: Stream, results: dict[str, list[dict[str, Any]]]
) -> list[str]:
    told = []
    for name, search in searches.items():
        wanted = expected(search, stream)
        columns = [*search.keys, *search.measures, "ts"]
        found = difference(wanted, results[name], columns)
        if found:
            told.append(
                f"{name}: {search.cql}\n{columns}\nmissing {found.missing[:5]}\n"
                f"extra   {found.extra[:5]}"
            )
    return told


@pytest.mark.parametrize(("seed", "sharing"), [(1, "subsuming"), (2, "none")])
def test_matches_agree_with_brute_force(
    seed: int, sharing: str, spark: Any, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    made = made_up("s", COLUMNS, VALUES, rows=48, seed=seed)
    searches = {f"q{i}": random_search(dice) for i in range(8)}
    assert sum(bool(expected(s, made)) for s in searches.values()) > 4, "too little is judged"
    disturbed = EngineRunner(
        spark, tmp_path, EngineSettings(sharing=sharing), between_steps=ForcedCompaction(share=0.3)
    )
    texts = {name: search.cql for name, search in searches.items()}
    results = disturbed.run([made], texts, {"s": [16, 7, 25]})
    assert not disagreements(searches, made, results)
