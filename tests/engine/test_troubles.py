"""What is wrong with one stream, step or process stops who depends on it, and nobody else."""

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_hosting import BASE, compiled
from test_hosting import compute as added
from test_loop_without_spark import COLUMNS, SETTINGS, files, listening, opened

from millstream.control.protocol.commands import Host
from millstream.core.errors import MillstreamError, StateError, UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import Input, Step, TrainStep
from millstream.engine.steps.bounds import (
    ProductError,
    StepRefusedError,
    bounded,
    check_estimate,
    pairs,
)
from millstream.engine.steps.trains import Unit
from millstream.engine.troubles import failing
from millstream.engine.troubles.failing import Failing
from millstream.engine.troubles.suspects import GUILTY
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.expressions import Call, Column, Expr
from millstream.language.plan.nodes import Join, Plan, Source, Windowed
from millstream.language.plan.windows import Range, Unbounded
from millstream.language.share.dataflow import Operator
from millstream.spark.deadlines import Deadlines
from millstream.store.segments import Segment
from plain_plane import PlainParser, PlainPlane, Read, Rows, write

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

    def within(self, seconds_max: float, *, by_task: bool) -> AbstractContextManager[None]:
        del seconds_max, by_task
        return nullcontext()


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


def declared_after_start(loop: Loop) -> None:
    begin = loop.start

    def start() -> None:
        begin()
        listening(loop.engine, "bad", "7")
        loop.wake()

    loop.start = start  # type: ignore[method-assign]


@pytest.mark.parametrize("later", [False, True])
def test_who_ends_java_twice_fails_by_name_and_the_others_go_on(
    tmp_path: Path, later: bool
) -> None:
    """Also where its query is declared again after the loop has begun, as in a session."""
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
        loop = Loop(engine)
        loops.append(loop)
        if later and life:
            declared_after_start(loop)
        else:
            listening(engine, "bad", "7")
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


def test_where_nobody_gets_on_the_machine_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
        raise RuntimeError("the session is stopped")

    path = files(tmp_path / "in", ROWS)
    engine = Engine(tmp_path / "home", PlainPlane(compiled, compute), SETTINGS)
    engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source={"path": path}))
    listening(engine, "one", "1")
    listening(engine, "two", "2")
    monkeypatch.setattr(engine.evaluator, "nothing", lambda columns: 1 / 0)
    with pytest.raises(RuntimeError, match="the session is stopped"):
        Loop(engine).run()
    assert {q.state for q in engine.queries.values()} == {"running"}
    engine.close()


def test_a_failure_counts_until_a_success() -> None:
    known = Failing()
    works = {"now": False}

    def failed(steps: int, operator: str = "o") -> str:
        return known.failed(operator, steps, lambda: works["now"])

    assert failed(5) == "rest"
    known.succeeded("o")
    assert [failed(5) for _ in range(3)] == ["rest", "rest", "end"]
    assert [failed(n) for n in (5, 6, 7)] == ["rest", "rest", "fail"], "others got on"
    works["now"] = True
    assert [failed(5) for _ in range(3)] == ["rest", "rest", "fail"], "the machine works"
    failed(5, "another")
    assert [failed(5) for _ in range(3)] == ["rest", "rest", "end"], "two fail, nobody gets on"


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


def test_a_file_that_is_replaced_while_it_is_read_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", ROWS))
    plain = PlainParser.pieces

    def replaced(self: Any, paths: Any, numbers: Any) -> Any:
        (tmp_path / "in" / "0.csv").write_text("1,100\n")
        return plain(self, paths, numbers)

    monkeypatch.setattr(PlainParser, "pieces", replaced)
    with pytest.raises(StateError, match="has changed"):
        engine.ingests["a"].advance()
    assert engine.ledger.segments("s:a") == []
    engine.close()


def test_readers_of_a_stopped_stream_are_parked_and_go_on_later(tmp_path: Path) -> None:
    path = files(tmp_path / "in", ROWS)
    engine = opened(tmp_path / "home", path=path)
    listening(engine, "q", "1")
    loop = Loop(engine)
    loop.stopped_sources.stop("a", StateError("its file is broken"))
    assert engine.queries["q"].state == "parked"
    assert "its file is broken" in engine.queries["q"].reason
    assert engine.ingests == {}
    loop.stopped_sources.try_again()
    assert engine.stopped == {}
    loop.run()
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


