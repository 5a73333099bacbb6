"""Mistakes in the settings of `millstream processor` are told before anything starts."""

from pathlib import Path

import pytest

from millstream.cli import run
from millstream.commands.processor import properties_of
from millstream.errors import UsageError


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "only with a token"),
        (["--token-file", "nowhere"], "cannot be read"),
        (["--certificate", "nowhere"], "there is no file"),
        (["--property", "cpu"], "is no property"),
    ],
)
def test_mistakes_in_settings(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["processor", "--home", str(tmp_path / "home"), *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_an_empty_token_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("\n")
    options = ["--home", str(tmp_path / "home"), "--token-file", str(tmp_path / "token")]
    assert run(["processor", *options]) == 2
    assert "holds no token" in capsys.readouterr().err


def test_properties_of_any_name() -> None:
    given = ["cpu=3.0", "memory=1024", "location=Worcester, MA"]
    assert properties_of(given) == {"cpu": 3.0, "memory": 1024, "location": "Worcester, MA"}
    with pytest.raises(UsageError):
        properties_of(["=1"])
