"""The manager with virtual processors: faults of every kind, and what must hold all the same."""

import pytest
from managed_runs import random_run

from millstream.control.manager.events import Drain, Drop, Remove, RequestMove, StartStreams, Submit
from millstream.control.protocol.commands import Command, Seal
from millstream.sim.managed.managed_cluster import ManagedCluster, Trouble, tree
from millstream.sim.managed.plain_plane import write
from millstream.sim.managed.virtual_processor import Connections
from sim.managed_checkers import always, in_the_end

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:f", "s:a"), ("o:g", "o:f")),
}


def small(trouble: Trouble | None = None, seed: int = 1, rows: int = 60) -> ManagedCluster:
    cluster = ManagedCluster(seed, ("p1", "p2", "p3"), PLANS, trouble)
    cluster.run(0.5)
    cluster.declare("a", "b", rows=rows)
    cluster.feed(Submit("one", "one", from_beginning=True))
    cluster.feed(Submit("two", "two", from_beginning=True))
    cluster.feed(StartStreams())
    return cluster


def other_place(cluster: ManagedCluster, operator: str) -> str:
    place = cluster.state.operators[operator].processor
    return next(p for p in sorted(cluster.processors) if p != place)


def test_queries_run_and_read_everything() -> None:
    cluster = small()
    cluster.run(60)
    assert in_the_end(cluster) == []
    assert {q.phase for q in cluster.state.queries.values()} == {"running"}
    assert sum(len(rows) for rows in cluster.truth.logs["o:r"][0]) == 120


@pytest.mark.parametrize("from_beginning", [True, False])
def test_a_query_is_compiled_once(from_beginning: bool) -> None:
    cluster = small()
    cluster.run(12)  # rows have come: a start is not the beginning

    def compiled() -> int:
        return sum(p.carried_out.count("compile") for p in cluster.processors.values())

    before = compiled()
    cluster.feed(Submit("three", "two", from_beginning=from_beginning))
    cluster.run(40)
    assert cluster.state.queries["three"].phase == "running"
    assert compiled() == before + 1
    assert before == 2, "as many as there are texts"


def test_a_query_that_waits_for_a_move_is_compiled_once() -> None:
    cluster = small(rows=90)
    cluster.run(6)
    before = sum(p.carried_out.count("compile") for p in cluster.processors.values())
    cluster.feed(RequestMove(("o:f",), other_place(cluster, "o:f"), "a test"))
    cluster.feed(Submit("three", "two"))
    cluster.run(6.5)
    assert cluster.state.queries["three"].reason == "it waits for a move of what it reads"
    cluster.run(60)
    assert cluster.state.queries["three"].phase == "running"
    assert sum(p.carried_out.count("compile") for p in cluster.processors.values()) == before + 1


def test_a_shared_operator_stays_while_a_query_uses_it() -> None:
    cluster = small()
    cluster.run(5)
    shared = cluster.state.operators["o:f"].processor
    cluster.feed(Drop("one"))
    cluster.run(20)
    assert "o:f" in cluster.processors[shared].operators()
    assert "o:j" not in cluster.state.operators
    cluster.feed(Drop("two"))
    cluster.run(60)
    assert in_the_end(cluster) == []
    assert not cluster.state.operators
    assert not any(p.operators() or p.ownership.copies() for p in cluster.processors.values())


def test_a_drained_processor_can_leave() -> None:
    cluster = small()
    cluster.run(5)
    name = cluster.state.streams["a"].processor
    cluster.feed(Drain(name))
    cluster.run(60)
    assert in_the_end(cluster) == []
    drained = cluster.processors[name]
    assert not drained.operators()
    assert not drained.owned(), "no rows enter there either"
    assert cluster.ask(Remove(name)) == ""


def test_the_only_processors_left_silent_refuse_queries() -> None:
    cluster = small()
    cluster.run(5)
    for name in cluster.processors:
        cluster.pause(name, 1000)
    cluster.run(30)
    assert "no processor is left" in cluster.ask(Submit("three", "two"))
    assert any(d.sentence == "no processor is left" for d in cluster.state.decisions)


# every edge of the table, and what is known within a phase before the next one
EDGES = (
    ("requested", None), ("preparing", None), ("preparing", "inputs"), ("preparing", "new"),
    ("ready", None), ("sealed", None), ("sealed", "new"), ("owned", None), ("owned", "readers"),
)  # fmt: skip


def kill_at(
    cluster: ManagedCluster, id_: str, edge: tuple[str, str | None], victims: tuple[str, ...]
) -> None:
    """Kills the victims when a move has come to a phase, and its party's answer is known."""
    phase, known = edge
    while (move := cluster.state.moves[id_]).phase != phase or not (
        known is None or known in move.told
    ):
        assert not move.over, "the phase was never seen"
        cluster.kernel.run(cluster.kernel.now + 30, events_max=1)
    for victim in victims:
        if victim == "manager":
            cluster.kill_manager(3.0)
        else:
            name = move.source if victim == "old" else move.target
            cluster.kill(name, 7.0, moved=len(victims) > 1)


