"""Machines on one machine: Linux network namespaces, joined by a switch, with distances.

Each host is a namespace with a veth pair into a bridge in a namespace of its own, so that nothing
touches the machine's own network. Distances between hosts are made by small proxies in the
sender's namespace that hold every byte back for the one-way distance (kernels without `tc netem`
can do that too). Needs root and `ip`; `why_impossible` says what is missing. Linux only.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType

IP = "ip"
PORT = 8360  # of the process in every namespace
PROXIES = 9000  # plus the number of the target


def why_impossible() -> str | None:
    """Why namespaces cannot be made here; None if they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces exist on Linux only"
    if shutil.which(IP) is None:
        return "the command `ip` is not installed"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    name = f"ms-try-{os.getpid()}"
    tried = subprocess.run([IP, "netns", "add", name], capture_output=True, check=False)
    if tried.returncode:
        return f"network namespaces are not allowed: {tried.stderr.decode().strip()[:200]}"
    pair = [IP, "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]
    linked = subprocess.run(pair, capture_output=True, check=False)
    subprocess.run([IP, "netns", "del", name], capture_output=True, check=False)
    if linked.returncode:
        return f"veth pairs are not allowed: {linked.stderr.decode().strip()[:200]}"
    return None


class Namespaces:
    """Hosts with one-way distances in milliseconds; a context, which removes everything."""

    def __init__(self, distances_ms: Mapping[tuple[str, str], float]) -> None:
        self.hosts = tuple(dict.fromkeys(name for pair in distances_ms for name in pair))
        self.distances_ms = dict(distances_ms)
        self._tag = f"ms{os.getpid() % 100_000}"
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Namespaces":
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def address(self, host: str) -> str:
        return f"10.77.0.{self.hosts.index(host) + 1}"

    def url(self, origin: str, target: str) -> str:
        """How the process at one host reaches the one at another: through the distance."""
        if origin == target:
            return f"http://{self.address(origin)}:{PORT}"
        return f"http://{self.address(origin)}:{PROXIES + self.hosts.index(target)}"

    def start(self, host: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Runs a command in a host's namespace; it ends with this context."""
        process = subprocess.Popen(self._inside(host, command), stdin=subprocess.DEVNULL)
        self._started.append(process)
        return process

    def output(self, host: str, command: Sequence[str], *, timeout_s: float = 60.0) -> str:
        """Runs a command in a host's namespace to its end."""
        done = subprocess.run(
            self._inside(host, command), capture_output=True, check=True, timeout=timeout_s
        )
        return done.stdout.decode()

    def sent_bytes(self, host: str) -> int:
        """Bytes that have left a host by its link, counted by the kernel."""
        told = self.output(host, [IP, "-s", "-j", "link", "show", "eth0"])
        return int(json.loads(told)[0]["stats64"]["tx"]["bytes"])

    # ---- inside

    def _name(self, host: str) -> str:
        return f"{self._tag}-{self.hosts.index(host) + 1}"

    @property
    def _switch(self) -> str:
        return f"{self._tag}-switch"

    def _inside(self, host: str, command: Sequence[str]) -> list[str]:
        return [IP, "netns", "exec", self._name(host), *command]

    def _build(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        for number, host in enumerate(self.hosts, start=1):
            name, port = self._name(host), f"port{number}"
            _ip("netns", "add", name)
            ends = ("eth0", "netns", name, "type", "veth", "peer", "name", port)
            _ip("link", "add", *ends, "netns", self._switch)
            _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", name, "link", "set", link, "up")
        for origin in self.hosts:
            ways = {
                PROXIES + self.hosts.index(target): (
                    self.address(target),
                    one_way_ms,
                    self.distances_ms.get((target, origin), one_way_ms),
                )
                for (start, target), one_way_ms in self.distances_ms.items()
                if start == origin
            }
            if ways:
                self.start(origin, [sys.executable, "-c", _RUN_PROXIES, json.dumps(ways)])

    def _remove(self) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._started.clear()
        for name in (*map(self._name, self.hosts), self._switch):
            subprocess.run([IP, "netns", "del", name], capture_output=True, check=False)


_RUN_PROXIES = """\
import asyncio, json, sys
from millstream.lab.namespaces import hold_back
asyncio.run(hold_back({int(k): tuple(v) for k, v in json.loads(sys.argv[1]).items()}))
"""


def _ip(*arguments: str) -> None:
    subprocess.run([IP, *arguments], check=True, capture_output=True)


async def hold_back(ways: Mapping[int, tuple[str, float, float]]) -> None:
    """Forwards each port to PORT of its target, every byte late by the distance of its way."""
    servers = [
        await _forward(port, target, there_ms / 1000, back_ms / 1000)
        for port, (target, there_ms, back_ms) in ways.items()
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _forward(port: int, target: str, there_s: float, back_s: float) -> asyncio.Server:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(target, PORT)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            _carry(reader, far_writer, there_s), _carry(far_reader, writer, back_s)
        )

    return await asyncio.start_server(accept, "0.0.0.0", port)


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Bytes in order, each piece as late as the distance; pieces overlap like on a long line."""
    loop = asyncio.get_running_loop()
    due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

    async def deliver() -> None:
        while True:
            at, piece = await due.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            if not piece:
                writer.close()
                return
            writer.write(piece)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    try:
        while True:
            piece = await reader.read(65_536)
            await due.put((loop.time() + delay_s, piece))
            if not piece:
                break
        await delivering
    except OSError:
        delivering.cancel()
        writer.close()