# -- steps that are too much ----------------------------------------------------------------------


class Context:
    """The part of a Spark context that cuts jobs off."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.cancelled = threading.Event()

    def setJobGroup(self, group: str, description: str, interrupt: bool) -> None:  # noqa: N802
        self.groups.append(group)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        assert group in self.groups
        self.cancelled.set()


class Killable:
    killed = False

    def kill(self) -> None:
        self.killed = True


def cut_off(deadlines: Deadlines, context: Context, now: float) -> None:
    with deadlines.within(5.0):
        deadlines.look(now + 4)
        assert not context.cancelled.is_set()
        deadlines.look(now + 6)
        assert context.cancelled.wait(5)
        raise RuntimeError("the job was cancelled")


def test_a_step_that_takes_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.spark.deadlines.LOOK_S", 1e6)
    context, java = Context(), Killable()
    deadlines = Deadlines(context, java)
    now = time.monotonic()
    with pytest.raises(StepRefusedError, match="longer than 5 s"):
        cut_off(deadlines, context, now)
    with deadlines.within(5.0):
        deadlines.look(now + 100)
        deadlines.look(now + 101)
        assert java.killed, "a process that goes on is ended"
    assert len(context.groups) == 1, "a thread has one group"


class Tracked(Context):
    """One whose tasks may go on after their job was cut off."""

    def __init__(self, running: int, wanted: int) -> None:
        super().__init__()
        self.running, self.wanted = running, wanted
        self._jsc = self

    def sc(self) -> Any:
        return self

    def statusTracker(self) -> Any:  # noqa: N802
        return self

    def getExecutorInfos(self) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(numRunningTasks=lambda: self.running)]

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return [7]

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802
        assert stage == 7
        return SimpleNamespace(numActiveTasks=self.wanted)


@pytest.mark.parametrize(("running", "wanted", "ends"), [(2, 1, True), (2, 2, False)])
def test_tasks_that_go_on_after_their_job_cost_java_its_life(
    running: int, wanted: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deadlines, "_watch", lambda self: None)
    monkeypatch.setattr("millstream.spark.deadlines.GRACE_S", 0.5)
    monkeypatch.setattr("millstream.spark.deadlines.TASKS_LOOK_S", 0.05)
    context, java = Tracked(running, wanted), Killable()
    deadlines = Deadlines(context, java)
    began = time.monotonic()
    with pytest.raises(StepRefusedError):
        cut_off(deadlines, context, began)
    assert java.killed is ends
    assert (time.monotonic() - began >= 0.5) is ends, "it has some time to end"


def test_the_time_of_others_does_not_count_meanwhile() -> None:
    context = Tracked(2, 1)
    deadlines = Deadlines(context, None)
    deadlines._settling = 1
    with deadlines.within(5.0):
        now = time.monotonic()
        for second in range(4, 30):
            deadlines.look(now + second)
        assert not context.cancelled.is_set()
        deadlines._settling = 0
        deadlines.look(now + 60)
        assert context.cancelled.wait(5)


def join_step(predicate: Expr | None, length: int | None, tail: int, new: int) -> Step:
    """A self-join of a stream with so many rows before the step and in it."""
    window = Unbounded() if length is None else Range(length)
    member = Windowed(BASE, window)
    join = Join((member, member), predicate)
    operator = Operator("o:j", "join", join, join, ("s:a",))
    old, fresh = (
        tuple(Segment("s:a", n, n, "f", None, rows, 1, 0, 0, 0, 0, 0.0) for rows in (rows,))
        for n, rows in ((1, tail), (2, new))
    )
    return Step(operator, {"s:a": Input("s:a", old, fresh, 0, 1)}, {}, {}, (), 0)


def test_a_product_is_refused_before_it_runs() -> None:
    key = Call("=", (Column(0), Column(1)))
    assert pairs(join_step(key, None, 1000, 10)) == 0
    assert pairs(join_step(None, 5, 1000, 10)) == 1010**2 - 1000**2, "all at one instant"
    assert pairs(join_step(None, None, 1000, 10)) == 1010**2 - 1000**2
    less = Call("<", (Column(0), Column(1)))
    job = TrainStep((join_step(less, None, 0, 16_618),), (), {}, {})
    with pytest.raises(StepRefusedError, match="276,157,924 pairs"):
        bounded(job, 100_000_000, 60.0)
    assert not bounded(job, 1 << 40, 60.0).collect
    assert bounded(job, 1 << 40, 60.0).seconds_max == 60.0


def test_who_is_refused_fails_and_the_others_go_on(tmp_path: Path) -> None:
    path = files(tmp_path / "in", ROWS)
    engine = opened(tmp_path / "home", path=path)
    good = listening(engine, "good", "1")
    listening(engine, "bad", "7")
    allowed = engine.runner._limit

    def limit(job: TrainStep) -> TrainStep:
        if job.steps[0].operator.id.endswith("+7"):
            raise StepRefusedError("too many pairs", hint="fewer")
        return allowed(job)

    engine.runner._limit = limit
    Loop(engine).run()
    assert good == [n + 1 for n in range(12)]
    assert engine.queries["bad"].reason == "too many pairs; fewer"
    engine.close()


def apart(predicate: Expr | None, length: int, span: int, rows: int) -> Step:
    """A self-join of rows that lie evenly over a span of time, all of them new."""
    step = join_step(predicate, length, 0, rows)
    segment = Segment("s:a", 1, 1, "f", None, rows, 1, 0, span, 0, 0, 0.0)
    return replace(step, inputs={"s:a": Input("s:a", (), (segment,), 0, 1)})


def test_windows_that_end_are_estimated_by_how_far_apart_rows_lie() -> None:
    near = apart(None, 10, 1_000_000, 10_000)
    assert pairs(near) == pytest.approx(10_000**2 * 21 / 1_000_001, rel=1e-3)
    whole = apart(None, 1_000_000, 1_000_000, 10_000)
    assert pairs(whole) == 10_000**2
    assert pairs(apart(Call("=", (Column(0), Column(1))), 10, 1000, 10_000)) == 0
    job = TrainStep((whole,), (), {}, {})
    assert not bounded(job, 10_000_000, 60.0).collect, "an estimate has some room"
    with pytest.raises(StepRefusedError, match="windows of this length would combine 100,000,000"):
        bounded(job, 9_999_999, 60.0)


def test_a_step_that_combines_too_much_takes_fewer_rows(tmp_path: Path) -> None:
    path = files(tmp_path / "in", *([(n, n)] for n in range(9)))
    engine = opened(tmp_path / "home", path=path)
    taken = listening(engine, "q", "1")
    sizes = []

    def limit(job: TrainStep) -> TrainStep:
        rows = sum(s.rows for s in job.steps[0].new)
        if rows > 3:
            raise ProductError("too many pairs", hint="fewer")
        sizes.append(rows)
        return job

    for name in engine.ingests:
        while not engine.ingests[name].ended:
            engine.ingests[name].advance(1)
    engine.runner._limit = limit
    Loop(engine).run()
    assert taken == [n + 1 for n in range(9)]
    assert max(sizes) > 1
    engine.close()


def test_an_estimate_is_made_of_the_rows_that_there_are(tmp_path: Path) -> None:
    path = files(tmp_path / "in", [(n * 1_000, n) for n in range(200)])
    engine = opened(tmp_path / "home", path=path)
    listening(engine, "q", "1")
    Loop(engine).run()
    base = Source("a", COLUMNS)

    def plan(length: int, predicate: Expr | None = None) -> Plan:
        member = Windowed(base, Range(length))
        join = Join((member, member), predicate)
        return Plan(join, (), relation=False)

    engine.ledger.segments("s:a")
    check_estimate(plan(1_000_000), engine.ledger, 1 << 40)
    held = [s for s in engine.ledger.segments("s:a") if s.rows]
    assert held == [], "what everybody has read is gone: nothing is known"
    with engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [write(engine.store, [(n * 1_000, n) for n in range(200)])], 0)
    check_estimate(plan(1_000), engine.ledger, 10)
    check_estimate(plan(1 << 40, Call("=", (Column(0), Column(1)))), engine.ledger, 10)
    with pytest.raises(UsageError, match="within one window about"):
        check_estimate(plan(100_000), engine.ledger, 1_000)
    engine.close()
