"""Any member of a cluster without a manager answers for the whole of it, as a manager would.

For a question this member asks all others at that moment. For a change this member leads: it
engages all present members, in the order of their names, so that no move is under way and no other
member leads; it learns what they have; it is a manager until the change is done
(`control/peers/leading.py`), with an epoch that fences off earlier leaders; then it releases all
members. A second member has the record of a query before the client gets an answer. Decides nothing
itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from millstream.client.http import AsyncHttpClient, json_of, told_error
from millstream.control.manager.events import Drop, Event, Remove, Send, Submit, Tick
from millstream.control.manager.state import ManagerState, Settings
from millstream.control.moves.handover import Disengage, Engage
from millstream.control.peers import leading
from millstream.control.peers.records import accepted, changed
from millstream.control.protocol.commands import Join
from millstream.control.protocol.envelope import PATH, Envelope, read_replies
from millstream.control.protocol.member_messages import QueryRecord
from millstream.control.protocol.replies import Refusal, Reply
from millstream.core.errors import AwayError, MillstreamError, RefusedError
from millstream.core.steady_clock import SteadyClock
from millstream.edge.manager.driver import ManagerDriver

if TYPE_CHECKING:
    from millstream.edge.peers.gossip import Gossiping

PREFIX = "d-"  # of what members are engaged for, besides moves
FRESH_S = 0.5  # greatest age of an answer to a question
LOOK_S = 4.0
ENGAGE_S = 30.0  # to wait for moves and other leaders
LEARN_S = 15.0
LEASE_S = 15.0
RENEW_S = 4.0
DONE_S = 8.0  # to wait until all members have done what was requested
LINGER_S = 0.5  # for the next wish of the same client
BUSY_S = 10.0  # no client waits any more, and something is still under way
ASK_S = 3.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unkept:
    """The memory of a leader: what counts lies with the members."""

    state: ManagerState

    def load(self, settings: Settings) -> ManagerState:
        return replace(self.state, settings=settings)

    def save(self, before: ManagerState, after: ManagerState) -> None:
        """Nothing to do."""


class MemberDriver(ManagerDriver):
    """The manager's state machine in a member: it leads, or it only looks."""

    def __init__(
        self,
        state: ManagerState,
        *,
        name: str,
        leads: bool,
        token: str | None,
        verify: str | bool,
        clock: Callable[[], float],
        say: Callable[[str], None] = lambda _: None,
        check: Callable[[Event], None] = lambda _: None,
        fed: Callable[[Event], None] = lambda _: None,
        only_told: Callable[[Event], bool] = lambda _: False,
    ) -> None:
        super().__init__(
            Unkept(state), state.settings, name=name, token=token, verify=verify, say=say,
            clock=clock,
        )  # fmt: skip
        self._leads, self._check, self._fed, self._only_told = leads, check, fed, only_told
        self.ready = False  # it has learned, and acts

    async def until(self, look: Callable[[ManagerState], T | None], wait_s: float) -> T | None:
        """As any driver; after leading, no client waits."""

        def unless_outdone(state: ManagerState) -> T | None:
            if self.ready and state.superseded:
                raise RefusedError(
                    "led", "another member leads now", detail=state.superseded,
                    hint="ask again in a moment; a manager, where there is one, knows what became",
                )  # fmt: skip
            return look(state)

        return await super().until(unless_outdone, wait_s)

    def feed(self, event: Event) -> None:
        self._check(event)
        if not self._only_told(event):
            super().feed(event)
        self._fed(event)

    def _busy(self) -> bool:
        return True  # it is there for a short while: time passes in small steps

    async def _post(self, send: Send) -> tuple[Reply, ...]:
        """Under this member's name; one that only looks asks as a processor does."""
        said = replace(send.envelope, sender=self.name)
        if not self._leads:
            said = replace(said, by="processor", number=0)
        return await super()._post(replace(send, envelope=said))


