"""Carries the gossip of one member (`control/peers/membership.py`): a clock, a mailbox, a memory.

Whom it knows and which queries there are is kept in the ledger, so that a member that starts again
finds the others although its first address is gone. Streams that others were told of and this one
was not are asked for and declared here, so that a new member can take over whatever comes. Decides
nothing.
"""

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.client.http import HttpClient, json_of
from millstream.control.peers import membership
from millstream.control.peers.membership import (
    Answered,
    Event,
    Heard,
    Lost,
    Recorded,
    Refused,
    Send,
)
from millstream.control.peers.membership import Tick as Passed
from millstream.control.protocol.commands import Declare, Join, TakeInventory
from millstream.control.protocol.envelope import PATH, Envelope, read_replies
from millstream.control.protocol.envelope import Message as AnyMessage
from millstream.control.protocol.member_messages import (
    Card,
    Gossip,
    QueryRecord,
    Remember,
    Rumours,
)
from millstream.control.protocol.replies import Done, Inventory, Refusal, Reply
from millstream.core.codec import from_json, to_json
from millstream.core.errors import AwayError, MillstreamError
from millstream.store.machine_failures import first_line

if TYPE_CHECKING:
    from millstream.edge.peers.peer_book import PeerBook
    from millstream.edge.processor.connection_manager import ConnectionManager
    from millstream.edge.processor.dispatcher import Dispatcher

ANSWER_S = 2.0
SENDERS = 4
STREAMS_S = 1.0  # between questions for streams that are not known here
MET = "members"  # where the ledger keeps the others' cards
RECORDS = "query_records"


