"""Readers that send a stream on: planned where the owner has no room, never needed for a row."""

from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from managed_runs import random_run

from millstream.control.admission.planning_state import HEADROOM
from millstream.control.manager.events import Change, DeclareStream, Drop, StartStreams, Submit
from millstream.control.manager.state import ManagerState
from millstream.control.protocol.replies import Inventory
from millstream.core.errors import RefusedError, UsageError
from millstream.edge.manager.memory.records import between, read
from millstream.edge.manager.settings import changed
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, table, tree
from millstream.store.integrity.digests import digest_of
from millstream.store.moves.passing import KEPT
from millstream.store.moves.records import Place
from millstream.store.moves.relaying import RESTS_MAX, Relay
from millstream.store.moves.transfer import FollowedByDigest, Peer
from millstream.store.segments import Segment
from sim.managed_checkers import in_the_end

RATE = 1_000  # rows a second, of 64 bytes
COPY = RATE * 64.0
PLANS = {name: tree(name, (f"o:{name}", "s:a")) for name in ("one", "two", "three")}


def cluster_of(copies: float, rows: int = 60, **settings: Any) -> ManagedCluster:
    """Rows enter at p1, which can run nothing and send the stream so many times; the others have
    room for one query each."""
    cluster = ManagedCluster(
        1, ("p1", "p2", "p3", "p4"), PLANS, settings=replace(QUICK, placer="sqpr", **settings)
    )
    cluster.run(0.5)
    cluster.sources["a"] = rows
    cluster.feed(DeclareStream(table("a", rate=RATE), "p1"))
    known = dict(cluster.state.processors)
    for name, processor in known.items():
        cpu = 0.0 if name == "p1" else 0.03
        more = {"bandwidth_out": copies * COPY} if name == "p1" else {}
        known[name] = replace(processor, properties={"cpu": cpu / HEADROOM, **more})
    cluster.state = replace(cluster.state, processors=known)
    return cluster


def submit(cluster: ManagedCluster, *names: str) -> None:
    for name in names:
        cluster.feed(Submit(name, name, from_beginning=True))
        cluster.run(cluster.kernel.now + 4)


def relayed(cluster: ManagedCluster, processor: str) -> int:
    return cluster.processors[processor].ledger.counters().get("relayed_bytes:s:a", 0)


def senders(cluster: ManagedCluster) -> dict[str, str]:
    return {r.reader: r.relay for r in cluster.state.routes.values()}


def place_of(cluster: ManagedCluster, query: str) -> str:
    return cluster.state.operators[f"o:{query}"].processor


def test_a_reader_sends_on_what_its_owner_has_no_room_for() -> None:
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two", "three")
    cluster.feed(StartStreams())
    cluster.run(60)
    assert in_the_end(cluster) == []
    assert {q.phase for q in cluster.state.queries.values()} == {"running"}
    first = place_of(cluster, "one")
    assert senders(cluster).keys() == {"p2", "p3", "p4"} - {first}
    assert all(relayed(cluster, name) for name in senders(cluster))
    assert relayed(cluster, first) == 0
    assert sum(len(rows) for rows in cluster.truth.logs["o:three"][0]) == 60


def test_without_relays_the_owner_has_no_room() -> None:
    cluster = cluster_of(1.5, relays=False)
    submit(cluster, "one", "two")
    assert cluster.state.refusals["two"].code in ("cpu", "bandwidth_out"), (
        "more of either is enough"
    )
    assert not cluster.state.routes


def test_who_takes_no_hints_is_given_none() -> None:
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two")
    (reader,) = senders(cluster)
    have = cluster.state.live[reader].actual
    assert isinstance(have, Inventory)
    assert have.relays is not None
    assert [peer.processor for peer in have.relays.values()] == [senders(cluster)[reader]]
    processor = cluster.processors[reader]
    before = processor.carried_out.count("take_from")
    live = dict(cluster.state.live)
    live[reader] = replace(live[reader], actual=replace(have, relays=None))
    cluster.state = replace(cluster.state, live=live)
    cluster.run(cluster.kernel.now + 5)
    assert processor.carried_out.count("take_from") == before


def test_relays_can_be_turned_off_while_they_work() -> None:
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two")
    (reader,) = senders(cluster)
    receiver = cluster.processors[reader].processor.receiver
    assert receiver.relays()
    cluster.feed(Change(changed(cluster.state.settings, {"relays": False})))
    cluster.feed(StartStreams())
    cluster.run(cluster.kernel.now + 60)
    assert not receiver.relays()
    assert relayed(cluster, reader) == 0
    assert in_the_end(cluster) == []
    with pytest.raises(UsageError, match="true or false"):
        changed(cluster.state.settings, {"relays": "no"})


def test_routes_outlive_a_manager() -> None:
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two")
    before = cluster.state.routes
    changes = between(ManagerState(), cluster.state)
    assert before
    assert changes is not None
    rows = [(kind, key, value) for kind, key, value in changes.records if value is not None]
    words = {"epoch": "1", "lives": "[]", **changes.words}
    assert read(words, rows, cluster.state.settings, place="", hint="").routes == before
    cluster.kill_manager(2.0)
    cluster.run(cluster.kernel.now + 15)
    assert cluster.state.routes == before
    (reader,) = senders(cluster)
    assert cluster.processors[reader].carried_out.count("take_from") == 1


