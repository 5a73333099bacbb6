"""Spark and DuckDB agree on the made-up expressions: else the oracle would judge by its own quirks.

Both evaluate the same expressions, and aggregates that need no order, over the same rows.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from oracle.compare import difference
from oracle.evaluate import Oracle
from oracle.generate_expressions import Refs, aggregate, any_scalar, condition, having, kind_of
from oracle.generate_streams import COLUMNS, COMBINATIONS, values_of
from oracle.harness import files_of
from oracle.model import Expr, Item, Range, Row, Select, Source, Stream

pytestmark = pytest.mark.spark

ROWS = 120
HOUR = 3_600_000_000
STREAM = Stream(
    "s", COLUMNS, tuple(Row(n, values_of(n * COMBINATIONS // ROWS + n)) for n in range(ROWS))
)
REFS = Refs(tuple(Expr(c.name, c.name, kind_of(c.name, c.type)) for c in COLUMNS))
FEW = settings(
    max_examples=6,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=tuple(HealthCheck),
)


@st.composite
def scalars(draw: st.DrawFn) -> list[Expr]:
    count = draw(st.integers(1, 40))
    return [draw(st.sampled_from((any_scalar, condition)))(draw, REFS) for _ in range(count)]


@st.composite
def aggregates(draw: st.DrawFn) -> list[Expr]:
    count = draw(st.integers(1, 25))
    calls = [aggregate(draw, REFS, exact=False, ordered=False) for _ in range(count)]
    return [*calls, having(draw, REFS)]


def items_of(expressions: list[Expr]) -> tuple[Item, ...]:
    return tuple(Item(e, f"c{number}") for number, e in enumerate(expressions))


def by_spark(spark: Any, items: tuple[Item, ...], rest: str) -> list[dict[str, Any]]:
    (table,) = files_of(STREAM, [ROWS])
    spark.createDataFrame(table).createOrReplaceTempView("s")
    listed = ", ".join(f"{entry.expr.cql} AS {entry.name}" for entry in items)
    rows: list[dict[str, Any]] = spark.sql(f"SELECT {listed} FROM s {rest}").toArrow().to_pylist()
    return rows


def agree(spark: Any, query: Select, rest: str) -> None:
    with Oracle({"s": STREAM}) as oracle:
        expected = oracle.answer(query).rows
    actual = by_spark(spark, query.items, rest)
    for entry in query.items:
        found = difference(expected, actual, [entry.name])
        assert not found, f"{entry.expr.cql}: {found.missing[:3]} by DuckDB, {found.extra[:3]}"


@FEW
@given(expressions=scalars())
def test_scalar_expressions(spark: Any, expressions: list[Expr]) -> None:
    agree(spark, Select(items_of(expressions), (Source("s"),)), "")


@FEW
@given(expressions=aggregates())
def test_aggregates(spark: Any, expressions: list[Expr]) -> None:
    key = Expr("k", "k", "integer")
    query = Select(
        items_of([key, *expressions]),
        (Source("s", window=Range(HOUR, HOUR)),),
        keys=(key,),
    )
    agree(spark, query, "GROUP BY k")
