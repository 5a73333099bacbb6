"""`millstream lab`: lists, runs, writes CSV and PNG, and tells mistakes without a traceback."""

import csv
import json
from pathlib import Path

import pytest

import millstream_lab as lab
from millstream.app.cli import run as call_line
from millstream_lab.experiment import EXPERIMENTS


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
    assert "24 of 24 numbers equal" in capsys.readouterr().out.replace("\n", " ")
    path = tmp_path / "new" / "raindrop-t1.1.csv"
    assert path.read_text().startswith("# command: millstream lab run raindrop-t1.1 --out DIR")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert rows[2]["queued"] == "2.0"
    assert (tmp_path / "new" / "raindrop-t1.1.png").read_bytes().startswith(b"\x89PNG")


def test_findings_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("lab", "run", "raindrop-1.3", "--out", str(tmp_path), "--quick", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][0]["verdict"] == "holds"


def test_all_goes_on_where_it_was_interrupted_and_report_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.load()
    few = [EXPERIMENTS.get(name) for name in ("raindrop-t1.1", "raindrop-1.3")]
    monkeypatch.setattr("millstream_lab.command._experiments", lambda work: few)
    out = str(tmp_path / "out")
    assert call("lab", "run", "raindrop-t1.1", "--out", out, "--quick") == 0
    before = (tmp_path / "out" / "raindrop-t1.1.csv").stat().st_mtime_ns
    capsys.readouterr()
    assert call("lab", "all", "--out", out, "--quick", "--resume") == 0
    told = capsys.readouterr().err
    assert "[1 of 2] raindrop-t1.1: there already" in told
    assert "[2 of 2] raindrop-1.3: section 1.3" in told
    assert (tmp_path / "out" / "raindrop-t1.1.csv").stat().st_mtime_ns == before
    # A full run is asked for: a small one does not count as there.
    assert call("lab", "all", "--out", out, "--resume") == 0
    assert "there already" not in capsys.readouterr().err
    page, plots = tmp_path / "RESULTS.md", tmp_path / "plots"
    assert call("lab", "report", "--results", out, "--to", str(page), "--plots", str(plots)) == 0
    text = page.read_text()
    assert "`millstream lab run raindrop-1.3 --out DIR --seed 1`; commit " in text
    assert "| 0 (24 of 24 numbers equal) | holds |  |" in text
    assert "not run: no stored rows" in text
    assert sorted(path.name for path in plots.iterdir()) == [
        "raindrop-1.3.png",
        "raindrop-t1.1.png",
    ]


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
