"""What a manager knows as a person sees it."""

import doctest
import json
from dataclasses import replace

from millstream.control.manager.state import (
    Decision,
    Figures,
    Live,
    ManagerState,
    Move,
    OperatorRecord,
    Processor,
    Query,
    Statistics,
    StreamRecord,
)
from millstream.control.manager.system_streams import table_of
from millstream.control.moves.table import Phase, Story
from millstream.control.snapshot import of_manager as manager_snapshot
from millstream.control.snapshot.of_manager import snapshot_of
from millstream.core.codec import to_json

PREPARING = Story().through(Phase.PREPARING, "manager", 0.0)
NOW = 1000.0


def figures(at_s: float = NOW, rates: dict[str, float] | None = None, **values: float) -> Figures:
    return Figures(at_s, values, rates or {})


STATE = ManagerState(
    now_s=NOW,
    processors={n: Processor(n, f"http://{n}", 1, {"slots": 2}) for n in ("p1", "p2", "p3")},
    live={"p1": Live("up", NOW), "p2": Live("up", NOW), "p3": Live("silent", 900.0)},
    streams={"s": StreamRecord("s", {"columns": {"n": "int"}, "source": "http"}, "p1")},
    operators={
        "o:1": OperatorRecord("o:1", "map", "map 1", ("s:s",), processor="p1"),
        "o:2": OperatorRecord("o:2", "join", "join 2", ("o:1",), processor="p2"),
        "o:3": OperatorRecord("o:3", "map", "map 3", ("o:1",), processor="p3"),
    },
    queries={
        "a": Query("a", "SELECT", phase="running", operators=("o:1", "o:2"), result="o:2",
                   sources=("s:s",)),
        "b": Query("b", "SELECT", phase="deploying", operators=("o:1", "o:3"), result="o:3"),
        "c": Query("c", "SELECT", phase="refused", reason="cpu"),
    },
    moves={"m": Move("m", ("o:2",), "p2", "p1", story=PREPARING)},
    decisions=(Decision(7, 990.0, "refusal", "query c was refused", "cpu", "query", "c"),),
    statistics=Statistics(
        processors={"p1": figures(load=0.4, memory_bytes=5, steps=10)},
        operators={
            "o:1": figures(rates={"rows_in": 50.0, "seconds": 0.2}, rows_in=500, seconds=4.0,
                           steps=8),
            "o:2": figures(rates={"seconds": 0.5}, queue_rows=900, queue_bytes=9, seconds=2.0,
                           waiting_since=970.0),
        },
        streams={
            "s:s": figures(rates={"rows": 60.0}, rows=600, watermark_us=9_000_000, rejected=2),
            "o:2": figures(900.0, rates={"rows": 5.0}, rows=50, watermark_us=4_000_000),
        },
        edges={"o:1>p2": figures(rates={"rows": 40.0, "bytes": 400.0}, behind_rows=30)},
    ),
)  # fmt: skip


def test_everything_a_manager_knows_is_there() -> None:
    seen = snapshot_of(STATE, title="mill")
    json.dumps(to_json(seen), allow_nan=False)
    assert (seen.overview.title, seen.overview.rows_in, seen.overview.backlog_rows) == (
        "mill", 600, 900,
    )  # fmt: skip
    assert seen.overview.watermark_lag_s == 5.0
    assert [(p.id, p.state) for p in seen.processors] == [
        ("p1", "running"), ("p2", "running"), ("p3", "silent"),
    ]  # fmt: skip
    assert seen.decisions[0].sentence == "query c was refused"
    assert seen.streams[0].columns == (("n", "int"),)


def test_queries_with_shared_cost_cause_and_state() -> None:
    seen = {q.name: q for q in snapshot_of(STATE).queries}
    a = seen["a"]
    assert (a.cost_s_own, a.cost_s_shared) == (2.0, 2.0)  # o:1 is shared by two
    assert a.delay_s == 30.0
    assert a.cause_operator == "o:2"
    assert "900 rows waiting" in a.cause
    assert (seen["b"].state, seen["c"].state) == ("starting", "refused")


def test_operators_between_processors() -> None:
    seen = snapshot_of(STATE)
    states = {o.id: (o.state, o.processor, o.queries) for o in seen.operators}
    assert states["o:1"] == ("running", "p1", ("a", "b"))
    assert states["o:2"] == ("moving", "p2", ("a",))
    assert states["o:3"] == ("paused", "p3", ("b",))  # nobody knows what becomes of it
    edges = {(e.source, e.target): e for e in seen.edges}
    assert edges["o:1", "o:2"].rows_per_s == 40.0
    assert edges["o:1", "o:2"].queue_rows == 930
    assert edges["s:s", "o:1"].rows_per_s == 60.0
    links = {p.id: [(c.peer, c.direction) for c in p.connections] for p in seen.processors}
    assert links == {"p1": [("p2", "out")], "p2": [("p1", "in")], "p3": []}


def test_a_rate_that_is_not_told_again_is_nought() -> None:
    seen = {q.name: q for q in snapshot_of(STATE).queries}
    assert (seen["a"].rows, seen["a"].rows_per_s) == (50, 0.0)


def test_alarms_tell_of_the_silent_processor() -> None:
    told = [a.sentence for a in snapshot_of(STATE).overview.alarms]
    assert told[0] == "processor p3 is silent"
    assert "query c is refused: cpu" in told


def test_a_manager_that_knows_nothing() -> None:
    seen = snapshot_of(ManagerState())
    assert seen.overview.rows_in == 0
    assert seen.queries == ()


def test_examples_in_the_text() -> None:
    assert doctest.testmod(manager_snapshot).failed == 0


def test_streams_about_the_system_say_so() -> None:
    watched = StreamRecord("sys.steps", table_of("sys.steps"), "p1")
    (stream,) = snapshot_of(replace(STATE, streams={"sys.steps": watched})).streams
    assert (stream.source, stream.columns[0]) == ("system", ("at", "timestamp"))
