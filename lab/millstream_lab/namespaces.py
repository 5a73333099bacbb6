"""Machines on one machine: Linux network namespaces, joined by a switch, with distances.

Each host is a namespace with a veth pair into a bridge in a namespace of its own, so that nothing
touches the machine's own network. A host has one process, which listens on loopback there; others
reach it at the host's address through a small proxy beside it, which holds every byte back for the
one-way distance to whoever asks (kernels without `tc netem` can do that too). So a host has one
address for all, as on a real network, and what crosses is counted by the kernel on its link.
Needs root and `ip`; `why_impossible` says what is missing. Linux only.
"""

import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType

IP = "ip"
PORT = 8360  # of the process in every namespace
CLONE_NEWNET = 0x40000000


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

    def url(self, host: str) -> str:
        """How the process at a host is reached, from everywhere: through the distance."""
        return f"http://{self.address(host)}:{PORT}"

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Lets the sockets that this thread opens be the host's."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            there = os.open(f"/var/run/netns/{self._name(host)}", os.O_RDONLY)
            try:
                _enter(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _enter(here)
        finally:
            os.close(here)

    def start(
        self, host: str, command: Sequence[str], log: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Runs a command in a host's namespace; it ends with this context."""
        with log.open("ab") if log is not None else nullcontext() as output:
            process = subprocess.Popen(
                self._inside(host, command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if log is not None else None,
            )
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
        command = [IP, "-n", self._name(host), "-s", "-j", "link", "show", "eth0"]
        told = subprocess.run(command, capture_output=True, check=True, timeout=60.0)
        return int(json.loads(told.stdout)[0]["stats64"]["tx"]["bytes"])

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
        for host in self.hosts:
            ways = {
                self.address(start): (
                    one_way_ms,
                    self.distances_ms.get((host, start), one_way_ms),
                )
                for (start, end), one_way_ms in self.distances_ms.items()
                if end == host
            }
            given = [self.address(host), json.dumps(ways)]
            self.start(host, [sys.executable, "-c", _RUN_PROXY, *given])

    def _remove(self) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._started.clear()
        for name in (*map(self._name, self.hosts), self._switch):
            subprocess.run([IP, "netns", "del", name], capture_output=True, check=False)


_RUN_PROXY = """\
import asyncio, json, sys
from millstream_lab.namespaces import hold_back
asyncio.run(hold_back(sys.argv[1], {k: tuple(v) for k, v in json.loads(sys.argv[2]).items()}))
"""


def _enter(namespace: int) -> None:
    """Puts the calling thread into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(*arguments: str) -> None:
    subprocess.run([IP, *arguments], check=True, capture_output=True)


async def hold_back(address: str, ways_ms: Mapping[str, tuple[float, float]]) -> None:
    """Forwards a host's PORT to its process, every byte late by the way from who asks, and back."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        origin = str(writer.get_extra_info("peername")[0])
        there_ms, back_ms = ways_ms.get(origin, (0.0, 0.0))
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", PORT)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            _carry(reader, far_writer, there_ms / 1000),
            _carry(far_reader, writer, back_ms / 1000),
        )

    server = await asyncio.start_server(accept, address, PORT)
    await server.serve_forever()


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
