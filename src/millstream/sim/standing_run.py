"""Standing trees in virtual time: the coordinators, proxies and decisions of real processors.

Each processor has the driver that real ones have (`control/coordinators/driver.py`), over messages
that take as long as the way is, and smoothed distances of its own; proxies look at their interval,
let trees be mapped, and move operators where `control/peers/standing.py` says so. A move takes a
while and ends at the new place. The network, rates and processors may change at any time; what a
processor says of its distances may be a lie. Decides nothing itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from millstream.control.admission.distances import MEASURED
from millstream.control.admission.parts import moved, parts
from millstream.control.coordinators.driver import PlacementDriver
from millstream.control.coordinators.state import Refuse, Report, Timing
from millstream.control.manager.state import (
    Figures,
    Live,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    Statistics,
    StreamRecord,
)
from millstream.control.peers import standing
from millstream.control.peers.standing import StandingSettings
from millstream.control.protocol.coordinator_messages import Message
from millstream.decide.place.network.distances import Estimates
from millstream.decide.place.problem import Matrix
from millstream.sim.kernel import Kernel

ROW_BYTES = 100.0
MOVE_S = 2.0  # that a move takes
SILENT_S = 3.0  # after which others notice that one is gone
QUIET_S = 2.0  # that a mapping gets after its outcome, until all hosts have been told
TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Workload:
    """What runs: inputs of operators, rows a second of all streams, entrances, queries."""

    inputs: Mapping[str, tuple[str, ...]]
    rates: Mapping[str, float]
    entrances: Mapping[str, str]  # by base stream
    queries: Mapping[str, Query]


class _Wire:
    """What a processor's surroundings do for its driver."""

    def __init__(self, run: "StandingRun", name: str) -> None:
        self._run, self._name = run, name

    def send(self, peer: str, message: Message) -> None:
        self._run.sent += 1
        self._run.carry(self._name, peer, message)

    def probe(self, targets: Sequence[str]) -> Mapping[str, float]:
        known = self._run.believed(self._name)
        return {target: known[target] for target in targets if target in known}

    def near(self) -> Mapping[str, float]:
        return self._run.believed(self._name)

    def now_s(self) -> float:
        return self._run.kernel.now


