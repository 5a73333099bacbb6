"""Serves the dashboard from a thread, on loopback unless told otherwise."""

from millstream.control.snapshot.model import SnapshotSource
from millstream.core.errors import UsageError
from millstream.edge.dashboard.app import dashboard_app
from millstream.edge.dashboard.feed import Feed
from millstream.edge.http.browsers import Browsers
from millstream.edge.http.roles import Role
from millstream.edge.http.serving import Application, Server, Tls, demand_closed

PORT = 8350  # the usual one; another is taken where it is not free


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
        tls: Tls | None = None,
    ) -> None:
        tls = tls or Tls()
        demand_closed("the dashboard is served", host, token, tls.certificate, plain=tls.plain)
        self.feed = Feed(source, interval_s)
        self._browsers = Browsers(token) if token else None
        app = dashboard_app(source, self.feed, host=host, token=token, browsers=self._browsers)
        self._server = _server(app, host, port, tls)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        return f"{self._server.url}/"

    @property
    def link(self) -> str:
        """An address for one browser: who opens it first is let in."""
        path = self._browsers.link(Role.SUBMIT) if self._browsers else "/"
        return f"{self._server.url}{path}"

    def start(self) -> "DashboardServer":
        self.feed.start()
        self._server.start()
        return self

    def stop(self) -> None:
        self.feed.end()
        self._server.stop()

    def __enter__(self) -> "DashboardServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _server(app: Application, host: str, port: int | None, tls: Tls) -> Server:
    if port is None:
        try:
            return _server(app, host, PORT, tls)
        except UsageError:
            port = 0
    return Server(app, host=host, port=port, name="millstream-dashboard", tls=tls)
