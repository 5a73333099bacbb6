"""Random runs of a manager with virtual processors: plans, users' wishes, faults, all by seed."""

from dataclasses import replace
from random import Random

from millstream.control.manager.events import (
    DeclareStream,
    Drain,
    Drop,
    Pause,
    Remove,
    RequestMove,
    StartStreams,
    Submit,
)
from millstream.control.moves import routes
from millstream.control.protocol.replies import Compiled
from millstream.sim.managed.managed_cluster import ManagedCluster, Trouble, table, tree
from millstream.store.moves.records import Place
from sim.managed_checkers import always, in_the_end, misled

STREAMS = ("a", "b", "c")
ROWS = 36


def random_plans(chance: Random, count: int) -> dict[str, Compiled]:
    """Texts with their plans; operators are named by meaning, so that queries share them."""
    plans = {}
    for number in range(count):
        rows: dict[str, tuple[str, ...]] = {}
        top = [f"s:{s}" for s in chance.sample(STREAMS, chance.randint(1, 3))]
        for level in range(chance.randint(1, 4)):
            if len(top) > 1 and chance.random() < 0.6:
                inputs = (top.pop(), top.pop())
            else:
                inputs = (top.pop(),)
            name = f"o:{level % 2}({','.join(i.removeprefix('o:') for i in inputs)})"
            rows[name] = (name, *inputs)
            top.append(name)
        while len(top) > 1:
            inputs = (top.pop(), top.pop())
            name = f"o:j({','.join(i.removeprefix('o:') for i in inputs)})"
            rows[name] = (name, *inputs)
            top.append(name)
        plans[f"text {number}"] = tree(f"q{number}", *rows.values())
    return plans


def random_wish(chance: Random, cluster: ManagedCluster, *, streams: bool = False) -> None:
    """A move, mostly, with `streams` of base streams as well; sometimes a query is dropped,
    submitted or a processor drained."""
    state = cluster.state
    names = sorted(cluster.processors)
    placed = sorted(o.id for o in state.operators.values() if o.processor)
    kind = chance.random()
    if streams and chance.random() < 0.35:
        entering = sorted(s.id for s in state.streams.values() if s.processor)
        if entering:
            some = tuple(chance.sample(entering, min(len(entering), chance.randint(1, 2))))
            cluster.ask(RequestMove(some, chance.choice(names), "rows enter elsewhere"))
    elif kind < 0.75 and placed:
        some = tuple(chance.sample(placed, min(len(placed), chance.randint(1, 3))))
        cluster.ask(RequestMove(some, chance.choice(names), "why not"))
    elif kind < 0.82 and state.queries:
        cluster.ask(Drop(chance.choice(sorted(state.queries))))
    elif kind < 0.95:
        text = chance.choice(sorted(cluster.plans))
        cluster.ask(Submit(f"again {cluster.messages}", text, from_beginning=chance.random() < 0.5))
    else:
        name = chance.choice(names)
        cluster.ask(Drain(name))
        cluster.ask(Drain(name, back=True))


def random_relays(chance: Random, cluster: ManagedCluster) -> None:
    """A manager's wishes who sends streams on, any of them good or bad; and processors that take
    bytes from whomever: one without the stream, one that is away, themselves in a circle."""
    state, names = cluster.state, sorted(cluster.processors)
    known = sorted({i for o in state.operators.values() for i in o.inputs})
    if not known or not cluster.manager_up:
        return
    some = {
        (stream, reader): chance.choice(names)
        for stream in known
        for reader in names
        if chance.random() < 0.7
    }
    cluster.state = replace(state, routes=routes.told(some))
    for name in names:
        processor = cluster.processors[name].processor
        for copy in cluster.processors[name].ownership.copies():
            if chance.random() < 0.2:
                other = cluster.processors[chance.choice(names)]
                processor.receiver.take_from(copy.stream, Place(other.name, other.url))


def random_run(
    seed: int, *, wishes: int = 12, queries: int = 4, burning: bool = False, losing: bool = False,
    streams: bool = False, pausing: bool = False, relaying: bool = False,
) -> ManagedCluster:  # fmt: skip
    """A cluster that went through a bad time, and then had a quiet one."""
    chance, whim = Random(seed), Random(f"pauses {seed}")
    rumour = Random(f"relays {seed}")
    trouble = Trouble(
        until_s=60.0,
        loss=chance.choice((0.0, 0.02, 0.15)),
        repeat=chance.choice((0.0, 0.1)),
        delay_s=chance.choice((0.01, 0.05, 0.4)),
        cut=chance.choice((0.0, 0.3)),
        kill_every_s=chance.choice((0.0, 6.0, 20.0)),
        kill_manager_every_s=chance.choice((0.0, 8.0, 25.0)),
        pause_every_s=chance.choice((0.0, 15.0)),
        down_s=chance.choice((0.5, 3.0, 8.0)),
        burn_manager_every_s=25.0 if burning else 0.0,
    )
    names = tuple(f"p{n}" for n in range(1, chance.randint(2, 4) + 1))
    cluster = ManagedCluster(seed, names, random_plans(chance, queries), trouble)
    cluster.run(0.3)
    cluster.declare(*STREAMS, rows=ROWS)
    for number, text in enumerate(sorted(cluster.plans)):
        cluster.feed(Submit(f"q{number}", text, from_beginning=True))
    cluster.feed(StartStreams())
    lost_at = chance.uniform(5.0, 40.0) if losing else float("inf")
    for _ in range(wishes):
        at = cluster.kernel.now + chance.uniform(0.5, 5.0)
        cluster.run(at)
        assert not always(cluster), always(cluster)
        if cluster.manager_up:
            random_wish(chance, cluster, streams=streams)
            if pausing and cluster.state.queries:
                some = whim.choice(sorted(cluster.state.queries))
                cluster.ask(Pause(some, wanted=whim.random() < 0.6))
        if relaying:
            random_relays(rumour, cluster)
        if cluster.kernel.now >= lost_at and len(cluster.processors) > 1:
            cluster.lose(chance.choice(sorted(cluster.processors)))
            lost_at = float("inf")
    cluster.run(max(trouble.until_s, cluster.kernel.now))
    while still := sorted(cluster.dead.keys() & cluster.state.processors.keys()):
        cluster.run(cluster.kernel.now + 5.0)
        cluster.ask(Remove(still[0], lost=True))
    if burning:  # of a stream that nobody had yet only the name is left: it is declared again
        cluster.run(cluster.kernel.now + 30.0)
        for name in STREAMS:
            cluster.ask(DeclareStream(table(name)))
    if pausing:
        cluster.run(cluster.kernel.now + 60.0)
        assert not misled(cluster), misled(cluster)
        for name in sorted(cluster.state.queries):
            cluster.ask(Pause(name, wanted=False))
    for _ in range(30):  # time enough for everything to end; mostly less
        cluster.run(cluster.kernel.now + 5.0)
        for name in sorted(cluster.dead) if burning else ():
            cluster.ask(Remove(name, lost=True))  # again, where the manager has forgotten it
        if not in_the_end(cluster):
            break
    return cluster
