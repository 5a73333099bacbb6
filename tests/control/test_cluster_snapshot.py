"""What processors say of themselves, laid over what their manager knows."""

from dataclasses import replace

from millstream.control.snapshot.model import (
    DecisionSnapshot,
    EdgeSnapshot,
    GoalSnapshot,
    OperatorSnapshot,
    Overview,
    ProcessorSnapshot,
    QuerySnapshot,
    ScorePoint,
    Snapshot,
    StreamSnapshot,
)
from millstream.control.snapshot.of_cluster import laid_over

WHOLE = Snapshot(
    10.0,
    Overview("mill"),
    streams=(StreamSnapshot("s:s", "s", processor="p1", rows=5),),
    queries=(
        QuerySnapshot("a", "SELECT", operators=("o:1", "o:2"), result="o:2"),
        QuerySnapshot("b", "SELECT", operators=("o:1",), result="o:1"),
    ),
    operators=(
        OperatorSnapshot("o:1", "map", "map 1", "p1", queries=("a", "b")),
        OperatorSnapshot("o:2", "join", "join 2", "p2", "moving", queries=("a",), queue_rows=7),
    ),
    edges=(EdgeSnapshot("s:s", "o:1"), EdgeSnapshot("o:1", "o:2", 1.0, 500.0)),
    processors=(
        ProcessorSnapshot("p1"),
        ProcessorSnapshot("p2"),
        ProcessorSnapshot("p3", "silent"),
    ),
    decisions=(DecisionSnapshot(4, 9.0, "move", "join 2 goes to p2"),),
)
P1 = Snapshot(
    11.0,
    Overview("p1", rows_in_per_s=30.0),
    streams=(StreamSnapshot("s:s", "s", rows=9, rows_per_s=30.0),),
    queries=(QuerySnapshot("b", "", rows_per_s=3.0, goals=(GoalSnapshot("delay", "small"),)),),
    operators=(
        OperatorSnapshot("o:1", "map", "map 1", "p1", cost_s=4.0, load=0.2, steps=2, text="x > 1"),
        OperatorSnapshot("o:2", "join", "old place", "p1", cost_s=99.0),
    ),
    edges=(EdgeSnapshot("s:s", "o:1", 30.0, 300.0, 12, 100, 0.4),),
    processors=(
        ProcessorSnapshot("p1", algorithm="chain", scores=(ScorePoint(1.0, "chain"),), load=0.5),
    ),
    decisions=(
        DecisionSnapshot(1, 8.0, "switch", "chain takes over"),
        DecisionSnapshot(2, 8.0, "admission", "not its to tell"),
    ),
)


def test_what_a_processor_cannot_do_is_an_alarm() -> None:
    trouble = "stream s:s cannot be pulled: rows are gone"
    told = replace(P1, processors=(replace(P1.processors[0], troubles=(trouble,)),))
    seen = laid_over(WHOLE, {"p1": told}).overview.alarms
    assert [(a.severity, a.sentence, a.subject) for a in seen if a.kind == "trouble"] == [
        ("error", f"processor p1: {trouble}", "p1")
    ]
    assert [a.kind for a in laid_over(WHOLE, {"p1": P1}).overview.alarms] == ["away"]


def test_a_processor_tells_of_its_own_operators_alone() -> None:
    seen = {o.id: o for o in laid_over(WHOLE, {"p1": P1}).operators}
    assert (seen["o:1"].cost_s, seen["o:1"].text) == (4.0, "x > 1")
    assert seen["o:1"].queries == ("a", "b")  # as the manager knows them
    assert (seen["o:2"].cost_s, seen["o:2"].queue_rows, seen["o:2"].state) == (0.0, 7, "moving")


def test_costs_goals_edges_and_streams_follow() -> None:
    seen = laid_over(WHOLE, {"p1": P1})
    queries = {q.name: q for q in seen.queries}
    assert queries["a"].cost_s_shared == queries["b"].cost_s_shared == 2.0
    assert queries["b"].rows_per_s == 3.0
    assert queries["b"].goals[0].statistic == "delay"
    assert seen.edges[0].pressure == 0.4
    assert seen.edges[1] == WHOLE.edges[1]
    assert (seen.streams[0].rows, seen.streams[0].processor) == (9, "p1")


def test_algorithms_scores_and_switches() -> None:
    seen = laid_over(WHOLE, {"p1": P1})
    first, second, third = seen.processors
    assert (first.algorithm, first.load, len(first.scores)) == ("chain", 0.5, 1)
    assert second.algorithm is None
    assert third.state == "silent"
    assert [d.kind for d in seen.decisions] == ["move", "switch"]
    assert len({d.number for d in seen.decisions}) == 2


def test_nobody_has_anything_to_say() -> None:
    assert laid_over(WHOLE, {}) is WHOLE
