"""The keyring: our own commands find the token of a daemon, others find none."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from millstream.client import http, keyring
from millstream.client.http import AsyncHttpClient, HttpClient
from millstream.core.errors import ResourceError, UsageError
from millstream.edge.http.roles import Role, reads, role_token
from millstream.edge.http.serving import Application, Server


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(keyring.FOLDER, str(tmp_path / "keys"))
    monkeypatch.delenv(keyring.TOKEN, raising=False)
    return tmp_path / "keys"


def served(token: str | None) -> Server:
    app = Application("test", token=token)

    @app.get("/number")
    @reads
    async def number() -> int:
        return 1

    server = Server(app)
    server.start()
    return server


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_user_has_one_token_for_the_owner_alone(keys: Path) -> None:
    first = keyring.user_token()
    assert len(first) >= 40
    assert keyring.user_token() == first
    assert (mode(keys), mode(keys / "token")) == (0o700, 0o600)
    keys.chmod(0o755)
    keyring.user_token()
    assert mode(keys) == 0o700
    assert sorted(p.name for p in keys.iterdir()) == ["token"]


def test_an_empty_file_is_no_token(keys: Path) -> None:
    """After a loss of power, say: a daemon with an empty token would ask nobody for one."""
    keyring.user_token()
    for text in ("", " \n"):
        (keys / "token").write_text(text)
        made = keyring.user_token()
        assert len(made) >= 40
        assert keyring.user_token() == made
        assert mode(keys / "token") == 0o600


def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(keyring.TOKEN, "given")
    assert keyring.user_token() == "given"


def test_a_folder_that_cannot_be_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(keyring.FOLDER, str(tmp_path / "file" / "keys"))
    with pytest.raises(ResourceError, match="is of no use") as error:
        keyring.user_token()
    assert keyring.FOLDER in error.value.hint
    assert keyring.token_for("http://127.0.0.1:1") is None  # a client asks without one


def test_our_client_finds_the_token_and_others_do_not(keys: Path) -> None:
    server = served("secret")
    client, wrong = HttpClient(), HttpClient("wrong")
    reader = HttpClient(role_token("secret", Role.READ))
    try:
        assert httpx.get(f"{server.url}/number").status_code == 401
        assert client.get(f"{server.url}/number") == 1
        assert client.get(f"http://localhost:{server.port}/number") == 1
        assert b"".join(client.chunks(f"{server.url}/number")) == b"1"
        (note,) = (keys / "daemons").iterdir()
        assert (mode(note), mode(keys / "daemons")) == (0o600, 0o700)
        with pytest.raises(UsageError, match="a token is required"):
            wrong.get(f"{server.url}/number")  # what was given is sent
        assert reader.get(f"{server.url}/number") == 1
    finally:
        for one in (client, wrong, reader):
            one.close()
        server.stop()
    assert not list((keys / "daemons").iterdir())


def test_whoever_takes_the_port_of_a_dead_daemon_gets_no_token(keys: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with keyring.listed(("http://127.0.0.1:7001",), "secret"):
        note = keys / "daemons" / "127.0.0.1_7001"
        assert keyring.token_for("http://127.0.0.1:7001/x") == "secret"
        assert keyring.token_for("http://127.0.0.1:7002") is None
        note.write_text(json.dumps({"pid": ended.pid, "token": "secret"}))
        assert keyring.token_for("http://127.0.0.1:7001") is None
        with keyring.listed(("http://127.0.0.1:7003",), "secret"):
            assert not note.exists()  # the next daemon sweeps
        for text in ("", "[]", "{", '{"pid": "x"}', f'{{"pid": {os.getpid()}}}'):
            note.write_text(text)
            assert keyring.token_for("http://127.0.0.1:7001") is None


def test_an_open_server_is_not_listed(keys: Path) -> None:
    server = served(None)
    server.stop()
    assert not keys.exists()


def test_who_asks_before_a_daemon_has_noted_its_token_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the look at the keyring and the answer a daemon may begin."""
    server = served("secret-token-of-this-daemon")
    real, looks = http.introduced, []

    def late(url: str) -> tuple[str, str | None]:
        looks.append(url)
        return (url, None) if len(looks) == 1 else real(url)

    monkeypatch.setattr(http, "introduced", late)
    try:
        with HttpClient() as client:
            assert client.get(f"{server.url}/number") == 1
        looks.clear()
        assert asyncio.run(_asked(f"{server.url}/number")) == 1
    finally:
        server.stop()


async def _asked(url: str) -> int:
    async with AsyncHttpClient() as client:
        return int((await client.ask("GET", url)).json())
