"""`millstream top`: what it shows, that old figures say so, scripts, and nobody there."""

import doctest
import json
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

from millstream.app import cli
from millstream.app.commands.run import top
from millstream.app.commands.run.top import Room, picture, room_of
from millstream.control.snapshot.model import Snapshot
from millstream.core.codec import from_json
from millstream.edge.dashboard.serving import DashboardServer
from millstream_bench.pages.synthetic_system import SLOW, SyntheticSystem


def text(
    snapshot: Snapshot, now: float | None = None, room: Room | None = None, width: int = 160,
    **more: object,
) -> str:  # fmt: skip
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    moment, shown = now if now is not None else snapshot.taken, room or Room(15, 100)
    console.print(picture(snapshot, moment, shown, **more))
    console.file.close()
    return console.export_text()


@pytest.fixture
def system() -> SyntheticSystem:
    return SyntheticSystem(queries=20, operators=40, processors=2)


def test_the_slowest_query_stands_first_with_its_cause(system: SyntheticSystem) -> None:
    shown = text(system.snapshot())
    lines = shown.splitlines()
    assert lines[1].startswith("slowest")
    assert "42 s behind" in lines[1]
    assert "9,000 rows waiting" in lines[1]
    assert "error query query 3 failed: division by zero" in shown
    assert "processor-2" in shown
    assert "... and 5 queries more" in shown


def test_order_of_queries(system: SyntheticSystem) -> None:
    shown = text(system.snapshot(), room=Room(3, 2), sort="name")
    names = [line.split("  ")[0] for line in shown.splitlines() if line.startswith("query ")]
    assert names[-3:] == ["query 1", "query 10", "query 11"]
    assert SLOW not in names[-3:]


def test_old_figures_say_so(system: SyntheticSystem) -> None:
    taken = system.snapshot()
    assert "stale" not in text(taken)
    assert "stale: these figures are 1 min 0 s old" in text(taken, taken.taken + 60)
    assert "no new figures: gone" in text(taken, trouble="gone")
    final = replace(taken, overview=replace(taken.overview, state="finished"))
    assert "final figures" in text(final, taken.taken + 60)


def test_against_a_server(system: SyntheticSystem, capsys: pytest.CaptureFixture[str]) -> None:
    with DashboardServer(system, port=0) as server:
        assert cli.run(["top", "--url", server.url, "--json"]) == 0
        taken = from_json(Snapshot, json.loads(capsys.readouterr().out))
        assert len(taken.queries) == 20
        assert abs(taken.taken - time.time()) < 60
        assert cli.run(["top", "--url", server.url, "--once"]) == 0
        assert "slowest" in capsys.readouterr().out


def test_it_fits_the_terminal(system: SyntheticSystem) -> None:
    many = SyntheticSystem(queries=500, operators=2000, processors=12)
    for taken in (system.snapshot(), many.snapshot()):
        for height in (60, 40, 30, 24):
            shown = text(taken, room=room_of(height, taken, 100), width=80).splitlines()
            assert len(shown) <= height
            assert max(len(line) for line in shown) <= 80
    assert "processors more" in shown[-1]
    assert doctest.testmod(top).failed == 0


def test_keys_of_a_terminal(system: SyntheticSystem) -> None:
    """In a terminal of its own: help, another order, hold, leave."""
    with DashboardServer(system, port=0) as server:
        mine, its = pty.openpty()
        call = "from millstream.app.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", call, "top", "--url", server.url, "--every", "0.2"],
            stdin=its, stdout=its, stderr=its,
            env={**os.environ, "TERM": "xterm", "LINES": "40", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(its)
        try:
            read_until(mine, "q leaves, ? lists keys; by delay")
            os.write(mine, b"?")
            read_until(mine, "order of queries: ratio")
            os.write(mine, b"?n")
            assert "map for" in read_until(mine, "by name")
            os.write(mine, b" ")
            read_until(mine, "frozen; space continues")
            os.write(mine, b"q")
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            os.close(mine)


def read_until(terminal: int, words: str) -> str:
    seen, end = "", time.monotonic() + 60
    ready = select.poll()  # select itself knows only the first 1,024 descriptors of a process
    ready.register(terminal, select.POLLIN)
    while words not in seen:
        assert time.monotonic() < end, seen[-2000:]
        if ready.poll(1000):
            seen += os.read(terminal, 1 << 16).decode("utf-8", "replace")
    return seen


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["top", "--url", "http://127.0.0.1:1/", "--once"]) == 3
    assert "no server answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert cli.run(["top", "--sort", "colour"]) == 2
    assert cli.run(["top", "--url", "file:///etc/passwd"]) == 2
