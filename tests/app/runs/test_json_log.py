"""Structured logs: every line is one object, with time, level and event."""

import doctest
import io
import json
from datetime import datetime

import pytest

from millstream.app.cli import run
from millstream.app.runs import json_log
from millstream.app.runs.json_log import JsonDisplay, speaker

STATUS = {
    "streams": {"s": {"rows": 7, "watermark": "2024-05-01T08:00:00Z", "ended": False}},
    "operators": {"o": {"backlog": 3}},
    "queries": {"q": {"rows": 2, "state": "running"}, "bad": {"rows": 0, "state": "failed"}},
}


def test_every_line_is_an_object() -> None:
    out = io.StringIO()
    display = JsonDisplay(out)
    assert not display.due()
    display.say("starting Spark\n(local)")
    display.say("query bad is failed: division by zero")
    display.show(STATUS, 5)
    display.close()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["event"], one["level"]) for one in lines] == [
        ("message", "info"), ("message", "warning"), ("progress", "info"),
    ]  # fmt: skip
    assert all(datetime.fromisoformat(one["time"]).tzinfo for one in lines)
    told = lines[2]
    assert (told["rows"], told["backlog_rows"], told["steps"]) == (7, 3, 5)
    assert (told["result_rows"], told["failed"]) == (2, ["bad"])


def test_examples_in_the_text() -> None:
    assert doctest.testmod(json_log).failed == 0


def test_daemons_speak_in_words_or_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    speaker("text", "notice")("p1 is back")
    assert capsys.readouterr().err == "p1 is back\n"
    speaker("json", "notice")("p1 is back", "warning")
    told = json.loads(capsys.readouterr().err)
    assert (told["event"], told["level"], told["message"]) == ("notice", "warning", "p1 is back")
    for command in (["manager", "--home", "m"], ["processor", "--home", "p"]):
        assert run([*command, "--log-format", "xml"]) == 2
        assert "unknown log format 'xml'" in capsys.readouterr().err
