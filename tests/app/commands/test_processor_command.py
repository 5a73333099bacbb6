"""Mistakes in the settings of `millstream processor` are told before anything starts."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.app.cli import run
from millstream.app.commands.cluster import processor as command
from millstream.app.commands.cluster.processor import _pace, properties_of
from millstream.core.errors import UsageError


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "only with a token"),
        (["--token-file", "nowhere"], "cannot be read"),
        (["--certificate", "nowhere"], "there is no file"),
        (["--property", "cpu"], "is not a property"),
        (["--spark-conf", "spark.cores.max"], "is not a setting of Spark"),
        (["--spark-conf", "cores=2"], "--spark-conf spark.cores.max=2"),
    ],
)
def test_mistakes_in_settings(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["processor", "--home", str(tmp_path / "home"), *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("daemon", ["processor", "manager"])
@pytest.mark.parametrize(("held", "words"), [(b"\n", "holds no token"), (b"\xff", "not UTF-8")])
def test_a_file_without_a_token(
    daemon: str, held: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_bytes(held)
    options = ["--home", str(tmp_path / "home"), "--token-file", str(tmp_path / "token")]
    assert run([daemon, *options]) == 2
    assert words in capsys.readouterr().err


def test_properties_of_any_name() -> None:
    given = ["cpu=3.0", "memory=1024", "location=Worcester, MA"]
    assert properties_of(given) == {"cpu": 3.0, "memory": 1024, "location": "Worcester, MA"}
    with pytest.raises(UsageError):
        properties_of(["=1"])


class Session:
    """Counts how often its jobs are cut off."""

    def __init__(self) -> None:
        self.cuts, self.often, self.stopped = 0, threading.Event(), False
        self.sparkContext = SimpleNamespace(cancelAllJobs=self._cut)

    def _cut(self) -> None:
        self.cuts += 1
        if self.cuts >= 3:
            self.often.set()

    def stop(self) -> None:
        self.stopped = True


def test_what_takes_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is cut off may be followed by another one: until all has ended."""
    monkeypatch.setattr(command, "PATIENCE_S", 0.01)
    monkeypatch.setattr(command, "CUT_S", 0.01)
    session, told = Session(), list[str]()
    slow: Any = SimpleNamespace(stop=lambda: session.often.wait(60))
    command._stop(slow, session, lambda *words, **_: told.append(str(words[0])))
    assert session.often.is_set()
    assert session.stopped
    assert any("cut off" in words for words in told)
    quick: Any = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(command, "PATIENCE_S", 60.0)
    patient = Session()
    command._stop(quick, patient, lambda *_, **__: None)
    assert (patient.cuts, patient.stopped) == (0, True)


def test_a_fault_while_stopping_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Threads of an endpoint that goes on would keep it for ever."""
    codes: list[int] = []
    monkeypatch.setattr(command.os, "_exit", codes.append)

    def fail() -> None:
        raise RuntimeError("not now")

    faulty: Any = SimpleNamespace(stop=fail)
    command._stop(faulty, Session(), lambda *_, **__: None)
    assert codes == [command.INTERNAL_CODE]
    assert "not now" in capfd.readouterr().err


def test_a_pace_ends_and_is_there_for_those_who_balance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["processor", "--home", str(tmp_path / "home"), "--pace", "inf"]) == 2
    assert "never ends" in capsys.readouterr().err
    assert [_pace(None, None), _pace(None, object()), _pace(0.0, object())] == [0.0, 1.0, 0.0]
