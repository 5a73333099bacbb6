"""`millstream lab`: lists, runs, writes CSV and PNG, and tells mistakes without a traceback."""

import csv
import json
from pathlib import Path

import pytest

from millstream.app.cli import run as call_line


def call(*words: str) -> int:
    """The exit code of a command line."""
    return call_line(words)


def test_list_names_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("lab", "list", "--work", "raindrop") == 0
    told = capsys.readouterr().out
    assert "raindrop-t1.1" in told
    assert "network" not in told
    assert call("lab", "list", "--json") == 0
    assert {"name", "work", "title"} == set(json.loads(capsys.readouterr().out)[0])


def test_run_writes_csv_and_png_and_tells_the_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("lab", "run", "raindrop-t1.1", "--out", str(tmp_path / "new"), "--quick") == 0
    assert "all 24 numbers equal" in capsys.readouterr().out.replace("\n", " ")
    with (tmp_path / "new" / "raindrop-t1.1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[2]["queued"] == "2.0"
    assert (tmp_path / "new" / "raindrop-t1.1.png").read_bytes().startswith(b"\x89PNG")


def test_findings_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("lab", "run", "raindrop-1.3", "--out", str(tmp_path), "--quick", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][0]["holds"] is True


def test_a_wrong_name_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("lab", "run", "raindrop-t1.11", "--out", str(tmp_path)) == 2
    told = capsys.readouterr().err
    assert "did you mean" in told
    assert "Traceback" not in told


def test_a_negative_seed_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("lab", "run", "placement-alpha", "--quick", "--out", str(tmp_path), "--seed", "-5")
    assert call(*words) == 2
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["csv", "png"])
def test_a_name_taken_by_a_folder_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    (tmp_path / f"raindrop-t1.1.{ending}").mkdir()
    assert call("lab", "run", "raindrop-t1.1", "--out", str(tmp_path), "--quick") == 2
    assert "cannot write to" in capsys.readouterr().err