@pytest.mark.parametrize("victims", [("manager",), ("old",), ("new",), ("old", "new", "manager")])
@pytest.mark.parametrize(("phase", "known"), EDGES)
def test_a_kill_at_every_edge_of_the_table(
    phase: str, known: str | None, victims: tuple[str, ...]
) -> None:
    cluster = small(rows=90)
    cluster.run(6)
    target = other_place(cluster, "o:f")
    if phase == "requested":  # another move is near: this one waits
        cluster.feed(RequestMove(("o:j",), other_place(cluster, "o:j"), "a test"))
    cluster.feed(RequestMove(("o:f",), target, "a test"))
    move = list(cluster.state.moves.values())[-1]
    kill_at(cluster, move.id, (phase, known), victims)
    cluster.run(cluster.kernel.now + 120)
    assert in_the_end(cluster) == []
    outcome = cluster.state.moves[move.id].phase
    assert outcome in ("done", "undone")
    place = target if outcome == "done" else move.source
    assert cluster.state.operators["o:f"].processor == place
    if phase in ("sealed", "owned"):
        assert outcome == "done"


@pytest.mark.parametrize("victims", [("manager",), ("old",), ("new",), ("old", "new", "manager")])
@pytest.mark.parametrize(
    ("phase", "known"), [edge for edge in EDGES if edge != ("requested", None)]
)
def test_a_kill_at_every_edge_while_a_base_stream_moves(
    phase: str, known: str | None, victims: tuple[str, ...]
) -> None:
    cluster = small(rows=90)
    cluster.run(6)
    source = cluster.state.streams["a"].processor
    target = next(name for name in sorted(cluster.processors) if name != source)
    cluster.feed(RequestMove(("s:a",), target, "a test"))
    move = list(cluster.state.moves.values())[-1]
    assert (move.source, move.target) == (source, target)
    kill_at(cluster, move.id, (phase, known), victims)
    cluster.run(cluster.kernel.now + 90)
    assert in_the_end(cluster) == []
    outcome = cluster.state.moves[move.id].phase
    assert outcome in ("done", "undone")
    place = target if outcome == "done" else source
    assert cluster.state.streams["a"].processor == place
    assert [n for n, p in cluster.processors.items() if "s:a" in p.owned()] == [place]
    if phase in ("sealed", "owned"):
        assert outcome == "done"


def test_a_lost_answer_to_the_seal_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seal took effect, its answer got lost, and the manager died: it asks, and goes on."""
    cluster = small(rows=90)
    cluster.run(6)
    carry_out = Connections.perform
    died: list[bool] = []

    def dying(self: Connections, command: Command) -> object:
        reply = carry_out(self, command)
        if isinstance(command, Seal) and not died:
            died.append(True)
            cluster.kill_manager(5.0)
        return reply

    monkeypatch.setattr(Connections, "perform", dying)
    cluster.feed(RequestMove(("o:j",), other_place(cluster, "o:j"), "a test"))
    cluster.run(90)
    assert died
    assert in_the_end(cluster) == []
    assert [m.phase for m in cluster.state.moves.values()] == ["done"]


def test_checkers_see_what_is_wrong() -> None:
    """A row delivered twice, and a second owner."""
    cluster = small()
    cluster.run(30)
    thief = cluster.processors[other_place(cluster, "o:r")]
    engine = thief.processor.engine
    with thief.ledger.transaction() as ledger:
        ledger.add_stream("o:r", "map")
        thief.ownership.own("o:r", 9, 5)
    assert any("owned by" in said for said in always(cluster))
    with thief.ledger.transaction() as ledger:
        ledger.set_head("o:r", 5, 0, 0, 0)
        ledger.publish("o:r", [write(engine.store, [(1, "again")])], 1)
    assert any("number" in said for said in always(cluster))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_goes_wrong(seed: int) -> None:
    cluster = random_run(seed)
    assert in_the_end(cluster) == [], f"random_run({seed})"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_goes_wrong_while_base_streams_move(seed: int) -> None:
    cluster = random_run(seed, streams=True)
    assert in_the_end(cluster) == [], f"random_run({seed}, streams=True)"


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(1, 11))
def test_base_streams_move_hundreds_of_times(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        told = in_the_end(random_run(seed, streams=True))
        assert told == [], f"random_run({seed}, streams=True)"


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(1, 31))
def test_whatever_goes_wrong_thousands_of_times(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        assert in_the_end(random_run(seed)) == [], f"random_run({seed})"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_goes_wrong_while_queries_rest_and_go_on(seed: int) -> None:
    cluster = random_run(seed, pausing=True)
    assert in_the_end(cluster) == [], f"random_run({seed}, pausing=True)"


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(1, 6))
def test_queries_rest_and_go_on_hundreds_of_times(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        told = in_the_end(random_run(seed, pausing=True, streams=True))
        assert told == [], f"random_run({seed}, pausing=True, streams=True)"
