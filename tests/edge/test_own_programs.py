"""The endpoint of a run asks no token of its own user's programs, and one of everybody else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from millstream.edge.http import own_programs
from millstream.edge.http.own_programs import owner
from millstream.edge.http.rows_api import RowsServer

SECRET = "a secret of the test"
HERE, ASKING = ("127.0.0.1", 0x1F90), ("127.0.0.1", 0xC001)
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:C001 {state} 00000000:00000000 00:00000000 00000000     7        0 99
   1: 0100007F:C001 0100007F:1F90 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode}
"""  # noqa: E501
# Becomes another user and posts.
FOREIGN = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
token = f"Authorization: Bearer {sys.argv[2]}\\r\\n" if len(sys.argv) > 2 else ""
line = socket.socket()
line.settimeout(30)
line.connect(("127.0.0.1", int(sys.argv[1])))
line.sendall((
    "POST /streams/nowhere/rows HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n" + token +
    "Content-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}"
).encode())
print(line.recv(1000).split()[1].decode())
"""


@pytest.mark.parametrize(
    ("state", "inode", "found"), [("01", "5", 1000), ("08", "5", None), ("01", "0", None)]
)
def test_the_kernel_says_whose_a_connection_is(
    state: str, inode: str, found: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "tcp"
    table.write_text(TABLE.format(state=state, inode=inode))
    monkeypatch.setattr(own_programs, "TABLES", (tmp_path / "missing", table))
    assert owner(ASKING, HERE) == found
    assert owner(("127.0.0.1", 1), HERE) is None


@pytest.fixture
def server() -> Iterator[RowsServer]:
    made = RowsServer(lambda _: None, token=SECRET, own_programs=True)
    made.start()
    yield made
    made.stop()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel does not tell")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_programs_of_the_user_need_no_token(host: str) -> None:
    listen = "::1" if host == "[::1]" else "127.0.0.1"
    server = RowsServer(lambda _: None, host=listen, token=SECRET, own_programs=True)
    server.start()
    try:
        url = f"http://{host}:{server.port}/streams/nowhere/rows"
        own = {"Host": f"{'[::1]' if listen == '::1' else listen}:{server.port}"}
        assert httpx.post(url, json={}, headers=own, timeout=30).status_code == 404
        foreign = {**own, "Origin": "https://evil.example"}
        assert httpx.post(url, json={}, headers=foreign, timeout=30).status_code == 403
        simple = {**own, "Content-Type": "text/plain"}
        assert httpx.post(url, content=b"{}", headers=simple, timeout=30).status_code == 415
    finally:
        server.stop()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user for a moment")
@pytest.mark.parametrize(("more", "status"), [((), "401"), ((SECRET,), "404")])
def test_programs_of_others_need_one(
    server: RowsServer, more: tuple[str, ...], status: str
) -> None:
    command = [sys.executable, "-I", "-c", FOREIGN, str(server.port), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == status, done.stderr


def test_where_the_kernel_says_nothing_a_token_is_needed(
    server: RowsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_programs, "TABLES", ())
    url = f"{server.url}/streams/nowhere/rows"
    assert httpx.post(url, json={}, timeout=30).status_code == 401
    token = {"Authorization": f"Bearer {SECRET}"}
    assert httpx.post(url, json={}, headers=token, timeout=30).status_code == 404
