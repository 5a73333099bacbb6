"""A real PostgreSQL for a test run: in a folder of its own, on a socket that nobody else sees."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin")
USER = "millstream"
REQUIRED = os.environ.get("MILLSTREAM_POSTGRES") == "required"


def program(name: str) -> Path | None:
    """Where a program of PostgreSQL's server lies: often beside the path."""
    found = [p for folder in FOLDERS for p in sorted(Path("/").glob(f"{folder[1:]}/{name}"))]
    here = shutil.which(name)
    return found[-1] if found else Path(here) if here else None


def _as_somebody() -> dict[str, Any]:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres", names["nobody"])
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class Server:
    """One server; `dsn` is how to reach it, while it runs."""

    def __init__(self, folder: Path, wal_level: str = "logical") -> None:
        self.folder, self.as_somebody, self._wal_level = folder, _as_somebody(), wal_level
        self.dsn = f"host={folder} user={USER} dbname=postgres"
        self._process: subprocess.Popen[bytes] | None = None
        if self.as_somebody:
            os.chown(folder, self.as_somebody["user"], self.as_somebody["group"])
        self._run("initdb", "-D", self._data, "-U", USER, "-A", "trust", "-N", "-E", "UTF8",
                  "--no-locale")  # fmt: skip

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(program(name)), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd="/", **self.as_somebody
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        settings = {
            "listen_addresses": "", "unix_socket_directories": str(self.folder), "fsync": "off",
            "max_connections": "20", "shared_buffers": "32MB", "wal_level": self._wal_level,
            "max_replication_slots": "30",
        }  # fmt: skip
        more = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [str(program("postgres")), "-D", self._data, *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **self.as_somebody,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        import psycopg  # noqa: PLC0415

        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, "PostgreSQL has ended"
                assert time.monotonic() < deadline, "PostgreSQL does not answer"
                time.sleep(0.05)

    def stop(self) -> None:
        """At once, as if the machine had gone."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: no farewell to anybody
            self._process.wait(30)
            self._process = None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(self.dsn, options="-c timezone=UTC", autocommit=True) as used:
            cursor = used.execute(query)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running_server(wal_level: str = "logical") -> Iterator[Server]:
    """A server, or a test that is skipped with the reason."""
    missing = "psycopg" if not _has_psycopg() else ""
    missing = missing or ("a PostgreSQL server" if program("initdb") is None else "")
    if missing:
        told = f"needs {missing} (Debian: apt-get install postgresql)"
        assert not REQUIRED, told
        pytest.skip(told)
    folder = Path(tempfile.mkdtemp(prefix="millstream-pg-"))
    server = Server(folder, wal_level)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _has_psycopg() -> bool:
    try:
        import psycopg  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True
