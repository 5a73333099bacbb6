"""Random runs of two managers that share nothing but their processors: partitions of both kinds,
clocks that are wrong, kills. Processors follow whoever has the higher epoch; who is outdone looks
on until the other is silent, and then learns."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from managed_runs import ROWS, STREAMS, random_plans, random_wish

from millstream.control.manager.events import StartStreams, Submit
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, Trouble
from sim.managed_checkers import always, in_the_end


class Rival(ManagedCluster):
    """The other manager: of processors that are there already."""

    def __init__(self, seed: int, plans: Mapping[str, Any], beside: ManagedCluster) -> None:
        super().__init__(seed, (), plans, beside.trouble, replace(QUICK), beside)
        self.processors = beside.processors
        self.state = replace(self.state, lineage="r1")
        for name in self.processors:
            self.kernel.after(0.02, lambda name=name: self._announce(name))
            self.kernel.every(2.0, lambda name=name: self._announce_if_unknown(name))

    def _life(self) -> str:
        return f"r{super()._life()}"

    def _subscribe(self) -> None:
        return None

    def _announce(self, name: str) -> None:
        if not self.state.superseded:  # else its door is closed
            super()._announce(name)

    def close(self) -> None:
        self._homes.cleanup()


def random_run(seed: int, *, wishes: int = 12) -> tuple[ManagedCluster, Rival]:
    chance = Random(seed)
    trouble = Trouble(
        until_s=60.0,
        loss=chance.choice((0.0, 0.02, 0.15)),
        repeat=chance.choice((0.0, 0.1)),
        delay_s=chance.choice((0.01, 0.05, 0.4)),
        cut=chance.choice((0.0, 0.3)),
        kill_every_s=chance.choice((0.0, 20.0)),
        kill_manager_every_s=chance.choice((0.0, 8.0, 25.0)),
        pause_every_s=chance.choice((0.0, 15.0)),
        down_s=chance.choice((0.5, 3.0, 8.0)),
        part_every_s=chance.choice((4.0, 10.0)),
        unheard=chance.choice((0.0, 0.1)),
        skew_s=chance.choice((0.0, 5.0, 3600.0)),
    )
    names = tuple(f"p{n}" for n in range(1, chance.randint(2, 4) + 1))
    first = ManagedCluster(seed, names, random_plans(chance, 4), trouble)
    rival = Rival(seed, first.plans, first)
    first.run(0.3)
    managers = (first, rival)
    first.declare(*STREAMS, rows=ROWS)
    for number, text in enumerate(sorted(first.plans)):
        first.feed(Submit(f"q{number}", text, from_beginning=True))
    first.feed(StartStreams())
    _part_the_rival(chance, rival)
    for _ in range(wishes):
        first.run(first.kernel.now + chance.uniform(0.5, 5.0))
        assert not always(first), always(first)
        asked = chance.choice(managers)
        if asked.manager_up and not asked.state.superseded and asked.state.processors:
            random_wish(chance, asked, streams=True)
    first.run(max(trouble.until_s, first.kernel.now) + 20.0)
    for _ in range(40):
        first.run(first.kernel.now + 5.0)
        if not judged(first, rival):
            break
    return first, rival


def _part_the_rival(chance: Random, rival: ManagedCluster) -> None:
    at, names = rival.kernel.now, sorted(rival.processors)
    while (at := at + chance.expovariate(1 / rival.trouble.part_every_s)) < 60.0:
        some = chance.sample(names, chance.randint(1, len(names)))
        there = chance.random() < 0.7
        back, down_s = not there or chance.random() < 0.6, chance.choice((2.0, 6.0, 15.0))
        rival.kernel.at(
            at, lambda s=some, d=down_s, t=there, b=back: rival.part(s, d, there=t, back=b)
        )


def judged(first: ManagedCluster, rival: ManagedCluster) -> list[str]:
    """As of any cluster, by the one manager that leads."""
    leading = [m for m in (first, rival) if m.manager_up and not m.state.superseded]
    if len(leading) != 1:
        return [f"{len(leading)} managers lead"]
    mine, first.state = first.state, leading[0].state
    try:
        return in_the_end(first)
    finally:
        first.state = mine
