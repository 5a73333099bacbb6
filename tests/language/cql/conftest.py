"""Fixtures of the language's tests."""

from typing import Any

import pytest

from language.cql.binding import Binding
from millstream.language.cql.analyzer import Analyzer


@pytest.fixture(scope="session")
def analyzer(spark: Any) -> Analyzer:
    """Spark's own analyser, with one user function registered."""
    from millstream.spark.analyzer import SparkAnalyzer  # noqa: PLC0415

    spark.udf.register("mask", lambda text: "*" * len(text), "string")
    return SparkAnalyzer(spark)


@pytest.fixture
def binding(analyzer: Analyzer) -> Binding:
    """A way to bind texts over small streams."""
    return Binding(analyzer)
