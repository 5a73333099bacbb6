"""Joins of many streams by any way: from parts that others use, moved under load, as in DuckDB."""

import random
from pathlib import Path
from typing import Any

import pytest
from processors_together import Cluster, ClusterRunner
from test_moves import Disturbance

from oracle.harness import Example, cut, judge
from oracle.model import (
    SECOND,
    Column,
    Item,
    Range,
    Row,
    Select,
    Source,
    Stream,
    Sub,
    agg,
    expr,
    item,
)

pytestmark = pytest.mark.spark
FIVE, NINE = Range(5 * SECOND), Range(9 * SECOND)
A, B, C = Source("a", "x", FIVE), Source("b", "y", NINE), Source("c", "z", FIVE)
THREE = Select(
    (item("x.name"), item("x.n"), item("y.n", "m"), item("z.n", "o")),
    (A, B, C),
    where=expr("x.name = y.name AND y.name = z.name AND x.n < z.n"),
)
QUERIES = (
    THREE,
    Select(  # the same inputs in another order, equal by way of others, and other columns
        (item("z.n"), item("x.name")), (C, A, B), where=expr("z.name = x.name AND x.name = y.name")
    ),
    Select(
        (item("x.n"), item("y.n", "m")), (B, A), where=expr("x.name = y.name"),
    ),
    Select(  # a stream twice
        (item("x.n"), item("w.n", "v"), item("y.n", "m"), item("z.n", "o")),
        (A, C, Source("a", "w", NINE), B),
        where=expr("x.name = y.name AND z.name = w.name AND x.name = w.name AND x.n = z.n"),
    ),
    Select(
        (item("name"), Item(agg("count(*)"), "c")),
        (Sub(THREE, "j", Range(10 * SECOND, 5 * SECOND)),),
        keys=(expr("name"),),
    ),
)  # fmt: skip


def made_up(rows: int, seed: int) -> tuple[Stream, ...]:
    """Three streams out of order, with late rows."""
    chance = random.Random(seed)
    columns = (Column("name", "string"), Column("n", "int"))
    streams = []
    for name in "abc":
        found = []
        for i in range(rows):
            at = i // 2 + chance.choice((0, 0, 0, 1, 2, -1, -9))
            found.append(Row(max(at, 0) * SECOND, (chance.choice("uvw"), chance.randrange(6))))
        streams.append(Stream(name, columns, tuple(found), 3 * SECOND))
    return tuple(streams)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_order_gives_one_answer(spark: Any, tmp_path: Path, seed: int) -> None:
    streams = made_up(60, seed)
    example = Example(streams, cut(streams, 20), QUERIES)
    disturbance = Disturbance(2)
    used: dict[str, tuple[str, ...]] = {}

    def disturb(cluster: Cluster, chance: random.Random) -> None:
        used.update(cluster.ways)
        disturbance(cluster, chance)

    runner = ClusterRunner(spark, tmp_path, 2, seed=seed, disturb=disturb, any_order=True)
    results = runner.run(streams, example.texts(), example.batches)
    assert any(i.startswith("o:") for inputs in used.values() for i in inputs)
    problems = judge(example, results)
    assert not problems, "\n\n".join(problems)
