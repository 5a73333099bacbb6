"""A stream that processors refuse stops nobody but who reads it."""

from millstream.control.manager.events import DeclareStream, ForgetStream, Submit
from millstream.control.manager.manager import DECLARED_AGAIN_S
from millstream.sim.managed.managed_cluster import ManagedCluster, tree

PLANS = {
    "good": tree("good", ("o:f", "s:a"), ("o:g", "o:f")),
    "later": tree("later", ("o:f", "s:a"), ("o:h", "o:f")),
}


def go(cluster: ManagedCluster, seconds: float) -> None:
    cluster.run(cluster.kernel.now + seconds)


def test_a_stream_that_is_refused_stops_nobody_else() -> None:
    cluster = ManagedCluster(1, ("p1", "p2"), PLANS, None)
    go(cluster, 2)
    cluster.declare("a", rows=30)
    bad = {"name": "bad", "columns": {"x": "no type of Spark's"}, "time": "x"}
    cluster.feed(DeclareStream(bad, "p1", True))
    go(cluster, 3)
    for name in ("good", "later"):
        cluster.feed(Submit(name, name))
        go(cluster, 6)
        assert cluster.state.queries[name].phase == "running"
    assert "bad" in cluster.state.live["p1"].refused
    told = [d.sentence for d in cluster.state.decisions if "refused to declare bad" in d.sentence]
    assert len(told) == len(set(told)) >= 1
    go(cluster, 2 * DECLARED_AGAIN_S)  # it was tried again meanwhile, and told once
    again = [d.sentence for d in cluster.state.decisions if "refused to declare bad" in d.sentence]
    assert len(again) == len(set(again))
    cluster.feed(ForgetStream("bad"))
    go(cluster, 6)
    cluster.feed(DeclareStream({"name": "bad", "columns": {"x": "timestamp"}, "time": "x",
                                "source": "push"}, "p1"))  # fmt: skip
    go(cluster, 6)
    assert "bad" in cluster.processors["p1"].ownership.declared()
