"""Goals of a cluster in virtual time: they reach whom they concern, and outlive everybody."""

from millstream.control.manager.events import Drop, RequestMove, SetGoals, SetSchedule, Submit
from millstream.sim.managed.managed_cluster import ManagedCluster, tree
from sim.managed_checkers import in_the_end

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:g", "s:a")),
}
FRESH = {"template": "fresh", "weight": 2.0}
DELAY = {"goals": "delay <= 2s"}


def cluster_with_both() -> ManagedCluster:
    cluster = ManagedCluster(1, ("p1", "p2", "p3"), PLANS)
    cluster.run(0.5)
    cluster.declare("a", "b", rows=30)
    for name in PLANS:
        cluster.feed(Submit(name, name))
    cluster.run(10)
    return cluster


def place(cluster: ManagedCluster, operator: str) -> str:
    return cluster.state.operators[operator].processor


def goals(cluster: ManagedCluster) -> dict[str, dict[str, object]]:
    return {name: p.connections.quality for name, p in cluster.processors.items()}


def test_goals_go_where_the_query_runs_and_move_with_it() -> None:
    cluster = cluster_with_both()
    cluster.feed(SetGoals("", DELAY))
    cluster.feed(SetGoals("two", FRESH))
    cluster.run(12)
    home = place(cluster, "o:g")
    for name, told in goals(cluster).items():
        assert told["goals"] == "delay <= 2s"
        assert told.get("queries", {}) == ({"two": FRESH} if name == home else {})
    target = next(p for p in cluster.processors if p != home)
    cluster.feed(RequestMove(("o:g",), target, "because"))
    cluster.run(40)
    assert place(cluster, "o:g") == target
    assert goals(cluster)[target]["queries"] == {"two": FRESH}
    assert "queries" not in goals(cluster)[home]
    assert not [d for d in cluster.state.decisions if "does not take" in d.sentence]
    assert in_the_end(cluster) == []


def test_goals_outlive_the_manager_and_a_processor() -> None:
    cluster = cluster_with_both()
    cluster.feed(SetGoals("two", FRESH))
    cluster.feed(SetSchedule({"algorithm": "chain"}))
    cluster.run(12)
    home = cluster.processors[place(cluster, "o:g")]
    cluster.kill_manager(1.0)
    cluster.kill(home.name, 2.0)
    cluster.run(14)
    assert home.connections.quality == {}, "a home does not keep it"
    cluster.run(60)
    assert home.connections.quality == {"queries": {"two": FRESH}}
    assert home.connections.schedule == {"algorithm": "chain"}
    said = {name: p.carried_out.count("configure") for name, p in cluster.processors.items()}
    cluster.run(120)
    later = {name: p.carried_out.count("configure") for name, p in cluster.processors.items()}
    assert said == later, "what is so already is never said again"


def test_goals_are_forgotten_everywhere() -> None:
    cluster = cluster_with_both()
    cluster.feed(SetGoals("two", FRESH))
    cluster.feed(SetGoals("one", DELAY))
    cluster.run(12)
    cluster.feed(SetGoals("two", {}))
    cluster.kill_manager(1.0)  # before it could be said
    cluster.run(40)
    assert goals(cluster)[place(cluster, "o:g")].get("queries", {}).keys() <= {"one"}
    cluster.feed(Drop("one"))
    cluster.feed(Drop("two"))
    cluster.run(80)
    assert not cluster.state.goals
