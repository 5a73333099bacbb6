"""A manager and processors as processes of their own; only Spark is missing (`plain_members`).

python replicated_processors.py manager --home DIR [--replicas 2] [--lost-after 3] [--store DSN]
python replicated_processors.py processor --home DIR --id p1 --manager URL
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from plain_members import Plane, not_at_all

from millstream.app.commands.cluster.processor import properties_of
from millstream.client.manager_client import ManagerClient
from millstream.control.manager.state import Settings
from millstream.core.errors import MillstreamError
from millstream.edge.manager.app import ManagerServer
from millstream.edge.manager.settings import ManagerSettings
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from millstream.store import reach

WAIT_S = 90.0


def manager(home: str, replicas: int, lost_after: float, store: str | None, port: int) -> None:
    deciding = Settings(
        beat_s=0.5, silent_after_s=2.5, replicas=replicas, lost_after_s=lost_after, patience_s=8.0
    )
    server = ManagerServer(
        Path(home), ManagerSettings(port=port, deciding=deciding, store=store),
        lambda text: print(text, flush=True),
    )  # fmt: skip
    server.run(lambda: print(f"manager listens on {server.url}", flush=True))


def processor(given: argparse.Namespace) -> None:
    for kind in ("map", "interval"):
        reach.REACHES[kind] = not_at_all  # type: ignore[index]
    settings = ProcessorSettings(
        port=given.port, manager=given.manager, properties=properties_of(given.property)
    )
    server = ProcessorServer(
        given.id, Path(given.home), Plane(), settings, EngineSettings(slots=1),
        say=lambda text: print(text, flush=True), command=(sys.executable, *sys.orig_argv[1:]),
    )  # fmt: skip
    server.processor.new_owner.warm_rounds = 0
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "asked_to_stop", True))
    server.start()
    print(f"processor {given.id} listens on {server.url}", flush=True)
    reason = server.wait()
    server.stop()
    sys.exit(3 if reason else 0)


class Processes:
    """A manager, and processors p1, p2, ..."""

    def __init__(self, folder: Path, count: int, options: Sequence[str]) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._options = options
        self.urls = [self.start_manager("manager")]
        if "--store" in options:
            self.urls.append(self.start_manager("standby"))
        self.client = ManagerClient(",".join(self.urls))  # closed at the end
        for number in range(1, count + 1):
            self.start(f"p{number}")
        self.until(lambda: len(self.client.status()["processors"]) == count)

    def start_manager(self, name: str, *more: str) -> str:
        home = str(self.folder / name)
        return self._start(name, "manager", "--home", home, *self._options, *more)

    def start(self, name: str) -> None:
        home, urls = str(self.folder / name), ",".join(self.urls)
        self._start(name, "processor", "--home", home, "--id", name, "--manager", urls)

    def _start(self, name: str, *arguments: str) -> str:
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        tests = Path(__file__).parent
        path = os.pathsep.join((str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")))
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            self.running[name] = subprocess.Popen(
                [sys.executable, __file__, *arguments], stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        self.until(lambda: "listens on" in log.read_text())
        return log.read_text().partition("listens on ")[2].split()[0]

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running.pop(name).wait()

    def until(self, what: Callable[[], Any], seconds: float = WAIT_S) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with suppress(MillstreamError):
                if what():
                    return
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        found = [*self.folder.glob("*.log"), *self.folder.glob("*/replicas/*/output.log")]
        return "\n".join(f"{p}:\n{p.read_text()[-2500:]}" for p in found)

    def close(self) -> None:
        self.client.close()
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@contextmanager
def processes(folder: Path, count: int, *options: str) -> Iterator[Processes]:
    found = Processes.__new__(Processes)
    found.running = {}
    try:
        found.__init__(folder, count, options)  # type: ignore[misc]
        yield found
    finally:
        found.close()


def launched() -> None:
    """As `millstream` would be: the manager is the command, processors are those without Spark."""
    if sys.argv[1] == "manager":
        from millstream.app.cli import main as command  # noqa: PLC0415

        command()
    main()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("manager", "processor"))
    parser.add_argument("--home", required=True)
    parser.add_argument("--id", default="")
    parser.add_argument("--manager", default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--property", action="append", default=[])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--lost-after", type=float, default=0.0)
    parser.add_argument("--store")
    given, _ = parser.parse_known_args()  # such as are about Spark
    if given.what == "manager":
        manager(given.home, given.replicas, given.lost_after, given.store, given.port)
    else:
        processor(given)


if __name__ == "__main__":
    main()
