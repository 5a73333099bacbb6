"""Where the output of a command goes nowhere: exit codes of the documentation, no traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.app import cli
from millstream.core.output_folder import writing_to

PROGRAM = [sys.executable, "-c", "from millstream.app.cli import main; main()"]
SCENARIO = """
duration_s = 2
[cluster]
hosts = 2
[workload]
queries = 2
operators = 20
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO)
    return str(path)


@pytest.mark.parametrize("how", ["echoed", "a table", "help"])
def test_a_reader_that_has_gone(scenario: str, how: str) -> None:
    words = {
        "echoed": ["simulate", scenario, "--json"],
        "a table": ["simulate", scenario],
        "help": ["--help"],
    }
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, *words[how]], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert done.returncode == 141
    assert [line for line in done.stderr.splitlines() if not line.startswith("simulating")] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("options", [["--json"], []])
def test_a_full_disk_has_run_out(scenario: str, options: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "simulate", scenario, *options],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr.splitlines()[1:] == ["error: cannot write: No space left on device"]


def test_a_full_disk_under_a_folder_is_no_mistake_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "here.csv")

    monkeypatch.setattr("millstream_lab.command.write_csv", full)
    assert cli.run(["lab", "run", "raindrop-t1.1", "--out", str(tmp_path), "--quick"]) == 3
    assert "cannot write to here.csv: Disk quota exceeded" in capsys.readouterr().err
    with pytest.raises(OSError, match="quota"), writing_to(tmp_path):
        full()


def test_the_lab_comes_with_a_clone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "IN_A_CHECKOUT", {"lab": "no_such_package"})
    assert cli.run(["lab", "list"]) == 2
    assert "lab is not part of the installed package: a clone has it" in capsys.readouterr().err
    assert "bench" not in cli.command_modules()
