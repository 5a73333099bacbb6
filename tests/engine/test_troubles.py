"""What is wrong with one stream, step or process stops who depends on it, and nobody else."""

from pathlib import Path
from typing import Any

import pytest
from test_hosting import compiled
from test_hosting import compute as added
from test_loop_without_spark import COLUMNS, SETTINGS, files, listening, opened

from millstream.control.protocol.commands import Host
from millstream.core.errors import MillstreamError, StateError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import Step
from millstream.engine.steps.trains import Unit
from millstream.engine.troubles import failing
from millstream.engine.troubles.failing import Failing
from millstream.engine.troubles.suspects import GUILTY
from millstream.language.cql.catalog import StreamDefinition
from plain_plane import PlainPlane, Read, Rows

ROWS = [(n, n) for n in range(12)]


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "RESTS_S", (0.0, 0.01))


class JavaEndedError(RuntimeError):
    """What a call to a process that has ended gives."""


class DyingMachine:
    """Another process that some steps end."""

    def __init__(self) -> None:
        self.ended = False

    def process(self) -> Any:
        return self

    def poll(self) -> int | None:
        return 1 if self.ended else None

    def gone(self) -> MillstreamError | None:
        return MillstreamError("Java has ended") if self.ended else None


def deadly(machine: DyingMachine, beside: list[set[str]], loops: list[Loop]) -> Any:
    """Who adds 7 ends the machine."""

    def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
        if machine.ended:
            raise JavaEndedError("connection refused")
        if step.operator.id.endswith("+7"):
            beside.append(set(loops[-1]._busy) - {step.operator.id})
            machine.ended = True
            raise JavaEndedError("connection lost")
        return added(step, read)

    return compute


def test_who_ends_java_twice_fails_by_name_and_the_others_go_on(tmp_path: Path) -> None:
    path = files(tmp_path / "in", ROWS)
    beside: list[set[str]] = []
    loops: list[Loop] = []
    values: list[int] = []
    for life in range(3):
        machine = DyingMachine()
        plane = PlainPlane(compiled, deadly(machine, beside, loops))
        plane.machine = machine  # type: ignore[assignment]
        engine = Engine(tmp_path / "home", plane, SETTINGS)
        engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source={"path": path}))
        taken = listening(engine, "good", "1")
        listening(engine, "bad", "7")
        loop = Loop(engine)
        loops.append(loop)
        if life < 2:
            with pytest.raises(MillstreamError, match="Java has ended"):
                loop.run()
        else:
            loop.run()
            assert engine.queries["bad"].state == "failed"
            assert engine.queries["bad"].reason == GUILTY
            assert engine.queries["good"].state == "running"
            assert engine.ledger.rows("SELECT * FROM meta WHERE key LIKE 'deaths:%'") == []
        values += taken
        engine.close()
    assert sorted(values) == [n + 1 for n in range(12)]
    assert beside[1] == set(), "the second time it ran alone"


def test_who_fails_while_others_run_fails_by_name(tmp_path: Path) -> None:
    def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
        if step.operator.id.endswith("+7"):
            raise RuntimeError("an executor is lost")
        return added(step, read)

    path = files(tmp_path / "in", ROWS)
    engine = Engine(tmp_path / "home", PlainPlane(compiled, compute), SETTINGS)
    engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source={"path": path}))
    good = listening(engine, "good", "1")
    listening(engine, "bad", "7")
    Loop(engine).run()
    assert good == [n + 1 for n in range(12)]
    assert engine.queries["bad"].state == "failed"
    assert "an executor is lost" in engine.queries["bad"].reason
    engine.close()


def test_where_nobody_gets_on_the_machine_is_to_blame(tmp_path: Path) -> None:
    def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
        raise RuntimeError("the session is stopped")

    path = files(tmp_path / "in", ROWS)
    engine = Engine(tmp_path / "home", PlainPlane(compiled, compute), SETTINGS)
    engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source={"path": path}))
    listening(engine, "one", "1")
    listening(engine, "two", "2")
    with pytest.raises(RuntimeError, match="the session is stopped"):
        Loop(engine).run()
    assert {q.state for q in engine.queries.values()} == {"running"}
    engine.close()


