"""The shell's prompt with keys pressed: several lines, completion, history, Ctrl-C, leaving."""

from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from millstream.app.commands.run.shell import _prompt, history_file
from millstream.app.shell.backend import Backend
from millstream.app.shell.interpreter import Interpreter
from millstream_bench.pages.synthetic_system import SyntheticSystem


@pytest.fixture(autouse=True)
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def pressed(keys: str) -> list[str]:
    """What the shell writes when these keys are pressed."""
    lines: list[str] = []
    backend = Backend(SyntheticSystem(queries=5, operators=8, processors=1))
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        _prompt(Interpreter(backend, lines.append), backend)
    return lines


def test_a_command_and_leaving() -> None:
    assert any("bytes" in line for line in pressed("\\d stream_1\r\\q\r"))


def test_a_statement_goes_on_until_its_semicolon() -> None:
    lines = pressed("CREATE QUERY mine AS\rSELECT host\rFROM stream_1;\r\\q\r")
    assert lines[0].startswith("query mine was taken")
    assert "+SELECT host" in history_file().read_text()


def test_a_word_is_completed() -> None:
    assert any("status" in line for line in pressed("\\d stream_20\t\r\\q\r"))


def test_mistakes_do_not_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert any("host" in line for line in pressed("\\nonsense\r\\d stream_1\r\\q\r"))
    assert "unknown command" in capsys.readouterr().err


def test_a_command_within_a_statement_is_carried_out() -> None:
    assert any("\\pause" in line for line in pressed("SELECT host\r\\?\r\\q\r"))
    assert pressed("SELECT host\rexit\r") == [
        "the statement before it is not finished, and was put away"
    ]


def test_end_of_input_leaves() -> None:
    assert pressed("\x04") == []


def test_ctrl_c_forgets_the_line() -> None:
    assert any("bytes" in line for line in pressed("SELECT wrong\x03\\d stream_1\r\\q\r"))
