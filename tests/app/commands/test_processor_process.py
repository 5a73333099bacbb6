"""Real processors, killed with SIGKILL at random and in the middle of moves: one answer."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from millstream.control.protocol.commands import (
    Compile,
    Complete,
    Connect,
    Declare,
    Expect,
    Hold,
    Host,
    Prepare,
    Progress,
    Release,
    Report,
    Seal,
    StartStream,
    Stop,
    TakeOver,
)
from millstream.core.errors import AwayError
from millstream.edge.http.reserved_port import KeptPort
from millstream.edge.processor.client import ProcessorClient
from millstream.store.moves.transfer import RefusedError

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROWS, RATE = 2400, 60
JOIN = (
    "SELECT x.n AS n, y.n AS m FROM s [RANGE 4 SECONDS] x JOIN s [RANGE 4 SECONDS] y"
    " ON x.name = y.name WHERE x.n < y.n"
)
TOTAL = "SELECT name, count(*) AS c, sum(n) AS t FROM s GROUP BY name"
SEED = 3


class Daemon:
    """A processor as a process, on a port of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.kept = KeptPort()
        self.port = self.kept.number
        self.name, self.home = name, folder / name
        self.client = ProcessorClient(name, f"http://127.0.0.1:{self.port}")
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", "from millstream.app.cli import main; main()", "processor"]
        options = ["--home", str(self.home), "--id", self.name, "--port", str(self.port)]
        log = self.home.with_suffix(".log").open("a")
        with log:
            self.process = subprocess.Popen(
                [*command, *options, "--spark", "local[1]"],
                stdout=log, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        deadline = time.monotonic() + 300
        while True:
            try:
                self.client.get("/health")
            except AwayError:
                assert time.monotonic() < deadline, self.home.with_suffix(".log").read_text()
                time.sleep(0.2)
            else:
                return

    def kill(self) -> None:
        """The process and its Java process, without a word."""
        if self.process is not None:
            with suppress(ProcessLookupError):  # it has stopped, and Java with it
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def again(self) -> None:
        self.kill()
        self.start()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Daemon]]:
    daemons = [Daemon(f"p{i}", tmp_path) for i in range(2)]
    try:
        for daemon in daemons:
            daemon.start()
        for daemon in daemons:
            daemon.wait()
        yield daemons
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.client.close()
            daemon.kept.close()


def insist(daemon: Daemon, *commands: Any, seconds: float = 300) -> list[Any]:
    """Says it until it is done: whoever is away comes back."""
    deadline = time.monotonic() + seconds
    while True:
        assert daemon.process is not None
        assert daemon.process.poll() is None, daemon.home.with_suffix(".log").read_text()
        try:
            return daemon.client.do(*commands)
        except RefusedError as error:
            if error.code != "busy" or time.monotonic() > deadline:
                raise
        except AwayError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def deploy(query: str, cql: str, where: ProcessorClient, first: ProcessorClient) -> Host:
    """All of a query on one processor, its rows entering at another."""
    (held,) = first.do(Hold(query, ("s:s",)))
    start = held.streams["s:s"].watermark
    compiled = first.do(Compile(cql))[0].starting(start)
    ids = tuple(o.id for o in compiled.operators)
    host = Host(query, cql, start, ids, True)
    where.do(host)
    if where is not first:
        (expected,) = first.do(Expect("s:s", where.name))
        where.do(Connect("s:s", first.peer(expected.epoch)))
    first.do(Release(query, ("s:s",)))
    return host


def phase_of(daemon: Daemon, move: str) -> str:
    return str(insist(daemon, Progress(move))[0].phase)


def move(name: str, host: Host, old: Daemon, new: Daemon, first: Daemon, kill: Any) -> None:
    """A move during which somebody may be killed before each step."""
    inputs = {} if new is first else {"s:s": first.client.peer(1)}
    command = Prepare(name, (host,), inputs, old.client.peer())
    kill("prepare")
    insist(new, command)
    kill("copy")
    while phase_of(new, name) != "ready":
        time.sleep(0.05)
        insist(new, command)
    kill("seal")
    while phase_of(new, name) not in ("ready", "sealed", "owned"):
        time.sleep(0.05)
    insist(old, Seal(name, host.operators, new.client.peer()))
    kill("take")
    insist(new, TakeOver(name, old.client.peer()))
    while phase_of(new, name) != "owned":
        time.sleep(0.05)
    kill("complete")
    insist(old, Complete(name))
    insist(new, Complete(name))


