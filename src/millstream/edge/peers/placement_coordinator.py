"""A processor's part in placing a tree together with others (seed 003, section 4), over HTTP.

Carries the messages of `control/coordinators/driver` between processors: those to one processor
travel together, in order for each processor and to all of them in parallel. If a message cannot be
delivered after a few tries, its receiver counts as down, and the tree's proxy hears of it. The
proxy waits for the outcome, and until nothing is under way any more (as many messages taken up as
sent, twice in a row), and asks all processors what they host. A tree for a manager is released
then: carrying a placement out is the manager's business. One that stands (`stand`) stays with its
zones, coordinators and hosts, and is mapped again when one of them is gone
(`edge/peers/standing_placement.py`). Decides nothing itself.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar, get_args

from millstream.client.http import HttpClient
from millstream.control.coordinators.driver import PlacementDriver
from millstream.control.coordinators.state import Refuse, Report, Timing
from millstream.control.coordinators.zones import Tree
from millstream.control.protocol.coordinator_messages import Message, Settings
from millstream.control.protocol.envelope import (
    MESSAGE_BYTES_MAX,
    MESSAGES_MAX,
    PATH,
    PEERS_MAX,
    Envelope,
    PlaceTree,
    ReadShare,
    TakePart,
    Unreachable,
    read_replies,
)
from millstream.control.protocol.envelope import Message as AnyMessage
from millstream.control.protocol.replies import Refusal, Reply, TreePlaced, TreeShare
from millstream.core.codec import to_bytes
from millstream.core.errors import AwayError, MillstreamError, StateError, UsageError
from millstream.edge.processor.dispatcher import Dispatcher

TICK_S = 0.5
SENDERS, WORKERS = 8, 4
RETRY_S = (0.1, 0.4, 1.5)
SILENT_S = 600.0  # after which a tree that nobody speaks of is forgotten
ANSWER_S = 10.0
NO_PLACEMENT = "the processors found no placement"
QUIET_S = 1.0  # without a message, where some were lost with a processor
ENVELOPE_BYTES_MAX = MESSAGE_BYTES_MAX // 2

T = TypeVar("T")
Distances = Callable[[Sequence[str]], Mapping[str, float]]
AWAY_S = 15.0  # for which no route goes through a processor that did not answer


@dataclass(slots=True)
class _Line:
    """What waits for one processor."""

    waiting: deque[tuple[Message, int]] = field(default_factory=deque)  # with their bytes
    down: set[str] = field(default_factory=set)
    busy: bool = False


class PlacementCoordinator:
    """Coordinator, source, host and proxy of trees, in one process."""

    def __init__(
        self,
        name: str,
        distances: Distances,
        epoch: int = 0,
        *,
        token: str | None = None,
        verify: str | bool = True,
        timing: Timing | None = None,
        near: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self.name, self._distances, self._epoch = name, distances, epoch
        self._near, self._away = near, dict[str, float]()  # by processor: since when
        self._http = HttpClient(token, verify, answer_s=ANSWER_S)
        self.driver = PlacementDriver(name, self._known, self, self._on_outcome, timing)
        self._urls: dict[str, str] = {}
        self._lines: dict[str, _Line] = {}
        self._heard: dict[str, float] = {}  # by tree: when it was last spoken of
        self._envelopes: dict[str, int] = {}  # by tree
        self._outcomes: dict[str, Report | Refuse] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._senders: ThreadPoolExecutor | None = None
        self._workers: ThreadPoolExecutor | None = None
        self._ticking: threading.Thread | None = None

    def close(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for pool in (self._senders, self._workers):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        if self._ticking is not None:
            self._ticking.join()
        self._http.close()

    # -- as the driver sees it ------------------------------------------------------------------

    def now_s(self) -> float:
        return time.monotonic()

    def probe(self, targets: Sequence[str]) -> Mapping[str, float]:
        return self._distances(targets)

    def near(self) -> Mapping[str, float]:
        late = self.now_s() - AWAY_S
        with self._changed:
            away = {peer for peer, since_s in self._away.items() if since_s > late}
            return {p: ms for p, ms in self._near().items() if p not in away and p in self._urls}

    def send(self, peer: str, message: Message) -> None:
        """Queues a message; those that wait for one processor go together."""
        with self._changed:
            line = self._lines.setdefault(peer, _Line())
            line.waiting.append((message, len(to_bytes(message))))
            self._begin(peer, line)

    def _known(self) -> tuple[str, ...]:
        with self._changed:
            return tuple(sorted(self._urls))

    def _on_outcome(self, outcome: Report | Refuse) -> None:
        with self._changed:
            self._outcomes[outcome.tree] = outcome
            self._changed.notify_all()

    # -- sending --------------------------------------------------------------------------------

    def _begin(self, peer: str, line: _Line) -> None:
        if line.busy or self._stopping.is_set():
            return
        if self._senders is None:
            self._senders = ThreadPoolExecutor(SENDERS, thread_name_prefix="millstream-placing")
        line.busy = True
        self._senders.submit(self._drain, peer)

    def _drain(self, peer: str) -> None:
        while not self._stopping.is_set():
            with self._changed:
                line = self._lines[peer]
                taken: list[Message] = []
                size = 0
                down = sorted(line.down)[: MESSAGES_MAX // 2]
                line.down.difference_update(down)
                room = MESSAGES_MAX - 1 - len(down)
                while line.waiting and len(taken) < room and size < ENVELOPE_BYTES_MAX:
                    message, more = line.waiting.popleft()
                    taken.append(message)
                    size += more
                if not taken and not down:
                    line.busy = False
                    return
                peers = dict(self._urls)
            if self._posted(peer, (TakePart(peers), *map(Unreachable, down), *taken)):
                with self._changed:
                    for tree in {m.settings.tree for m in taken}:
                        self._envelopes[tree] = self._envelopes.get(tree, 0) + 1
            else:
                self._lost(peer, taken)

    def _posted(self, peer: str, messages: Sequence[AnyMessage]) -> bool:
        for wait_s in (*RETRY_S, None):
            try:
                replies = self._asked(peer, messages)
                codes = {reply.code for reply in replies if isinstance(reply, Refusal)}
                if codes != {"busy"}:
                    return not codes
            except (UsageError, StateError):
                return False  # it will not take this, however often
            except MillstreamError:
                pass
            if wait_s is None or self._stopping.wait(wait_s):
                return False
        return False

    def _asked(self, peer: str, messages: Sequence[AnyMessage]) -> Sequence[Reply]:
        """Another processor's replies; raises where it has none."""
        with self._changed:
            url = self._urls.get(peer)
        if url is None:
            raise StateError(f"the address of processor {peer} is unknown")
        envelope = Envelope(self._epoch, 0, peer, tuple(messages), self.name, "processor")
        return read_replies(envelope, self._http.post(url.rstrip("/") + PATH, envelope))

    def _lost(self, peer: str, messages: Sequence[Message]) -> None:
        """Who cannot be reached is down; the proxies of the trees concerned hear of it."""
        with self._changed:
            self._away[peer] = self.now_s()
        for proxy in {message.settings.proxy for message in messages}:
            if proxy == self.name:
                self.driver.peer_down(peer)
            elif proxy != peer:
                with self._changed:
                    line = self._lines.setdefault(proxy, _Line())
                    line.down.add(peer)
                    self._begin(proxy, line)

    # -- receiving ------------------------------------------------------------------------------

    def take_messages(self, dispatcher: Dispatcher) -> None:
        """What coordinators, proxies and hosts say to each other comes here."""
        dispatcher.on(get_args(Message), lambda _, message: self.receive(message))
        dispatcher.on((TakePart,), lambda _, message: self.learn(message.peers))
        dispatcher.on((Unreachable,), lambda _, m: self._work(self.lose, m.processor))
        dispatcher.on((ReadShare,), lambda _, m: self.share(m.tree, m.epoch))
        dispatcher.on((PlaceTree,), lambda _, message: self.place(message))

    def receive(self, message: Message) -> None:
        """Takes a message; what it leads to happens in threads of its own."""
        with self._changed:
            self._heard[message.settings.tree] = self.now_s()
        self._tick_from_now_on()
        self._work(self.driver.receive, message)

    def _work(self, carry_out: Callable[[T], None], what: T) -> None:
        with self._changed:
            if self._stopping.is_set():
                raise AwayError(f"processor {self.name} is about to end")
            if self._workers is None:
                self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="millstream-placed")
            self._workers.submit(carry_out, what)

    def learn(self, peers: Mapping[str, str]) -> None:
        """Where processors answer."""
        with self._changed:
            known = {**self._urls, **peers}
            self._urls = known if len(known) <= PEERS_MAX else dict(peers)

    def _tick_from_now_on(self) -> None:
        with self._changed:
            if self._ticking is None and not self._stopping.is_set():
                self._ticking = threading.Thread(
                    target=self._tick, name="millstream-placing-time", daemon=True
                )
                self._ticking.start()

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_S):
            if self.driver.trees():
                self.driver.tick()
            with self._changed:
                late = self.now_s() - SILENT_S
                silent = [tree for tree, at in self._heard.items() if at <= late]
            for tree in silent:
                self._forget(tree)

    def _forget(self, tree: str) -> None:
        self.driver.forget(tree)
        with self._changed:
            for table in (self._heard, self._envelopes, self._outcomes):
                table.pop(tree, None)

    def share(self, tree: str, epoch: int = 0) -> TreeShare:
        """This processor's part in a tree."""
        counts = self.driver.counts(tree)
        with self._changed:
            envelopes = self._envelopes.get(tree, 0)
        return TreeShare(
            operators=self.driver.running(tree, epoch),
            sent=dict(counts.sent),
            received=counts.received,
            probed_pairs=counts.probed_pairs,
            envelopes=envelopes,
            zones=tuple(self.driver.zones(tree, epoch)),
        )

    # -- as a proxy -----------------------------------------------------------------------------

    def place(self, asked: PlaceTree) -> Reply:
        """Places a tree with this processor as its proxy, and says what came of it."""
        candidates = tuple(sorted({self.name, *asked.peers}))
        settings = Settings(
            asked.tree.id, 1, self.name, asked.algorithm, asked.k, asked.latency_bound, candidates
        )
        self.stand(asked.tree, settings, asked.peers, asked.levels, asked.wait_s)
        try:
            return self.outcome(asked.tree, asked.peers, asked.wait_s)
        finally:
            self.driver.withdraw(asked.tree.id)

    def stand(
        self,
        tree: Tree,
        settings: Settings,
        peers: Mapping[str, str],
        levels: int = 1,
        wait_s: float = 0.0,
    ) -> None:
        """Lets a tree stand with this processor as its proxy, or be mapped again as it is now."""
        self.learn(peers)
        with self._changed:
            self._heard[tree.id] = self.now_s() + wait_s
            self._outcomes.pop(tree.id, None)
        self._tick_from_now_on()
        self.driver.submit(tree, settings, levels)

    def lose(self, peer: str) -> None:
        """A processor is gone: its zones fall to others, and trees that counted on it are mapped
        again; routes go round it."""
        with self._changed:
            self._away[peer] = self.now_s()
        self.driver.peer_down(peer)

    def withdraw(self, tree: str) -> None:
        """A tree stands no more; everybody who had a part in it is told."""
        self.driver.withdraw(tree)
        with self._changed:
            for table in (self._heard, self._envelopes, self._outcomes):
                table.pop(tree, None)

    def has_news(self, tree: str) -> bool:
        """Whether a tree was mapped since its outcome was last asked for."""
        with self._changed:
            return tree in self._outcomes

    def outcome(self, tree: Tree, peers: Mapping[str, str], wait_s: float) -> Reply:
        """What has come of a mapping, as all who have a part in it say."""
        deadline = self.now_s() + wait_s
        outcome = self._await_outcome(tree.id, deadline)
        if outcome is None:
            return Refusal("timeout", NO_PLACEMENT, f"no answer in {wait_s:g} s")
        if isinstance(outcome, Refuse):
            return Refusal(outcome.reason, NO_PLACEMENT, outcome.detail)
        shares = self._await_quiet(tree, outcome.epoch, peers, deadline)
        sources = {source.id for source in tree.sources}
        placement: dict[str, str] = {}
        for peer, share in sorted(shares.items()):
            for operator in share.operators:
                if operator not in sources:
                    placement[operator] = peer
        missing = sorted({operator.id for operator in tree.operators} - placement.keys())
        if missing:
            return Refusal("timeout", NO_PLACEMENT, f"no processor reports {missing[0]}")
        kinds: dict[str, int] = {}
        for share in shares.values():
            for kind, number in share.sent.items():
                kinds[kind] = kinds.get(kind, 0) + number
        return TreePlaced(
            placement,
            outcome.cost,
            outcome.delay,
            outcome.epoch,
            kinds,
            sum(share.envelopes for share in shares.values()),
            sum(share.probed_pairs for share in shares.values()),
            {zone: peer for peer, share in sorted(shares.items()) for zone in share.zones},
        )

    def _await_outcome(self, tree: str, deadline: float) -> Report | Refuse | None:
        with self._changed:
            while tree not in self._outcomes and not self._stopping.is_set():
                left = deadline - self.now_s()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 1.0))
            return self._outcomes.pop(tree, None)

    def _await_quiet(
        self, tree: Tree, epoch: int, peers: Mapping[str, str], deadline: float
    ) -> dict[str, TreeShare]:
        """Everybody's part, once no message of the tree is under way any more."""
        before: tuple[int, int] | None = None
        since_s = self.now_s()
        shares: dict[str, TreeShare] = {}
        while self.now_s() < deadline and not self._stopping.is_set():
            asked = ReadShare(tree.id, epoch)
            shares = {peer: share for peer in peers if (share := self._share_of(peer, asked))}
            shares[self.name] = self.share(tree.id, epoch)
            sent = sum(share.messages for share in shares.values())
            totals = sent, sum(share.received for share in shares.values())
            if totals != before:
                before, since_s = totals, self.now_s()
            elif totals[0] == totals[1] or self.now_s() - since_s > QUIET_S:
                break
            self._stopping.wait(0.02)
        return shares

    def _share_of(self, peer: str, asked: ReadShare) -> TreeShare | None:
        if peer == self.name:
            return None
        try:
            (reply,) = self._asked(peer, (asked,))
        except MillstreamError:
            return None
        return reply if isinstance(reply, TreeShare) else None
