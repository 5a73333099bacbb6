"""Segments over HTTP between processors that compute nothing: no Spark is needed for that."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from control_calls import Control, until

from millstream.client.manager_client import ManagerClient
from millstream.client.results import StreamReader
from millstream.control.protocol.commands import (
    Configure,
    Connect,
    Disconnect,
    Report,
    Stop,
    TakeFrom,
    TakeInventory,
)
from millstream.core.errors import AwayError, ResourceError
from millstream.edge.peers.peers import HttpPeers
from millstream.edge.processor import execution_engine, stream_receiver
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.store.consumers import remote
from millstream.store.ledger_file import HomeTakenOverError
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import RefusedError
from plain_plane import PlainPlane

STREAM = "o:1"


class Pair:
    """p0 makes a stream, p1 copies it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = [self.opened(i) for i in range(2)]
        maker = self.servers[0].processor
        with maker.engine.ledger.transaction() as ledger:
            ledger.add_stream(STREAM, "map")
            maker.ownership.own(STREAM, 1, 1)
        self.controls = [Control(s.processor.id, s.url) for s in self.servers]

    def opened(self, number: int) -> ProcessorServer:
        home = self.folder / f"p{number}"
        server = ProcessorServer(f"p{number}", home, PlainPlane(), ProcessorSettings())
        server.start()
        return server

    def publish(self, rows: int, watermark: int) -> None:
        engine = self.servers[0].processor.engine
        table = pa.table({"_ts": np.arange(rows), "c0": np.arange(rows)})
        written = [engine.store.write(table)] if rows else []
        with engine.ledger.transaction() as ledger:
            ledger.publish(STREAM, written, watermark)

    def copied(self) -> list[tuple[int, int, int]]:
        """What the copy has received: numbers and watermarks, by what its head says."""
        head = self.servers[1].processor.engine.ledger.stream(STREAM)
        return [] if head is None else [(head["next"], head["rows"], head["watermark"])]

    def close(self) -> None:
        for control in self.controls:
            control.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def test_a_copy_has_the_same_numbers_rows_and_watermarks(pair: Pair) -> None:
    first, second = pair.controls
    pair.publish(10, 1)
    second.do(Connect(STREAM, first.peer(1)))
    pair.publish(0, 2)
    pair.publish(20, 3)
    until(lambda: pair.copied() == [(4, 30, 3)])
    source = pair.servers[0].processor.engine.ledger
    until(lambda: source.consumers(STREAM)[remote("p1")].next == 4)
    until(lambda: source.segments(STREAM) == [])  # all have it
    edge = second.do(Report())[0].edges[f"{STREAM}>p1"]
    assert (edge["rows"], edge["behind_rows"]) == (30, 0)
    assert edge["bytes"] > 500
    second.do(Disconnect(STREAM))
    until(lambda: first.do(TakeInventory())[0].expected == {})
    assert second.do(TakeInventory())[0].connected == {}


def test_a_consumer_that_was_away_goes_on_where_it_was(pair: Pair) -> None:
    first, second = pair.controls
    second.do(Connect(STREAM, first.peer(1)))
    pair.publish(10, 1)
    until(lambda: pair.copied() == [(2, 10, 1)])
    pair.servers[1].stop()
    for number in range(5):
        pair.publish(10, 2 + number)
    assert len(pair.servers[0].processor.engine.ledger.segments(STREAM)) == 5, "kept for it"
    pair.servers[1] = pair.opened(1)
    until(lambda: pair.copied() == [(7, 60, 6)])


def test_a_producer_that_was_away_is_found_at_its_new_address(pair: Pair) -> None:
    first, second = pair.controls
    second.do(Connect(STREAM, first.peer(1)))
    pair.publish(10, 1)
    until(lambda: pair.copied() == [(2, 10, 1)])
    pair.servers[0].stop()
    pair.servers[0] = pair.opened(0)
    first.close()
    pair.controls[0] = first = Control("p0", pair.servers[0].url)
    pair.publish(10, 2)
    second.do(Connect(STREAM, first.peer(1)))
    until(lambda: pair.copied() == [(3, 20, 2)])


