"""The machine's clock is set back or forward by an hour: nothing waits longer, nothing is early."""

import asyncio
import time
from pathlib import Path

import pytest

from millstream.control.manager.events import Joined, Tick
from millstream.control.manager.state import Settings
from millstream.control.protocol.commands import Join
from millstream.core.steady_clock import SteadyClock
from millstream.edge.manager.driver import ManagerDriver
from millstream.edge.manager.memory.sqlite_store import ManagerStore
from millstream.engine.sources import file_ingest
from millstream.engine.sources.file_ingest import FileIngest

HOUR_S = 3600.0


class Clocks:
    """Two clocks that tests move: the time of day, and time that passes."""

    def __init__(self) -> None:
        self.wall, self.passed = time.time(), 50.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.passed

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


def watching(clocks: Clocks, monkeypatch: pytest.MonkeyPatch, rate: float = 0) -> FileIngest:
    """A watched folder, as far as clocks concern it."""
    monkeypatch.setattr(file_ingest, "time", clocks)
    made = FileIngest.__new__(FileIngest)
    made._clock = SteadyClock(clocks.time, clocks.monotonic)
    made._unsettled, made._replay_from = {}, None
    made.rate, made.rows = rate, 0
    return made


def touched(path: Path, clocks: Clocks) -> Path:
    import os  # noqa: PLC0415

    path.write_text(path.read_text() + "1\n" if path.exists() else "1\n")
    os.utime(path, (clocks.wall, clocks.wall))
    return path


@pytest.mark.parametrize("jump_s", [0.0, HOUR_S, -HOUR_S])
def test_a_file_is_read_once_it_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clocks = Clocks()
    ingest = watching(clocks, monkeypatch)
    before = touched(tmp_path / "before", clocks)
    assert not ingest._settled(before)
    clocks.wait(0.3)
    clocks.wall += jump_s
    assert not ingest._settled(before), "it may still be written"
    after = touched(tmp_path / "after", clocks)
    assert not ingest._settled(after)
    clocks.wait(0.8)
    assert ingest._settled(before)
    touched(after, clocks)
    assert not ingest._settled(after), "it has changed"
    clocks.wait(1.1)
    assert ingest._settled(after)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_replay_keeps_to_its_rate(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    clocks = Clocks()
    ingest = watching(clocks, monkeypatch, rate=100)
    assert ingest._allowance() == 0
    clocks.wall += jump_s
    clocks.wait(2.0)
    assert ingest._allowance() == 200


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_processor_is_silent_after_as_long_as_ever(tmp_path: Path, jump_s: float) -> None:
    """Set back, a killed one stayed up; set forward, everybody was silent at once."""
    clocks = Clocks()

    async def look() -> None:
        store = ManagerStore(tmp_path / "manager.db")
        clock = SteadyClock(clocks.time, clocks.monotonic)
        driver = ManagerDriver(store, Settings(), clock=clock)
        running = asyncio.create_task(driver.run())
        await asyncio.sleep(0)
        driver.feed(Joined(Join("p1", "http://127.0.0.1:9", 1)))
        clocks.wall += jump_s
        clocks.wait(10.0)
        driver.feed(Tick())
        assert driver.state.live["p1"].state == "joining"
        clocks.wait(10.0)
        driver.feed(Tick())
        assert driver.state.live["p1"].state == "silent"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        store.close()

    asyncio.run(look())
