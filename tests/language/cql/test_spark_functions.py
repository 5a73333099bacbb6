"""The functions that queries may call: somebody has decided on each that Spark has."""

from typing import Any

import pytest

from millstream.core.errors import UsageError
from millstream.language.cql.binding.streams import bind_time
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.functions import AGGREGATES, REACHING, UNREPEATABLE
from millstream.language.cql.spark_functions import CALLABLE
from millstream.language.plan.schema import Field
from millstream.spark.analyzer import SparkAnalyzer


def test_each_function_of_spark_is_allowed_or_refused(spark: Any) -> None:
    named = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    known = {name for name in named if name.isidentifier()}  # the others are operators
    refused = REACHING | UNREPEATABLE
    assert known - CALLABLE - refused == set(), "new: may a query call them?"
    assert known >= CALLABLE, "no release of Spark has them any more"
    assert not refused & CALLABLE
    others = {"arg_max", "arg_min", "approx_distinct", "countif", "group_concat", "histogram"}
    assert AGGREGATES.keys() - others <= CALLABLE


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("reflect('java.lang.System', 'load', name)", "reflect may not be called"),
        ("from_protobuf(name, 'a', '/etc/passwd').t", "from_protobuf may not be called"),
        ("of_somebody_else(name)", "unknown function of_somebody_else"),
        ("timestamp_second(name)", "unknown function timestamp_second; did you mean timestamp_se"),
        ("now()", "now is not deterministic"),
    ],
)
def test_what_spark_knows_besides_is_not_called(spark: Any, time: str, message: str) -> None:
    spark.udf.register("of_somebody_else", lambda text: text)
    stream = StreamDefinition("s", (Field("name", "string"),), time)
    with pytest.raises(UsageError, match=message):
        bind_time(stream, SparkAnalyzer(spark))
