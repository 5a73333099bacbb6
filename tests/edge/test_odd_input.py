"""What nobody should send: told as a mistake, never stored, and no thread dies of it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from control_calls import until
from plain_processors import PlainCluster, plain

from millstream.control.protocol.commands import Command, Progress, Seal
from millstream.control.protocol.replies import Done, Reply
from millstream.edge.manager.app import ManagerServer
from millstream.edge.manager.settings import ManagerSettings
from millstream.edge.peers.balancing import BalanceSettings
from millstream.edge.processor.app import ProcessorServer

HALF = '"\\ud800x"'  # one of a pair: JSON, and no text
BALANCED = BalanceSettings(window_s=0.05, round_s=0.3)
JSON = {"Content-Type": "application/json"}


class Door:
    """The endpoint of a manager, without a network."""

    def __init__(self, server: ManagerServer, loop: asyncio.Runner) -> None:
        self._loop = loop
        door = httpx.ASGITransport(server.app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=door, base_url="http://127.0.0.1")

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self._loop.run(self._client.get(path, params=parameters, timeout=10))

    def post(self, path: str, content: str) -> httpx.Response:
        return self._loop.run(self._client.post(path, content=content, headers=JSON, timeout=10))


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Door]:
    server = ManagerServer(tmp_path, ManagerSettings(port=0))
    with asyncio.Runner() as loop:
        yield Door(server, loop)
    server.close()


def refused(answer: httpx.Response) -> None:
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "table",
    [
        f'{{"name": {HALF}}}',
        f'{{"name": "s", "columns": {{"a": {HALF}}}}}',
        '{"name": ".."}',
        '{"name": "a/b"}',
        f'{{"name": "{"n" * 301}"}}',
    ],
)
def test_a_stream_that_cannot_be_is_not_kept(manager: Door, table: str) -> None:
    joined = manager.post("/processors", '{"id": "p", "url": "http://127.0.0.1:9", "epoch": 1}')
    assert joined.status_code == 200
    refused(manager.post("/streams", f'{{"table": {table}}}'))
    assert manager.get("/streams").json() == {}


@pytest.mark.parametrize(
    "more",
    [
        '"url": "http://host:80a"',
        '"url": "nonsense"',
        f'"url": "http://h:1", "properties": {{"a": {HALF}}}',
    ],
)
def test_a_processor_that_nobody_can_reach_is_not_kept(manager: Door, more: str) -> None:
    refused(manager.post("/processors", f'{{"id": "p", "epoch": 1, {more}}}'))
    assert not manager.get("/status").json()["processors"]


def test_a_wait_that_is_no_number_is_none(manager: Door) -> None:
    assert manager.get("/decisions", wait="nan", after=10**6).json() == []


@pytest.mark.parametrize("stream", ["{}", '{"name": 5}', '{"name": ".."}'])
def test_a_tier_refuses_a_stream_without_a_name(manager: Door, stream: str) -> None:
    command = f'{{"do": "declare", "stream": {stream}, "ingest": true}}'
    body = f'{{"epoch": 1, "number": 1, "to": "manager", "messages": [{command}]}}'
    answer = manager.post("/control", content=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["replies"][0]["error"]["code"] == "mistake"
    assert manager.get("/streams").json() == {}


@pytest.fixture
def processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessorServer]:
    with plain(monkeypatch):
        cluster = PlainCluster(tmp_path, 1, BALANCED)
        yield cluster.alive["p0"]
        cluster.close("p0")


def test_an_address_that_is_none_is_refused(processor: ProcessorServer) -> None:
    answer = httpx.post(f"{processor.url}/balance/peers", json={"peers": ["http://host:80a"]})
    assert answer.status_code == 400
    assert "is not an address" in answer.json()["error"]["message"]


def test_balancing_outlives_an_address_that_is_none(processor: ProcessorServer) -> None:
    """Whoever is told by others cannot check everything."""
    balancing = processor.balancing
    assert balancing is not None
    balancing.book.add(["http://host:80a"])
    balancing.book.met("lost", "http://host:80b")
    balancing.book.ask_around()
    balancing.book.tell("lost", [])
    assert balancing.book.ask("lost", Progress("m-1-1")) is None


def test_balancing_goes_on_after_a_fault(processor: ProcessorServer) -> None:
    balancing = processor.balancing
    assert balancing is not None
    beaten = threading.Event()

    def fault(_: float) -> None:
        beaten.set()
        raise ZeroDivisionError

    balancing._beat = fault  # type: ignore[method-assign]
    assert beaten.wait(10)
    beaten.clear()
    assert beaten.wait(10), "the thread has ended"


@pytest.mark.parametrize(
    "news",
    [
        {"do": ["probe"], "number": 1},
        {"do": "load_report", "load": 10**400, "number": 1},
        {"do": "partner_request", "load": 0.5, "cpu": -1},
        {"do": "partner_request", "load": 0.5, "cpu": 0},
    ],
)
def test_news_that_cannot_be_is_refused(processor: ProcessorServer, news: dict[str, Any]) -> None:
    body = {"epoch": 1, "number": 0, "to": "p0", "messages": [news], "sender": "x",
            "by": "processor"}  # fmt: skip
    answer = httpx.post(f"{processor.url}/control", json=body)
    assert answer.status_code == 400, answer.text
    good = {**body, "messages": [{"do": "probe", "number": 1}]}
    assert httpx.post(f"{processor.url}/control", json=good).json() == {"replies": [{"ok": {}}]}


def test_a_text_that_meets_a_fault_stops_nobody_else(
    processor: ProcessorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others come in the same message, which was answered 500 and sent again for ever."""
    compiler: Any = processor.processor.engine.plane.compiler
    compile_text = compiler.compile

    def compiled(cql: str, *rest: Any) -> Any:
        if cql == "9":
            raise ZeroDivisionError("a fault of somebody's")
        return compile_text(cql, *rest)

    monkeypatch.setattr(compiler, "compile", compiled)
    texts = [{"do": "compile", "cql": cql} for cql in ("9", "1")]
    body = {"epoch": 1, "number": 1, "to": "p0", "messages": texts}
    answer = httpx.post(f"{processor.url}/control", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    evil, good = answer.json()["replies"]
    assert evil["error"]["code"] == "failed"
    assert "ZeroDivisionError: a fault of somebody's" in evil["error"]["detail"]
    assert "error" not in good


def test_a_processor_answers_while_a_command_takes_long(processor: ProcessorServer) -> None:
    """A later message waits for the one before it, and nobody else waits for either."""
    sealing, sealed = threading.Event(), threading.Event()
    perform = processor.connections.perform

    def slow(command: Command) -> Reply:
        if not isinstance(command, Seal):
            return perform(command)
        sealing.set()
        sealed.wait(30)
        return Done()

    processor.connections.perform = slow  # type: ignore[method-assign]

    def say(number: int, command: dict[str, Any]) -> threading.Thread:
        body = {"epoch": 1, "number": number, "to": "p0", "messages": [command]}
        send = lambda: httpx.post(f"{processor.url}/control", json=body, timeout=60)  # noqa: E731
        thread = threading.Thread(target=send)
        thread.start()
        return thread

    place = {"processor": "p1", "url": "-"}
    said = [say(1, {"do": "seal", "move": "z", "operators": ["o:x"], "to": place})]
    assert sealing.wait(10)
    said.append(say(2, {"do": "progress", "move": "z"}))
    time.sleep(0.5)  # it has come by then
    try:
        assert httpx.get(f"{processor.url}/health", timeout=10).status_code == 200
    finally:
        sealed.set()
        for thread in said:
            thread.join()
    until(lambda: not any(t.is_alive() for t in said))
