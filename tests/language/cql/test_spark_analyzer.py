"""Spark's analyser behind the protocol."""

from typing import Any

import pytest

from millstream.language.cql.analyzer import AnalysisFailure
from millstream.language.cql.functions import unrepeatable
from millstream.language.cql.known_types import known_type
from millstream.language.cql.literals import number, string
from millstream.language.plan.expressions import Call, Column, Expr
from millstream.language.plan.schema import Field
from millstream.language.plan.sql_text import sql
from millstream.spark.analyzer import SparkAnalyzer, sentence

pytestmark = pytest.mark.spark

ROW = (Field("speed", "int"), Field("name", "string"), Field("tags", "array<string>"))


@pytest.fixture(scope="module")
def analyzer(spark: Any) -> SparkAnalyzer:
    return SparkAnalyzer(spark)


def failure(
    analyzer: SparkAnalyzer, *expressions: str, aggregates: bool = False
) -> AnalysisFailure:
    with pytest.raises(AnalysisFailure) as caught:
        analyzer.analyse(ROW, expressions, aggregates=aggregates)
    return caught.value


def test_types(analyzer: SparkAnalyzer) -> None:
    assert analyzer.analyse(ROW, []) == ()
    texts = ["c0 + 1", "c1", "timestamp_micros(_ts)", "c0 / 2", "c2[0]", "c0 + 1"]
    assert analyzer.analyse(ROW, texts) == ("int", "string", "timestamp", "double", "string", "int")
    assert analyzer.analyse(ROW, ["sum(c0)", "max(c1)"], aggregates=True) == ("bigint", "string")
    assert analyzer.analyse((), ["1"]) == ("int",)


def test_the_first_bad_one_is_named(analyzer: SparkAnalyzer) -> None:
    assert failure(analyzer, "c0", "c1", "lowr(c1)", "c0 + c2").index == 2
    assert failure(analyzer, "c0", "c0 + c2", "lowr(c1)").index == 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("lowr(c1)", "unknown function lowr; did you mean lower?"),
        ("c0 + c2", 'cannot resolve "(speed + tags)" due to data type mismatch: '),
        ("lower(c1, c1)", "the `lower` requires 1 parameters but the actual number is 2"),
        ("rand()", "the expression is not deterministic"),
        ("shuffle(c2)", "the expression is not deterministic"),
        ("collect_list(c0)", "this aggregate is not supported"),
        ("explode(c2)", "a function that gives many rows must stand alone"),
        ("count(c0) OVER ()", "the expression needs more than its own row"),
        (
            "window(timestamp_micros(_ts), '5 seconds')",
            "the expression needs more than its own row",
        ),
        ("x -> x", "the expression makes no sense to Spark"),
        ("c0, c1", "syntax error at or near ','"),
        ("TIMESTAMP 'soon'", "the value of the typed literal \"TIMESTAMP\" is invalid: 'soon'"),
    ],
)
def test_refusals_in_one_sentence(analyzer: SparkAnalyzer, expression: str, message: str) -> None:
    told = failure(analyzer, expression)
    assert told.message.startswith(message)
    assert "\n" not in told.message
    assert "SQLSTATE" not in told.message


def test_aggregates_only_where_they_are_asked_for(analyzer: SparkAnalyzer) -> None:
    assert failure(analyzer, "sum(c0)").index == 0
    assert failure(analyzer, "c0", aggregates=True).index == 0


def test_a_rejected_expression_is_not_logged(
    analyzer: SparkAnalyzer, capfd: pytest.CaptureFixture[str]
) -> None:
    failure(analyzer, "nonsense(c0)")
    assert "nonsense" not in "".join(capfd.readouterr())


def test_a_function_registered_anew(spark: Any, analyzer: SparkAnalyzer) -> None:
    spark.udf.register("changing", lambda: 1, "int")
    assert analyzer.analyse(ROW, ["changing()"]) == ("int",)
    spark.udf.register("changing", lambda: "a", "string")
    analyzer.forget()
    assert analyzer.analyse(ROW, ["changing()"]) == ("string",)


# Functions of no arguments that are constants, whatever the row, the place and the time.
CONSTANT = frozenset(
    {"array", "arrays_zip", "concat", "e", "make_dt_interval", "make_interval", "map", "pi"}
    | {"make_ym_interval", "map_concat", "named_struct", "struct"}
)


@pytest.mark.soak
def test_every_function_without_arguments_is_known(analyzer: SparkAnalyzer) -> None:
    """A new Spark may bring another clock: then this says so."""
    accepted = set()
    for name in analyzer._plans.functions():
        if not name.isidentifier() or unrepeatable(name, 0) or name == "changing":
            continue
        try:
            analyzer.analyse((), [f"{name}()"])
        except AnalysisFailure:
            continue
        accepted.add(name)
    assert accepted == CONSTANT


def test_messages() -> None:
    long = "[X.Y] The thing c0 is wrong. Please, refer to the manual. SQLSTATE: 42; line 1 pos 0"
    assert sentence(long, ROW) == "the thing speed is wrong"
    assert sentence("[A] c9 and c1 differ.", ROW) == "c9 and name differ"


KINDS = tuple(
    Field(f"f{i}", type_)
    for i, type_ in enumerate(
        ("boolean", "int", "bigint", "double", "decimal(10,2)", "string", "date", "timestamp")
    )
)
CONSTANTS = (number("5"), number("5000000000"), number("1.50"), number("1e3"), string("a"))


def test_what_is_known_without_asking_is_what_spark_says(analyzer: SparkAnalyzer) -> None:
    operands: list[Expr] = [Column(i) for i in range(len(KINDS))] + list(CONSTANTS)
    pairs = [Call(o, (a, b)) for o in ("=", "<", "in") for a in operands for b in operands]
    conditions = [Call("is_null", (a,)) for a in operands] + [
        Call("like", (a, a)) for a in operands
    ]
    types: dict[Expr, str] = {}
    for made in [*operands, *pairs, *conditions]:
        known = known_type(made, KINDS, types.get)
        if known is not None:
            types[made] = known
    assert len(types) > 150
    found = analyzer.analyse(KINDS, [sql(e) for e in types])
    assert dict(zip(types, found, strict=True)) == types
