"""A text that Spark's analyser does not come to an end with costs one process, and no second."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from millstream.core.errors import UsageError
from millstream.engine.troubles.unanswered import Unanswered
from millstream.language.cql.analyzer import UnansweredError
from millstream.spark import deadlines
from millstream.spark.deadlines import Deadlines
from millstream.store.ledger import Ledger


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    monkeypatch.setattr(deadlines, "QUESTION_S", 0.2)
    monkeypatch.setattr(deadlines, "GRACE_S", 0.2)
    monkeypatch.setattr(deadlines, "LOOK_S", 0.05)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process
        process.kill()


class Jobs:
    """A context that has nothing to cancel."""

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        del group


def hang(java: "subprocess.Popen[bytes]", asked: Deadlines | None = None) -> None:
    """Waits for an answer until Java is gone."""
    began = time.monotonic()
    while java.poll() is None and time.monotonic() < began + 30:
        with asked.answering() if asked is not None else nullcontext():
            time.sleep(0.05)
    raise ConnectionError("nobody answers")


def test_a_question_without_an_answer_ends_java(java: "subprocess.Popen[bytes]") -> None:
    asked = Deadlines(Jobs(), java)
    with pytest.raises(UnansweredError, match="did not come to an end"), asked.answering():
        hang(java)


def test_java_that_has_not_worked_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has other work."""
    monkeypatch.setattr(deadlines, "QUESTION_S", 0.2)
    monkeypatch.setattr(deadlines, "GRACE_S", 0.2)
    monkeypatch.setattr(deadlines, "LOOK_S", 0.05)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as idle:
        asked = Deadlines(Jobs(), idle)
        monkeypatch.setattr(asked, "_worked_s", lambda: 1.0)
        with asked.answering():
            time.sleep(1.0)
        assert idle.poll() is None
        idle.kill()


def test_what_is_part_of_a_question_has_its_time(java: "subprocess.Popen[bytes]") -> None:
    asked = Deadlines(Jobs(), java)
    with pytest.raises(UnansweredError), asked.answering():
        hang(java, asked)


def test_answers_and_mistakes_in_time_are_as_they_are(java: "subprocess.Popen[bytes]") -> None:
    """However long it is since."""
    asked = Deadlines(Jobs(), java)
    with asked.answering():
        pass
    with pytest.raises(ValueError, match="no such column"), asked.answering():
        raise ValueError("no such column")
    time.sleep(0.8)
    assert java.poll() is None


class Machine:
    """Java, which may have ended."""

    ended = False

    def gone(self) -> Any:
        return UsageError("Java has ended") if self.ended else None


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path / "ledger.db")
    yield found
    found.close()


def no() -> bool:
    return False


def test_a_text_without_an_answer_is_not_read_again(ledger: Ledger) -> None:
    asked = Unanswered(ledger, None)
    with pytest.raises(UnansweredError), asked.asking("SELECT evil", no):
        raise UnansweredError("no end")
    again = Unanswered(ledger, None)
    with pytest.raises(UsageError, match="is not read again"), again.asking("SELECT evil", no):
        pytest.fail("it is asked")
    with again.asking("SELECT evil", lambda: True):
        pass  # its query runs: it is read whatever happens
    with again.asking("SELECT good", no):
        pass


def test_java_may_die_once_for_another_reason(ledger: Ledger) -> None:
    machine: Any = Machine()
    asked = Unanswered(ledger, machine)
    with pytest.raises(ConnectionError), asked.asking("q", no):
        raise ConnectionError("while Java lives")
    machine.ended = True
    with pytest.raises(ConnectionError), asked.asking("q", no):
        raise ConnectionError("once")
    with asked.asking("q", no):
        pass  # it works, so nobody is blamed
    for _ in range(2):
        with pytest.raises(ConnectionError), asked.asking("q", no):
            raise ConnectionError("twice")
    with pytest.raises(UsageError, match="is not read again"), asked.asking("q", no):
        pytest.fail("it is asked")


def test_mistakes_of_a_text_are_no_deaths(ledger: Ledger) -> None:
    machine: Any = Machine()
    machine.ended = True
    asked = Unanswered(ledger, machine)
    for _ in range(3):
        with pytest.raises(UsageError, match="no column"), asked.asking("q", no):
            raise UsageError("no column")
