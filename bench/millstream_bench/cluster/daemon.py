"""A processor as a process, for benchmarks: started, waited for, stopped as users stop it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from millstream.core.errors import AwayError, ResourceError
from millstream.edge.http.reserved_port import KeptPort
from millstream.edge.processor.client import ProcessorClient

START_SECONDS = 180.0
STOP_SECONDS = 60.0


class Daemon:
    """One processor; its port may have been chosen before, so that others know it."""

    def __init__(
        self, name: str, folder: Path, options: Sequence[str] = (), kept: KeptPort | None = None
    ) -> None:
        self._kept = kept or KeptPort()
        port = self._kept.number
        self.home = folder / name
        self.client = ProcessorClient(name, f"http://127.0.0.1:{port}")
        command = [sys.executable, "-c", "from millstream.app.cli import main; main()", "processor"]
        own = ["--home", str(self.home), "--id", name, "--port", str(port), "--spark", "local[1]"]
        with (folder / f"{name}.log").open("w") as log:
            self._process = subprocess.Popen([*command, *own, *options], stdout=log, stderr=log)

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.client.get("/health")
            except AwayError:
                time.sleep(0.2)
            else:
                return
        raise ResourceError(f"processor {self.client.name} did not start")

    def cpu_s(self) -> float:
        """CPU seconds of the process itself, without Spark's Java process."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text(errors="replace")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.client.close()
        self._kept.close()
