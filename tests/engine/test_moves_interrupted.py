"""What falls between the two halves of a move: undone while it copies or seals, dropped and begun
again, records of moves that have ended. Operators in plain Python."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from test_moves_without_spark import PureCluster, expected, pure  # noqa: F401  (a fixture)

from millstream.control.moves.table import ENDED
from millstream.engine.processor import Processor
from millstream.store import faults
from millstream.store.moves.ownership import ENDED_KEPT
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import RefusedError

MOVE = "m0001"
FIRST, SECOND = "o:double(s:a)", "o:sum(o:double(s:a))"


@pytest.fixture
def cluster(tmp_path: Path) -> PureCluster:
    return PureCluster(tmp_path, 3)


def meanwhile(point: str, work: Callable[[], None]) -> list[str]:
    """Does something in another thread when a point is reached for the first time."""
    reached: list[str] = []

    def hook(at: str) -> None:
        if at == point and not reached:
            reached.append(at)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

    faults.set_hook(hook)
    return reached


def begun(cluster: PureCluster) -> tuple[Processor, Processor]:
    """A move from p0 to p1 that has been asked for."""
    cluster.deploy("sums", "sums", lambda _: "p0")
    for number in range(4):
        cluster.feed([(10 * number, number)])
    old, new = cluster.alive["p0"], cluster.alive["p1"]
    request = cluster.request([FIRST, SECOND], "p1")
    assert request.move == MOVE
    new.new_owner.prepare(request)
    return old, new


def advanced(new: Processor) -> None:
    while new.new_owner.advance(MOVE):
        known = new.ownership.move(MOVE)
        if known is None or known.phase == "ready":
            return


@pytest.mark.parametrize(
    "point", ["prepare.expected", "prepare.held", "prepare.written", "prepare.copied",
              "prepare.warm", "prepare.told"],
)  # fmt: skip
def test_a_move_undone_while_it_copies_leaves_nothing(point: str, cluster: PureCluster) -> None:
    old, new = begun(cluster)
    reached = meanwhile(point, lambda: new.new_owner.undo(MOVE))
    with suppress(RefusedError):  # it finds out where it wants to write something down
        for _ in range(10):
            advanced(new)
    faults.set_hook(None)
    assert reached == [point]
    for _ in range(3):
        cluster.exchange()
    known = new.ownership.move(MOVE)
    assert known is not None
    assert known.phase == "undone"
    assert not new.ownership.copies()
    assert not new.ownership.farewells()
    for processor in (old, new):
        assert not processor.engine.ledger.consumers_of("move")
        assert not processor.engine.ledger.consumers_of("processor")
    assert {o.stream for o in old.ownership.all_owned()} >= {FIRST, SECOND}


def test_a_move_undone_while_the_last_steps_end_is_not_sealed(cluster: PureCluster) -> None:
    old, new = begun(cluster)
    advanced(new)
    reached = meanwhile("seal.resting", lambda: new.new_owner.undo(MOVE))
    with pytest.raises(RefusedError, match="not under way"):
        old.old_owner.seal(MOVE, (FIRST, SECOND), Place("p1"))
    faults.set_hook(None)
    assert reached
    assert {o.stream for o in old.ownership.all_owned()} >= {FIRST, SECOND}
    for processor in (old, new):
        known = processor.ownership.move(MOVE)
        assert known is not None
        assert known.phase == "undone"


def test_two_who_seal_at_once_get_one_record(cluster: PureCluster) -> None:
    old, new = begun(cluster)
    advanced(new)
    found = []

    def seal() -> None:
        found.append(old.old_owner.seal(MOVE, (FIRST, SECOND), Place("p1")))

    meanwhile("seal.resting", seal)
    seal()
    faults.set_hook(None)
    assert len(found) == 2
    assert found[0] == found[1]


def test_a_query_registered_again_is_not_led_astray_by_its_first_life(
    cluster: PureCluster,
) -> None:
    rows = [(10 * number, number) for number in range(40)]
    fed = 0

    def feed(count: int) -> None:
        nonlocal fed
        cluster.feed(rows[fed : fed + count])
        fed += count
        cluster.settle()

    def go(to: str) -> None:
        assert cluster.move([FIRST], to, lambda: (cluster.steps(), cluster.exchange()))
        feed(2)

    cluster.deploy("sums", "sums", lambda _: "p0")
    feed(6)
    for to in ("p1", "p0", "p1", "p0", "p1"):
        go(to)
    _drop(cluster, "sums")
    second = fed - 2  # the base stream still has its last segment
    cluster.deploy("sums", "sums", lambda o: "p2" if o == FIRST else "p1")
    feed(3)
    go("p0")
    go("p2")
    feed(2)
    cluster.settle()
    assert cluster.values("sums") == expected(rows[second:fed], "sums")


def _drop(cluster: PureCluster, query: str) -> None:
    for processor in cluster.alive.values():
        operators = processor.ownership.hosted().get(query, ())
        if operators:
            processor.hosting.unhost(query, operators)
    for processor in cluster.alive.values():
        for copy in processor.ownership.copies():
            processor.receiver.disconnect(copy.stream)
            processor.hosting.tidy(copy.stream)
    for _ in range(3):
        cluster.exchange()
    cluster.where.clear()
    cluster.texts.clear()
    cluster.inputs.clear()


def test_of_ended_moves_the_latest_of_each_leader_are_kept(cluster: PureCluster) -> None:
    processor = cluster.alive["p0"]
    for number in range(795, 1005):
        processor.old_owner.undo(f"m-1-{number}")
        processor.old_owner.undo(f"b-p1-2-{number}")
    ended = {m.id for m in processor.ownership.moves("old", ENDED)}
    latest = range(1005 - ENDED_KEPT, 1005)
    assert ended == {f"{who}-{n}" for who in ("m-1", "b-p1-2") for n in latest}


def test_what_steps_shared_goes_along(cluster: PureCluster) -> None:
    cluster.deploy("sums", "sums", lambda _: "p0")
    cluster.feed([(0, 1)])
    cluster.settle()
    with cluster.alive["p0"].engine.ledger.transaction() as ledger:
        ledger.record_step(SECOND, {}, 10, 10, 5.0, shared=True)
    assert cluster.move([SECOND], "p1", lambda: (cluster.steps(), cluster.exchange()))
    figures = cluster.alive["p1"].engine.ledger.operator_statistics()[SECOND]
    assert figures["shared"] == 5.0


def test_a_former_owner_forgets_what_nobody_uses(cluster: PureCluster) -> None:
    cluster.deploy("sums", "sums", lambda _: "p0")
    cluster.feed([(0, 1)])
    cluster.settle()
    operators = (FIRST, SECOND)
    assert cluster.move(operators, "p1", lambda: (cluster.steps(), cluster.exchange()))
    old, new = cluster.alive["p0"], cluster.alive["p1"]
    assert old.ownership.handed(FIRST)
    new.hosting.unhost("sums", operators)
    old.hosting.unhost("sums", operators)  # as a manager says it to former owners
    for name in operators:
        assert not old.ownership.handed(name)
        assert old.engine.ledger.stream(name) is None
    assert not new.new_owner.warm
    assert not new.new_owner.copying._expected
