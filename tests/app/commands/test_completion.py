"""Completion of command lines in bash, zsh and fish."""

import os
import subprocess
import sys

import pytest

CASES = {
    "bash": {"_MILLSTREAM_COMPLETE": "complete_bash", "COMP_WORDS": "millstream to",
             "COMP_CWORD": "1"},
    "zsh": {"_MILLSTREAM_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "millstream to"},
    "fish": {"_MILLSTREAM_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "millstream to",
             "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("shell", sorted(CASES))
def test_a_command_is_completed(shell: str) -> None:
    program = [sys.executable, "-c", "from millstream.app.cli import main; main()"]
    answer = subprocess.run(
        program, env=os.environ | CASES[shell], capture_output=True, text=True, check=False
    )
    assert "top" in answer.stdout
    assert "explain" not in answer.stdout
    assert answer.stderr == ""
