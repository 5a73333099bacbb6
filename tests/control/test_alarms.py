"""What is an alarm: each condition is caused in a snapshot and must be told, with all it needs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.control.snapshot import alarms
from millstream.control.snapshot.alarms import AlarmBook, judged, told, worst
from millstream.control.snapshot.model import (
    Alarm,
    EdgeSnapshot,
    ErrorSnapshot,
    GoalSnapshot,
    OperatorSnapshot,
    Overview,
    ProcessorSnapshot,
    QuerySnapshot,
    Snapshot,
    StreamSnapshot,
)
from millstream.control.snapshot.of_cluster import laid_over
from millstream.control.snapshot.of_tier import as_processor

ROOT = Path(__file__).parents[2]
CODE = Path(alarms.__file__).read_text()
MISSED = (GoalSnapshot("delay", "below 2 s", 9.0, False),)
QUIET = Snapshot(
    1000.0,
    Overview("mill"),
    streams=(StreamSnapshot("s:s", "s", processor="p1", rows=5),),
    queries=(
        QuerySnapshot("a", "SELECT", operators=("o:1", "o:2"), result="o:2", delay_s=0.0),
        QuerySnapshot("b", "SELECT", operators=("o:1",), result="o:1", delay_s=0.0),
    ),
    operators=(
        OperatorSnapshot("o:1", "map", "map 1", "p1", queries=("a", "b"), load=0.1),
        OperatorSnapshot("o:2", "join", "join 2", "p2", queries=("a",), load=0.1),
    ),
    edges=(EdgeSnapshot("s:s", "o:1"), EdgeSnapshot("o:1", "o:2")),
    processors=(ProcessorSnapshot("p1", seen=999.0), ProcessorSnapshot("p2", seen=999.0)),
)


def with_processor(name: str, **changes: object) -> Snapshot:
    kept = tuple(
        replace(p, **changes) if p.id == name else p  # type: ignore[arg-type]
        for p in QUIET.processors
    )
    return replace(QUIET, processors=kept)


def with_query(name: str, **changes: object) -> Snapshot:
    kept = tuple(
        replace(q, **changes) if q.name == name else q  # type: ignore[arg-type]
        for q in QUIET.queries
    )
    return replace(QUIET, queries=kept)


def with_operator(base: Snapshot, name: str, **changes: object) -> Snapshot:
    kept = tuple(
        replace(o, **changes) if o.id == name else o  # type: ignore[arg-type]
        for o in base.operators
    )
    return replace(base, operators=kept)


def alarms_of(snapshot: Snapshot) -> dict[tuple[str, str], Alarm]:
    return {(a.kind, a.subject): a for a in judged(snapshot).overview.alarms}


def test_a_system_that_works_has_no_alarm() -> None:
    seen = judged(QUIET)
    assert seen.overview.alarms == ()
    assert [q.state for q in seen.queries] == ["running", "running"]
    assert worst(seen.overview.alarms) == "ok"


def test_queries_on_a_dead_processor_do_not_run() -> None:
    seen = judged(with_processor("p2", state="silent", seen=880.0))
    by_name = {q.name: q for q in seen.queries}
    assert (by_name["a"].state, by_name["a"].delay_s) == ("stalled", 120.0)
    assert by_name["a"].cause == "processor p2 is silent"
    assert by_name["b"].state == "running"
    found = {(a.kind, a.subject): a for a in seen.overview.alarms}
    away, stalled = found["away", "p2"], found["stalled", "a"]
    assert (away.severity, away.since, away.queries) == ("error", 880.0, ("a",))
    assert "start it again" in away.todo
    assert (stalled.culprit, stalled.since) == ("processor p2 is silent", 880.0)
    assert worst(seen.overview.alarms) == "error"


def test_a_query_whose_stream_enters_at_a_dead_processor_does_not_run() -> None:
    moved = with_operator(QUIET, "o:1", processor="p2")
    dead = replace(
        moved, processors=(ProcessorSnapshot("p1", "lost", seen=900.0), QUIET.processors[1])
    )
    assert [q.state for q in judged(dead).queries] == ["stalled", "stalled"]
    ended = replace(dead, streams=(replace(QUIET.streams[0], ended=True),))
    assert [q.state for q in judged(ended).queries] == ["running", "running"]


def test_a_query_that_does_not_advance_is_never_green() -> None:
    waiting = with_operator(
        with_query("a", delay_s=500.0, cause="join 2 has 6,312 rows waiting"),
        "o:2", queue_rows=6312, waiting_s=500.0,
    )  # fmt: skip
    slow = alarms_of(waiting)
    assert slow["delay", "a"].sentence == "query a is 8 min 20 s behind"
    assert (slow["delay", "a"].culprit, slow["delay", "a"].since) == (
        "join 2 has 6,312 rows waiting", 500.0,
    )  # fmt: skip
    still = with_operator(with_operator(waiting, "o:2", load=0.0), "o:1", load=0.0)
    stuck = judged(still)
    assert stuck.queries[0].state == "stalled"
    assert {a.kind for a in stuck.overview.alarms} == {"stalled"}
    again = judged(with_operator(stuck, "o:2", load=0.5))
    assert again.queries[0].state == "running", "newer figures show that it goes on"


def test_the_culprit_is_named_and_not_the_victim() -> None:
    hog = OperatorSnapshot("o:9", "join", "join 9", "p2", queries=("z",), load=0.9)
    waiting = with_operator(
        with_query("a", delay_s=100.0, cause="join 2 has 7 rows waiting", cause_operator="o:2"),
        "o:2", queue_rows=7, waiting_s=100.0, load=0.05,
    )  # fmt: skip
    seen = judged(replace(waiting, operators=(*waiting.operators, hog)))
    assert seen.queries[0].cause_operator == "o:9"
    cause = seen.queries[0].cause
    assert cause.startswith("join for z takes 90% of the time while join for a has 7")
    elsewhere = replace(waiting, operators=(*waiting.operators, replace(hog, processor="p1")))
    assert judged(elsewhere).queries[0].cause_operator == "o:2"


def test_a_long_step_of_another_query_is_the_culprit() -> None:
    busy = OperatorSnapshot("o:9", "join", "join 9", "p2", "busy", queries=("z",))
    waiting = with_operator(
        with_query("a", delay_s=100.0, cause="join 2 has 7 rows waiting", cause_operator="o:2"),
        "o:2", queue_rows=7, waiting_s=100.0, load=0.0,
    )  # fmt: skip
    still = with_operator(waiting, "o:1", load=0.0)
    seen = judged(replace(still, operators=(*still.operators, busy)))
    assert (seen.queries[0].state, seen.queries[0].cause_operator) == ("stalled", "o:9")
    assert seen.queries[0].cause.startswith("join for z is busy while join for a has 7 rows")


@pytest.mark.parametrize(
    ("snapshot", "key", "severity", "sentence"),
    [
        (with_query("a", goals=MISSED), ("goal", "a"), "warning", "query a misses delay below 2 s"),
        (
            with_query("a", goals=(GoalSnapshot("delay (s)", "at most 2 s", 1.5, True, 40.0),)),
            ("foretold", "a"), "warning",
            "at this rate query a misses delay (s) at most 2 s in 40 s",
        ),
        (
            with_processor("p1", goals=MISSED), ("goal", "p1"), "warning",
            "all queries together miss delay below 2 s",
        ),
        (
            with_query("a", state="failed", reason="no", error=ErrorSnapshot("no", 7.0, place="x")),
            ("failed", "a"), "error", "query a failed: no",
        ),
        (
            with_query("a", state="parked", reason="full"), ("held", "a"), "warning",
            "query a is parked: full",
        ),
        (with_processor("p1", load=1.0), ("busy", "p1"), "warning", "processor p1 is fully busy"),
        (
            with_processor("p1", troubles=("the disk is full",)), ("trouble", "p1"), "error",
            "processor p1: the disk is full",
        ),
        (
            replace(QUIET, edges=(EdgeSnapshot("s:s", "o:1", pressure=0.95),)),
            ("pressure", "o:1"), "warning", "map for a and 1 more does not keep up with its rows",
        ),
        (
            replace(QUIET, streams=(replace(QUIET.streams[0], rejected=2),)),
            ("rejected", "s"), "warning", "stream s: 2 malformed rows were put aside",
        ),
        (
            replace(QUIET, streams=(replace(QUIET.streams[0], rejected=20),)),
            ("rejected", "s"), "error", "stream s: 20 malformed rows were put aside",
        ),
        (
            replace(QUIET, streams=(replace(QUIET.streams[0], late=20),)),
            ("late", "s"), "error", "stream s: 20 of 25 rows came late",
        ),
    ],
)  # fmt: skip
def test_each_condition_is_told(
    snapshot: Snapshot, key: tuple[str, str], severity: str, sentence: str
) -> None:
    found = alarms_of(snapshot)
    assert set(found) == {key}
    alarm = found[key]
    assert (alarm.severity, alarm.sentence) == (severity, sentence)
    assert alarm.todo
    assert alarm.queries


def test_every_kind_of_alarm_is_documented() -> None:
    written = re.compile(r'(?:\*subject,|"operator", target,)\s+"([a-z]+)",')
    kinds = set(written.findall(CODE))
    assert {"away", "silent", "replicas", "pressure", "shed", "late"} <= kinds
    page = (ROOT / "docs" / "howto" / "watching.md").read_text()
    assert not [kind for kind in kinds if f"`{kind}`" not in page]


def held_back(**quiet: object) -> Snapshot:
    """Query a reads a stream that goes on and one that is silent."""
    goes_on = replace(QUIET.streams[0], watermark="2024-05-01T08:10:00Z")
    silent = StreamSnapshot(
        "s:t", "t", processor="p1", rows=2, watermark="2024-05-01T08:00:00Z", silent_s=120.0
    )
    return replace(
        QUIET,
        streams=(goes_on, replace(silent, **quiet)),  # type: ignore[arg-type]
        edges=(*QUIET.edges, EdgeSnapshot("s:t", "o:2")),
    )


def test_a_silent_stream_is_told_where_others_wait_for_it() -> None:
    (alarm,) = judged(held_back()).overview.alarms
    assert (alarm.kind, alarm.subject, alarm.queries) == ("silent", "t", ("a",))
    assert (alarm.culprit, alarm.since) == ("stream t", 880.0)
    assert alarm.sentence == "stream t has had no row for 2 min 0 s, and others wait for it"
    assert "idle" in alarm.todo
    assert alarms_of(held_back(rows=0, watermark=None)), "it has not begun"
    assert not alarms_of(held_back(silent_s=9.0)), "not for long"
    assert not alarms_of(held_back(ended=True)), "it promises everything"
    assert not alarms_of(held_back(watermark="2024-05-01T08:10:00Z")), "nobody waits"
    alone = replace(held_back(), edges=(EdgeSnapshot("s:t", "o:2"),))
    assert not alarms_of(alone), "it holds up nobody else"


def test_what_has_ended_is_late_no_more() -> None:
    over = replace(with_query("a", delay_s=500.0, goals=MISSED), overview=Overview("m", "finished"))
    assert judged(over).overview.alarms == ()


def test_a_cluster_is_judged_by_what_its_processors_say() -> None:
    part = Snapshot(
        1001.0,
        Overview("p2"),
        queries=(QuerySnapshot("a", "", goals=MISSED),),
        operators=(
            OperatorSnapshot(
                "o:2", "join", "join 2", "p2", queue_rows=9, waiting_s=300.0, load=0.5
            ),
        ),
        processors=(ProcessorSnapshot("p2", goals=MISSED),),
    )
    kinds = {(a.kind, a.subject) for a in laid_over(QUIET, {"p2": part}).overview.alarms}
    assert kinds == {("goal", "a"), ("goal", "p2"), ("delay", "a")}


@pytest.mark.parametrize(("gone", "waiting"), [("p1", {"a", "b"}), ("p2", {"a"})])
def test_what_is_away_below_a_manager_is_seen_above_it(gone: str, waiting: set[str]) -> None:
    above = replace(
        QUIET,
        operators=tuple(replace(o, processor="m1") for o in QUIET.operators),
        streams=tuple(replace(s, processor="m1") for s in QUIET.streams),
        processors=(ProcessorSnapshot("m1", seen=999.0),),
    )
    assert laid_over(above, {"m1": as_processor(judged(QUIET))}).overview.alarms == ()
    middle = as_processor(judged(with_processor(gone, state="silent")))
    for tier in (middle, as_processor(laid_over(above, {"m1": middle}))):  # two tiers, and three
        seen = laid_over(above, {"m1": tier})
        told = {(a.kind, a.subject): a.sentence for a in seen.overview.alarms}
        assert told["trouble", "m1"].endswith(f"processor {gone} is silent")
        assert {q.name for q in seen.queries if q.state == "stalled"} == waiting
        for name in waiting:
            assert told["stalled", name].endswith(f"processor {gone} is silent")


def test_a_book_remembers_since_when() -> None:
    book = AlarmBook()
    first = book.dated(judged(with_query("a", goals=MISSED)))
    assert first.overview.alarms[0].since == 1000.0
    later = book.dated(judged(replace(with_query("a", goals=MISSED), taken=1050.0)))
    assert later.overview.alarms[0].since == 1000.0
    book.dated(judged(QUIET))
    again = book.dated(judged(replace(with_query("a", goals=MISSED), taken=1060.0)))
    assert again.overview.alarms[0].since == 1060.0
    assert told(later.overview.alarms[0], 1060.0).startswith(
        "query a misses delay below 2 s; for 1"
    )