def test_a_failure_counts_until_a_success() -> None:
    known = Failing()
    assert known.failed("o", 5) == "rest"
    known.succeeded("o")
    assert [known.failed("o", 5) for _ in range(3)] == ["rest", "rest", "end"]
    assert [known.failed("o", n) for n in (5, 6, 7)] == ["rest", "rest", "fail"]


def test_a_train_is_halved_down_to_one() -> None:
    found: list[Unit] = [Unit("t", tuple("abcde"), tuple("ABCDE"))]  # type: ignore[arg-type]
    assert [h.operators for h in found[0].halves()] == [("a", "b"), ("c", "d", "e")]
    assert [h.members for h in found[0].halves()] == [("A", "B"), ("C", "D", "E")]


# -- sources --------------------------------------------------------------------------------------


def two_streams(home: Path, a: str, b: str) -> Engine:
    engine = opened(home, path=a)
    engine.add_stream(StreamDefinition("b", COLUMNS, "ts", 0, source={"path": b}))
    return engine


def test_a_file_that_goes_stops_its_readers_alone(tmp_path: Path) -> None:
    good, bad = files(tmp_path / "a", ROWS), files(tmp_path / "b", ROWS)
    engine = two_streams(tmp_path / "home", good, bad)
    taken = listening(engine, "q", "1")
    engine.ingests["b"].advance(4)
    ingest: Any = engine.ingests["b"]
    ingest._pieces = ingest._buffer = None
    ingest._opened = None
    (tmp_path / "b" / "0.csv").unlink()
    with pytest.raises(MillstreamError, match="stream b"):
        Loop(engine).run()
    assert taken == [n + 1 for n in range(12)]
    assert "b" in engine.stopped
    assert engine.queries["q"].state == "running"
    engine.close()


def test_readers_of_a_stopped_stream_are_parked_and_go_on_later(tmp_path: Path) -> None:
    path = files(tmp_path / "in", ROWS)
    engine = opened(tmp_path / "home", path=path)
    listening(engine, "q", "1")
    loop = Loop(engine)
    ingest = engine.ingests["a"]
    loop.stopped_sources.stop("a", StateError("its file is broken"))
    assert engine.queries["q"].state == "parked"
    assert "its file is broken" in engine.queries["q"].reason
    engine.stopped.clear()
    engine.ingests["a"] = ingest
    Loop(engine).run()
    assert engine.queries["q"].state == "running"
    engine.close()


def declared(home: Path, path: str) -> Engine:
    engine = Engine(home, PlainPlane(compiled, added), SETTINGS)
    engine.hosting.restore()
    if "a" not in engine.catalog.streams:
        definition = StreamDefinition("a", COLUMNS, "ts", 0, source={"path": path})
        engine.hosting.declare(definition, ingest=True)
        engine.hosting.host(Host("q", "1", 0, ("s:a+1",), result=True))
        engine.hosting.start_stream("a")
    return engine


@pytest.mark.parametrize("ended", [True, False])
def test_a_changed_file_stops_no_processor(tmp_path: Path, ended: bool) -> None:
    path = files(tmp_path / "in", ROWS)
    engine = declared(tmp_path / "home", path)
    if ended:
        Loop(engine).run()
    else:
        engine.ingests["a"].advance()
    engine.close()
    with (tmp_path / "in" / "0.csv").open("a") as file:
        file.write("99,99\n")
    again = declared(tmp_path / "home", path)
    assert ("a" in again.stopped) is not ended
    if ended:
        Loop(again).run()
        assert again.queries["q"].state == "running"
    else:
        with pytest.raises(MillstreamError, match="changed"):
            Loop(again).run()
        assert again.queries["q"].state == "parked"
    again.close()
