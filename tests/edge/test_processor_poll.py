"""Asking processors about themselves: only while somebody looks; no answer is no news."""

import threading
from typing import Any

import pytest

from millstream.core.codec import to_json
from millstream.core.errors import MillstreamError
from millstream.edge.manager import processor_poll
from millstream.edge.manager.processor_poll import ProcessorPoll
from millstream_bench.pages.synthetic_system import SyntheticSystem

SNAPSHOT = SyntheticSystem(queries=2, operators=4, processors=1).snapshot()


class Processors:
    """Stands for processors at addresses; `away` ones do not answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.away: set[str] = set()
        self.told: Any = to_json(SNAPSHOT)
        self.rung = threading.Event()

    def ask(self, method: str, url: str) -> Any:
        self.asked.append(url)
        self.rung.set()
        if url.split("/")[2] in self.away:
            raise MillstreamError("nobody answers")
        told = self.told

        class Answer:
            def json(self) -> Any:
                return told

        return Answer()


def poll_of(processors: Processors) -> ProcessorPoll:
    addresses = {"p1": "http://p1/", "p2": "http://p2"}
    return ProcessorPoll(processors, lambda: addresses)  # type: ignore[arg-type]


def test_what_was_said_is_kept_by_processor() -> None:
    processors = Processors()
    processors.away.add("p2")
    poll = poll_of(processors)
    for one in (("p1", "http://p1/"), ("p2", "http://p2")):
        poll.ask(one)
    assert processors.asked == ["http://p1/snapshot", "http://p2/snapshot"]
    assert poll.latest() == {"p1": SNAPSHOT}


@pytest.mark.parametrize("told", [None, [], {"taken": 1.0, "overview": 7}, "text"])
def test_nonsense_is_no_news(told: Any) -> None:
    processors = Processors()
    processors.told = told
    poll = poll_of(processors)
    poll.ask(("p1", "http://p1"))
    assert poll.latest() == {}


def test_what_was_said_long_ago_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = poll_of(Processors())
    poll.ask(("p1", "http://p1"))
    monkeypatch.setattr(processor_poll, "KEPT_S", -1.0)
    assert poll.latest() == {}


def test_nobody_is_asked_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_poll, "EVERY_S", 0.01)
    monkeypatch.setattr(processor_poll, "WANTED_S", 60.0)
    processors = Processors()
    poll = poll_of(processors)
    poll._looked = -1e9
    poll.start()
    assert not processors.rung.wait(0.2)
    poll.latest()  # somebody looks
    assert processors.rung.wait(30)
    poll.stop()
