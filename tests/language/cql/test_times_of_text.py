"""Texts become timestamps only by a date of their own: no result depends on the day of the run."""

from typing import Any

import pytest
from pyspark.errors import PySparkException

from language.cql.binding import Binding
from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.streams import guarded_time
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.plan.expressions import Expr
from millstream.language.plan.nodes import Project, Union
from millstream.language.plan.schema import Field
from millstream.language.plan.sql_text import sql

pytestmark = pytest.mark.spark
COLUMNS = (Field("k", "string"), Field("at", "timestamp"), Field("a", "array<string>"))
WORDS = Catalog(tuple(StreamDefinition(name, COLUMNS, "at") for name in ("s", "t")))
WHOLE = " 2026-01-31 12:30:00"
ALONE = ["12:30", "T12:30:00", " 1:2", "\t23:59:59.5", "T7"]


@pytest.fixture
def binding(analyzer: Analyzer) -> Binding:
    return Binding(analyzer, WORDS)


@pytest.mark.parametrize(
    "expression",
    [
        "CAST('12:30' AS timestamp)", "try_cast('T12:30' AS timestamp)", "timestamp '12:30'",
        "to_timestamp('12:30')", "try_to_timestamp('12:30')", "to_timestamp_ltz(' 12:30 ')",
        "ts > '00:30'", "ts BETWEEN '00:30' AND '2026-01-31'", "at IN ('2026-01-31', '9:00')",
        "coalesce(at, '12:30')", "hour('12:30')", "date_format('12:30', 'HH')",
        "at - '12:30'", "CASE WHEN k = 'a' THEN at ELSE '12:30' END", "minute('T12:30')",
        "timestamp('12:30')",
    ],
)  # fmt: skip
def test_a_constant_without_a_date_is_refused(binding: Binding, expression: str) -> None:
    with pytest.raises(CqlError) as caught:
        binding.plan(f"SELECT {expression} AS x FROM s")
    assert "is a time of day without a date" in caught.value.message
    assert "'2026-01-31 " in caught.value.hint


@pytest.mark.parametrize(
    "expression",
    [
        "CAST('today UTC' AS timestamp)", "try_cast('now' AS timestamp)", "ts > 'yesterday'",
        "CAST('now' AS timestamp_ntz)", "CAST('tomorrow CET' AS date)", "to_timestamp('Today')",
    ],
)  # fmt: skip
def test_words_for_the_day_of_the_run_are_refused(binding: Binding, expression: str) -> None:
    with pytest.raises(CqlError, match="depends on when it is read"):
        binding.plan(f"SELECT {expression} AS x FROM s")


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("from_json(k, 'x timestamp')", "from_json cannot read timestamps", "as a string"),
        ("from_csv(k, 'x array<int>, y timestamp')", "from_csv cannot read", "as a string"),
        ("variant_get(parse_json(k), '$', 'timestamp')", "variant_get cannot", "as a string"),
        ("CAST(parse_json(k) AS timestamp)", "texts in variant", "CAST(CAST(x AS string)"),
        ("CAST(a AS array<timestamp>)", "texts in array<string>", "CAST(CAST(x AS string)"),
        ("transform(a, x -> hour(x))", "inside a lambda", "CAST(x AS timestamp)"),
        ("transform(a, x -> from_json(x, 'y timestamp'))", "from_json cannot", "as a string"),
    ],
)
def test_what_nothing_can_guard_is_refused(
    binding: Binding, expression: str, message: str, hint: str
) -> None:
    with pytest.raises(CqlError) as caught:
        binding.plan(f"SELECT {expression} AS x FROM s")
    assert message in caught.value.message
    assert hint in caught.value.hint


def value(spark: Any, expression: Expr, text: str) -> Any:
    """An expression for one row, with nothing folded away."""
    row = spark.createDataFrame(
        [(text, None, [text], 0)], "c0 string, c1 timestamp, c2 array<string>, _ts bigint"
    )
    return row.selectExpr(f"CAST({sql(expression)} AS string) AS x").collect()[0][0]


STRICT = [
    "CAST(k AS timestamp)", "to_timestamp(k)", "to_timestamp_ltz(k)", "k > at", "hour(k)",
    "coalesce(at, k)", "date_format(k, 'yyyy')", "date_trunc('day', k)", "k - INTERVAL '1' SECOND",
    "from_utc_timestamp(k, 'UTC')", "extract(HOUR FROM k)", "months_between(k, k)", "timestamp(k)",
    "CASE WHEN at IS NULL THEN k ELSE at END", "transform(a, x -> CAST(x AS timestamp))",
    "CAST(concat(k, '') AS timestamp)", "unix_timestamp(CAST(k AS timestamp))",
]  # fmt: skip
LENIENT = [
    "try_cast(k AS timestamp)", "try_to_timestamp(k)",
    "transform(a, x -> try_cast(x AS timestamp))[0]",
]  # fmt: skip