def test_bytes_come_from_another_reader_and_the_rest_from_the_owner(pair: Pair) -> None:
    first, second = pair.controls
    third = pair.opened(2)
    control = Control("p2", third.url)
    try:
        for reader in (second, control):
            reader.do(Connect(STREAM, first.peer(1)))
        control.do(TakeFrom(STREAM, second.peer(1)))
        assert control.do(TakeInventory())[0].relays[STREAM].processor == "p1"
        ledger = third.processor.engine.ledger

        def had(rows: int) -> bool:
            head = ledger.stream(STREAM)
            return head is not None and head["rows"] == rows

        pair.publish(10, 1)
        until(lambda: had(10))
        # from the second segment on the relay keeps it for who follows: nothing reads it there
        for number in range(1, 6):
            pair.publish(10, 1 + number)
            until(lambda n=number: had(10 + 10 * n))
        source = pair.servers[0].processor.engine.ledger
        until(lambda: source.segments(STREAM) == [])  # the owner keeps it for both, and hears both
        edge = control.do(Report())[0].edges[f"{STREAM}>p2"]
        assert edge["rows"] == 60
        assert 0 < edge["relayed_bytes"] <= edge["bytes"]
        pair.servers[1].stop()  # the relay is gone: its reader goes on
        pair.publish(10, 9)
        until(lambda: had(70))
        control.do(TakeFrom(STREAM))
        assert control.do(TakeInventory())[0].relays == {}
    finally:
        control.close()
        third.stop()


def test_a_relay_says_what_it_does_not_have(pair: Pair) -> None:
    peers = HttpPeers()
    with pytest.raises(RefusedError, match="no such segment"):
        list(peers(Place("p1", pair.servers[1].url)).relayed(STREAM, 1, 1, "d", "p2", 0.0))
    peers.close()


def test_a_relay_is_a_copy_that_is_copied(pair: Pair) -> None:
    first, second = pair.controls
    third = pair.opened(2)
    control = Control("p2", third.url)
    try:
        second.do(Connect(STREAM, first.peer(1)))
        until(lambda: pair.copied() != [])
        control.do(Connect(STREAM, second.peer(1)))
        for number in range(3):
            pair.publish(10, number)
        head = third.processor.engine.ledger.stream
        until(lambda: head(STREAM) is not None and head(STREAM)["next"] == 4)
        assert (head(STREAM)["rows"], head(STREAM)["watermark"]) == (30, 2)
        relay = pair.servers[1].processor
        until(lambda: relay.engine.ledger.consumers(STREAM)[remote("p2")].next == 4)
        until(lambda: relay.engine.ledger.segments(STREAM) == [])  # passed on, and not kept
    finally:
        control.close()
        third.stop()


def test_who_waits_hears_at_once(pair: Pair) -> None:
    peer = HttpPeers()
    asked = peer(Place("p0", pair.servers[0].url))
    threading.Timer(0.3, lambda: pair.publish(10, 1)).start()
    clock = time.monotonic()
    page = asked.page(STREAM, 1, "x", 0, 30.0)
    assert [s.rows for s in page.segments] == [10]
    assert time.monotonic() - clock < 20, "not at the end of the wait"
    assert asked.page(STREAM, 2, "x", 0, 0.0).segments == ()
    peer.close()


def test_refusals_and_absence_are_told_apart(pair: Pair) -> None:
    peers = HttpPeers()
    here = peers(Place("p0", pair.servers[0].url))
    with pytest.raises(RefusedError) as refused:
        here.page(STREAM, 1, "x", 9, 0.0)
    assert refused.value.code == "not_owner"
    with pytest.raises(RefusedError) as gone:
        list(here.fetch(STREAM, 5, 5))
    assert gone.value.code == "gone"
    nobody = peers(Place("p9", "http://127.0.0.1:9"))
    for question in (lambda: nobody.ready("m"), lambda: list(nobody.fetch(STREAM, 1, 1))):
        with pytest.raises(AwayError):
            question()
    with pytest.raises(AwayError, match="is not known yet"):
        peers(Place("p9"))
    peers.learn("p9", pair.servers[0].url)
    assert peers(Place("p9")).expect(STREAM, "x") == (1, 1)
    peers.close()