@dataclass(slots=True)
class _Lead:
    """One time of leading."""

    engagement: str
    members: dict[str, Join]
    driver: MemberDriver
    running: "asyncio.Task[None]"
    keeping: "asyncio.Task[None] | None" = None
    users: int = 0
    idle_s: float = field(default_factory=time.monotonic)
    over: bool = False


class MemberDesk:
    """One member's answers and deeds; everything happens on its endpoint's event loop."""

    def __init__(
        self,
        gossip: "Gossiping",
        epoch_seen: Callable[[], int],
        led: Callable[[], str],
        say: Callable[[str], None],
        *,
        token: str | None = None,
        verify: str | bool = True,
    ) -> None:
        self.gossip, self._epoch_seen, self._led, self._say = gossip, epoch_seen, led, say
        self._token, self._verify = token, verify
        self.started_s = time.time()
        self._clock = SteadyClock()
        self._state = ManagerState()
        self._looked_s = float("-inf")
        self._lead: _Lead | None = None
        self._touched: set[str] = set()  # queries that were spoken of since they were recorded
        self._count = 0
        self._gate, self._looking = asyncio.Lock(), asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- asking ---------------------------------------------------------------------------------

    async def read(self) -> ManagerState:
        """What all members have now, as far as they answer."""
        self._loop = asyncio.get_running_loop()
        lead = self._lead
        if lead is not None and not lead.over and not lead.driver.state.superseded:
            return leading.shown(lead.driver.state, self.gossip.view.records, self.gossip.up())
        async with self._looking:
            if time.monotonic() - self._looked_s > FRESH_S:
                await self._look()
        return self._state

    async def _look(self) -> None:
        up, away = self._members()
        state = leading.beginning(
            self._state, up, away, self._clock(), lineage=f"{self.gossip.me}-looks",
            epoch=max(1, self._epoch_seen()), looks_only=True,
        )  # fmt: skip
        driver, running = self._driver(state, leads=False)
        try:
            await driver.until(leading.has_looked, LOOK_S)
            driver.feed(Tick())  # what runs where is known now: what runs whole follows from it
        finally:
            await _ended(running)
        seen = leading.shown(driver.state, self.gossip.view.records, up)
        log = self._state.decisions  # a reader decides nothing
        self._state = replace(seen, decisions=log, counter=self._state.counter)
        self._looked_s = time.monotonic()

    def _members(self) -> tuple[dict[str, Join], dict[str, Join]]:
        up, view = self.gossip.up(), self.gossip.view
        others = {n: seen.card for n, seen in view.others.items() if n not in up}
        return up, {n: card.join for n, card in others.items() if not card.lost}

    def _lost(self) -> dict[str, Join]:
        return {n: s.card.join for n, s in self.gossip.view.others.items() if s.card.lost}

    def _driver(
        self, state: ManagerState, *, leads: bool
    ) -> tuple[MemberDriver, "asyncio.Task[None]"]:
        driver = MemberDriver(
            state, name=self.gossip.me, leads=leads, token=self._token, verify=self._verify,
            clock=self._clock,
            say=(lambda text: self._say(f"leading: {text}")) if leads else lambda _: None,
            check=self._check if leads else lambda _: None,
            fed=self._note if leads else lambda _: None,
            only_told=self._only_told if leads else lambda _: False,
        )  # fmt: skip
        return driver, asyncio.get_running_loop().create_task(driver.run())

    # -- leading --------------------------------------------------------------------------------

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[ManagerDriver]:
        """This member as the leader of all; several wishes at once share one time of leading."""
        self._loop = asyncio.get_running_loop()
        async with self._gate:
            if self._lead is not None and self._lead.driver.state.superseded:
                await self._end(self._lead)
            if self._lead is None or self._lead.over:
                self._lead = await self._begun()
            lead = self._lead
            lead.users += 1
        try:
            yield lead.driver
            await lead.driver.until(leading.is_done, DONE_S)
        finally:
            await self._record(lead.driver.state)
            lead.users -= 1
            lead.idle_s = time.monotonic()

    async def _begun(self) -> _Lead:
        if reason := self._led():
            raise RefusedError("led", reason, hint="send it to the manager: --manager URL")
        self._count += 1
        epoch = self.gossip.view.me.join.epoch
        engagement = f"{PREFIX}{self.gossip.me}-{epoch}-{self._count}"
        members = await self._engage_all(engagement)
        up, away = self._members()
        away |= {name: join for name, join in up.items() if name not in members}
        state = leading.beginning(
            self._state, members, away, self._clock(), epoch=self._epoch_seen() + 1,
            records=self.gossip.view.records, lost=self._lost(),
            lineage=f"{self.gossip.me}-{uuid4().hex[:12]}",
        )  # fmt: skip
        driver, running = self._driver(state, leads=True)
        lead = _Lead(engagement, members, driver, running)
        await driver.until(leading.has_learned, LEARN_S)
        if driver.state.superseded or driver.state.learning_until_s:
            await self._end(lead)
            silent = [n for n, v in driver.state.live.items() if v.actual is None and n in members]
            raise RefusedError(
                "busy", driver.state.superseded or "other members do not report what they have",
                detail=", ".join(silent), hint="try again in a moment",
            )  # fmt: skip
        driver.ready = True
        lead.keeping = asyncio.get_running_loop().create_task(self._keep(lead))
        return lead

    async def _engage_all(self, engagement: str) -> dict[str, Join]:
        """All answering members, in one order everywhere: the first leader gets all."""
        deadline = time.monotonic() + ENGAGE_S
        patience_s = 0.1
        while True:
            engaged: dict[str, Join] = {}
            refusal: Refusal | None = None
            for name, join in self.gossip.up().items():
                reply = await self._say_to(join, Engage(engagement, lease_s=LEASE_S))
                if isinstance(reply, Refusal):
                    refusal = replace(reply, message=f"{name}: {reply.message}")
                    break
                if reply is not None:
                    engaged[name] = join
            if refusal is None and self.gossip.me in engaged:
                return engaged
            await self._disengage(engagement, engaged)
            why = refusal.message if refusal is not None else "this member does not answer itself"
            if refusal is not None and refusal.code == "led":
                raise RefusedError("led", why, hint="send it to the manager: --manager URL")
            if time.monotonic() > deadline:
                raise RefusedError("busy", why, hint="try again when that is over")
            await asyncio.sleep(patience_s)
            patience_s = min(1.0, patience_s * 1.5)

    async def _disengage(self, engagement: str, members: dict[str, Join]) -> None:
        for join in members.values():  # one that does not hear of it is free at its lease's end
            await self._say_to(join, Disengage(engagement))

    async def _say_to(self, join: Join, message: Engage | Disengage) -> Reply | None:
        """A member's reply; none without an answer, or with a nonsensical one."""
        epoch = self.gossip.view.me.join.epoch
        envelope = Envelope(epoch, 0, join.id, (message,), self.gossip.me, "processor")
        try:
            async with AsyncHttpClient(self._token, self._verify, answer_s=ASK_S) as client:
                answer = await client.send("POST", f"{join.url.rstrip('/')}{PATH}", envelope)
                if answer.is_error:
                    raise told_error(answer)
                (reply,) = read_replies(envelope, json_of(answer))
        except MillstreamError as error:
            if not isinstance(error, AwayError):
                self._say(f"member {join.id} answers nonsense: {error.message}")
            return None
        return reply

    async def _keep(self, lead: _Lead) -> None:
        """Renews the lease while there are requests, and releases all members afterwards."""
        renewed_s = time.monotonic()
        while True:
            await asyncio.sleep(0.1)
            now_s = time.monotonic()
            quiet_s = 0.0 if lead.users else now_s - lead.idle_s
            going_on = leading.is_busy(lead.driver.state, self._touched)
            enough_s = BUSY_S if going_on else LINGER_S
            if lead.driver.state.superseded or quiet_s > enough_s:
                break
            if now_s - renewed_s > RENEW_S:
                renewed_s = now_s
                for join in lead.members.values():
                    await self._say_to(join, Engage(lead.engagement, lease_s=LEASE_S))
        async with self._gate:
            if lead.users == 0 or lead.driver.state.superseded:
                await self._end(lead)
                return
        lead.keeping = asyncio.get_running_loop().create_task(self._keep(lead))

    async def _end(self, lead: _Lead) -> None:
        if lead.over:
            return
        lead.over = True
        if lead.driver.state.live:
            self._state = leading.shown(
                lead.driver.state, self.gossip.view.records, self.gossip.up()
            )
        self._looked_s = float("-inf")
        await _ended(lead.running)
        await self._disengage(lead.engagement, lead.members)

    # -- records --------------------------------------------------------------------------------

    def _check(self, event: Event) -> None:
        if isinstance(event, Submit):
            records, up = self.gossip.view.records, self.gossip.up()
            leading.check_new(records, event.name, event.cql, self.gossip.me, up)

    def _note(self, event: Event) -> None:
        """What was wished for is on record before it is done."""
        records, me = self.gossip.view.records, self.gossip.me
        if isinstance(event, Submit) and not event.dry_run:
            known = records.get(event.name)
            if known is None or known.phase == "gone" or known.acceptor != me:
                record = accepted(
                    records, event.name, event.cql, me, self._clock(),
                    from_beginning=event.from_beginning, deliver_to=event.deliver_to,
                    latency_s=event.latency_s,
                )  # fmt: skip
                self.gossip.record((record,))
            self._touched.add(event.name)
        elif isinstance(event, Drop):
            known = records.get(event.name) or QueryRecord(event.name, "", me)
            self.gossip.record((changed(known, phase="dropping"),))
            self._touched.add(event.name)
        elif isinstance(event, Remove) and event.lost:
            self._note_lost(event.processor)

    def _only_told(self, event: Event) -> bool:
        """Whether a query that is dropped is one of which nobody who answers has anything."""
        if not isinstance(event, Drop) or self._lead is None:
            return False
        record = self.gossip.view.records.get(event.name)
        known = event.name in self._lead.driver.state.queries
        return not known and record is not None and record.phase != "gone"

    def _note_lost(self, member: str) -> None:
        """A member will not come back: queries with a part there are to begin again, and their
        coordinators see to it, those included of which nobody else has anything."""
        assert self._lead is not None
        state = self._lead.driver.state
        self.gossip.lose(member)
        again = {q.name for q in state.queries.values() if q.lost}
        news = [
            changed(record, phase="accepted", places={})
            for record in self.gossip.view.records.values()
            if record.phase == "running" and (
                record.name in again
                or (member in record.places.values() and record.name not in state.queries)
            )
        ]  # fmt: skip
        self.gossip.record(news)
        self._touched |= {record.name for record in news}

    async def _record(self, state: ManagerState) -> None:
        """The progress of queries, stored at a second member before the client is answered."""
        records = self.gossip.view.records
        news = []
        for name in sorted(self._touched):
            record = records.get(name)
            if record is None:
                continue
            told = {} if state.superseded else leading.outcome(state, record)
            if record.phase == "dropping" and told.get("phase") != "gone":
                told = {}
            news.append(changed(record, **told))
        self._touched -= {r.name for r in news if not r.unfinished}
        if news:
            self.gossip.record(news)
            await asyncio.to_thread(self.gossip.replicate, news)

    def in_hand(self, query: str) -> bool:
        """Whether this member is about to do something for a query."""
        return query in self._touched and self._lead is not None and not self._lead.over

    def led(self) -> str:
        """Why this member cannot lead; empty where it can."""
        return self._led()

    def stop(self) -> None:
        """From another thread: releases all members."""
        if self._loop is None or self._lead is None or self._lead.over:
            return
        lead = self._lead
        if lead.keeping is not None:
            self._loop.call_soon_threadsafe(lead.keeping.cancel)
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._end(lead), self._loop).result(ASK_S)


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
