"""How much a consumer may leave unread: above that its query is parked, with a notice; others
continue.

A consumer that does not acknowledge holds the segments of a result. Above the quota the query's
operators stop, unless others use them; their inputs stay, so that the query continues without a gap
once its consumer has caught up. A parked query whose inputs grow beyond twice the quota is given
up: disks are finite. So is one that has failed: until then it can be restarted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal as OneOf

from millstream.engine.engine import Engine
from millstream.engine.query import LIVE, Query
from millstream.language.share.dataflow import base_stream, late_stream, rejected_stream
from millstream.store.consumers import Consumer, subscriber
from millstream.store.delivery import Delivery

Verdict = OneOf["run", "park", "fail"]
REVIEW_SECONDS = 1.0
SINK_FAILED = "its sink has failed: "  # how the reason of a query begins that waits for its sink


def verdict(
    state: str, held: int, waiting: int, quota: int, *, sink_fails: bool = False
) -> Verdict:
    """What becomes of a query whose consumers hold so many bytes of results and, while it is
    parked, so many bytes of input wait.

    >>> [verdict("running", held, 0, 100) for held in (100, 101)]
    ['run', 'park']
    >>> [verdict("parked", held, 0, 100) for held in (51, 50)]
    ['park', 'run']
    >>> verdict("parked", 80, 201, 100)
    'fail'
    """
    if state == "parked" and max(held, waiting) > 2 * quota:
        return "fail"
    if sink_fails or held > quota or (state == "parked" and held > quota // 2):
        return "park"
    return "run"


def review(engine: Engine, say: Callable[[str], None] = lambda text: None) -> None:  # noqa: ARG005
    """Parks, wakes and gives up queries as their consumers deserve."""
    quota = engine.settings.quota_bytes
    if _all_well(engine, quota):
        engine.overdue = False
        return
    held = _Held.of(engine)
    engine.overdue = held.elsewhere(base_stream(n) for n in engine.appenders) > quota
    attached: dict[str, list[Delivery]] = {}
    for delivery in list(engine.deliveries):
        attached.setdefault(delivery.result.query, []).append(delivery)
    for query in list(engine.queries.values()):
        if query.state not in LIVE:
            _bound_failed(engine, query, held, say)
            continue
        deliveries = attached.get(query.name, [])
        left = max(
            (held.sizes.get((c, query.stream), 0) for c in consumers(query, deliveries)), default=0
        )
        left = max(left, held.elsewhere(query.operators))
        waiting = held.waiting(query)
        failing = next((d for d in deliveries if d.problem), None)
        decided = verdict(query.state, left, waiting, quota, sink_fails=failing is not None)
        if decided == "park" and query.state == "running":
            reason = f"{SINK_FAILED}{failing.problem}" if failing else _too_much(left)
            engine.set_query_state(query.name, "parked", reason)
            say(f"query {query.name} is parked: {reason}")
        elif query.damaged or query.stopped or (query.paused and decided != "fail"):
            continue  # not its consumer's doing
        elif decided == "run" and query.state == "parked":
            engine.set_query_state(query.name, "running")
            say(f"query {query.name} continues")
        elif decided == "fail":
            reason = f"it was parked ({query.reason}) until its input grew too large to keep"
            give_up(engine, query, deliveries, reason)
            say(f"query {query.name} has failed: {reason}")
    _trim_rejects(engine, quota)


def _all_well(engine: Engine, quota: int) -> bool:
    """Whether nobody can hold too much: looking at each of a thousand consumers takes longer."""
    running = all(q.state == "running" for q in list(engine.queries.values()))
    if not running or any(d.problem for d in list(engine.deliveries)):
        return False
    return engine.ledger.stored_bytes() <= quota


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes that consumers have yet to take, looked up once for all queries."""

    sizes: Mapping[tuple[Consumer, str], int]
    by_stream: Mapping[str, int]  # that the slowest other processor has left
    resting: Mapping[str, int]  # that operators which rest have yet to read

    @staticmethod
    def of(engine: Engine) -> "_Held":
        sizes = engine.ledger.held()
        by_stream: dict[str, int] = {}
        resting: dict[str, int] = {}
        for (consumer, stream), size in sizes.items():
            if consumer.kind == "processor":
                by_stream[stream] = max(size, by_stream.get(stream, 0))
            elif consumer.kind == "operator" and consumer.name in engine.paused_operators:
                resting[consumer.name] = resting.get(consumer.name, 0) + size
        return _Held(sizes, by_stream, resting)

    def elsewhere(self, streams: Iterable[str]) -> int:
        """Bytes that the slowest other processor has yet to take of any of these streams."""
        return max((self.by_stream.get(s, 0) for s in streams), default=0)

    def waiting(self, query: Query) -> int:
        """Bytes of input that operators of a query which rest have yet to read."""
        return sum(self.resting.get(o, 0) for o in query.operators) if self.resting else 0


def _bound_failed(
    engine: Engine,
    query: Query,
    held: _Held,
    say: Callable[[str], None],
) -> None:
    """Keeps the input of a failed query for a restart, as long as there is room for it."""
    quota = engine.settings.quota_bytes
    if query.restartable and held.waiting(query) > 2 * quota:
        engine.hosting.stop(query)
        say(f"query {query.name} cannot be restarted any more: its input grew too large to keep")


def consumers(query: Query, deliveries: Iterable[Delivery]) -> set[Consumer]:
    """Who ought to acknowledge a query's rows. A relation may be read as a table alone."""
    attached = {d.consumer for d in deliveries}
    return attached if query.plan.relation else attached | {subscriber(query.name)}


def give_up(engine: Engine, query: Query, deliveries: Iterable[Delivery], reason: str) -> None:
    """Fails a query and lets go of all that it held."""
    engine.fail_query(query.name, reason)
    engine.hosting.stop(query)
    with engine.lock:
        names = consumers(query, deliveries) | {subscriber(query.name)}
        engine.deliveries = [d for d in engine.deliveries if d.result.query != query.name]
        with engine.ledger.transaction() as ledger:
            for consumer in names:
                ledger.drop_consumer(consumer)
    engine.maintenance.retain([query.stream])


def _too_much(size: int) -> str:
    return f"its results are not taken, {size / 1e6:,.1f} MB of them wait"


def _trim_rejects(engine: Engine, quota: int) -> None:
    """Late and rejected rows that nobody takes: the newest are kept, up to the quota."""
    for name in list(engine.appenders):
        for stream in (late_stream(name), rejected_stream(name)):
            if not engine.ledger.consumers(stream):
                engine.maintenance.trim(stream, quota)
