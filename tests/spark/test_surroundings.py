"""Bad surroundings: one clear message each, with what to do. Clusters: `test_local_cluster.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.core.errors import UsageError
from millstream.spark.session import require_java

SOURCE = Path(__file__).parents[2] / "src"
JOB = """
[streams.n]
path = "n.csv"
columns = { at = "long", n = "int" }
time = "timestamp_seconds(at)"
[queries.large]
cql = "SELECT n FROM n WHERE n > 10"
"""


def java(folder: Path, version: str) -> str:
    """A Java of some version that does nothing but tell it."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return str(folder)


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Spark needs Java, and none was found") as found:
        require_java()
    assert "install Java 17" in found.value.hint
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="none was found"):
        require_java()


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_402"])
def test_an_old_java(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    with pytest.raises(UsageError, match=f"Spark needs Java 17, found {version}") as found:
        require_java()
    assert "JAVA_HOME" in found.value.hint


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "25"])
def test_a_java_that_will_do(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    require_java()


def millstream(
    folder: Path, *arguments: str, before: str = "", **environment: str
) -> "subprocess.CompletedProcess[str]":
    (folder / "n.csv").write_text("1,10\n2,20\n")
    (folder / "n.toml").write_text(JOB)
    path = os.pathsep.join(part for part in (before, str(SOURCE)) if part)
    program = "import sys; from millstream.app.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, **environment}, text=True,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("found", ["none", "11.0.22"])
def test_a_run_tells_of_java_in_one_line(found: str, tmp_path: Path) -> None:
    home = str(tmp_path / "gone") if found == "none" else java(tmp_path, found)
    told = millstream(tmp_path, "run", "n.toml", "--out", "out", JAVA_HOME=home)
    assert told.returncode == 2
    expected = f"Spark needs Java 17, found {found}"
    assert (expected if found != "none" else "Spark needs Java, and none was found") in told.stderr
    assert "hint: install Java 17" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.process
def test_an_old_spark(tmp_path: Path) -> None:
    old = tmp_path / "old" / "pyspark"
    old.mkdir(parents=True)
    (old / "__init__.py").write_text('__version__ = "3.5.6"\n')
    told = millstream(tmp_path, "run", "n.toml", "--out", "out", before=str(old.parent))
    assert told.returncode == 2
    assert "Millstream needs Spark 4.0 or later, and this is 3.5.6" in told.stderr
    assert "pip install 'millstream[spark]'" in told.stderr


@pytest.mark.process
def test_no_server_of_spark_connect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:9")
    told = millstream(tmp_path, "run", "n.toml", "--out", "out")
    assert told.returncode == 3
    assert "no Spark Connect server answers at sc://127.0.0.1:9" in told.stderr
    assert "or name a master instead" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.process
@pytest.mark.parametrize("command", [("run", "n.toml", "--out"), ("processor", "--home"),
                                     ("manager", "--home")])  # fmt: skip
def test_a_folder_that_cannot_be_written(command: tuple[str, ...], tmp_path: Path) -> None:
    told = millstream(tmp_path, *command, "/sys/millstream")  # root may not write there either
    assert told.returncode == 2, told.stderr
    assert "cannot write to /sys/millstream" in told.stderr
    assert "hint: choose another folder" in told.stderr
    assert "Traceback" not in told.stderr
