"""Virtual processors behind real HTTP: a manager's process talks to them as to real ones.

For measuring and testing a manager without Spark. Work goes on with every message, and reports are
increments with the names and sizes that a real processor's have.
"""

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from millstream.client.http import HttpClient
from millstream.control.protocol.commands import Expect, Report
from millstream.control.protocol.envelope import PATH, Envelope, written
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Compiled, Reply, Reported
from millstream.core.codec import from_json, to_json
from millstream.core.errors import MillstreamError
from millstream.sim.managed.virtual_ledger import Rows
from millstream.sim.managed.virtual_processor import VirtualProcessor
from millstream.sim.managed.virtual_work import VirtualWork

FIGURES = {
    "rows_in": 1e6, "rows_out": 2e5, "seconds": 123.456, "steps": 1234.0, "queue_rows": 0.0,
    "queue_bytes": 0.0, "state_rows": 5e4, "state_bytes": 4e6,
}  # fmt: skip
STREAM = {
    "rows": 1e6, "bytes": 5e7, "watermark_us": 1.7e15, "next": 1234.0, "ended": 0.0, "late": 0.0,
    "rejected": 0.0,
}  # fmt: skip


class World:
    """Surroundings of virtual processors, in real time."""

    def __init__(self, plans: Mapping[str, Compiled], rows: int = 0) -> None:
        self.plans = plans
        self.processors: dict[str, HttpProcessor] = {}
        self._rows = rows
        self.faults: list[str] = []

    def peer(self, me: str, url: str) -> VirtualWork | None:
        found = next((p.virtual for p in self.processors.values() if p.url == url), None)
        return found or (Pointing(self, url) if url.startswith("http") else None)

    def gap(self, what: str) -> None:
        self.faults.append(what)

    def begun(self, stream: str) -> None:
        return None

    def published(self, stream: str, epoch: int, number: int, rows: Rows) -> None:
        return None

    def now(self) -> float:
        return time.monotonic()

    def rows(self, stream: str) -> int:
        return self._rows


class Pointing(VirtualWork):
    """A manager asked for rows: it says where they are."""

    def __init__(self, world: World, url: str) -> None:
        super().__init__(url, world)

    def serve(self, name: str, consumer: str, following: int) -> Peer | None:
        client = HttpClient(answer_s=5.0)
        try:
            url = f"{self.name}/streams/{name}/segments"
            moved = client.get(url, after=max(following, 1), consumer=consumer)["moved"]
        except (MillstreamError, KeyError):
            return None
        finally:
            client.close()
        return Peer(moved["to"]["processor"], moved["to"]["url"], moved["epoch"] + 1)


class Reporting(VirtualProcessor):
    """Reports as a real processor does: all figures once, then those that have changed."""

    def _report(self, command: Report) -> Reply:
        told = command.since and command.since == self.version
        self.version += 1
        operators = {} if told else {o: dict(FIGURES) for o in sorted(self.ledger.operators())}
        streams = {} if told else {s: dict(STREAM) for s in sorted(self.ledger.streams)}
        now = time.monotonic()
        own = {
            "load": round(now % 1, 4), "memory_bytes": 3e8 + now, "memory_bytes_max": 1e9,
            "steps": float(self.version), "settled": 1.0, "cpu_s": round(now, 3),
        }  # fmt: skip
        return Reported(self.version, operators, streams, {}, own)


class HttpProcessor:
    """One virtual processor with a control endpoint."""

    def __init__(self, name: str, world: World, port: int = 0) -> None:
        self.virtual = Reporting(name, world)
        self.batches: dict[str, list[list[dict[str, Any]]]] = {}  # posted, by stream
        self.asked = 0  # about itself
        self.steps: list[dict[str, Any]] = []  # to be told, each once
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                said = self.rfile.read(size)
                if len(said) < size:
                    return  # the manager was stopped while it spoke
                body = json.loads(said)
                with outer.lock:
                    self._tell(outer.answer(self.path, body))

            def do_GET(self) -> None:
                with outer.lock:
                    self._tell(outer.look(self.path))

            def _tell(self, told: dict[str, Any]) -> None:
                answer = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        world.processors[name] = self

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A control message, or what concerns one stream."""
        if path == PATH:
            replies = self.virtual.control(from_json(Envelope, body))
            for _ in range(4):  # work goes on, as far as it has something to do
                self.virtual.work()
            return dict(json.loads(written(replies)))
        stream, word = unquote(path.removeprefix("/streams/")).rsplit("/", 1)
        if word == "rows":
            return self._take(stream, body)
        if word == "expect":
            return dict(to_json(self.virtual._expect(Expect(stream, body["consumer"]))))
        key = (f"p:{body['consumer']}", stream)
        if word == "ack" and key in self.virtual.ledger.cursors:
            self.virtual.ledger.cursors[key] = int(body["next"])
        elif word == "unexpect":
            self.virtual.ledger.cursors.pop(key, None)
        return {}

    def _take(self, stream: str, body: dict[str, Any]) -> dict[str, Any]:
        """Rows that somebody posts, in numbered batches."""
        if body["sequence"] == len(self.batches.setdefault(stream, [])) + 1:
            self.batches[stream].append(body["rows"])
        return {"rows": len(body["rows"])}

    def look(self, path: str) -> dict[str, Any]:
        """Rows about itself, or the number of the batch that follows."""
        if "/producers/" in path:
            return {"expected": len(self.batches.get(path.split("/")[2], ())) + 1}
        self.asked += 1
        now, name = int(time.time() * 1e6), self.virtual.name
        mine = sorted(self.virtual.ledger.operators())
        rows = [{"at": now, "operator": operator, "processor": name} for operator in mine]
        said = {key: int(found[0]) for key, found in parse_qs(urlsplit(path).query).items()
                if key in ("epoch", "after")}  # fmt: skip
        fresh = self.steps[said["after"] :] if said["epoch"] else []  # from the first question on
        last = len(self.steps)
        return {"epoch": 1, "last": last, "sys.operators": rows, "sys.steps": fresh}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def join(self) -> dict[str, Any]:
        told = to_json(self.virtual.join())
        return {**told, "url": self.url}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
