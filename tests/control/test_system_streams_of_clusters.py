"""Streams about a cluster: declared while they are read, and what a manager tells of itself."""

from dataclasses import replace

from millstream.control.manager import system_streams
from millstream.control.manager.events import Drain, Drop, Remove, RequestMove, Submit
from millstream.control.manager.state import ManagerState
from millstream.control.manager.system_streams import (
    Row,
    asked_of,
    known,
    news,
    standing_rows,
    told_now,
    wanted,
)
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, Trouble, tree
from sim.managed_checkers import in_the_end
from sim.tiered_cluster import TieredCluster

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:f", "s:a"), ("o:g", "o:f")),
    "watch": tree("watch", ("o:w", "s:sys.steps")),
    "alarmed": tree("alarmed", ("o:a", "s:sys.alarms")),
    "both": tree("both", ("o:v", "s:sys.steps", "s:sys.moves")),
}


def go(cluster: ManagedCluster, seconds: float) -> None:
    cluster.run(cluster.kernel.now + seconds)


def cluster_of(seed: int = 1, trouble: Trouble | None = None) -> ManagedCluster:
    found = ManagedCluster(seed, ("p1", "p2"), PLANS, trouble)
    go(found, 0.5)
    while not found.manager_up:
        go(found, 1)
    found.declare("a", "b", rows=30)
    return found


def test_a_system_stream_is_there_while_a_query_reads_it() -> None:
    cluster = cluster_of()
    assert not wanted(cluster.state)
    cluster.feed(Submit("watch", "watch"))
    cluster.feed(Submit("both", "both"))
    go(cluster, 6)
    assert cluster.state.queries["watch"].phase == "running"
    assert cluster.state.queries["both"].phase == "running"
    assert wanted(cluster.state) == {"sys.steps", "sys.moves"}
    stream = cluster.state.streams["sys.steps"]
    assert stream.table["columns"]["operator"] == "string"
    actual = cluster.state.live[stream.processor].actual
    assert actual is not None
    assert "sys.steps" in actual.started
    cluster.feed(Drop("both"))
    go(cluster, 6)
    assert wanted(cluster.state) == {"sys.steps"}
    cluster.feed(Drop("watch"))
    go(cluster, 6)
    assert sorted(cluster.state.streams) == ["a", "b"]
    for processor in cluster.processors.values():
        assert sorted(processor.ownership.declared()) == ["a", "b"]
    cluster.feed(Submit("watch", "watch"))
    go(cluster, 6)
    assert cluster.state.queries["watch"].phase == "running"
    assert in_the_end(cluster) == []


def test_dry_runs_leave_no_stream_and_drained_processors_can_go() -> None:
    cluster = cluster_of()
    cluster.feed(Submit("watch", "watch", dry_run=True))
    go(cluster, 5)
    assert cluster.state.considered["watch"]["verdict"] == "admitted"
    assert sorted(cluster.state.streams) == ["a", "b"]
    alone = ManagedCluster(2, ("p1", "p2"), PLANS)
    go(alone, 0.5)
    alone.feed(Submit("watch", "watch"))
    go(alone, 5)
    place = alone.state.streams["sys.steps"].processor
    alone.feed(Drop("watch"))
    go(alone, 5)
    alone.feed(Drain(place))
    alone.feed(Remove(place))
    assert place not in alone.state.processors


def test_one_answer_among_faults() -> None:
    trouble = Trouble(until_s=40, loss=0.1, repeat=0.05, kill_every_s=9, kill_manager_every_s=13)
    for seed in (0, 1):
        cluster = cluster_of(seed, trouble)
        for name in ("two", "watch"):
            while cluster.ask(Submit(name, name)):
                go(cluster, 1)
        go(cluster, 120)
        assert cluster.state.queries["watch"].phase == "running", seed
        assert wanted(cluster.state) == {"sys.steps"}
        assert in_the_end(cluster) == [], seed


def test_the_uppermost_manager_feeds_the_stream_wherever_it_enters() -> None:
    tiers = TieredCluster(3, {"m1": ("p1", "p2"), "m2": ("p3",)}, PLANS)
    tiers.run(2.0)
    tiers.feed(Submit("watch", "watch"))
    tiers.run(30.0)
    assert tiers.state.queries["watch"].phase == "running"
    assert wanted(tiers.state) == {"sys.steps"}
    entered = tiers.state.streams["sys.steps"].processor
    inside = tiers.lower[entered].state.streams["sys.steps"].processor
    assert inside in tiers.lower[entered].processors
    assert not any(wanted(below.state) for below in tiers.lower.values())
    asked = frozenset({"sys.steps", "sys.moves", "sys.admissions"})
    manager, processor = tiers.state.processors["m2"], tiers.lower["m2"].state.processors["p3"]
    assert asked_of(manager, asked) == {"sys.steps", "sys.moves"}
    assert asked_of(processor, asked) == {"sys.steps"}
    tiers.feed(Drop("watch"))
    tiers.run(60.0)
    assert not any(m.state.streams for m in (tiers, *tiers.lower.values()))
    assert tiers.problems() == []


def test_a_query_that_is_parked_below_is_so_above() -> None:
    tiers = TieredCluster(3, {"m1": ("p1", "p2"), "m2": ("p3",)}, PLANS)
    tiers.run(2.0)
    tiers.declare("a", "b", rows=30)
    tiers.feed(Submit("two", "two"))
    tiers.run(30.0)
    before = tiers.state
    told = {"two": {"state": "parked", "reason": "too many rows wait for its reader"}}
    for below in tiers.lower.values():
        below.state = replace(below.state, statistics=replace(below.state.statistics, queries=told))
    tiers.run(60.0)
    (row,) = news(tiers.state, "sys.admissions", known(before))
    assert (row["decision"], row["reason"]) == ("parked", "too many rows wait for its reader")


