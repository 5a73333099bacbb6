"""Alive is not ready: what makes an engine count as not doing its work, and who is told."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from millstream.edge.http.serving import Application, Server
from millstream.edge.manager.app import ManagerServer
from millstream.edge.manager.settings import ManagerSettings
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.edge.views.readiness import Patience, Readiness, add_readiness
from plain_plane import PlainPlane

PATIENCE = Patience(step_s=100.0, java_s=0.2, restarts_max=2)


class Java:
    """A machine that answers while it is not frozen."""

    def __init__(self) -> None:
        self.going, self.asked, self.heap = threading.Event(), 0, 1
        self.going.set()

    def memory(self) -> tuple[int | None, int | None]:
        self.asked += 1
        self.going.wait(60)
        return (self.heap or None), 2


class Watched:
    """An engine of which everything that counts can be set."""

    def __init__(self) -> None:
        self.java, self.rows, self.loop = Java(), [], SimpleNamespace(failure=None)
        self.restarts_s: list[float] = []
        operator = SimpleNamespace(id="o")
        self.engine: Any = SimpleNamespace(
            ledger=SimpleNamespace(on_publish=[]), plane=SimpleNamespace(machine=self.java),
            queries={"q": SimpleNamespace(state="failed")}, operators={"o": operator},
            paused_operators=set(), lock=threading.Lock(), pending=lambda _: {"s": self.rows},
        )  # fmt: skip
        loops: Any = lambda: self.loop  # noqa: E731
        self.ready = Readiness(self.engine, loops, lambda: self.restarts_s, PATIENCE)

    def reasons(self) -> list[str]:
        found: list[str] = self.ready.look()["reasons"]
        return found

    def publish(self) -> None:
        for heard in self.engine.ledger.on_publish:
            heard(frozenset())


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.java.going.set()


def test_ready_with_nothing_to_do(watched: Watched) -> None:
    assert watched.ready.look()["ready"]
    assert watched.ready.look()["queries"] == {"failed": 1}


def test_a_loop_that_stopped_or_begins_too_often(watched: Watched) -> None:
    watched.restarts_s = [time.monotonic()] * 3 + [time.monotonic() - 4000.0]
    assert watched.reasons() == ["the engine began again 3 times in an hour"]
    watched.restarts_s = []
    watched.loop = SimpleNamespace(failure=RuntimeError())
    assert watched.reasons() == ["the engine has stopped"]
    watched.loop = None  # type: ignore[assignment]
    assert watched.reasons() == ["the engine is about to begin again"]


def test_rows_that_wait_while_nothing_is_done(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    watched.publish()
    watched.rows = ["a segment"]
    now_s[0] += 1000.0  # it was idle before: rows have only now come
    assert watched.reasons() == []
    now_s[0] += 99.0
    assert watched.reasons() == []
    now_s[0] += 2.0
    assert watched.reasons() == ["rows wait, and nothing was done for 101 s"]
    watched.publish()
    assert watched.reasons() == []


def test_java_that_does_not_answer_is_asked_once(watched: Watched) -> None:
    watched.java.going.clear()
    for _ in range(3):
        assert watched.reasons() == ["Java did not answer within 0.2 s"]
    assert watched.java.asked == 1
    watched.java.going.set()
    deadline = time.monotonic() + 60
    while watched.reasons():
        assert time.monotonic() < deadline


def test_whoever_asks_hears_the_reasons_without_a_token(watched: Watched) -> None:
    app = Application("test", token="secret")
    add_readiness(app, watched.ready.look)
    server = Server(app)
    server.start()
    try:
        assert httpx.get(f"{server.url}/ready").status_code == 200
        watched.loop = SimpleNamespace(failure=RuntimeError())
        answer = httpx.get(f"{server.url}/ready")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["the engine has stopped"])
        assert httpx.get(f"{server.url}/live").status_code == 200
    finally:
        server.stop()


def test_daemons_tell_whether_they_are_ready(tmp_path: Path) -> None:
    processor = ProcessorServer(
        "p", tmp_path / "p", PlainPlane(), ProcessorSettings(token="secret")
    )
    manager = ManagerServer(tmp_path / "m", ManagerSettings(port=0, token="secret"))
    serving = Server(manager.app)
    serving.start()
    processor.start()
    try:
        for url in (processor.url, serving.url):
            assert httpx.get(f"{url}/live").json() == {"status": "ok"}
            answer = httpx.get(f"{url}/ready")
            assert (answer.status_code, answer.json()["reasons"]) == (200, [])
        manager.driver.fed_s -= 1000.0
        answer = httpx.get(f"{serving.url}/ready")
        assert answer.status_code == 503
        assert "nothing was decided for" in answer.json()["reasons"][0]
    finally:
        processor.stop()
        serving.stop()
        manager.close()
