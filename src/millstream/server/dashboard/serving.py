"""Serves the dashboard from a thread, on loopback unless told otherwise."""

import socket
import threading

import uvicorn

from millstream.control.snapshot import SnapshotSource
from millstream.errors import ResourceError, UsageError
from millstream.server.dashboard.app import dashboard_app
from millstream.server.dashboard.feed import Feed
from millstream.server.rows_api import is_loopback

PORT = 8350  # the usual one; another is taken where it is not free
START_SECONDS_MAX = 30.0


class DashboardServer:
    """A dashboard over a source. `port` None: the usual one, or any where that is taken."""

    def __init__(
        self,
        source: SnapshotSource,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        token: str | None = None,
        interval_s: float | None = None,
    ) -> None:
        if not is_loopback(host) and not token:
            raise UsageError(
                f"the dashboard is served on {host} only with a token",
                hint="set a token, or listen on 127.0.0.1",
            )
        self.feed = Feed(source, interval_s)
        app = dashboard_app(source, self.feed, host=host, token=token)
        self._socket = _bound(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        settings = uvicorn.Config(
            app, log_level="warning", lifespan="off", access_log=False,
            timeout_graceful_shutdown=1, ws="none",
        )  # fmt: skip
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(
            target=self._serve, name="millstream-dashboard", daemon=True
        )

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/"

    def start(self) -> "DashboardServer":
        self.feed.start()
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(START_SECONDS_MAX / 0.02)):
            if self._server.started:
                return self
            waited.wait(0.02)
        raise ResourceError(f"the dashboard {self.url} did not start")

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self.feed.end()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def __enter__(self) -> "DashboardServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _bound(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = [PORT, 0] if port is None else [port]
    reason = ""
    for number in wanted:
        # its protocol is named, for asyncio turns Nagle's algorithm off only then
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
        except OSError as error:
            found.close()
            reason = error.strerror or ""
            continue
        return found
    raise UsageError(f"cannot listen on {host}:{port}", detail=reason, hint="another port?")
