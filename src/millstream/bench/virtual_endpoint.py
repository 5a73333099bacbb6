"""Virtual processors behind real HTTP: a manager's process talks to them as to real ones."""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from millstream.control.commands import Compiled, decode, encode_reply, to_json
from millstream.sim.virtual_ledger import Rows
from millstream.sim.virtual_processor import VirtualProcessor
from millstream.sim.virtual_work import VirtualWork


class World:
    """Surroundings of virtual processors, in real time."""

    def __init__(self, plans: Mapping[str, Compiled], rows: int = 0) -> None:
        self.plans = plans
        self.processors: dict[str, HttpProcessor] = {}
        self._rows = rows
        self.faults: list[str] = []

    def peer(self, me: str, url: str) -> VirtualWork | None:
        return next((p.virtual for p in self.processors.values() if p.url == url), None)

    def gap(self, what: str) -> None:
        self.faults.append(what)

    def begun(self, stream: str) -> None:
        return None

    def published(self, stream: str, epoch: int, number: int, rows: Rows) -> None:
        return None

    def rows(self, stream: str) -> int:
        return self._rows


class HttpProcessor:
    """One virtual processor with a control endpoint."""

    def __init__(self, name: str, world: World, port: int = 0) -> None:
        self.virtual = VirtualProcessor(name, world)
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                with outer.lock:
                    replies = outer.virtual.control(decode(json.loads(body)))
                    for _ in range(4):  # work goes on, as far as it has something to do
                        outer.virtual.work()
                answer = json.dumps({"replies": [encode_reply(r) for r in replies]}).encode()
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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def join(self) -> dict[str, Any]:
        told = to_json(self.virtual.join())
        return {**told, "url": self.url}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