def test_a_relay_that_is_gone_is_not_missed() -> None:
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two")
    (reader,), (relay,) = senders(cluster), senders(cluster).values()
    cluster.feed(StartStreams())
    cluster.run(cluster.kernel.now + 3)
    cluster.pause(relay, 1000)
    cluster.run(cluster.kernel.now + 60)
    assert sum(len(rows) for rows in cluster.truth.logs["o:two"][0]) == 60
    assert cluster.processors[reader].ownership.copies()


def test_readers_of_a_relay_that_has_nothing_to_read_go_to_others() -> None:
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two", "three")
    first = place_of(cluster, "one")
    cluster.feed(Drop("one"))
    cluster.feed(StartStreams())
    cluster.run(cluster.kernel.now + 90)
    assert in_the_end(cluster) == []
    assert first not in senders(cluster).values()
    assert len(senders(cluster)) == 1, "one has it from the owner, the other from that one"
    assert {q.phase for q in cluster.state.queries.values()} == {"running"}


def test_bytes_that_are_not_the_owners_are_not_taken() -> None:
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two")
    (reader,), (relay,) = senders(cluster), senders(cluster).values()
    store = cluster.processors[relay].processor.engine.store
    opened = cluster.processors[relay].processor.distributor.open

    def damaged(stream: str, first: int, last: int) -> Any:
        (found,) = [
            s
            for s in cluster.processors[relay].ledger.segments(stream, first)
            if (s.first, s.last) == (first, last)
        ]
        path = Path(store.path(str(found.file)))
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        return opened(stream, first, last)

    cluster.processors[relay].processor.distributor.open = damaged  # type: ignore[method-assign]
    reading = cluster.processors[relay].processor.engine.runner
    reading.run = lambda *_: None  # type: ignore[method-assign,assignment]  # who damages, reads not
    cluster.feed(StartStreams())
    cluster.run(cluster.kernel.now + 60)
    assert sum(len(rows) for rows in cluster.truth.logs["o:two"][0]) == 60
    assert relayed(cluster, reader) == 0


def test_another_file_with_a_right_digest_of_its_own_is_not_taken() -> None:
    """What a relay with another life of the stream would send."""
    cluster = cluster_of(1.5)
    submit(cluster, "one", "two")
    (reader,), (relay,) = senders(cluster), senders(cluster).values()
    asked = []

    def other(*about: Any) -> FollowedByDigest:
        asked.append(about)
        return FollowedByDigest(BytesIO(b"other"), digest_of(b"other"))

    cluster.processors[relay].processor.distributor.relayed = other  # type: ignore[method-assign]
    cluster.feed(StartStreams())
    cluster.run(cluster.kernel.now + 60)
    assert asked
    assert in_the_end(cluster) == []
    assert sum(len(rows) for rows in cluster.truth.logs["o:two"][0]) == 60
    assert relayed(cluster, reader) == 0


def segment(digest: str = "d") -> Segment:
    return Segment("s:a", 1, 1, None, None, 1, 1, 0, 0, 0, 0, 0.0, digest)


def test_a_relay_that_fails_is_asked_ever_less_often() -> None:
    def nobody(place: Place) -> Peer:
        raise RefusedError("gone", place.processor)

    relay, asked = Relay(Place("p2"), nobody, "p3"), []
    for page in range(200):
        relay.begin_page()
        if relay.serves(segment()):
            asked.append(page)
            relay.failed()
            assert not relay.serves(segment()), "not twice for a page"
    assert asked[:5] == [0, 2, 6, 14, 30]
    assert max(b - a for a, b in pairwise(asked)) == RESTS_MAX + 1
    relay.succeeded(7)
    relay.begin_page()
    assert not relay.serves(segment("")), "nobody could tell whether the bytes are right"
    assert (relay.taken(), relay.taken()) == (7, 0)


def test_a_copy_stays_for_readers_that_follow_and_not_for_those_that_have_gone() -> None:
    cluster = cluster_of(1.5, rows=300)
    submit(cluster, "one", "two")
    (relay,) = senders(cluster).values()
    cluster.feed(StartStreams())
    cluster.run(cluster.kernel.now + 5)
    (reader,) = senders(cluster)
    passing = cluster.processors[relay].processor.distributor.passing
    ledger = cluster.processors[relay].ledger
    assert passing.needed("s:a") <= ledger.stream("s:a")["next"]  # type: ignore[index]
    cluster.processors[reader].processor.receiver.take_from("s:a", None)
    held = []
    for _ in range(60):
        cluster.run(cluster.kernel.now + 3)
        held.append(len(ledger.segments("s:a")))
    assert max(held) <= KEPT + 5
    assert sum(len(rows) for rows in cluster.truth.logs["o:two"][0]) == 300


@pytest.mark.parametrize("seed", range(1, 13))
def test_no_rumour_costs_a_row(seed: int) -> None:
    """Whoever is told to take bytes from whomever, with kills, losses and moves of everything."""
    cluster = random_run(seed, relaying=True, streams=seed % 2 == 0)
    assert in_the_end(cluster) == []
    cluster.close()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_no_rumour_costs_a_row_for_long(seed: int) -> None:
    cluster = random_run(
        seed, relaying=True, streams=seed % 2 == 0, burning=seed % 3 == 0, losing=seed % 5 == 0
    )
    assert in_the_end(cluster) == []
    cluster.close()
