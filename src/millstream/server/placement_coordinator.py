"""A processor's part in placing a tree together with others (seed 003, section 4), over HTTP.

Carries the messages of `control/coordinator_driver` between processors: those to one processor
travel together, each processor is told in turn and all of them at once, and what cannot be
delivered after a few tries makes the receiver count as down, which the tree's proxy hears. The
proxy waits for the outcome, and until nothing is under way any more (as many messages taken up as
sent, twice in a row), asks everybody what it hosts, and lets the tree go: carrying a placement
out is the manager's business. Decides nothing itself.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool

from millstream.client.addresses import UNREACHABLE
from millstream.control.coordinator_driver import PlacementDriver
from millstream.control.coordinator_messages import Settings
from millstream.control.coordinator_state import Refuse, Report, Timing
from millstream.control.coordinator_zones import Tree
from millstream.server.access import BODY_BYTES_MAX, authorise, json_body
from millstream.server.placement_messages import (
    MESSAGES_MAX,
    PEERS_MAX,
    Envelope,
    Share,
    Wish,
    read_envelope,
    read_share,
    read_wish,
)
from millstream.store.transfer import PeerAwayError

TICK_S = 0.5
SENDERS, WORKERS = 8, 4
RETRY_S = (0.1, 0.4, 1.5)
SILENT_S = 600.0  # after which a tree that nobody speaks of is forgotten
ANSWER_S = 10.0
QUIET_S = 1.0  # without a message, where some were lost with a processor
ENVELOPE_BYTES_MAX = BODY_BYTES_MAX // 2

Distances = Callable[[Sequence[str]], Mapping[str, float]]


@dataclass(slots=True)
class _Line:
    """What waits for one processor."""

    waiting: deque[str] = field(default_factory=deque)  # JSON texts
    down: set[str] = field(default_factory=set)
    busy: bool = False


class PlacementCoordinator:
    """Coordinator, source, host and proxy of trees, in one process."""

    def __init__(
        self,
        name: str,
        distances: Distances,
        *,
        token: str | None = None,
        verify: str | bool = True,
        timing: Timing | None = None,
    ) -> None:
        self.name, self._distances, self._token = name, distances, token
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._verify = verify
        self.driver = PlacementDriver(name, self._known, self, self._on_outcome, timing)
        self._urls: dict[str, str] = {}
        self._lines: dict[str, _Line] = {}
        self._heard: dict[str, float] = {}  # by tree: when it was last spoken of
        self._envelopes: dict[str, int] = {}  # by tree
        self._outcomes: dict[str, Report | Refuse] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._http: httpx.Client | None = None
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
        if self._http is not None:
            self._http.close()

    # -- as the driver sees it ------------------------------------------------------------------

    def now_s(self) -> float:
        return time.monotonic()

    def probe(self, targets: Sequence[str]) -> Mapping[str, float]:
        return self._distances(targets)

    def send(self, peer: str, data: Mapping[str, Any]) -> None:
        """Queues a message; those that wait for one processor go together."""
        with self._changed:
            line = self._lines.setdefault(peer, _Line())
            line.waiting.append(json.dumps(data, separators=(",", ":")))
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
            limits = httpx.Limits(max_connections=100, max_keepalive_connections=50)
            self._http = httpx.Client(
                headers=self._headers, verify=self._verify, timeout=ANSWER_S, limits=limits
            )
        line.busy = True
        self._senders.submit(self._drain, peer)

    def _drain(self, peer: str) -> None:
        while not self._stopping.is_set():
            with self._changed:
                line = self._lines[peer]
                taken: list[str] = []
                size = 0
                while line.waiting and len(taken) < MESSAGES_MAX and size < ENVELOPE_BYTES_MAX:
                    taken.append(line.waiting.popleft())
                    size += len(taken[-1])
                down, line.down = sorted(line.down), set()
                if not taken and not down:
                    line.busy = False
                    return
                peers = dict(self._urls)
            messages = [json.loads(text) for text in taken]
            body = Envelope(peers=peers, down=down, messages=messages)
            if self._posted(peer, body):
                with self._changed:
                    for tree in {_tree(m) for m in messages}:
                        self._envelopes[tree] = self._envelopes.get(tree, 0) + 1
            else:
                self._lost(peer, messages)

    def _posted(self, peer: str, body: Envelope) -> bool:
        assert self._http is not None
        url = body.peers.get(peer)
        if url is None:
            return False
        data = body.model_dump(mode="json")
        for wait_s in (*RETRY_S, None):
            try:
                answer = self._http.post(f"{url.rstrip('/')}/placement/messages", json=data)
                if answer.status_code == 200:
                    return True
                if answer.status_code < 500:
                    return False  # it will not take this, however often
            except UNREACHABLE:
                pass
            if wait_s is None or self._stopping.wait(wait_s):
                return False
        return False

    def _lost(self, peer: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Who cannot be reached is down; the proxies of the trees concerned hear of it."""
        for proxy in {str(m["settings"]["proxy"]) for m in messages}:
            if proxy == self.name:
                self.driver.peer_down(peer)
            elif proxy != peer:
                with self._changed:
                    line = self._lines.setdefault(proxy, _Line())
                    line.down.add(peer)
                    self._begin(proxy, line)

    # -- receiving ------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        """Takes messages; what they lead to happens in threads of its own."""
        messages = envelope.decoded()  # one that is malformed refuses all
        with self._changed:
            self._learn(envelope.peers)
            now = self.now_s()
            self._heard.update({message.settings.tree: now for message in messages})
            if self._workers is None:
                self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="millstream-placed")
            workers = self._workers
        self._tick_from_now_on()
        if self._stopping.is_set():
            raise PeerAwayError(f"processor {self.name} is about to end")
        for peer in envelope.down:
            workers.submit(self.driver.peer_down, peer)
        for message in messages:
            workers.submit(self.driver.take, message)

    def _learn(self, peers: Mapping[str, str]) -> None:
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

    def share(self, tree: str) -> Share:
        """This processor's part in a tree."""
        counts = self.driver.counts(tree)
        with self._changed:
            envelopes = self._envelopes.get(tree, 0)
        return Share(
            operators=list(self.driver.running(tree)),
            sent=dict(counts.sent),
            received=counts.received,
            probed_pairs=counts.probed_pairs,
            envelopes=envelopes,
        )

    # -- as a proxy -----------------------------------------------------------------------------

    def place(self, wish: Wish, tree: Tree) -> dict[str, Any]:
        """Places a tree with this processor as its proxy, and says what came of it."""
        with self._changed:
            self._learn(wish.peers)
            self._heard[tree.id] = self.now_s() + wish.wait_s
            self._outcomes.pop(tree.id, None)
        self._tick_from_now_on()
        deadline = self.now_s() + wish.wait_s
        candidates = tuple(sorted({self.name, *wish.peers}))
        asked = Settings(
            tree.id, 1, self.name, wish.algorithm, wish.k, wish.latency_bound, candidates
        )
        self.driver.submit(tree, asked, wish.levels)
        try:
            return self._answer(tree, wish, deadline)
        finally:
            self.driver.withdraw(tree.id)

    def _answer(self, tree: Tree, wish: Wish, deadline: float) -> dict[str, Any]:
        outcome = self._await_outcome(tree.id, deadline)
        if outcome is None:
            return {"refused": {"reason": "timeout", "detail": f"no answer in {wish.wait_s:g} s"}}
        if isinstance(outcome, Refuse):
            return {"refused": {"reason": outcome.reason, "detail": outcome.detail}}
        shares = self._await_quiet(tree, wish.peers, deadline)
        sources = {source.id for source in tree.sources}
        placement: dict[str, str] = {}
        for peer, share in sorted(shares.items()):
            for operator in share.operators:
                if operator not in sources:
                    placement[operator] = peer
        missing = sorted({operator.id for operator in tree.operators} - placement.keys())
        if missing:
            detail = f"nobody says that it has {missing[0]}"
            return {"refused": {"reason": "timeout", "detail": detail}}
        kinds: dict[str, int] = {}
        for share in shares.values():
            for kind, number in share.sent.items():
                kinds[kind] = kinds.get(kind, 0) + number
        return {
            "placement": placement,
            "cost": outcome.cost,
            "delay": outcome.delay,
            "attempts": outcome.epoch,
            "messages": kinds,
            "envelopes": sum(share.envelopes for share in shares.values()),
            "probed_pairs": sum(share.probed_pairs for share in shares.values()),
        }

    def _await_outcome(self, tree: str, deadline: float) -> Report | Refuse | None:
        with self._changed:
            while tree not in self._outcomes and not self._stopping.is_set():
                left = deadline - self.now_s()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 1.0))
            return self._outcomes.pop(tree, None)

    def _await_quiet(
        self, tree: Tree, peers: Mapping[str, str], deadline: float
    ) -> dict[str, Share]:
        """Everybody's part, once no message of the tree is under way any more."""
        before: tuple[int, int] | None = None
        since_s = self.now_s()
        shares: dict[str, Share] = {}
        while self.now_s() < deadline and not self._stopping.is_set():
            shares = {peer: share for peer in peers if (share := self._asked(peer, tree.id))}
            shares[self.name] = self.share(tree.id)
            sent = sum(share.messages for share in shares.values())
            totals = sent, sum(share.received for share in shares.values())
            if totals != before:
                before, since_s = totals, self.now_s()
            elif totals[0] == totals[1] or self.now_s() - since_s > QUIET_S:
                break
            self._stopping.wait(0.02)
        return shares

    def _asked(self, peer: str, tree: str) -> Share | None:
        with self._changed:
            url = self._urls.get(peer)
        if peer == self.name or url is None or self._http is None:
            return None
        try:
            answer = self._http.get(f"{url.rstrip('/')}/placement/trees/{quote(tree, safe='')}")
            return read_share(answer.json()) if answer.status_code == 200 else None
        except (*UNREACHABLE, ValueError):
            return None

    # -- HTTP -----------------------------------------------------------------------------------

    def add_routes(self, app: FastAPI) -> None:
        @app.post("/placement/messages")
        async def messages(request: Request) -> dict[str, Any]:
            authorise(request, self._token)
            envelope = read_envelope(await json_body(request))
            await run_in_threadpool(self.receive, envelope)
            return {}

        @app.post("/placement/trees")
        async def trees(request: Request) -> dict[str, Any]:
            authorise(request, self._token)
            wish, tree = read_wish(await json_body(request))
            return await run_in_threadpool(self.place, wish, tree)

        @app.get("/placement/trees/{tree}")
        async def part(request: Request, tree: str) -> dict[str, Any]:
            authorise(request, self._token)
            return self.share(tree).model_dump(mode="json")


def _tree(message: Mapping[str, Any]) -> str:
    return str(message["settings"]["tree"])
