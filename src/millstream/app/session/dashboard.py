"""The dashboard of a session: `with millstream.dashboard(session): ...`."""

from typing import TYPE_CHECKING

from millstream.client.keyring import user_token
from millstream.edge.dashboard.serving import DashboardServer
from millstream.edge.http.serving import Tls, is_loopback
from millstream.edge.views.engine_view import EngineView

if TYPE_CHECKING:
    from millstream.app.session import Session


class SessionDashboard:
    """Serves one session; ends with the block, or by `close`."""

    def __init__(
        self,
        session: "Session",
        *,
        host: str,
        port: int | None,
        token: str | None,
        tls: Tls | None = None,
    ) -> None:
        local = session.here("the dashboard of a session")
        local.start()
        self._view = EngineView(local.engine, title="session", loop=local.loop)
        if token is None and is_loopback(host):
            token = user_token()
        self._server = DashboardServer(
            self._view, host=host, port=port, token=token, tls=tls
        ).start()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def link(self) -> str:
        """An address that lets one browser in."""
        return self._server.link

    def close(self) -> None:
        """The pages end; the session goes on."""
        self._server.stop()
        self._view.leave()

    def __enter__(self) -> "SessionDashboard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return f'<a href="{self.link}" target="_blank">dashboard: {self.url}</a>'


def dashboard(
    session: "Session",
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
) -> SessionDashboard:
    """Starts a session and serves its dashboard; a browser opens its `link`.

    Outside this machine the dashboard needs a token and TLS: PEM files.
    """
    tls = Tls(certificate, key)
    return SessionDashboard(session, host=host, port=port, token=token, tls=tls)
