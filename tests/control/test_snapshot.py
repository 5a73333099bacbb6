"""The contract of what a person sees: JSON there and back, increments, causes and alarms."""

import doctest
import json
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from millstream.control.snapshot import alarms, diagnosis
from millstream.control.snapshot import changes as snapshot_changes
from millstream.control.snapshot.changes import changes
from millstream.control.snapshot.diagnosis import cause_of, costs_of, slowest
from millstream.control.snapshot.model import (
    Connection,
    DecisionSnapshot,
    EdgeSnapshot,
    ErrorSnapshot,
    GoalSnapshot,
    OperatorSnapshot,
    Overview,
    ProcessorSnapshot,
    QuerySnapshot,
    Results,
    ScorePoint,
    Snapshot,
    StreamSnapshot,
)
from millstream.core.codec import from_json, to_json
from snapshot_pages import apply_changes

names = st.sampled_from(["a", "b", "c", "d"])
figures = st.floats(0, 1e6, allow_nan=False)
counts = st.integers(0, 10**9)
goals = st.builds(GoalSnapshot, names, names, figures | st.none(), st.booleans() | st.none())
queries = st.builds(
    QuerySnapshot, names, st.text(max_size=5), rows=counts, delay_s=figures | st.none(),
    operators=st.lists(names, max_size=3).map(tuple), goals=st.lists(goals, max_size=2).map(tuple),
    columns=st.just((("x", "int"),)),
    error=st.none() | st.builds(ErrorSnapshot, names, row=st.just({"host": "h"})),
)  # fmt: skip
operators = st.builds(OperatorSnapshot, names, names, names, queue_rows=counts, load=figures)
edges = st.builds(EdgeSnapshot, names, names, pressure=figures)
scores = st.builds(ScorePoint, figures, names, st.dictionaries(names, figures, max_size=2))
processors = st.builds(
    ProcessorSnapshot, names, scores=st.lists(scores, max_size=2).map(tuple),
    connections=st.just((Connection("p2", "in"),)),
)  # fmt: skip
decisions = st.builds(DecisionSnapshot, counts, figures, names, names)


def many(members: st.SearchStrategy, key) -> st.SearchStrategy:
    return st.lists(members, max_size=4, unique_by=key).map(tuple)


snapshots = st.builds(
    Snapshot,
    figures,
    st.builds(Overview, names, rows_in=counts),
    streams=many(st.builds(StreamSnapshot, names, names), lambda s: s.id),
    queries=many(queries, lambda q: q.name),
    operators=many(operators, lambda o: o.id),
    edges=many(edges, lambda e: (e.source, e.target)),
    processors=many(processors, lambda p: p.id),
    decisions=many(decisions, lambda d: d.number),
)


@given(snapshots)
def test_json_there_and_back(snapshot: Snapshot) -> None:
    text = json.dumps(to_json(snapshot), allow_nan=False)
    assert from_json(Snapshot, json.loads(text)) == snapshot


@given(snapshots, snapshots)
def test_increments_lead_from_one_to_the_other(old: Snapshot, new: Snapshot) -> None:
    before, after = to_json(old), to_json(new)
    got = apply_changes(before, changes(before, after))
    for name, value in after.items():
        if name in snapshot_changes.KEYED:
            assert sorted(map(repr, map(sorted_items, got[name]))) == sorted(
                map(repr, map(sorted_items, value))
            )
        else:
            assert got[name] == value


def sorted_items(member: dict) -> list:
    return sorted(member.items())


def test_nothing_changed_is_nothing_told() -> None:
    one = to_json(Snapshot(1.0, Overview("x"), queries=(QuerySnapshot("q", "SELECT"),)))
    assert changes(one, one) == {}


def test_an_older_writers_snapshot_is_read() -> None:
    read = from_json(Snapshot, {"taken": 3.0, "overview": {"title": "x", "novelty": 1}})
    assert read == Snapshot(3.0, Overview("x"))


def test_values_that_json_does_not_know() -> None:
    assert to_json(Overview("x", started=float("nan")))["started"] is None
    row = (1, b"x", float("inf"), datetime(2020, 1, 2, 3), ({"a": b"y"},))
    told = to_json(Results(("a",), (row,)))["rows"]
    assert told == [[1, "b'x'", None, "2020-01-02 03:00:00", [{"a": "b'y'"}]]]


def test_the_cause_is_the_operator_whose_rows_wait_longest() -> None:
    short = OperatorSnapshot("o:1", "map", "map 1", queue_rows=5000, waiting_s=1.0, load=0.9)
    old = OperatorSnapshot("o:2", "join", "join 2", queue_rows=10, waiting_s=30.0)
    assert cause_of([short, old]).operator == "o:2"
    busy = OperatorSnapshot("o:3", "map", "map 3", cost_s=9.0, load=0.9, steps=3)
    idle = OperatorSnapshot("o:4", "map", "map 4", cost_s=10.0, load=0.0, steps=3)
    assert cause_of([busy, idle]).operator == "o:3"
    assert cause_of([OperatorSnapshot("o:5", "map", "map 5")]) is None


def test_the_slowest_query_is_the_one_furthest_behind() -> None:
    failed = QuerySnapshot("f", "", state="failed", delay_s=100.0)
    slow, dear = QuerySnapshot("s", "", delay_s=2.0), QuerySnapshot("d", "", load_own=0.9)
    assert slowest([failed, dear, slow]) is slow
    assert slowest([failed, dear]) is dear
    assert slowest([failed]) is None


def test_shared_work_is_divided_among_those_who_share() -> None:
    both = OperatorSnapshot("o:1", "map", "", queries=("a", "b"), cost_s=4.0, load=0.4)
    alone = OperatorSnapshot("o:2", "map", "", queries=("a",), cost_s=1.0, load=0.1)
    assert costs_of("a", [both, alone]) == (1.0, 2.0, 0.1, 0.2)
    assert costs_of("b", [both, alone]) == (0.0, 2.0, 0.0, 0.2)
    together = OperatorSnapshot("o:3", "map", "", queries=("a",), group="g", cost_s=3.0)
    assert costs_of("a", [alone, together]) == (1.0, 3.0, 0.1, 0.0)


def test_examples_in_the_text() -> None:
    for module in (alarms, diagnosis, snapshot_changes):
        assert doctest.testmod(module).failed == 0
