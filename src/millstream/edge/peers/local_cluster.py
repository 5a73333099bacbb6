"""A manager and processors as processes of this machine: started, watched, stopped together.

Homes lie in one folder with a note of their ports, so that everything is found again after a
restart; while the cluster is there, its ports are kept (`reserved_port`). A process that dies is
started again on its home. Decides nothing else.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.client.manager_client import ManagerClient
from millstream.core.errors import AwayError, MillstreamError, ResourceError, UsageError
from millstream.edge.http.reserved_port import KeptPort, keep_port

START_S = 120.0
STOP_S = 30.0
AGAIN_S = 1.0  # between two starts of what dies; twice as long each time that it dies soon
AGAIN_S_MAX = 60.0
SCALE_S = 1.0  # between two looks at how many are wanted
QUIET_S = 120.0  # of a life after which the pause is short again
LAUNCH = "from millstream.app.cli import main; main()"


@dataclass(slots=True)
class Member:
    """One process."""

    name: str
    arguments: tuple[str, ...]
    home: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    died_s: float = field(default=0.0)
    pause_s: float = field(default=AGAIN_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: we stop them in order
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self.starts += 1

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def last_words(self) -> str:
        with suppress(OSError):
            lines = (self.home / "output.log").read_text(errors="replace").strip().splitlines()
            return "\n".join(lines[-3:])
        return ""


class LocalCluster:
    """A manager and so many processors in a folder."""

    def __init__(
        self,
        folder: Path,
        processors: int,
        *,
        most: int = 0,
        port: int = 0,
        spark: str = "local[2]",
        heap: str = "1g",
        manager_options: Sequence[str] = (),
        processor_options: Sequence[str] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        if processors < 1:
            raise UsageError("a cluster has at least one processor")
        self.folder, self._say = folder.absolute(), say
        names = _names(self.folder, processors) if most else _first_names(processors)
        self._kept = self._ports(names, port)
        ports = {name: kept.number for name, kept in self._kept.items()}
        home = self.folder / "manager"
        self.manager = Member(
            "manager",
            ("manager", "--home", str(home), "--port", str(ports["manager"]), *manager_options),
            home,
            ports["manager"],
        )
        self._spark = ("--spark", spark, "--heap", heap)
        self._processor_options = tuple(processor_options)
        self.processors = [self._processor(name) for name in names]
        self._ending: dict[str, float] = {}  # who is told to end, and until when it may take
        self._scaled_s = 0.0
        self.client = ManagerClient(self.url)

    def _processor(self, name: str) -> Member:
        home, port = self.folder / name, self._kept[name].number
        arguments = (
            "processor", "--home", str(home), "--manager", self.url, *self._spark, "--id", name,
            "--port", str(port), *self._processor_options,
        )  # fmt: skip
        return Member(name, arguments, home, port)

    @property
    def url(self) -> str:
        return self.manager.url

    def _ports(self, names: Sequence[str], port: int) -> dict[str, KeptPort]:
        """Ports of former times where nobody else has them, so that everybody is found again."""
        file = self.folder / "ports.json"
        known: dict[str, int] = {}
        with suppress(OSError, ValueError):
            known = dict(json.loads(file.read_text()))
        kept = {"manager": KeptPort(port) if port else keep_port(known.get("manager"))}
        kept |= {name: keep_port(known.get(name)) for name in names}
        known |= {name: found.number for name, found in kept.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, indent=1))
        return kept

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts everything and waits until all processors have joined."""
        self.manager.start()
        self._await("the manager", self._manager_up)
        for member in self.processors:
            member.start()
        self._await("all processors", self._all_up)

    def _manager_up(self) -> bool:
        try:
            self.client.status()
        except AwayError:
            return False
        return True

    def _all_up(self) -> bool:
        with suppress(AwayError):
            told = self.client.status()["processors"]
            return all(told.get(p.name, {}).get("state") == "up" for p in self.processors)
        return False

    def _await(self, what: str, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not look():
            for member in (self.manager, *self.processors):
                if member.starts and not member.running:
                    raise ResourceError(
                        f"{member.name} did not start", detail=member.last_words(),
                        hint=f"its output is in {member.home / 'output.log'}",
                    )  # fmt: skip
            if time.monotonic() > deadline:
                raise ResourceError(f"{what} did not answer within {START_S:.0f} s")
            time.sleep(0.1)

    def watch(self) -> None:
        """Starts again what has died."""
        for member in (self.manager, *self.processors):
            if member.running or not member.starts or member.name in self._ending:
                continue
            code = member.process.returncode if member.process else 0
            if time.monotonic() - member.died_s < member.pause_s:
                continue
            soon = time.monotonic() - member.died_s < QUIET_S
            member.pause_s = min(2 * member.pause_s, AGAIN_S_MAX) if soon else AGAIN_S
            member.died_s = time.monotonic()
            self._say(f"{member.name} has ended with code {code} and is started again")
            member.start()

    # -- more and fewer -------------------------------------------------------------------------

    def scale(self) -> None:
        """Starts processors that the manager wants, and ends those that it has emptied."""
        if time.monotonic() - self._scaled_s < SCALE_S:
            return
        self._scaled_s = time.monotonic()
        with suppress(MillstreamError):
            told = self.client.scaling()
            going = {*told["leaving"], *self._ending}
            working = sum(p.name not in going for p in self.processors)
            for _ in range(told["wanted"] - working):
                self._add(str(told["reason"]))
            for name in told["free"]:
                self._end(str(name))
        for name in list(self._ending):
            self._ended(name)

    def _add(self, reason: str) -> None:
        taken = {p.name for p in self.processors}
        name = next(n for n in _first_names(len(taken) + 1) if n not in taken)
        self._kept[name] = keep_port(None)
        member = self._processor(name)
        self.processors.append(member)
        self._say(f"{name} is started: {reason}")
        member.start()

    def _end(self, name: str) -> None:
        """Its manager tells it to end; from here on nobody starts it again."""
        if name not in self._ending and any(p.name == name for p in self.processors):
            self.client.halt(name)
            self._ending[name] = time.monotonic() + STOP_S
            self._say(f"{name} has nothing any more and ends")

    def _ended(self, name: str) -> None:
        """Its process is gone: it is forgotten, and its empty home goes."""
        (member,) = (p for p in self.processors if p.name == name)
        if member.running and time.monotonic() > self._ending[name] and member.process:
            member.process.send_signal(signal.SIGTERM)
        if member.running:
            return
        with suppress(AwayError):
            with suppress(UsageError):  # it is forgotten already
                self.client.remove_processor(name)
            del self._ending[name]
            self.processors.remove(member)
            self._kept.pop(name).close()
            shutil.rmtree(member.home, ignore_errors=True)

    def stop(self) -> None:
        """Processors first, so that the manager sees them leave; then the manager."""
        for group in (self.processors, [self.manager]):
            for member in group:
                if member.running and member.process:
                    member.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            for member in group:
                if member.process is None:
                    continue
                try:
                    member.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self._say(f"{member.name} did not stop in time and is killed")
                    member.process.kill()
                    member.process.wait()
        for kept in self._kept.values():
            kept.close()
        self.client.close()

    def describe(self) -> dict[str, Any]:
        return {
            "manager": self.url,
            "home": str(self.folder),
            "processors": {p.name: p.url for p in self.processors},
            "pids": {m.name: m.process.pid for m in (self.manager, *self.processors) if m.process},
        }


def _first_names(count: int) -> list[str]:
    return [f"p{n}" for n in range(1, count + 1)]


def _names(folder: Path, least: int) -> list[str]:
    """Homes of former times, which have something, and as many more as are wanted.

    >>> _names(Path("no such folder"), 2)
    ['p1', 'p2']
    """
    found = [p.parent.name for p in folder.glob("p*/ledger.db")]
    names = [name for name in found if name[1:].isdigit()]
    more = (name for name in _first_names(least + len(names)) if name not in names)
    names += [next(more) for _ in range(least - len(names))]
    return sorted(names, key=lambda name: int(name[1:]))


def submit_job(client: ManagerClient, job: Any, *, wait_s: float = 120.0) -> list[dict[str, Any]]:
    """Declares a job's streams, registers its queries, then lets rows come."""
    from millstream.control.definitions.stream_table import table_of  # noqa: PLC0415

    for stream in job.streams:
        client.declare(table_of(stream))
    told = []
    for query in job.queries:
        try:
            told.append(
                client.submit(
                    query.name, query.cql, from_beginning=True, wait_s=wait_s,
                    replicas=query.replicas,
                )
            )  # fmt: skip
        except UsageError as error:
            raise MillstreamError(
                f"query {query.name}: {error.message}", detail=error.detail, hint=error.hint
            ) from None
    client.start_streams([s.name for s in job.streams])
    return told