def test_an_old_process_of_a_home_is_not_believed(pair: Pair) -> None:
    """A process whose home was adopted serves what it had; its consumers know better."""
    first, second = pair.controls
    second.do(Connect(STREAM, first.peer(1)))
    pair.publish(10, 1)
    until(lambda: pair.copied() == [(2, 10, 1)])
    receiver = pair.servers[1].processor.receiver
    copy = pair.servers[1].processor.ownership.copy(STREAM)
    assert copy.home_epoch == 1
    page = pair.servers[0].processor.distributor.page(STREAM, 2, "p1", 1)
    receiver._believe(copy, page)
    adopted = pair.opened(0)
    adopted_page = adopted.processor.distributor.page(STREAM, 2, "p1", 1)
    assert adopted_page.home_epoch == 2
    adopted.stop()
    from dataclasses import replace  # noqa: PLC0415

    with pytest.raises(RefusedError, match="old epoch"):
        receiver._believe(replace(copy, home_epoch=2), page)
    with pytest.raises(Exception, match="taken over"):
        pair.publish(10, 2)


def test_a_full_disk_is_told_and_waited_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_receiver, "PATIENCE_SECONDS", (0.01, 0.05))
    receiver = pair.servers[1].processor.receiver
    store, tries = receiver._store, []

    def full(path: str, chunks: Any) -> int:
        tries.append(path)
        if len(tries) < 4:
            raise ResourceError("the disk is full")
        return store(path, chunks)

    monkeypatch.setattr(receiver, "_store", full)
    pair.publish(10, 1)
    pair.controls[1].do(Connect(STREAM, pair.controls[0].peer(1)))
    until(lambda: pair.copied() == [(2, 10, 1)])
    (report,) = pair.controls[1].do(Report())
    assert report.notices == (f"stream {STREAM} cannot be stored: the disk is full",)
    files = {Path(p).name for p in tries[:3]}
    assert not files & set(pair.servers[1].processor.engine.store.files())


def test_trouble_with_the_machine_is_not_the_end(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_engine, "AGAIN_SECONDS", 0.1)
    engine = pair.servers[0].engine
    before = engine._loop
    before._fail(ResourceError("the disk is full"))
    until(lambda: engine._loop not in (None, before))
    assert engine._loop.failure is None
    assert "the engine has stopped: the disk is full" in pair.controls[0].do(Report())[0].notices
    assert not engine.fenced.is_set()
    engine._loop._fail(HomeTakenOverError("another process has taken over this home"))
    until(engine.fenced.is_set)
    assert "taken over" in pair.servers[0].wait()


def test_a_reader_is_not_sent_round_in_circles_when_a_stream_has_come_back(pair: Pair) -> None:
    """p0 made 1 and 2, p1 3 and 4, p0 the rest; unread rows went along, so p0 has all of them."""
    (maker, other), (here, there) = (
        (s.processor for s in pair.servers),
        (s.url for s in pair.servers),
    )
    pair.publish(1, 1)
    pair.publish(1, 2)
    with maker.engine.ledger.transaction():
        maker.ownership.hand(STREAM, 3, 2, Place("p1", there))
        maker.ownership.own(STREAM, 3, 5)
    with other.engine.ledger.transaction() as ledger:
        ledger.add_stream(STREAM, "map")
        other.ownership.hand(STREAM, 5, 3, Place("p0", here))
    for mark in range(3, 7):
        pair.publish(1, mark)
    with ManagerClient(here) as client:
        reader = StreamReader(client, STREAM, here, 1, "q")
        seen: list[int] = []
        for _ in range(10):
            seen += [batch.first for batch in reader.pages(0.0)]
        assert seen == [1, 2, 3, 4, 5, 6]
        assert (reader.idle, reader.epoch) == (True, 3)


def test_goals_bring_the_selector_and_leave_with_it(pair: Pair) -> None:
    engine, control = pair.servers[0].processor.engine, pair.controls[0]
    before = engine.settings.schedule
    control.do(Configure(quality={"goals": "delay <= 2s"}))
    assert engine.settings.quality.overall.goals[0].statistic == "delay"
    assert len(engine.settings.schedule.candidates) > 1, "by goals"
    control.do(Configure(schedule={"algorithm": "chain"}, quality={"goals": "delay <= 2s"}))
    assert engine.settings.schedule.candidates == ("chain",), "as it was told"
    control.do(Configure(schedule={}, quality={}))
    assert engine.settings.schedule == before, "as it was started"
    loop = pair.servers[0].engine.loop
    assert loop is not None
    assert loop.failure is None


def test_stop_ends_the_process_in_order(pair: Pair) -> None:
    pair.controls[0].do(Stop())
    assert pair.servers[0].wait() == ""
    assert httpx.get(pair.servers[0].url + "/health").status_code == 200, "until it is stopped"
