"""A processor says where it is until a manager asks something, and again when none does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from control_calls import until

from millstream.control.protocol.commands import Join
from millstream.edge.processor import registration
from millstream.edge.processor.registration import Registration

JOIN = Join("p0", "http://127.0.0.1:1", 7, {"cpu": 2})


class Manager:
    """Hears processors; answers with a status."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.status, self.code, self.tokens = 200, "", set[str]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                outer.heard.append((self.path, json.loads(self.rfile.read(size))))
                outer.tokens.add(self.headers.get("authorization", ""))
                body = json.dumps(
                    {"error": {"message": "an old epoch", "code": outer.code}}
                ).encode()
                self.send_response(outer.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.setattr(registration, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(registration, "SILENCE_SECONDS", 0.2)
    made = Manager()
    yield made
    made.close()


def registered(url: str, heard: threading.Event, said: list[str]) -> Registration:
    made = Registration(url, lambda: JOIN, heard, said.append, token="t")
    made.start()
    return made


def test_it_is_said_until_a_manager_asks(manager: Manager) -> None:
    heard, said = threading.Event(), list[str]()
    joining = registered(manager.url, heard, said)
    until(lambda: len(manager.heard) >= 3)
    path, body = manager.heard[0]
    assert path == "/processors"
    expected = {
        "id": "p0", "url": "http://127.0.0.1:1", "epoch": 7, "properties": {"cpu": 2}, "home": "",
    }  # fmt: skip
    assert body == expected
    assert manager.tokens == {"Bearer t"}
    heard.set()
    until(lambda: not heard.is_set())
    joining.stop()
    assert said == []


def test_an_old_epoch_ends_the_processor(manager: Manager) -> None:
    manager.status, manager.code = 409, "home_taken"
    said: list[str] = []
    joining = registered(manager.url, threading.Event(), said)
    until(joining.refused.is_set)
    joining.stop()
    assert said == ["the manager refuses this processor: an old epoch"]


@pytest.mark.parametrize("code", ["stale", "superseded", "other_home", "failed"])
def test_no_other_refusal_ends_it(manager: Manager, code: str) -> None:
    manager.status, manager.code = 409, code
    said: list[str] = []
    joining = registered(manager.url, threading.Event(), said)
    until(lambda: len(manager.heard) >= 3)
    joining.stop()
    assert said == ["the manager refuses this processor: an old epoch"]
    assert not joining.refused.is_set()


def test_a_manager_that_is_away_is_told_of_once(manager: Manager) -> None:
    manager.close()
    said: list[str] = []
    joining = registered(manager.url, threading.Event(), said)
    until(lambda: bool(said))
    joining.stop()
    assert said == ["the manager does not answer: ConnectError"]
    assert not joining.refused.is_set()
    manager.server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    manager.thread = threading.Thread(target=manager.server.serve_forever, daemon=True)
    manager.thread.start()