@dataclass(slots=True)
class StandingRun:
    """A cluster without a manager whose members keep queries placed."""

    names: tuple[str, ...]
    distance: Matrix  # in ms, as it is now
    work: Workload
    places: dict[str, str]  # of operators
    settings: StandingSettings = field(default_factory=lambda: StandingSettings(every_s=10.0))
    seed: int = 0
    loss: float = 0.0
    liars: Mapping[str, float] = field(default_factory=dict)  # by processor: times the distance
    kernel: Kernel = field(init=False)
    drivers: dict[str, PlacementDriver] = field(default_factory=dict)
    estimates: dict[str, Estimates] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    apart: tuple[frozenset[str], ...] = ()  # sides of a partition
    kept: dict[str, standing.Trees] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], Report | Refuse] = field(default_factory=dict)
    moving: dict[str, tuple[str, str]] = field(default_factory=dict)
    moves: list[tuple[float, str, str, str]] = field(default_factory=list)
    said: list[tuple[float, str]] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.seed)
        timing = Timing(measure_s=2.0, mapping_s=self.settings.every_s)
        for name in self.names:
            self.estimates[name] = Estimates()
            self.kept[name] = {}
            self.drivers[name] = self._driver(name, timing)
        chance = self.kernel.generator("phases")
        for name in self.names:
            first = float(chance.uniform(0, self.settings.every_s))
            self._again(first, self.settings.every_s, lambda name=name: self._look(name))
        self._again(0.0, self.settings.probe_s, self._measure)
        self._again(TICK_S, TICK_S, self._tick)

    def _driver(self, name: str, timing: Timing) -> PlacementDriver:
        def on_outcome(outcome: Report | Refuse) -> None:
            self.outcomes[name, outcome.tree] = outcome
            self.kernel.after(QUIET_S, lambda: self._follow(name, outcome.tree))

        return PlacementDriver(
            name, lambda: self._seen_by(name), _Wire(self, name), on_outcome, timing
        )

    def _again(self, first_s: float, every_s: float, what: object) -> None:
        def once() -> None:
            what()  # type: ignore[operator]
            self.kernel.after(every_s, once)

        self.kernel.after(first_s, once)

    def run(self, until_s: float) -> None:
        self.kernel.run(until_s)

    # -- the network ----------------------------------------------------------------------------

    def reaches(self, one: str, other: str) -> bool:
        if one in self.down or other in self.down:
            return False
        return not any((one in side) != (other in side) for side in self.apart)

    def _ms(self, one: str, other: str) -> float:
        return float(self.distance[self.names.index(one), self.names.index(other)])

    def carry(self, one: str, other: str, message: Message) -> None:
        """A message on its way; who cannot be reached is told to the tree's proxy."""
        if other not in self.drivers or one in self.down:
            return
        proxy = message.settings.proxy
        if not self.reaches(one, other):
            if self.reaches(one, proxy):
                self.kernel.after(1.0, lambda: self._lost(proxy, other))
            return
        if self.loss and self.kernel.generator("loss").uniform() < self.loss:
            return
        delay_s = self._ms(one, other) / 1000

        def arrive() -> None:
            if self.reaches(one, other):
                self.drivers[other].receive(message)

        self.kernel.after(delay_s, arrive)

    def _lost(self, proxy: str, peer: str) -> None:
        if proxy not in self.down:
            self.drivers[proxy].peer_down(peer)

    def believed(self, name: str) -> dict[str, float]:
        """Smoothed distances to those whom a processor reaches."""
        matrix = self.estimates[name].pairs
        return {
            other: matrix[name, other].mean_ms
            for other in self._seen_by(name)
            if other != name and (name, other) in matrix
        }

    def _seen_by(self, name: str) -> list[str]:
        return [other for other in self.names if self.reaches(name, other)]

    def _measure(self) -> None:
        for name in self.names:
            lie = self.liars.get(name, 1.0)
            for other in self._seen_by(name) if name not in self.down else ():
                if other != name:
                    trip = 2 * self._ms(name, other) * lie
                    self.estimates[name] = self.estimates[name].observe_round_trip(
                        name, other, trip, self.kernel.now
                    )

    def _tick(self) -> None:
        for name, driver in self.drivers.items():
            if name not in self.down:
                driver.tick()

    def fail(self, name: str) -> None:
        """A processor dies; the others notice after a while."""
        self.down.add(name)

        def notice() -> None:
            if name in self.down:
                for other in self.names:
                    self._lost(other, name)

        self.kernel.after(SILENT_S, notice)

    def come(self, name: str) -> None:
        """It is back, with what its ledger has, and knows nothing of trees."""
        self.down.discard(name)
        self.kept[name] = {}
        timing = Timing(measure_s=2.0, mapping_s=self.settings.every_s)
        self.drivers[name] = self._driver(name, timing)

    # -- what a member learns -------------------------------------------------------------------

    def state(self, name: str = "") -> ManagerState:
        """What a member learns by asking all whom it reaches; without a name, what is true."""
        there = [n for n in self.names if n not in self.down] if not name else self._seen_by(name)
        figures = {n: Figures(1.0, self._told(n, true=not name)) for n in there}
        rates = self.work.rates

        def held(stream: str, key: str) -> Figures:
            values = {"rows_in": 1.0, "rows_out": 1.0, "bytes": ROW_BYTES, "held_rows": 1.0}
            values |= {"fixed_s": 0.0, "row_s": 0.0}
            return Figures(1.0, values, {key: rates[stream]}, {key: rates[stream]})

        return ManagerState(
            processors={n: Processor(n, f"http://{n}", 1, {"cpu": 1e6}) for n in self.names},
            live={n: Live(state="up" if n in there else "silent") for n in self.names},
            streams={
                s.removeprefix("s:"): StreamRecord(s.removeprefix("s:"), {}, place, True)
                for s, place in self.work.entrances.items()
            },
            operators={
                o: OperatorRecord(o, "map", o, read, 100, {}, self.places[o])
                for o, read in self.work.inputs.items()
            },
            queries=dict(self.work.queries),
            statistics=Statistics(
                figures,
                {o: held(o, "rows_out") for o in self.work.inputs},
                {s: held(s, "rows") for s in self.work.entrances},
                {},
            ),
            now_s=self.kernel.now,
        )

    def _told(self, name: str, *, true: bool) -> dict[str, float]:
        if true:
            return {MEASURED + n: self._ms(name, n) for n in self.names if n != name}
        return {MEASURED + other: ms for other, ms in self.believed(name).items()}

    def scale(self, stream: str, times: float) -> None:
        """A stream carries so many times as many rows from now on."""
        rates = {**self.work.rates, stream: self.work.rates[stream] * times}
        self.work = replace(self.work, rates=rates)

    def bound(self, latency_s: float) -> None:
        """All queries want their results in time from now on."""
        queries = {n: replace(q, latency_s=latency_s) for n, q in self.work.queries.items()}
        self.work = replace(self.work, queries=queries)

    # -- as a proxy -----------------------------------------------------------------------------

    def _look(self, name: str) -> None:
        if name in self.down:
            return
        state, seen = standing.looked(self.state(name), self.settings)
        found = standing.own_parts(state, seen, name)
        for gone in self.kept[name].keys() - found.keys():
            self.drivers[name].withdraw(self.kept[name][gone].tree.id)
        kept = standing.noticed(self.kept[name], found, name, 1, self.kernel.now)
        self.kept[name] = kept
        up = self._seen_by(name)
        for part, known in kept.items():
            how = standing.asked(found[part], known.tree, name, self.settings, up)
            self.drivers[name].submit(known.tree, how, self.settings.levels)

    def hosted(self, tree: str, name: str, epoch: int) -> dict[str, str]:
        """Where the processors say that a tree's operators are, as its proxy hears it."""
        found: dict[str, str] = {}
        for other in self._seen_by(name):
            for operator in self.drivers[other].running(tree, epoch):
                found[operator] = other
        return found

    def _follow(self, name: str, tree: str) -> None:
        outcome = self.outcomes.pop((name, tree), None)
        part_id = next((p for p, k in self.kept[name].items() if k.tree.id == tree), None)
        if outcome is None or part_id is None or name in self.down or isinstance(outcome, Refuse):
            return
        state, seen = standing.looked(self.state(name), self.settings)
        part = standing.own_parts(state, seen, name).get(part_id)
        if part is None or self.moving:  # one deployment at a time: everybody is engaged
            return
        kept = self.kept[name][part_id]
        here = self.hosted(tree, name, outcome.epoch)
        placement = {o: here[o] for o in part.running if o in here}
        resting = standing.rests(kept, self.settings, self.kernel.now)
        proposal = standing.decided(state, seen, part, placement, resting=resting)
        self.said.append((self.kernel.now, proposal.sentence))
        if not proposal.moves:
            return
        self.moving.update(proposal.moves)
        self.kernel.after(MOVE_S, lambda: self._moved(proposal.moves))
        there = {o: to for o, (_, to) in proposal.moves.items()}
        after = replace(kept, places={**kept.places, **there}, moved_s=self.kernel.now)
        self.kept[name] = {**self.kept[name], part_id: after}

    def _moved(self, moves: Mapping[str, tuple[str, str]]) -> None:
        """What both ends are there for ends at the new place; else it is undone."""
        for operator, (old, new) in moves.items():
            if self.reaches(old, new):
                self.places[operator] = new
                self.moves.append((self.kernel.now, operator, old, new))
            del self.moving[operator]

    # -- judged ---------------------------------------------------------------------------------

    def cost(self) -> float:
        """Traffic x distance of all that runs, by what is true: each crossing counts once."""
        return self._total(self.state())

    def _total(self, state: ManagerState) -> float:
        crossings: dict[tuple[str, str], float] = {}
        for operator, read in self.work.inputs.items():
            here = state.operators[operator].processor
            for stream in read:
                owner = state.operators.get(stream)
                at = owner.processor if owner else self.work.entrances[stream]
                crossings[stream, here] = self._ms(at, here) * self.work.rates[stream]
        for query in self.work.queries.values():
            if query.deliver_to:
                at = state.operators[query.result].processor
                ms = self._ms(at, query.deliver_to)
                crossings[query.result, query.deliver_to] = ms * self.work.rates[query.result]
        return ROW_BYTES * sum(crossings.values())

    def delay(self, query: str) -> float:
        """The longest way of a row of a query to where its result is wanted, in ms."""
        known = self.work.queries[query]

        def below(stream: str) -> float:
            if stream in self.work.entrances:
                return 0.0
            here = self.places[stream]
            read = self.work.inputs[stream]
            return max(
                below(s) + self._ms(self.work.entrances.get(s) or self.places[s], here)
                for s in read
            )

        return below(known.result) + self._ms(self.places[known.result], known.deliver_to)

    def optimum(self) -> float:
        """The least that is known of what all could cost: part by part, until nothing helps."""
        best = float("inf")
        state = self.state()
        for _ in range(20):
            for part in parts(state):
                there = part.cheapest()
                if part.judged(there).cost < part.judged(part.running).cost * (1 - 1e-9):
                    state = moved(state, {o: (part.running[o], p) for o, p in there.items()})
                    break
            else:
                return min(best, self._total(state))
            best = min(best, self._total(state))
        return best


def tripled(distance: Matrix, one: int, other: int, times: float = 3.0) -> Matrix:
    """A network in which one distance has changed.

    >>> import numpy as np
    >>> tripled(np.array([[0.0, 2.0], [2.0, 0.0]]), 0, 1).tolist()
    [[0.0, 6.0], [6.0, 0.0]]
    """
    changed = distance.copy()
    changed[one, other] *= times
    changed[other, one] *= times
    return changed