class Gossiping:
    """One member's knowledge of all."""

    def __init__(
        self,
        joining: Callable[[], Join],
        connections: "ConnectionManager",
        book: "PeerBook",
        say: Callable[[str], None],
        *,
        seeds: Sequence[str] = (),
        timing: membership.Timing | None = None,
        token: str | None = None,
        verify: str | bool = True,
    ) -> None:
        self._joining, self._connections, self._book, self._say = joining, connections, book, say
        self._seeds, self._timing = tuple(seeds), timing or membership.Timing()
        self._client = HttpClient(token, verify, answer_s=ANSWER_S)
        self._pool = ThreadPoolExecutor(SENDERS, thread_name_prefix="millstream-gossip")
        self._lock = threading.RLock()
        self._view: membership.View | None = None
        self._states: dict[str, str] = {}  # of others, as last told
        self._there: dict[str, str] = {}  # where those are who were last seen
        self._told: dict[str, str] = {}  # by address: what was said of it last
        self._asked_s = float("-inf")  # when streams were last asked for
        self.on_change: list[Callable[[Mapping[str, str], Collection[str]], None]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-members", daemon=True)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._open()
        self._thread.start()

    def stop(self) -> None:
        """Says goodbye, as well as it goes."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
            with suppress(MillstreamError):
                self._say_goodbye()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def _open(self) -> membership.View:
        """What is known, from the ledger at first."""
        with self._lock:
            if self._view is None:
                ledger = self._connections.processor.engine.ledger
                now_s = time.monotonic()
                cards = from_json(tuple[Card, ...], json.loads(ledger.meta(MET) or "[]"))
                records = from_json(
                    tuple[QueryRecord, ...], json.loads(ledger.meta(RECORDS) or "[]")
                )
                long_ago = now_s - self._timing.silent_s - 1.0  # silent until heard
                self._view = membership.View(
                    self._card(0),
                    self._timing,
                    self._seeds,
                    {card.id: membership.Seen(card, long_ago) for card in cards},
                    {record.name: record for record in records},
                )
            return self._view

    def _card(self, beat: int, *, left: bool = False) -> Card:
        declared = self._connections.processor.ownership.declared()
        return Card(self._joining(), beat, tuple(sorted(declared)), left)

    def _run(self) -> None:
        while not self._stopping.wait(min(0.25, self._timing.gossip_s / 4)):
            try:
                self._feed(Passed(self._card(0)))
                self._look()
            except Exception as error:
                if self._stopping.is_set():
                    return  # the ledger is closed by now
                self._say(f"members: {type(error).__name__}: {first_line(error)}")

    def _say_goodbye(self) -> None:
        with self._lock:
            view = replace(self._open(), told_s=float("-inf"))
            card = replace(self._card(0, left=True))
            self._view, sends = membership.step(view, Passed(card), time.monotonic())
        for send in sends:
            self._tell(send)

    # -- events ---------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        with self._lock:
            before = self._open()
            self._view, sends = membership.step(before, event, time.monotonic())
            if self._view.records is not before.records:
                self._keep(RECORDS, list(self._view.records.values()))
            if self._view.others.keys() != before.others.keys():
                self._keep(MET, [seen.card for seen in self._view.others.values()])
        for send in sends:
            with suppress(RuntimeError):  # it is closing
                self._pool.submit(self._tell, send)

    def _keep(self, key: str, what: Sequence[Card | QueryRecord]) -> None:
        ledger = self._connections.processor.engine.ledger
        with ledger.transaction():
            ledger.set_meta(key, json.dumps(to_json(what)))

    def _tell(self, send: Send) -> None:
        try:
            name = send.to or self._name_at(send.url)
            if name == self.me:
                return
            reply = self.ask(name, send.gossip, send.url)
        except AwayError as error:
            if not send.to:  # a member is known to be away by its beat, which stands still
                self._tell_once(send.url, f"{error.message}; it is asked again")
            return
        except MillstreamError as error:
            self._refused(send.url, f"{error.message}{f': {error.detail}' if error.detail else ''}")
            return
        if isinstance(reply, Rumours):
            self._feed(Answered(send.url, reply))
        elif isinstance(reply, Refusal):
            self._refused(send.url, " ".join(p for p in (reply.message, reply.detail) if p))

    def _refused(self, url: str, reason: str) -> None:
        self._tell_once(url, f"{url} does not take this processor as a member: {reason}")
        self._feed(Refused(url, reason))

    def _tell_once(self, url: str, text: str) -> None:
        if self._told.get(url) != text:
            self._told[url] = text
            self._say(text)

    def _name_at(self, url: str) -> str:
        answer = self._client.ask("GET", f"{url.rstrip('/')}/health")
        told = json_of(answer)
        name = told.get("processor") if isinstance(told, dict) else None
        if not isinstance(name, str) or not name:
            raise MillstreamError("the server there is not a processor")
        return name

    def ask(self, name: str, message: AnyMessage, url: str = "") -> Reply:
        """A reply of another member; one that is none is an error."""
        url = url or self.url_of(name)
        epoch = self._open().me.join.epoch
        envelope = Envelope(epoch, 0, name, (message,), self.me, "processor")
        answer = self._client.post(url.rstrip("/") + PATH, envelope)
        (reply,) = read_replies(envelope, answer)
        return reply

    # -- what others say ------------------------------------------------------------------------

    def take_messages(self, dispatcher: "Dispatcher") -> None:
        dispatcher.on((Gossip,), self._heard)
        dispatcher.on((Remember,), self._remember)

    def _heard(self, sender: str, gossip: Gossip) -> Reply:
        self._feed(Heard(sender, gossip))
        return membership.rumours(self._open(), gossip)

    def _remember(self, _: str, message: Remember) -> Reply:
        self.record(message.records)
        return Done()

    # -- what is known --------------------------------------------------------------------------

    @property
    def me(self) -> str:
        return self._connections.processor.id

    @property
    def view(self) -> membership.View:
        return self._open()

    def up(self) -> dict[str, Join]:
        return self._open().up(time.monotonic())

    def url_of(self, name: str) -> str:
        view = self._open()
        if name == view.me.id:
            return view.me.join.url
        if name not in view.others:
            raise AwayError(f"the address of {name} is unknown")
        return view.others[name].card.join.url

    def record(self, records: Sequence[QueryRecord]) -> None:
        """Keeps records; everybody hears of them in a while."""
        self._feed(Recorded(tuple(records)))

    def lose(self, name: str) -> None:
        """A user has said that a member is gone with its home: nobody waits for it any more."""
        self._feed(Lost(name))

    def replicate(self, records: Sequence[QueryRecord], copies: int = 2) -> int:
        """Lets others remember records now; gives how many do."""
        done = 0
        for name in [n for n in self.up() if n != self.me]:
            if done >= copies:
                break
            with suppress(MillstreamError):
                done += isinstance(self.ask(name, Remember(tuple(records))), Done)
        return done

    def members(self) -> list[dict[str, object]]:
        """As a person, or a manager that joins, wants to see them."""
        view, now_s = self._open(), time.monotonic()
        cards = [view.me, *(seen.card for seen in view.others.values())]
        return [
            {**to_json(card.join), "state": view.state_of(card.id, now_s)}
            for card in sorted(cards, key=lambda card: card.id)
        ]

    # -- what follows from it -------------------------------------------------------------------

    def _look(self) -> None:
        """Balancing hears who comes and goes; streams that are new are declared here."""
        view, now_s = self._open(), time.monotonic()
        for name, seen in view.others.items():
            state = view.state_of(name, now_s)
            if state == "up":
                self._book.met(name, seen.card.join.url)
            elif self._states.get(name) == "up":
                self._book.lose(name)
            if self._states.get(name, "silent") != state:
                self._say(f"member {name} is {state}")
            self._states[name] = state
        for name in self._states.keys() - view.others.keys():
            del self._states[name]
        self._tell_changes(view, now_s)
        self._learn_streams(view, now_s)

    def _tell_changes(self, view: membership.View, now_s: float) -> None:
        """Who is there now, with addresses, and who is gone."""
        there = {name: join.url for name, join in view.up(now_s).items()}
        if there != self._there:
            gone, self._there = self._there.keys() - there.keys(), there
            for listener in self.on_change:
                listener(there, gone)

    def _learn_streams(self, view: membership.View, now_s: float) -> None:
        if now_s - self._asked_s < STREAMS_S:
            return
        known = self._connections.processor.ownership.declared().keys()
        for name, seen in view.others.items():
            if view.state_of(name, now_s) == "up" and not known >= set(seen.card.streams):
                self._asked_s = now_s
                with suppress(MillstreamError):  # asked again after a while
                    self._declare(self.ask(name, TakeInventory()), set(known))
                return

    def _declare(self, told: Reply, known: set[str]) -> None:
        if not isinstance(told, Inventory):
            return
        for stream, table in told.tables.items():
            if stream not in known:
                source = {k: v for k, v in table.items() if k != "name"}
                self._connections.tried(Declare({**source, "name": stream}, ingest=False))
