"""Errors that come from the end of Spark's Java process are told as such."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.engine.loop import Loop
from millstream.spark import failures
from millstream.spark.plane import SparkMachine


def spark_with(process: Any) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))


def test_the_end_of_java_is_told_with_its_code() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(9)"])
    told = failures.java_gone(spark_with(ended))
    assert told is not None
    assert (told.message, told.detail) == ("Spark's Java process has ended", "its exit code is 9")
    loop: Any = Loop.__new__(Loop)
    loop.failure, loop.engine = (
        None,
        SimpleNamespace(plane=SimpleNamespace(machine=SparkMachine(spark_with(ended)))),
    )
    loop._stop, loop.settled, loop.finished = (SimpleNamespace(set=lambda: None) for _ in range(3))
    loop._fail(ConnectionRefusedError("refused"))
    assert isinstance(loop.failure, failures.JavaGoneError)


def test_while_java_lives_errors_are_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "JAVA_ENDS_S", 0.01)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        assert failures.java_gone(spark_with(living)) is None
        living.kill()
    assert failures.java_gone(None) is None
