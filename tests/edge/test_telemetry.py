"""What others hear of an engine: OpenLineage's events in a file or over HTTP, and spans."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from millstream.control.protocol.commands import Forget, Undo, Unhost
from millstream.core.errors import UsageError
from millstream.edge.telemetry.emitting import Emitter
from millstream.edge.telemetry.spans import Spans, command_span
from millstream.edge.telemetry.watched_engine import WatchedEngine
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import CompiledQuery, Step
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import Plan, Source
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from millstream.store.delivery import FileSink
from plain_plane import PlainPlane, Read, Rows, write

COLUMNS = (Field("c0", "bigint"),)


def compiled(cql: str) -> CompiledQuery:
    base = Source("a", COLUMNS)
    number = cql.removeprefix("CREATE QUERY q AS SELECT ").removesuffix(" FROM a")
    operator = Operator(f"o:{number}", "map", base, None, ("s:a",))
    return CompiledQuery(Plan(base, COLUMNS, relation=False), (operator,), operator.id)


def compute(step: Step, rows_of: Read) -> tuple[Rows, Rows | None]:
    return rows_of(step.new), None


def opened(home: Path) -> Engine:
    engine = Engine(home, PlainPlane(compiled, compute))
    source = {"source": "push", "options": {"password": "env:HIDDEN_ONE"}}
    engine.add_stream(StreamDefinition("a", COLUMNS, "ts", source=source))
    return engine


def settle(engine: Engine) -> None:
    loop = Loop(engine)
    loop.start()
    assert loop.settled.wait(60)
    loop.stop()
    assert loop.failure is None


def story(engine: Engine, folder: Path) -> None:
    """A query that delivers, is replaced, fails and goes on; another that is dropped."""
    engine.add_query("q", "SELECT 1 FROM a")
    engine.deliver("q", FileSink(folder / "q", "parquet"))
    engine.add_query("gone", "SELECT 2 FROM a")
    engine.add_query("q", "CREATE OR REPLACE QUERY q AS SELECT 3 FROM a")
    with engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [write(engine.store, [(1, 1)])], 1)
    settle(engine)
    assert engine.queries["q"].stream == "o:3"
    engine.fail_query("q", "it broke")
    engine.restart_query("q")
    engine.drop_query("gone")


WANTED = [
    ("START", "q"), ("RUNNING", "q"), ("START", "gone"), ("RUNNING", "q"), ("FAIL", "q"),
    ("RUNNING", "q"), ("ABORT", "gone"), ("COMPLETE", "q"),
]  # fmt: skip


def check(events: list[dict[str, Any]], folder: Path) -> None:
    assert [(e["eventType"], e["job"]["name"]) for e in events] == WANTED
    of_q = [e for e in events if e["job"]["name"] == "q"]
    assert len({e["run"]["runId"] for e in of_q}) == 1
    assert of_q[0]["inputs"][0]["name"] == "a"
    assert of_q[0]["inputs"][0]["facets"]["schema"]["fields"] == [{"name": "c0", "type": "bigint"}]
    places = {(d["namespace"], d["name"]) for d in of_q[1]["outputs"]}
    assert places == {("millstream", "q"), ("file", str(folder / "q"))}
    assert of_q[2]["job"]["facets"]["sql"]["query"] == "CREATE QUERY q AS SELECT 3 FROM a"
    assert of_q[3]["run"]["facets"]["errorMessage"]["message"] == "it broke"
    assert "HIDDEN_ONE" not in json.dumps(events)
    for e in events:
        assert {"eventTime", "producer", "schemaURL"} <= e.keys()


def test_events_in_a_file(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home")
    watched = WatchedEngine(engine, str(tmp_path / "events.json"))
    story(engine, tmp_path)
    watched.close(complete=True)
    engine.close()
    lines = (tmp_path / "events.json").read_text().splitlines()
    check([json.loads(line) for line in lines], tmp_path)


@contextmanager
def receiver(refusals: int = 0) -> Iterator[tuple[str, list[dict[str, Any]], list[str]]]:
    """A server that refuses some events and keeps the others."""
    kept: list[dict[str, Any]] = []
    paths: list[str] = []
    left = [refusals]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            left[0] -= 1
            if left[0] < 0:
                kept.append(json.loads(body))
                paths.append(f"{self.path} {self.headers['authorization']}")
            self.send_response(503 if left[0] >= 0 else 201)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kept, paths
    finally:
        server.shutdown()
        server.server_close()


def test_events_over_http_and_a_receiver_that_is_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "key")
    with receiver(refusals=2) as (url, kept, paths):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        engine = opened(tmp_path / "home")
        watched = WatchedEngine(engine)
        story(engine, tmp_path)
        watched.close(complete=True)
        engine.close()
        check(kept, tmp_path)
        assert set(paths) == {"/api/v1/lineage Bearer key"}


def test_a_receiver_that_is_gone_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.edge.telemetry.emitting.FIRST_PAUSE_S", 0.0)
    said: list[str] = []
    with receiver() as (url, _, _):
        pass
    engine = opened(tmp_path / "home")
    watched = WatchedEngine(engine, url, said.append)
    story(engine, tmp_path)
    watched.close(complete=True)
    assert engine.queries["q"].state == "running"
    engine.close()
    assert len(said) == 1
    assert said[0].startswith("events of lineage are lost: ")
    with pytest.raises(UsageError, match="there is no folder"):
        Emitter(str(tmp_path / "none" / "events.json"))


class Kept:
    """A tracer in the place of OpenTelemetry's that keeps its spans."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int, dict[str, Any]]] = []

    def start_span(self, name: str, start_time: int, attributes: dict[str, Any]) -> Any:
        kept = self

        class Span(trace.NonRecordingSpan):
            def end(self, end_time: int | None = None) -> None:
                assert end_time is not None
                kept.spans.append((name, start_time, end_time, attributes))

        return Span(trace.INVALID_SPAN_CONTEXT)


def test_registrations_and_steps_are_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    monkeypatch.setattr(trace, "get_tracer", lambda name: kept)
    engine = opened(tmp_path / "home")
    watched = WatchedEngine(engine)
    story(engine, tmp_path)
    watched.close(complete=True)
    assert engine.on_query == []
    engine.close()
    names = [name for name, *_ in kept.spans]
    assert names[0] == "query registered"
    assert {"query replaced", "query failed", "query dropped", "step"} <= {*names}
    steps = [told for name, _, _, told in kept.spans if name == "step"]
    assert {told["millstream.operator"] for told in steps} >= {"o:SELECT 2", "o:3"}
    assert all(told["millstream.rows_in"] == 1 for told in steps)
    assert all(began <= ended for _, began, ended, _ in kept.spans)


def test_what_a_processor_is_told_of_moves_is_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[tuple[str, dict[str, str]]] = []

    class Tracer:
        def start_as_current_span(self, name: str, attributes: dict[str, str]) -> Any:
            began.append((name, attributes))
            return nullcontext()

    monkeypatch.setattr(trace, "get_tracer", lambda _: Tracer())
    for command in (Unhost("q", ("o:1",)), Undo("m1"), Forget("s")):
        with command_span(command):
            pass
    assert [name for name, _ in began] == ["processor unhost", "processor undo"]
    assert began[0][1] == {"millstream.query": "q", "millstream.operators": "('o:1',)"}
    assert began[1][1]["millstream.move"] == "m1"


def test_without_the_library_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    assert Spans.wanted() is None