# -- rows -----------------------------------------------------------------------------------------


def admissions(before: ManagerState, after: ManagerState) -> list[tuple[str, str]]:
    rows = news(after, "sys.admissions", known(before))
    return [(row["query"], row["decision"]) for row in rows]


def test_every_decision_about_a_query_is_told_once() -> None:
    cluster = ManagedCluster(1, ("p1", "p2"), PLANS, settings=replace(QUICK, placer="sqpr"))
    go(cluster, 0.5)
    cluster.declare("a", "b", rows=30)
    before = cluster.state
    cluster.feed(Submit("two", "two"))
    go(cluster, 6)
    assert admissions(before, cluster.state) == [("two", "admitted")]
    (row,) = news(cluster.state, "sys.admissions", known(before))
    assert (row["operators"], row["shared"]) == (2, 0)
    assert row["reason"]
    assert before.now_s * 1e6 <= row["at"] <= cluster.state.now_s * 1e6
    small = {n: replace(p, properties={"cpu": 0.0}) for n, p in cluster.state.processors.items()}
    cluster.state = before = replace(cluster.state, processors=small)
    cluster.feed(Submit("one", "one", queue=True))
    cluster.feed(Submit("1", "one"))
    cluster.feed(Drop("two"))
    go(cluster, 6)
    assert admissions(before, cluster.state) == [
        ("two", "dropped"), ("1", "refused"), ("one", "queued"),
    ]  # fmt: skip
    refused = news(cluster.state, "sys.admissions", known(before))[1]
    assert "cpu" in refused["reason"]
    told = told_now(cluster.state, known(before))
    sentences = [d.sentence for d in cluster.state.decisions if "is queued" in d.sentence]
    assert len(sentences) == 1
    seen: list[Row] = []
    for _ in range(200):  # tried again and again: told once, also while it is on its way
        go(cluster, 0.25)
        seen += news(cluster.state, "sys.admissions", told)
        told = told_now(cluster.state, told)
    assert seen == []
    assert sentences == [d.sentence for d in cluster.state.decisions if "is queued" in d.sentence]


def test_parked_queries_and_how_things_stand() -> None:
    cluster = cluster_of()
    cluster.feed(Submit("two", "two"))
    go(cluster, 6)
    (row,) = standing_rows(cluster.state, "sys.admissions")
    assert (row["query"], row["decision"], row["operators"]) == ("two", "admitted", 2)
    assert standing_rows(cluster.state, "sys.moves") == []
    running = cluster.state
    told = {"two": {"state": "parked", "reason": "too many rows wait for its reader"}}
    parked = replace(running, statistics=replace(running.statistics, queries=told))
    (row,) = news(parked, "sys.admissions", known(running))
    assert (row["decision"], row["reason"]) == ("parked", "too many rows wait for its reader")
    assert admissions(parked, running) == [("two", "running")]


def test_moves_are_told_when_they_are_over() -> None:
    cluster = cluster_of()
    cluster.feed(Submit("two", "two", from_beginning=True))
    go(cluster, 6)
    before = cluster.state
    source = before.operators["o:f"].processor
    target = "p2" if source == "p1" else "p1"
    cluster.feed(RequestMove(("o:f",), target, "for a test"))
    assert news(cluster.state, "sys.moves", known(before)) == []
    go(cluster, 20)
    rows = news(cluster.state, "sys.moves", known(before))
    assert [(r["operator"], r["processor"], r["direction"]) for r in rows] == [
        ("o:f", source, "out"), ("o:f", target, "in"),
    ]  # fmt: skip
    assert {r["reason"] for r in rows} == {"for a test"}
    assert news(cluster.state, "sys.moves", told_now(cluster.state, known(before))) == []
    before = cluster.state
    cluster.processors[source].up = False
    cluster.feed(RequestMove(("o:f",), source, "back"))
    go(cluster, 30)
    (row,) = news(cluster.state, "sys.moves", known(before))
    assert (row["processor"], row["direction"]) == (target, "undone")
    assert "does not answer" in row["reason"]


def test_no_row_is_older_than_what_was_sent_before() -> None:
    rows: list[Row] = [{"at": 50}, {"at": 120, "who": "ahead"}, {"at": 101}]
    stamped = system_streams.stamped(rows, 100, 110)
    assert [row["at"] for row in stamped] == [100, 101, 110]
    assert [row["at"] for row in rows] == [50, 120, 101]


def test_alarms_are_told_when_they_begin_and_end() -> None:
    cluster = cluster_of()
    cluster.feed(Submit("alarmed", "alarmed"))
    cluster.feed(Submit("one", "one"))
    go(cluster, 6)
    assert wanted(cluster.state) == {"sys.alarms"}
    standing = {(r["kind"], r["subject"]) for r in standing_rows(cluster.state, "sys.alarms")}
    assert ("away", "p2") not in standing
    told = known(cluster.state, "sys.alarms")
    cluster.kill("p2", 60.0)
    go(cluster, 30)
    rows = news(cluster.state, "sys.alarms", told)
    away = next(r for r in rows if r["kind"] == "away")
    assert (away["state"], away["severity"], away["subject"]) == ("raised", "error", "p2")
    assert away["todo"]
    told = told_now(cluster.state, told, "sys.alarms")
    assert not [r for r in news(cluster.state, "sys.alarms", told) if r["kind"] == "away"]
    go(cluster, 60)
    ended = [r for r in news(cluster.state, "sys.alarms", told) if r["kind"] == "away"]
    assert [(r["state"], r["subject"]) for r in ended] == [("ended", "p2")]
