"""What a person sees of a cluster that runs, moves and breaks: the real manager, virtual time."""

import json

from millstream.control.manager.events import RequestMove, StartStreams, Submit
from millstream.control.snapshot.changes import changes
from millstream.control.snapshot.model import Snapshot
from millstream.control.snapshot.of_manager import snapshot_of
from millstream.core.codec import to_json
from millstream.edge.dashboard.layout import place, shape_of
from millstream.sim.managed.managed_cluster import ManagedCluster, Trouble, tree
from snapshot_pages import apply_changes

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:f", "s:a"), ("o:g", "o:f")),
}


def seen(cluster: ManagedCluster) -> Snapshot:
    """A snapshot that holds together."""
    snapshot = snapshot_of(cluster.state)
    operators = {o.id for o in snapshot.operators}
    streams = {s.id for s in snapshot.streams}
    queries = {q.name for q in snapshot.queries}
    assert all(set(o.queries) <= queries for o in snapshot.operators)
    assert all(e.target in operators for e in snapshot.edges)
    assert all(e.source in operators | streams for e in snapshot.edges)
    assert len({d.number for d in snapshot.decisions}) == len(snapshot.decisions)
    assert set(place(shape_of(snapshot))) == operators | streams
    return snapshot


def test_a_life_with_a_move_and_a_lost_processor() -> None:
    cluster = ManagedCluster(1, ("p1", "p2", "p3"), PLANS, Trouble())
    cluster.run(0.5)
    assert [p.state for p in seen(cluster).processors] != []
    cluster.declare("a", "b", rows=400)
    cluster.feed(Submit("one", "one", from_beginning=True))
    cluster.feed(Submit("two", "two", from_beginning=True))
    cluster.feed(StartStreams())
    page = to_json(seen(cluster))
    states: set[str] = set()
    processors: set[str] = set()
    moved = False
    for step in range(120):
        cluster.run(cluster.kernel.now + 0.5)
        if step == 20:
            at = cluster.state.operators["o:r"].processor
            target = next(p for p in sorted(cluster.processors) if p != at)
            cluster.feed(RequestMove(("o:r",), target, "to see it"))
        if step == 60:
            cluster.pause(min(cluster.processors), 1000)
        snapshot = seen(cluster)
        now = to_json(snapshot)
        page = apply_changes(page, changes(page, now))  # as a page that looks all the time has it
        assert {o["id"]: o for o in page["operators"]} == {o["id"]: o for o in now["operators"]}
        states |= {q.state for q in snapshot.queries}
        processors |= {p.state for p in snapshot.processors}
        moved = moved or any(d.kind == "move" for d in snapshot.decisions)
    json.dumps(page, allow_nan=False)
    assert "running" in states
    assert processors == {"running", "silent"}
    assert moved
    final = seen(cluster)
    shared = next(o for o in final.operators if o.id == "o:f")
    assert shared.queries == ("one", "two")
    assert any(a.subject_kind == "processor" for a in final.overview.alarms)
