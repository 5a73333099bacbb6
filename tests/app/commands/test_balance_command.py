"""`millstream balance`: what it shows, and what it answers where nobody is there."""

import json

import pytest

from millstream.app.cli import run
from millstream.app.commands.cluster.balance import lines, summary

SEEN = {
    "processor": "p0", "scheme": "placement", "led": "", "load": 0.5, "busy": 0.75,
    "round": 3,
    "partners": {"p1": 0.25}, "operators": {"o:a": 0.5}, "engaged": None, "moved": 2,
    "priming": False,
    "undone": 0, "lost_messages": 0, "log": ["1 fragments go to p1: p1 asked for 0.1"],
}  # fmt: skip


def test_loads_and_their_deviation() -> None:
    other = {**SEEN, "processor": "p1", "load": 0.1, "led": "a manager leads"}
    found = {"http://a": SEEN, "http://b": other, "http://c": None}
    whole = summary(found)
    assert whole["load_mean"] == 0.3
    assert whole["load_deviation"] == pytest.approx(0.2828, abs=1e-4)
    text = "\n".join(lines(found))
    assert "p0           load  50.0%  busy  75.0%" in text
    assert "asked for 0.1" in text
    assert "a manager leads" in text
    assert "http://c  does not answer" in text
    assert "given away  balances" in text
    assert "makes itself ready" in "\n".join(lines({"http://a": {**SEEN, "priming": True}}))
    assert "in move m" in "\n".join(lines({"http://a": {**SEEN, "engaged": "m"}}))


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["balance", "http://127.0.0.1:9", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["processors"] == {"http://127.0.0.1:9": None}
    assert told["load_deviation"] is None
