"""Processors that come and go by the manager's wishes, among all that goes wrong: nothing is lost
with one that was told to end."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from managed_runs import ROWS, STREAMS, random_plans, random_wish

from millstream.control.admission import scaling
from millstream.control.manager.events import DeclareStream, Drain, Remove, StartStreams, Submit
from millstream.decide.balance.scaling import Bounds, Memory, Seen, Wish
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, Trouble, table, tree
from millstream.sim.managed.virtual_processor import VirtualProcessor
from sim.managed_checkers import always, in_the_end

Scaler = Callable[[Seen, Bounds, Memory, float], tuple[Wish, Memory]]
PLANS = {"one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j"))}


class ElasticCluster(ManagedCluster):
    """Somebody starts and ends processors as the manager says."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.ended: list[str] = []
        self._born = len(self.processors)
        self.kernel.every(1.0, self._scale)

    def _scale(self) -> None:
        for name in self.ended:
            if name in self.state.processors:
                self.ask(Remove(name))  # again where the manager was away, or forgot it
        if not self.manager_up:
            return
        told = scaling.answer(self.state)
        for name in told.free:
            if name in self.processors and self.processors[name].up:
                self._end(name)
        working = sum(name not in told.leaving for name in self.processors)
        for _ in range(told.wanted - working):
            self._born += 1
            fresh = f"p{self._born}"
            self.processors[fresh] = VirtualProcessor(fresh, self)
            self._begin(fresh)

    def _end(self, name: str) -> None:
        """Its process and its home are gone."""
        gone = self.processors.pop(name)
        gone.up = False
        gone.close()
        shutil.rmtree(gone.home)
        self.ended.append(name)
        self._disturbed += 1

    def _announce(self, name: str) -> None:
        if name in self.processors:
            super()._announce(name)

    def _announce_if_unknown(self, name: str) -> None:
        if name in self.processors:
            super()._announce_if_unknown(name)


def whims(seed: int) -> Scaler:
    """One more or one less, for no reason."""
    chance = Random(f"whims {seed}")

    def scale(seen: Seen, bounds: Bounds, memory: Memory, now_s: float) -> tuple[Wish, Memory]:
        there, kind = sorted(seen.costs), chance.random()
        wish = Wish(memory.wanted or len(there))
        if now_s < 70.0 and kind < 0.25 and len(there) > bounds.least and not seen.leaving:
            wish = Wish(len(there) - 1, leave=chance.choice(there), reason="a whim")
        elif now_s < 70.0 and kind < 0.4 and len(there) < bounds.most:
            wish = Wish(len(there) + 1, reason="a whim")
        elif kind < 0.45 and seen.leaving:
            wish = Wish(len(there) + 1, stay=seen.leaving, reason="a whim")
        return wish, Memory(wish.wanted, wish.reason)

    return scale


def random_run(seed: int, *, burning: bool = False) -> ElasticCluster:
    chance = Random(seed)
    trouble = Trouble(
        until_s=60.0,
        loss=chance.choice((0.0, 0.02, 0.15)),
        repeat=chance.choice((0.0, 0.1)),
        delay_s=chance.choice((0.01, 0.05, 0.4)),
        cut=chance.choice((0.0, 0.3)),
        kill_every_s=chance.choice((0.0, 6.0, 20.0)),
        kill_manager_every_s=chance.choice((0.0, 8.0, 25.0)),
        pause_every_s=chance.choice((0.0, 15.0)),
        down_s=chance.choice((0.5, 3.0)),
        burn_manager_every_s=25.0 if burning else 0.0,
    )
    settings = replace(QUICK, bounds=Bounds(2, 5))
    cluster = ElasticCluster(seed, ("p1", "p2", "p3"), random_plans(chance, 4), trouble, settings)
    cluster.run(0.3)
    cluster.declare(*STREAMS, rows=ROWS)
    for number, text in enumerate(sorted(cluster.plans)):
        cluster.feed(Submit(f"q{number}", text, from_beginning=True))
    cluster.feed(StartStreams())
    for _ in range(10):
        cluster.run(cluster.kernel.now + chance.uniform(0.5, 6.0))
        assert not always(cluster), always(cluster)
        if cluster.manager_up:
            random_wish(chance, cluster, streams=True)
    cluster.run(75.0)
    if burning:
        cluster.run(cluster.kernel.now + 30.0)
        for name in STREAMS:
            cluster.ask(DeclareStream(table(name)))
    for _ in range(40):
        cluster.run(cluster.kernel.now + 5.0)
        if not judged(cluster):
            break
    return cluster


def judged(cluster: ElasticCluster) -> list[str]:
    """As of any cluster; and nobody keeps anything for those who have ended."""
    kept = [
        f"{name} keeps {stream} for {gone}"
        for name, p in cluster.processors.items()
        for gone in cluster.ended
        for stream in p.ledger.consumers_of("processor").get(gone, ())
    ]
    known = [f"{name} is still known" for name in cluster.ended if name in cluster.state.processors]
    return [*in_the_end(cluster), *kept, *known]


@pytest.mark.parametrize("seed", [*range(12), 900013])  # the last: who is to leave is silent
def test_processors_come_and_go(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "scale", whims(seed))
    cluster = random_run(seed)
    assert judged(cluster) == [], f"random_run({seed})"


def test_they_do() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scaling, "scale", whims(1))
        cluster = random_run(1)
    assert cluster.ended
    assert len(cluster.processors) + len(cluster.ended) > 3


def quiet(bounds: Bounds, names: tuple[str, ...]) -> ElasticCluster:
    settings = replace(QUICK, bounds=bounds)
    cluster = ElasticCluster(1, names, PLANS, None, settings)
    cluster.run(0.5)
    cluster.declare("a", "b", rows=30)
    cluster.feed(Submit("one", "one", from_beginning=True))
    cluster.feed(StartStreams())
    return cluster


def test_fewer_are_enough() -> None:
    """By the policy itself: it is told why, what the one had goes elsewhere, and the rest stay."""
    cluster = quiet(Bounds(2, 5, 5.0, 20.0), ("p1", "p2", "p3", "p4"))
    cluster.run(120.0)
    assert sorted(cluster.processors) == ["p1", "p2"]
    assert judged(cluster) == []
    told = [d for d in cluster.state.decisions if "is to leave" in d.sentence]
    assert [d.sentence for d in told] == [
        "processor p4 is to leave: 3 are enough", "processor p3 is to leave: 2 are enough",
    ]  # fmt: skip
    assert all("without it the others would cost" in d.reason for d in told)


def test_the_fewest_are_started() -> None:
    cluster = quiet(Bounds(3, 5), ("p1",))
    cluster.run(20.0)
    assert sorted(cluster.processors) == ["p1", "p2", "p3"]


def test_somebody_may_want_it_back() -> None:
    cluster = quiet(Bounds(1, 5, 5.0, 1e6), ("p1", "p2", "p3"))
    cluster.run(10.0)
    known = cluster.state.processors["p3"]
    leaving = replace(known, leaving_s=10.0, draining=True)
    processors = {**cluster.state.processors, "p3": leaving}
    cluster.state = replace(cluster.state, processors=processors, scaling=Memory(2))
    cluster.feed(Drain("p3", back=True))
    cluster.run(60.0)
    assert sorted(cluster.processors) == ["p1", "p2", "p3"]
    assert not cluster.state.processors["p3"].leaving_s
    assert judged(cluster) == []
