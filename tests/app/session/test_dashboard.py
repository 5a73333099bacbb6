"""The dashboard of a session is its user's: a link lets a browser in, our client has the token."""

from pathlib import Path
from typing import Any

import httpx
import pytest

import millstream
from millstream.client.http import HttpClient


@pytest.mark.spark
def test_a_link_opens_the_dashboard_of_a_session(spark: Any, tmp_path: Path) -> None:
    assert spark.conf.get("spark.authenticate") == "true"
    client = HttpClient()
    with (
        millstream.Session(home=tmp_path / "home") as session,
        millstream.dashboard(session, port=0) as board,
        httpx.Client() as browser,
    ):
        assert browser.get(board.url).status_code == 401
        assert client.send("GET", f"{board.url}api/snapshot").status_code == 200
        assert "?key=" in board._repr_html_()
        assert "refresh" in browser.get(board.link).text
        assert "<title>" in browser.get(board.url).text
        assert browser.get(f"{board.url}live").status_code == 200
    client.close()
