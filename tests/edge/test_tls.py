"""TLS on every kind of listener, with one certificate that was made for the test."""

import shutil
from pathlib import Path

import pytest
from tls_files import made_tls

from millstream.client.http import HttpClient
from millstream.core.errors import AwayError, UsageError
from millstream.edge.dashboard.serving import DashboardServer
from millstream.edge.http.rows_api import RowsServer
from millstream.edge.http.serving import Listening, Server, Tls
from millstream.edge.manager.app import ManagerServer
from millstream.edge.manager.settings import ManagerSettings
from millstream_bench.pages.synthetic_system import SyntheticSystem

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return made_tls(tmp_path_factory.mktemp("tls"))


def test_listeners_speak_tls(tls: Tls, tmp_path: Path) -> None:
    client, stranger = HttpClient(verify=str(tls.certificate)), HttpClient()
    manager = ManagerServer(tmp_path / "m", ManagerSettings(port=0, token="secret"))
    served = Server.at(Listening(token="secret", tls=tls), manager.app)
    rows = RowsServer(lambda _: None, token="secret", tls=tls)
    pages = SyntheticSystem(2, 2)
    board = DashboardServer(pages, port=0, token="secret", tls=tls)
    try:
        for server in (served, rows, board):
            server.start()
        assert served.url.startswith("https://")
        assert client.get(f"{served.url}/status")["epoch"] == 1  # with the token of the keyring
        assert client.get(f"{rows.url}/health") == {"status": "ok"}
        assert "queries" in client.get(f"{board.url}api/snapshot")
        assert board.link.startswith("https://")
        with pytest.raises(AwayError):
            stranger.get(f"{rows.url}/health")  # it does not believe the certificate
    finally:
        client.close()
        stranger.close()
        for server in (served, rows, board):
            server.stop()
        manager.close()


def test_files_that_are_no_certificate_are_told(tls: Tls, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for wrong in (Tls(str(tmp_path / "no.pem"), tls.key), Tls(tls.certificate, tls.certificate)):
        with pytest.raises(UsageError, match="of no use"):
            RowsServer(lambda _: None, token="secret", tls=wrong)