@pytest.mark.parametrize("expression", STRICT)
def test_a_text_of_the_data_without_a_date_fails(
    binding: Binding, spark: Any, expression: str
) -> None:
    root = binding.plan(f"SELECT {expression} AS x FROM s").root
    assert isinstance(root, Project)
    value(spark, root.columns[0], WHOLE)
    for text in ALONE:
        with pytest.raises(PySparkException, match="no date"):
            value(spark, root.columns[0], text)


@pytest.mark.parametrize("expression", LENIENT)
def test_a_lenient_cast_gives_null(binding: Binding, spark: Any, expression: str) -> None:
    root = binding.plan(f"SELECT {expression} AS x FROM s").root
    assert isinstance(root, Project)
    assert value(spark, root.columns[0], WHOLE) == "2026-01-31 12:30:00"
    assert [value(spark, root.columns[0], text) for text in (*ALONE, "x")] == [None] * 6


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2026-01-31T12:30:00+02:00", "2026-01-31 10:30:00"), ("2026", "2026-01-01 00:00:00"),
        ("\n2026-1-3 ", "2026-01-03 00:00:00"), ("+12026-01-31", "+12026-01-31 00:00:00"),
        ("-0044-03-15 9:8:7.5", "-0044-03-15 09:08:07.5"),
    ],
)  # fmt: skip
def test_every_text_with_a_date_is_read_as_before(
    binding: Binding, spark: Any, text: str, read: str
) -> None:
    root = binding.plan("SELECT CAST(k AS timestamp) AS x FROM s").root
    assert isinstance(root, Project)
    assert value(spark, root.columns[0], text) == read


def test_a_constant_that_is_computed_is_no_way_around(binding: Binding, spark: Any) -> None:
    for text in ("concat('no', 'w')", "concat('12', ':30')"):
        root = binding.plan(f"SELECT CAST({text} AS timestamp) AS x FROM s").root
        assert isinstance(root, Project)
        with pytest.raises(PySparkException, match="no date"):
            value(spark, root.columns[0], "")


def test_a_union_of_texts_and_timestamps(binding: Binding, spark: Any) -> None:
    root = binding.plan("SELECT at AS x FROM s UNION ALL SELECT k FROM t").root
    assert isinstance(root, Union)
    casts = [i.columns[0] for i in root.inputs if isinstance(i, Project)]
    texts = [c for c in casts if "(no date)" in sql(c)]
    assert len(texts) == 1
    with pytest.raises(PySparkException, match="no date"):
        value(spark, texts[0], "12:30")


def test_other_casts_stay_as_they_are(binding: Binding) -> None:
    for expression in ("CAST(at AS timestamp)", "CAST(k AS date)", "to_timestamp(k, 'HH:mm')",
                       "transform(a, x -> upper(x))", "from_json(k, 'timestamp string')",
                       "CAST('epoch' AS timestamp)", "upper(k)", "to_timestamp(at)"):  # fmt: skip
        root = binding.plan(f"SELECT {expression} AS x FROM s").root
        assert isinstance(root, Project)
        assert "no date" not in sql(root.columns[0]), expression


def test_explain_shows_what_was_written(binding: Binding) -> None:
    from millstream.language.plan.explain import explain  # noqa: PLC0415

    shown = explain(binding.plan("SELECT CAST(k AS timestamp) AS x FROM s"))
    assert "x = CAST(k AS timestamp)" in shown


@pytest.mark.parametrize(
    ("time", "guarded"),
    [("k", True), ("to_timestamp(k)", True), ("concat(k, '')", True), ("at", False),
     ("to_timestamp(k, 'HH:mm')", False), ("timestamp_seconds(5)", False)],
)  # fmt: skip
def test_the_time_of_a_stream(analyzer: Analyzer, time: str, guarded: bool) -> None:
    found = guarded_time(StreamDefinition("s", COLUMNS, time), analyzer)
    assert ("(no date)" in found) is guarded


def test_a_time_that_cannot_be_guarded_is_refused(analyzer: Any) -> None:
    lambdas = StreamDefinition("s", COLUMNS, "array_max(transform(a, x -> date_trunc('DAY', x)))")
    with pytest.raises(UsageError, match="a text is read as a timestamp inside a lambda"):
        analyzer.check_time(lambdas)
