"""Random runs of clusters whose homes are kept at several processors; plans and faults by seed."""

from dataclasses import replace
from random import Random

from millstream.control.manager.events import DeclareStream, Event, Remove, StartStreams, Submit
from millstream.sim.managed.managed_cluster import QUICK, Trouble, table
from millstream.sim.managed.replicated_cluster import ReplicatedCluster
from sim.managed_checkers import always, in_the_end
from sim.managed_runs import ROWS, STREAMS, random_plans, random_wish

PUSHED, BATCHES = "w", 40


def judged(cluster: ReplicatedCluster) -> list[str]:
    """As of any cluster; and what was answered to a producer is there, once, in its order."""
    return [*in_the_end(cluster), *_acknowledged(cluster)]


def _acknowledged(cluster: ReplicatedCluster) -> list[str]:
    answered = cluster.acknowledged.get(PUSHED, 0)
    lives = cluster.truth.logs.get(f"s:{PUSHED}", [])
    rows = [row for segment in lives[-1] for row in segment] if lives else []
    wanted = [f"{PUSHED}{n}" for n in range(1, answered + 1)]
    if rows[:answered] != wanted or len(rows) > answered + 1:
        return [f"{answered} batches were answered, and there are {rows}"]
    return [] if answered == BATCHES else [f"{answered} of {BATCHES} batches were answered"]


def random_run(
    seed: int, *, wishes: int = 10, troubled: bool = True, burning: bool = False
) -> ReplicatedCluster:
    chance = Random(seed)
    trouble = Trouble(
        until_s=60.0,
        loss=chance.choice((0.0, 0.02, 0.1)),
        repeat=chance.choice((0.0, 0.1)),
        delay_s=chance.choice((0.01, 0.05, 0.3)),
        cut=chance.choice((0.0, 0.2)),
        kill_every_s=chance.choice((0.0, 15.0)),
        kill_manager_every_s=chance.choice((0.0, 20.0)),
        pause_every_s=chance.choice((0.0, 15.0)),
        down_s=chance.choice((0.5, 3.0, 8.0)),
        burn_manager_every_s=25.0 if burning else 0.0,
    ) if troubled else Trouble()  # fmt: skip
    replicas = chance.choice((2, 2, 3))
    names = tuple(f"p{n}" for n in range(1, replicas + chance.randint(1, 2) + 1))
    settings = replace(QUICK, replicas=replicas, lost_after_s=chance.choice((0.0, 6.0, 12.0)))
    plans = random_plans(chance, 3)
    cluster = ReplicatedCluster(seed, names, plans, trouble, settings)
    cluster.run(3.0)
    cluster.sources.update(dict.fromkeys(STREAMS, ROWS))
    for name in (*STREAMS, PUSHED):
        _insist(cluster, DeclareStream(table(name)))
    for number, text in enumerate(sorted(cluster.plans)):
        _insist(cluster, Submit(f"q{number}", text, from_beginning=True))
    _insist(cluster, StartStreams())
    cluster.push(PUSHED, BATCHES)
    lost_at = chance.uniform(8.0, 40.0)
    for _ in range(wishes):
        cluster.run(cluster.kernel.now + chance.uniform(0.5, 5.0))
        assert not always(cluster), always(cluster)
        if cluster.manager_up:
            random_wish(chance, cluster, streams=True)
        if cluster.kernel.now >= lost_at and _whole(cluster):
            _strike(chance, cluster)
            lost_at = float("inf") if chance.random() < 0.6 else lost_at + 20.0
    cluster.run(max(trouble.until_s, cluster.kernel.now) + 15.0)
    for _ in range(40):
        for name in sorted(cluster.dead.keys() & cluster.state.processors.keys()):
            cluster.ask(Remove(name, lost=True))
        cluster.run(cluster.kernel.now + 5.0)
        if burning and not cluster.state.learning_until_s:
            for name in (*STREAMS, PUSHED):  # where nobody had more than the name
                cluster.ask(DeclareStream(table(name), start=name == PUSHED))
        if not judged(cluster):
            break
    return cluster


def _insist(cluster: ReplicatedCluster, event: Event) -> None:
    """Asks until somebody is there who can do it."""
    for _ in range(60):
        if not cluster.ask(event):
            return
        cluster.run(cluster.kernel.now + 1.0)
    raise AssertionError(f"nobody does {event}")


def _strike(chance: Random, cluster: ReplicatedCluster) -> None:
    """A machine is gone, with every home on it; or it is cut off from all others for a while. As
    many machines as are wanted stay, and what was taken over is safe again before the next."""
    machines = sorted(n for n, p in cluster.processors.items() if not p.heir)
    name = chance.choice(machines)
    together = [n for n, p in cluster.processors.items() if p.heir == name]
    for gone in (name, *together):
        if chance.random() < 0.6 and len(machines) > cluster.state.settings.replicas:
            cluster.burn(gone)
        else:
            cluster.isolate(gone, chance.choice((3.0, 10.0, 30.0)))


def _whole(cluster: ReplicatedCluster) -> bool:
    """Whether everybody's followers have everything, by their own folders."""
    if cluster.dead or cluster.cut_off or not cluster.manager_up:
        return False
    for name, processor in cluster.processors.items():
        mine = processor.processor.log.configuration
        known = cluster.state.replications.get(name)
        if known is None or known.phase or known.number != mine.number:
            return False
        for follower in mine.followers:
            there = cluster.processors.get(follower)
            kept = there.keeper.replicas.get(name) if there else None
            if kept is None or kept.note.complete < mine.number:
                return False
        if len(mine.followers) < mine.wanted:
            return False
    return True
