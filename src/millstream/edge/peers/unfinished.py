"""Brings to an end what a member left half done: its own after a restart, and that of the gone.

A query that was accepted and does not run yet, or that is being dropped, has a coordinator
(`control/peers/records.py`): its acceptor, or who takes its place. This asks that member's own
endpoint again, as its client would; where that refuses, the query is gone, and says why. A manager
that leads has taken over what runs, so nothing is left to do then. Decides nothing else.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.client.manager_client import ManagerClient
from millstream.control.peers.records import changed, unfinished
from millstream.control.protocol.member_messages import QueryRecord
from millstream.core.errors import MillstreamError, UsageError

if TYPE_CHECKING:
    from millstream.edge.peers.member_desk import MemberDesk

LOOK_S = 1.0
GRACE_S = 5.0  # in which whoever began it may go on
WAIT_S = 30.0


class Unfinished:
    """One member's duties towards queries on their way."""

    def __init__(
        self, desk: "MemberDesk", client: Callable[[], ManagerClient], say: Callable[[str], None]
    ) -> None:
        self._desk, self._client, self._say = desk, client, say
        self._since: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-duties", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            gossip = self._desk.gossip
            mine = unfinished(gossip.view.records, gossip.me, gossip.up())
            waiting = {r.name: r for r in mine if not self._desk.in_hand(r.name)}
            now_s = time.monotonic()
            self._since = {name: self._since.get(name, now_s) for name in waiting}
            for name, since_s in self._since.items():
                if now_s - since_s >= GRACE_S and not self._stopping.is_set():
                    self._finish(waiting[name])

    def _finish(self, record: QueryRecord) -> None:
        if self._desk.led():
            phase = "running" if record.phase == "accepted" else "gone"
            self._desk.gossip.record((changed(record, phase=phase),))
            return
        try:
            with self._client() as client:
                if record.phase == "dropping":
                    client.drop(record.name, WAIT_S)
                else:
                    client.submit(
                        record.name, record.cql, from_beginning=record.from_beginning,
                        wait_s=WAIT_S, deliver_to=record.deliver_to, latency_s=record.latency_s,
                    )  # fmt: skip
            self._say(f"query {record.name}, which {record.acceptor} began with, is {record.phase}")
        except UsageError as error:
            self._desk.gossip.record((changed(record, phase="gone", reason=error.message),))
            self._say(f"query {record.name} is given up: {error.message}")
        except MillstreamError:  # others are busy or away, or it is stopping: tried again
            known = self._desk.gossip.view.records.get(record.name, record)
            self._desk.gossip.record((changed(known, phase=record.phase),))
