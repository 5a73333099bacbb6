"""Poisons of every kind beside fifty good queries, on plain Python: each fails or is parked by
name, the good ones give all their rows, and once cured every poisoned one goes on without a gap."""

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_hosting import compiled
from test_hosting import compute as added
from test_loop_without_spark import COLUMNS, files

from millstream.engine import delivering
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import Step, TrainStep
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.bounds import StepRefusedError
from millstream.engine.troubles import failing
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.delivery import CallbackSink
from plain_plane import PlainPlane, Read, Rows

GOOD, ROWS = 50, 40
ROW, CAUSE, REFUSED, HANGING, FULL, RAISING = (str(n) for n in range(901, 907))
POISONS = {ROW: "failed", CAUSE: "failed", REFUSED: "failed", HANGING: "parked", FULL: "parked",
           RAISING: "parked"}  # fmt: skip
SECONDS = 45.0


class Ward:
    """An engine, and whether its poisons are cured."""

    def __init__(self, folder: Path) -> None:
        self.cured = threading.Event()
        settings = EngineSettings(batch_rows=7, sharing="exact")
        self.engine = Engine(folder / "home", PlainPlane(compiled, self.compute), settings)
        path = files(folder / "in", [(n, n) for n in range(ROWS)])
        self.engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source={"path": path}))
        allowed = self.engine.runner._limit
        self.engine.runner._limit = lambda job: allowed(self.limited(job))
        self.taken: dict[str, list[int]] = {}
        for number in (*range(1, GOOD + 1), *map(int, POISONS)):
            self.add(str(number))

    def add(self, name: str) -> None:
        taken = self.taken.setdefault(name, [])

        def deliver(table: Any, _: int) -> None:
            if name == HANGING:
                self.cured.wait()
            if name == FULL and not self.cured.is_set():
                raise OSError(errno.ENOSPC, "no space left on device")
            if name == RAISING and not self.cured.is_set():
                raise ConnectionError("nobody is there")
            taken.extend(table["c0"].to_pylist())

        self.engine.add_query(f"q{name}", name, from_beginning=True)
        self.engine.deliver(f"q{name}", CallbackSink(deliver))

    def compute(self, step: Step, read: Read) -> tuple[Rows, Rows | None]:
        sick = not self.cured.is_set()
        if (
            sick
            and step.operator.id.endswith(f"+{ROW}")
            and any(v == 23 for _, v in read(step.new))
        ):
            raise ValueError("23 is not a good number")
        if sick and step.operator.id.endswith(f"+{CAUSE}"):
            raise RuntimeError("an executor is lost")
        return added(step, read)

    def limited(self, job: TrainStep) -> TrainStep:
        if not self.cured.is_set() and job.steps[0].operator.id.endswith(f"+{REFUSED}"):
            raise StepRefusedError("too many pairs", hint="fewer")
        return job

    def states(self) -> dict[str, str]:
        return {n: self.engine.queries[f"q{n}"].state for n in POISONS}


def within(true: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_poisons_beside_fifty_good_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "RESTS_S", (0.0, 0.05))
    monkeypatch.setattr(delivering, "PATIENCE_S", 0.5)
    ward = Ward(tmp_path)
    loop = Loop(ward.engine)
    loop.start()
    try:
        within(lambda: ward.states() == POISONS)
        for name in POISONS:
            assert ward.engine.queries[f"q{name}"].reason
        for number in range(1, GOOD + 1):
            wanted = [n + number for n in range(ROWS)]
            within(lambda n=number, w=wanted: ward.taken[str(n)] == w)
        assert loop.failure is None
        ward.cured.set()
        for name, state in POISONS.items():
            if state == "failed":
                ward.engine.restart_query(f"q{name}")
        within(lambda: set(ward.states().values()) == {"running"})
        for name in POISONS:
            wanted = [n + int(name) for n in range(ROWS)]
            within(lambda n=name, w=wanted: ward.taken[n] == w)
    finally:
        ward.cured.set()
        loop.stop()
        ward.engine.close()
