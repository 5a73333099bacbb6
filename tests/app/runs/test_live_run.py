"""Wishes that are left for a run, and whether one goes on: files alone, no Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.app import cli
from millstream.app.runs.live_run import WISHES, leave_wish, live_figures
from millstream.core.errors import UsageError
from millstream.core.json_files import read_json, write_whole
from millstream.core.lock import FolderLock, locked


@pytest.mark.parametrize(
    "wish",
    [
        {"goals": "delay <= 2s"},
        {"template": "fresh", "query": "q", "weight": 2},
        {"query": "q", "forget": True},
        {"weight": 0.5},
    ],
)
def test_wishes_are_left_whole(tmp_path: Path, wish: dict[str, Any]) -> None:
    answer = leave_wish(tmp_path, wish)
    (left,) = (tmp_path / WISHES).iterdir()
    assert left.suffix == ".wish"
    assert left.stem == answer.stem
    assert json.loads(left.read_text()) == wish


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"query": "q"},
        {"query": "q", "weight": 2},
        {"goals": "fresh", "weight": "much"},
        {"goals": "fresh", "weight": True},
        {"goals": "fresh", "query": 1},
        {"goals": "fresh", "speed": 1},
        {"forget": True},
        {"forget": True, "query": "q", "goals": "fresh"},
    ],
)
def test_what_is_no_wish_is_refused(tmp_path: Path, wish: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        leave_wish(tmp_path, wish)
    assert not (tmp_path / WISHES).exists()


def test_a_folder_is_locked_while_somebody_holds_it(tmp_path: Path) -> None:
    assert not locked(tmp_path / "none")
    with FolderLock(tmp_path):
        assert locked(tmp_path)
    assert not locked(tmp_path)


def test_files_that_are_missing_or_broken_say_nothing(tmp_path: Path) -> None:
    assert live_figures(tmp_path) is None
    (tmp_path / "live.json").write_text('{"pid": ')
    assert live_figures(tmp_path) is None
    (tmp_path / "live.json").write_text("[]")
    assert live_figures(tmp_path) is None
    write_whole(tmp_path / "live.json", {"pid": 1})
    assert read_json(tmp_path / "live.json") == {"pid": 1}


def test_the_command_says_where_nobody_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / ".millstream"
    home.mkdir()
    write_whole(home / "job.json", {})
    assert cli.run(["qos", str(tmp_path)]) == 2
    assert "no run is active" in capsys.readouterr().err
    assert cli.run(["qos", str(tmp_path), "delay <= 2s", "--query", "q"]) == 0
    assert "take effect when it is" in capsys.readouterr().out
    assert cli.run(["qos", str(tmp_path), "--query", "q"]) == 2
    assert cli.run(["qos", str(tmp_path), "delay fastest"]) == 2
    write_whole(home / "summary.json", {})
    assert cli.run(["qos", str(tmp_path)]) == 2
    assert "finished" in capsys.readouterr().err
