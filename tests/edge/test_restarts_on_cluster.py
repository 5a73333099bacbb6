"""A query of a cluster fails, its operators rest where they are or are moved, and it goes on where
it failed when somebody says so. Real manager and processors, operators of plain Python."""

import threading
from collections import Counter
from typing import Any

import pytest
import test_lost_homes
from plain_processors import PlainEngine, compute, expected
from test_lost_homes import TABLE, Cluster, feed
from test_lost_homes import cluster as plain_cluster
from test_manager_app import wait

from millstream.core.errors import MillstreamError
from millstream.engine.steps.trains import alone
from plain_plane import read

cluster = plain_cluster
ROWS = [(10 * n, n % 7) for n in range(60)]
POISON = (310, 3)
POISONED = threading.Event()


def poisonous(step: Any, rows_of: Any) -> Any:
    """Who sums cannot bear the time of one row, while there is a poison."""
    breaks = step.operator.id == "o:sum1" and POISONED.is_set()
    if breaks and any(ts == POISON[0] for ts, _ in rows_of(step.new)):
        raise ValueError("that is not a good time")
    return compute(step, rows_of)


class FailingEngine(PlainEngine):
    """Fails the queries of an operator that breaks; those that rest are let alone."""

    def _run(self) -> None:
        engine = self.processor.engine
        while not self._stopping.wait(0.02):
            for operator in list(engine.operators.values()):
                with self._stepping:
                    if operator.id not in engine.operators:
                        continue
                    if operator.id in engine.paused_operators | engine.resting:
                        continue
                    try:
                        engine.runner.run(alone(operator), 7)
                    except ValueError as error:
                        for query in list(engine.queries_of(operator.id)):
                            engine.fail_query(query.name, str(error))


@pytest.fixture(autouse=True)
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    POISONED.set()
    monkeypatch.setattr(test_lost_homes, "PlainEngine", FailingEngine)
    monkeypatch.setattr(test_lost_homes, "compute", poisonous)


def test_it_goes_on_where_it_failed(cluster: Cluster) -> None:
    client = cluster.manager.client
    client.declare(TABLE, processor="p1")
    for query in ("1", "2"):
        client.submit(f"q{query}", query, from_beginning=True)
    client.start_streams()
    client.move("q2", "p2", wait_s=60)
    client.move("o:sum1", "p2", wait_s=60)  # its first operator stays at p1
    assert {cluster.places()[o] for o in ("o:add1", "o:sum1")} == {"p1", "p2"}
    for start in range(0, 40, 5):
        feed(cluster.servers[0], ROWS[start : start + 5])
    wait(lambda: cluster.running() == {"q1": "failed", "q2": "running"})
    assert "not a good time" in client.query("q1")["reason"]
    assert cluster.places()["o:sum1"] == "p2", "it rests there"

    with pytest.raises(MillstreamError, match="query q2 has not failed"):
        client.restart("q2")
    client.restart("q1", wait_s=30)
    wait(lambda: cluster.running()["q1"] == "failed")  # the poison is still there

    client.move("o:sum1", "p1", wait_s=60)  # a failed query can be moved, and stays failed
    wait(lambda: cluster.places()["o:sum1"] == "p1")
    assert cluster.running()["q1"] == "failed"
    feed(cluster.servers[0], ROWS[40:])
    POISONED.clear()
    assert client.restart("q1", wait_s=30)["state"] == "running"
    for name in ("q1", "q2"):
        wait(lambda name=name: rows_of(cluster, name) == expected(ROWS, int(name[1:])))
    assert cluster.running() == {"q1": "running", "q2": "running"}


def rows_of(cluster: Cluster, query: str) -> Counter[tuple[int, int]]:
    stream = f"o:sum{query[1:]}"
    for server in cluster.servers:
        engine = server.processor.engine
        if server.processor.ownership.owned(stream) is not None:
            return Counter(read(engine.store, engine.ledger.segments(stream)))
    return Counter()


def test_a_manager_restarts_by_its_policy(cluster: Cluster) -> None:
    client = cluster.manager.client
    client.declare(TABLE, processor="p1")
    client.submit("q1", "1", from_beginning=True)
    client.change({"restart": "backoff", "restarts_max": 2})
    client.start_streams()
    feed(cluster.servers[0], ROWS)
    wait(lambda: cluster.running()["q1"] == "failed")
    POISONED.clear()
    wait(lambda: cluster.running()["q1"] == "running")
    wait(lambda: rows_of(cluster, "q1") == expected(ROWS, 1))
    told = [d["sentence"] for d in client.decisions()]
    assert any("query q1 is restarted, 1 of 2" in sentence for sentence in told)
