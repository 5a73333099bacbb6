"""Whose fault a failed job is: the query's, which fails alone, or the machine's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_engines import stream

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.sources.push_source import PushSource
from millstream.language.cql.catalog import UserFunction
from millstream.spark.failures import data_error
from millstream.spark.plane import SparkPlane

ABORTED = "An error occurred while calling o1.f.\n: org.apache.spark.SparkException: Job aborted\n"
IN_EXPRESSION = "\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$G.processNext(?)"
IN_FILE = "\tat org.apache.hadoop.fs.RawLocalFileSystem.getFileStatus(RawLocalFileSystem.java:970)"
REGEX = "java.util.regex.PatternSyntaxException: Unclosed group near index 1\n("


def caused_by(cause: str, *frames: str) -> Exception:
    """An error as py4j tells it, with a frame of expressions below, as all rows have."""
    lines = "\n".join(("\tat java.base/java.lang.X.f(X.java:1)", *frames, IN_EXPRESSION))
    return RuntimeError(f"{ABORTED}\tat org.apache.spark.D.f(D:1)\nCaused by: {cause}\n{lines}")


def test_what_values_do_to_expressions_is_the_querys() -> None:
    assert data_error(caused_by(REGEX)) == "pattern syntax: Unclosed group near index 1 ("
    assert data_error(caused_by("java.lang.IllegalArgumentException: no base64")) == (
        "illegal argument: no base64"
    )
    json = "com.fasterxml.jackson.core.JsonParseException: no JSON\n at [Source: here]"
    assert data_error(caused_by(json, "\tat com.fasterxml.jackson.core.P.f(P:1)"))


@pytest.mark.parametrize(
    "error",
    [
        caused_by("java.io.FileNotFoundException: x", IN_FILE),
        caused_by("java.lang.IllegalArgumentException: a path", IN_FILE),
        caused_by("org.apache.spark.SparkException: [FAILED_READ_FILE.X] No. SQLSTATE: KD001"),
        caused_by("org.apache.spark.memory.SparkOutOfMemoryError: [M] Full. SQLSTATE: 53200"),
        caused_by("java.lang.OutOfMemoryError: Java heap space"),
        caused_by("java.lang.NullPointerException: x is null"),
        caused_by("java.util.concurrent.TimeoutException: late"),
        ConnectionRefusedError(111, "Connection refused"),
        ValueError("of our own"),
    ],
)
def test_what_the_machine_does_is_not(error: Exception) -> None:
    assert data_error(error) is None


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark))
    opened.add_stream(stream("s", source="push"))
    yield opened
    opened.close()


@pytest.mark.spark
def test_queries_that_fail_in_many_ways_fail_alone(engine: Engine) -> None:
    engine.plane.spark.udf.register("picky", lambda text: text.index("a"), "int")
    engine.catalog = engine.catalog.with_function(UserFunction("picky"))
    engine.add_query("good", "SELECT name FROM s")
    reasons = {
        "SELECT name RLIKE name AS q FROM s": "Unclosed group",
        "SELECT date_format(ts, concat('YYYY', left(name, 0))) AS q FROM s": "'YYYY' pattern",
        "SELECT map(n, 1, 2, 2) AS q FROM s": "Duplicate map key 2",
        "SELECT picky(name) AS q FROM s": "ValueError: substring not found",
        "RSTREAM(SELECT n FROM s [ROWS 2])": "Can't create array",
    }
    for number, cql in enumerate(reasons):
        engine.add_query(f"bad{number}", cql)
    door = engine.sources["s"]
    assert isinstance(door, PushSource)
    ends = [{"at": 0, "name": "a", "n": 1}, {"at": 253402300799, "name": "a", "n": 3}]
    door.push("p", 1, [ends[0], {"at": 5, "name": "(", "n": 2}, ends[1]])
    engine.appenders["s"].finish()
    loop = Loop(engine)
    loop.start()
    try:
        assert loop.settled.wait(120)
        assert loop.failure is None, loop.failure
    finally:
        loop.stop()
    assert engine.result("good").num_rows == 3
    for number, reason in enumerate(reasons.values()):
        query = engine.queries[f"bad{number}"]
        assert query.state == "failed"
        assert reason in query.reason
        assert query.culprits
    for number in (0, 2, 3):
        assert engine.queries[f"bad{number}"].culprits[0]["row"] == 1
