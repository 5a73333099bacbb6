"""Processes that run adopted homes: the command of this process again, on another home.

They outlive this process if it is killed, and end with it where it is asked to; the next process
of this home finds them by a note beside their ledger. One that dies is started again, ever more
rarely; one whose home another process has by now is not.
"""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from millstream.control.recovery.replication import ADOPTED_BY

PAUSE_S = (1.0, 60.0)
LOOK_S = 0.5
ENDED_CODE = 3  # another process has the home
STOP_S = 30.0
NOTE = "process.pid"


class Launcher:
    """Runs homes under other names with the command that this process was started with."""

    def __init__(
        self,
        me: str,
        command: Sequence[str],
        say: Callable[[str], None],
        *,
        host: str = "127.0.0.1",
        advertise: str | None = None,
    ) -> None:
        self._me, self._command, self._say = me, tuple(command), say
        self._host, self._advertise = host, advertise
        self._threads: dict[str, threading.Thread] = {}
        self._ending: set[str] = set()
        self._stopping = threading.Event()

    def launch(self, name: str, home: Path) -> None:
        """Runs a home, if it is not run already; returns at once."""
        known = self._threads.get(name)
        if self._stopping.is_set() or (known is not None and known.is_alive()):
            return
        thread = threading.Thread(
            target=self._run, args=(name, home), name=f"millstream-adopted {name}", daemon=True
        )
        self._threads[name] = thread
        thread.start()

    def end(self, name: str) -> None:
        """Another has the home by now: whatever still runs here counts no more."""
        known = self._threads.pop(name, None)
        self._ending.add(name)
        if known is not None:
            known.join(STOP_S)
        self._ending.discard(name)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads.values():
            thread.join(STOP_S)

    def _run(self, name: str, home: Path) -> None:
        pause = PAUSE_S[0]
        while not self._stopping.is_set() and name not in self._ending:
            code = self._life(name, home)
            if code == ENDED_CODE or name in self._ending or self._stopping.wait(pause):
                return
            self._say(f"the process of {name}, whose home was taken over here, ended: {code}")
            pause = min(2 * pause, PAUSE_S[1])

    def _life(self, name: str, home: Path) -> int | None:
        """One process of a home, from its start, or from where we find it, to its end."""
        pid = running(home)
        process: subprocess.Popen[bytes] | None = None
        if pid is None:
            self._say(f"processor {name} continues here, on the copy of its home")
            with (home / "output.log").open("ab") as log:
                process = subprocess.Popen(
                    self._arguments(name, home), stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            pid = process.pid
            (home / NOTE).write_text(str(pid))
        while not self._stopping.wait(LOOK_S) and name not in self._ending:
            code = process.poll() if process is not None else None
            if code is not None or (process is None and running(home) is None):
                return code
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if name in self._ending else signal.SIGTERM)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(STOP_S)
        return None

    def _arguments(self, name: str, home: Path) -> list[str]:
        """The last word counts where one is said twice."""
        port = _free_port(self._host)
        more = ["--home", str(home), "--id", name, "--port", str(port)]
        more += ["--property", f"{ADOPTED_BY}={self._me}"]
        if self._advertise is not None:
            parts = urlsplit(self._advertise)
            known = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            more += ["--advertise", urlunsplit(parts._replace(netloc=f"{known}:{port}"))]
        return [*self._command, *more]


def running(home: Path) -> int | None:
    """The process that runs a home, as its note says; None where there is none."""
    try:
        pid = int((home / NOTE).read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if str(home).encode() in arguments else None


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as door:
        door.bind((host, 0))
        return int(door.getsockname()[1])
