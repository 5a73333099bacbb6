"""Streams that leave a processor, come back and leave again: copies begin where they must."""

import random
from pathlib import Path

import pytest
from processors_together import FIRST, CrashPlan
from test_moves_without_spark import (
    PureCluster,
    expected,
    pure,  # noqa: F401  (a fixture: kinds of operators without Spark)
)

from millstream.store import faults
from millstream.store.moves.transfer import RefusedError

Rows = list[tuple[int, int]]
DOUBLE, PAIRS = "o:double(s:a)", "o:pairs(o:double(s:a))"


def feed(cluster: PureCluster, rows: Rows, count: int) -> None:
    start = len(rows)
    rows += [(10 * (start + i), (start + i) % 7) for i in range(count)]
    cluster.feed(rows[start:])


@pytest.mark.parametrize("point", ["", "prepare.written", "prepare.copied", "pull.written",
                                   "pull.committed", "take.written", "pull.followed"])  # fmt: skip
def test_back_and_forth_with_rows_in_between(point: str, tmp_path: Path) -> None:
    """A to B to A to B: readers at both, rows between any two moves, the copy cut off once."""
    cluster = PureCluster(tmp_path, 3)
    cluster.deploy("pairs", "pairs", lambda o: "p1" if o == DOUBLE else "p2")
    cluster.deploy("sums", "sums", lambda _: "p1")
    rows: Rows = []
    plan = CrashPlan()
    faults.set_hook(plan)
    chance = random.Random(7)
    for target in ("p2", "p1", "p2", "p0", "p2", "p1"):
        feed(cluster, rows, 9)
        cluster.exchange()
        cluster.steps(chance)
        plan.arm(point)
        assert cluster.move([DOUBLE], target, lambda: bool(cluster.exchange()) and None)
        plan.arm("")
        cluster.revive()
        feed(cluster, rows, 5)
        cluster.compact()
    cluster.feed([])
    cluster.settle()
    cluster.check_numbers()
    for query in ("pairs", "sums"):
        assert cluster.values(query) == expected(rows, query)
    cluster.close()


def test_a_new_reader_does_not_begin_with_what_was_left_for_others(tmp_path: Path) -> None:
    """p1 made a stream and keeps its last rows for p2, which lags; by now p0 makes it and has much
    more of it. A query that begins at p1 must read what p0 has, not what p1 has left over."""
    cluster = PureCluster(tmp_path, 3)
    cluster.deploy("pairs", "pairs", lambda _: "p1")
    cluster.deploy("late", "plain", lambda _: "p1")
    cluster.alive["p2"].receiver.connect(DOUBLE, cluster.request([DOUBLE], FIRST).old, 1)
    rows: Rows = []
    for _ in range(4):
        feed(cluster, rows, 3)
        cluster.settle()
    feed(cluster, rows, 3)
    cluster.guarded("p1", lambda p: p.exchange())
    cluster.guarded("p1", lambda p: [cluster.step(p, o) for o in p.engine.operators.values()])
    lagging = cluster.alive.pop("p2")  # not killed: it only does not ask
    cluster.names.remove("p2")
    assert cluster.move([DOUBLE, PAIRS], FIRST, lambda: bool(cluster.exchange()) and None)
    feed(cluster, rows, 3)
    cluster.steps()
    cluster.alive["p1"].engine.maintenance.retain([DOUBLE])
    made, left = (cluster.alive[p].engine.ledger.segments(DOUBLE) for p in ("p0", "p1"))
    assert left, "kept for p2"
    assert made[0].first < left[0].first, "p0 has more of it"
    with pytest.raises(RefusedError) as refused:
        cluster.link(DOUBLE, "p1")
    assert refused.value.code == "busy"
    with pytest.raises(RefusedError, match="fetched by others"):
        cluster.deploy("sums", "sums", lambda _: "p1")
    cluster.alive["p2"] = lagging
    cluster.names.append("p2")
    while cluster.exchange():
        pass
    cluster.deploy("sums", "sums", lambda _: "p1")
    kept = sum(s.rows for s in cluster.alive["p0"].engine.ledger.segments(DOUBLE))
    cluster.feed([])
    cluster.settle()
    assert sum(cluster.values("sums").values()) == kept, "all that p0 had, and nothing twice"
    cluster.close()
