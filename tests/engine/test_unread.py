"""Rows that Spark does not come to an end with, or does not survive, stop their stream alone."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_hosting import compiled, compute
from test_loop_without_spark import COLUMNS, files
from test_troubles import DyingMachine

from millstream.core.errors import MillstreamError, UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.bounds import StepRefusedError
from millstream.engine.troubles import unread
from millstream.engine.troubles.unread import Unread
from millstream.language.cql.catalog import StreamDefinition
from millstream.sim.managed.plain_plane import PlainParser
from millstream.spark import deadlines
from millstream.spark.deadlines import Deadlines
from millstream.store.delivery import CallbackSink
from millstream.store.ledger import Ledger
from plain_plane import PlainPlane

STREAM = StreamDefinition("a", COLUMNS, "ts", 0)
ROWS = [(n, n) for n in range(12)]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path / "ledger.db")
    yield found
    found.close()


def test_a_stream_whose_rows_take_too_long_rests_for_a_while(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(UsageError, match="take too long to read"),
        Unread(STREAM, ledger, None, 1.0).reading(),
    ):
        raise StepRefusedError("cut off", hint="more")
    again = Unread(STREAM, ledger, None, 1.0)
    with pytest.raises(UsageError, match="stream a is not read"):
        again.bounded(lambda rows: pytest.fail("it is read"))([])
    other = StreamDefinition("a", COLUMNS, "ts + 1", 0)
    Unread(other, ledger, None, 1.0).refuse()  # declared anew it is another
    monkeypatch.setattr(unread, "REST_S", 0.0)
    assert again.bounded(len)([1]) == 1
    monkeypatch.undo()
    Unread(STREAM, ledger, None, 1.0).refuse()


def test_java_may_die_once_for_another_reason(ledger: Ledger) -> None:
    machine: Any = DyingMachine()

    def read(error: Exception | None) -> None:
        with Unread(STREAM, ledger, machine, 1.0).reading():
            if error is not None:
                raise error

    def dies() -> None:
        with pytest.raises(ConnectionError):
            read(ConnectionError("nobody answers"))

    dies()
    dies()  # Java lives
    machine.ended = True
    for _ in range(3):
        with pytest.raises(UsageError, match="no column"):
            read(UsageError("no column"))
    dies()
    read(None)  # it works, so nobody is blamed
    dies()
    dies()
    with pytest.raises(UsageError, match="stream a is not read"):
        read(None)


class Deadly(PlainPlane):
    """Files of the stream `bad` end the machine."""

    def __init__(self, machine: DyingMachine) -> None:
        super().__init__(compiled, compute)
        self.machine = machine  # type: ignore[assignment]

    def file_parser(self, definition: StreamDefinition, kind: str, staging: Path) -> PlainParser:
        made = super().file_parser(definition, kind, staging)
        if definition.name != "b":
            return made

        def pieces(*_: Any) -> Iterator[Any]:
            assert isinstance(self.machine, DyingMachine)
            self.machine.ended = True
            raise ConnectionError("nobody answers")
            yield

        made.pieces = pieces  # type: ignore[method-assign, assignment]
        return made


def test_files_that_end_java_stop_their_stream_and_no_other(tmp_path: Path) -> None:
    """As often as it is started: not for ever, and not for those beside it."""
    found: list[int] = []
    paths = {name: files(tmp_path / name, ROWS) for name in ("b", "a")}
    for life in range(3):
        engine = Engine(
            tmp_path / "home", Deadly(DyingMachine()), EngineSettings(batch_rows=4, slots=1)
        )
        for name, path in paths.items():
            definition = StreamDefinition(name, COLUMNS, "ts", 0, source={"path": path})
            if life == 2 and name == "b":
                with pytest.raises(UsageError, match="stream b is not read"):
                    engine.add_stream(definition)
            else:
                engine.add_stream(definition)
        engine.add_query("q", "1", from_beginning=True)
        engine.deliver("q", CallbackSink(lambda t, _: found.extend(t["c0"].to_pylist())))
        if life < 2:
            with pytest.raises(MillstreamError, match="Java has ended"):
                Loop(engine).run()
        else:
            Loop(engine).run()
        engine.close()
    assert sorted(found) == [n + 1 for n in range(12)]


class Jobs:
    """A context whose job ends a task at every look, as long as there are any."""

    def __init__(self, tasks: int) -> None:
        self.tasks, self.ended, self.cut = tasks, 0, threading.Event()

    def setJobGroup(self, *_: Any) -> None:  # noqa: N802
        pass

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        del group
        self.cut.set()

    def statusTracker(self) -> Any:  # noqa: N802
        self.ended = min(self.ended + 1, self.tasks)
        return SimpleNamespace(
            getJobIdsForGroup=lambda group: [1],
            getJobInfo=lambda job: SimpleNamespace(stageIds=[1]),
            getStageInfo=lambda stage: SimpleNamespace(numCompletedTasks=self.ended),
            getActiveStageIds=list,
        )


@pytest.mark.parametrize(("by_task", "looks"), [(True, 6), (False, 0)])
def test_each_task_that_ends_wins_time(
    monkeypatch: pytest.MonkeyPatch, *, by_task: bool, looks: int
) -> None:
    """A large file takes as long as it takes; a part of it that hangs does not."""
    monkeypatch.setattr(deadlines, "LOOK_S", 0.02)
    monkeypatch.setattr(deadlines, "GRACE_S", 0.02)
    monkeypatch.setattr(deadlines, "TASKS_LOOK_S", 0.02)
    jobs = Jobs(6)
    bound = Deadlines(jobs)
    seen: list[int] = []

    def run() -> None:
        with bound.within(0.05, by_task=by_task):
            assert jobs.cut.wait(30)
            seen.append(jobs.ended)
            raise ConnectionError("cut off")

    with pytest.raises(StepRefusedError, match="was cut off"):
        run()
    assert seen[0] >= looks
    assert by_task or seen == [0]
