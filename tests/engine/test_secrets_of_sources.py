"""Secrets in a source's options: read where the source is opened, and kept nowhere else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.core.errors import UsageError
from millstream.core.secrets import resolved
from millstream.engine.engine import Engine
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane


def ticks(name: str, **options: str) -> StreamDefinition:
    columns = (Field("timestamp", "timestamp"), Field("value", "bigint"))
    source = {"source": "spark", "format": "rate", "options": options}
    return StreamDefinition(name, columns, "timestamp", 0, source=source)


def test_references_are_read_from_environment_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("from a file\n")
    monkeypatch.setenv("SOME_KEY", "from the environment")
    written = {"a": "env:SOME_KEY", "b": f"file:{tmp_path / 'key'}", "path": "file:/x", "c": 3}
    assert resolved("s", written) == {
        "a": "from the environment", "b": "from a file", "path": "file:/x", "c": 3,
    }  # fmt: skip
    for reference, words in (("env:NOT_THERE", "is not there"), ("file:/no/file", "be read")):
        with pytest.raises(UsageError, match=words) as error:
            resolved("s", {"a": reference})
        assert error.value.detail
        assert error.value.hint


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark))
    yield opened
    opened.close()


@pytest.mark.spark
def test_spark_is_given_the_secret_and_nobody_else(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.plane.spark.conf.get("spark.authenticate") == "true"
    monkeypatch.setenv("ROWS", "7")
    engine.add_stream(ticks("good", rowsPerSecond="env:ROWS"))
    monkeypatch.setenv("ROWS", "hunter2")
    with pytest.raises(UsageError, match="with these options") as error:
        engine.add_stream(ticks("bad", rowsPerSecond="env:ROWS"))
    assert "(hidden)" in error.value.detail
    assert "hunter2" not in str(error.value)
    held = b"".join(path.read_bytes() for path in engine.home.rglob("*") if path.is_file())
    assert b"hunter2" not in held
    assert engine.home.stat().st_mode & 0o777 == 0o700