def all_rows(client: ProcessorClient, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    following = 0
    while True:
        answer = client.get(f"/queries/{query}/rows", after=following)
        found += answer["rows"]
        if answer["next"] == following or answer["ended"]:
            return found
        following = answer["next"]


def test_killed_at_every_step_of_moves(pair: list[Daemon], tmp_path: Path) -> None:
    chance = random.Random(SEED)
    rows = [(i // 20, "uvw"[i % 3], i) for i in range(ROWS)]
    (tmp_path / "s.csv").write_text("".join(f"{a},{b},{c}\n" for a, b, c in rows))
    table = {
        "name": "s",
        "path": str(tmp_path / "s.csv"),
        "columns": {"at": "long", "name": "string", "n": "int"},
        "time": "timestamp_seconds(at)",
        "rate": RATE,
    }
    first, second = pair
    for number, daemon in enumerate(pair):
        daemon.client.do(Declare(table, ingest=number == 0))
    join = deploy("join", JOIN, second.client, first.client)
    total = deploy("total", TOTAL, first.client, first.client)
    first.client.do(StartStream("s"))
    kills = iter(["", "copy", "", "seal", "", "take", "", "complete", "prepare", ""])
    plan = [(join, second, first), (total, first, second), (join, first, second)]
    killed = 0
    for number, (host, old, new) in enumerate(plan):
        at = {next(kills), next(kills), next(kills)}

        def kill(step: str, at: set[str] = at) -> None:
            nonlocal killed
            if step in at:
                victim = chance.choice(pair)
                victim.again()
                killed += 1

        move(f"m{number}", host, old, new, first, kill)
    assert killed >= 4
    deadline = time.monotonic() + 300
    while True:
        reports = [insist(d, Report())[0] for d in pair]
        ended = reports[0].streams["s:s"].get("ended") == 1
        if ended and all(r.processor.get("settled") == 1 for r in reports):
            break
        assert time.monotonic() < deadline, reports
        time.sleep(0.3)
    found = sorted((r["n"], r["m"]) for r in all_rows(second.client, "join"))
    expected = sorted(
        (x[2], y[2])
        for x in rows
        for y in rows[x[2] + 1 : x[2] + 200]
        if x[1] == y[1] and y[0] - x[0] <= 4
    )
    assert found == expected
    (table_rows,) = [second.client.get("/queries/total/table")["rows"]]
    assert sorted((r["name"], r["c"], r["t"]) for r in table_rows) == sorted(
        (name, len(own), sum(own))
        for name in "uvw"
        if (own := [r[2] for r in rows if r[1] == name])
    )
    for daemon in pair:
        daemon.client.do(Stop())
        assert daemon.process is not None
        assert daemon.process.wait(60) == 0, daemon.home.with_suffix(".log").read_text()


def test_a_processor_whose_java_process_ends_ends_too(tmp_path: Path) -> None:
    """It would else answer as if nothing were wrong, and do nothing."""
    daemon = Daemon("p0", tmp_path)
    daemon.start()
    try:
        daemon.wait()
        assert daemon.process is not None
        found = ["pgrep", "-P", str(daemon.process.pid), "java"]
        (java,) = subprocess.run(found, capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(java), signal.SIGKILL)
        assert daemon.process.wait(60) == 3
        assert "Spark's Java process has ended" in daemon.home.with_suffix(".log").read_text()
        daemon.start()  # the same home; and now Java gets the signal that asks the service to stop
        daemon.wait()
        os.killpg(daemon.process.pid, signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        assert "Traceback" not in daemon.home.with_suffix(".log").read_text()
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.kill()
        daemon.client.close()
        daemon.kept.close()
