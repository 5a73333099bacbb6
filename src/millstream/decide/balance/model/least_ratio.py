"""A manager's policy that lowers the worst performance ratio directly, and is frugal with traffic.

Seed 002 balances loads and hopes for ratios. Loads alone miss three things: a queue waits by the
spread of its work too (a host where many units read one hot stream makes every row wait for all of
them), a short query suffers more from the same wait than a long one, and a path pays at every host
it visits. This policy asks a model (`ratio_model`) what a move would do to the worst ratio and
takes it if that gains more than its traffic costs. Three steps a decision: relieve overloaded hosts
by the moves that cost least traffic for the load they take; tidy, by moves that save traffic and
harm no ratio; then worst first, units of the worst paths and the heaviest company at the hosts they
visit.
"""

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from millstream.decide.balance.model.central_policy import CENTRAL, Observation, UnitMove
from millstream.decide.balance.model.dataflow import Floats, Ints, sum_by
from millstream.decide.balance.model.ratio_model import Estimate, RatioModel

NORM = 12
Units = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeastRatio:
    tolerance: float = 0.15  # of load above the average: hosts beyond it are relieved first
    crowded: float = 0.85  # a host above this is relieved whatever the ratios say
    # One per cent more traffic must lower the ratio by so many, where loads are even at home; with
    # uneven ones by less, in proportion.
    traffic_weight: float = 1.3
    skew_max: float = 6.0
    drain_s: float = 5.0  # in which what has piled up is to be worked off
    payback_s: float = 20.0  # in which a move's state must be worth its traffic
    payback_crowded_s: float = 6.0  # ... off a crowded host: what arrives soon helps most
    gain_min: float = 0.001  # less is not worth a move
    rest: float = 0.15  # once settled, a change of the value below this wakes nobody
    moves_max: int = 30  # in a decision, beyond relief
    evaluations_max: int = 600  # of the model in a decision
    tidy_units: int = 500  # with the most traffic: looked at for moves that save it
    worst_paths: int = 5  # looked at before giving up
    company: int = 6  # heaviest units looked at on a host that the worst path visits
    quiet_hosts: int = 4  # hosts with the shortest waits offered as targets

    def decide(self, seen: Observation, memory: Any) -> tuple[tuple[UnitMove, ...], Any]:
        """Works until nothing gains, then rests until things have clearly changed.

        Without the rest, the scatter of measured rates would always show some gain to move for.
        """
        if not len(seen.load_history) or not (seen.host_speed > 0).any():
            return (), memory  # nothing is known yet, or no host is up to take anything
        search = _Search(self, seen)
        value = search.value_now()
        uneven = search.overload() > self.tolerance * 1.5
        if isinstance(memory, Settled) and not uneven and abs(value - memory.value) < self.rest:
            return (), memory
        crowded = search.crowded()
        search.relieve_if_it_helps(value, crowded=crowded)
        if crowded or not seen.movable.all():
            return search.moves(), None  # first things first: polishing would take their bandwidth
        search.tidy()
        finished = search.worst_first()
        return search.moves(), Settled(search.value_now()) if finished else None


@dataclass(frozen=True, slots=True)
class Settled:
    """Memory of a policy at rest: the value it reached."""

    value: float


class _Search:
    """One decision: a placement that gets better step by step."""

    def __init__(self, policy: LeastRatio, seen: Observation) -> None:
        self.policy, self.seen = policy, seen
        self.model = RatioModel(seen.flow, seen.stream_rates, seen.host_speed, seen.transfer_s)
        self.host = seen.unit_host.copy()
        self.up = seen.host_speed > 0
        # Rows that already wait are load too, for as long as they are to be worked off.
        self.unit_load = self.model.unit_load + seen.unit_backlog_s / policy.drain_s
        self.free = seen.movable & self.up[seen.unit_host]
        self.readers = self.model.readers(self.host)
        self.reason: dict[int, str] = {}
        self.evaluations = 0
        native = np.where(self.up[seen.flow.unit_native], seen.flow.unit_native, self.host)
        at_home = self.model.estimate(native)
        self.base_traffic = max(at_home.traffic, 1.0)
        self.traffic_weight = policy.traffic_weight / self._skew(at_home.load)

    def _skew(self, at_home: Floats) -> float:
        """How uneven loads would be if everything ran where its stream arrives, 1 for even ones.

        What is even at home needs no traffic: there every byte counts. Where home is crowded much
        has to cross whatever is done, and the same bytes buy lower ratios.
        """
        loads = at_home[self.up]
        return min(max(float(loads.max() / max(loads.mean(), 1e-9)), 1.0), self.policy.skew_max)

    def moves(self) -> tuple[UnitMove, ...]:
        """What changed, first what takes much load with little state: it arrives first."""
        units = np.flatnonzero(self.host != self.seen.unit_host)
        density = self.unit_load[units] / np.maximum(self.model.unit_state_bytes[units], 1.0)
        changed = units[np.argsort(-density, kind="stable")].tolist()
        return tuple(UnitMove(unit, int(self.host[unit]), self.reason[unit]) for unit in changed)

    def _move(self, unit: int, target: int, reason: str) -> None:
        source = self.model.source_edge[unit]
        if source >= 0:
            stream = self.seen.flow.edge_stream[source]
            self.readers[stream, self.host[unit]] -= 1
            self.readers[stream, target] += 1
        self.host[unit] = target
        self.reason[unit] = reason

    def value_now(self) -> float:
        return self._value(self.model.estimate(self.host))

    def overload(self) -> float:
        """How far the heaviest host is above the average."""
        speed = self.seen.host_speed
        average = (self._loads() * speed)[self.up].sum() / speed[self.up].sum()
        return float(self._loads()[self.up].max() - average)

    def _loads(self) -> Floats:
        speed = np.maximum(self.seen.host_speed, 1e-9)
        loads: Floats = sum_by(self.host, self.unit_load, len(speed)) / speed
        return loads

    # --- relieve ----------------------------------------------------------------------------
    def crowded(self) -> bool:
        return bool(self._loads()[self.up].max() > self.policy.crowded)

    def relieve_if_it_helps(self, value: float, *, crowded: bool) -> None:
        """Always where a host is crowded; else only if the ratios gain by it.

        An uneven load is no harm in itself: on a slow network spreading may cost more.
        """
        host, readers = self.host.copy(), self.readers.copy()
        self.relieve()
        if not crowded and self.value_now() > value:
            self.host, self.readers, self.reason = host, readers, {}

    def relieve(self) -> None:
        """Takes load from hosts far above the average, the cheapest traffic first."""
        speed = np.maximum(self.seen.host_speed, 1e-9)
        unit_load = self.unit_load
        work = sum_by(self.host, unit_load, len(speed))
        average = work[self.up].sum() / speed[self.up].sum()
        stuck = ~self.up
        while True:
            load = np.where(stuck, -1.0, work / speed)
            heavy = int(np.argmax(load))
            if load[heavy] <= average + self.policy.tolerance:
                return
            found = self._cheapest_relief(heavy, work, average)
            if found is None:
                stuck[heavy] = True
                continue
            unit, target = found
            self._move(unit, target, f"relieves {self.seen.flow.hosts[heavy]} at {load[heavy]:.2f}")
            work[heavy] -= unit_load[unit]
            work[target] += unit_load[unit]

    def _cheapest_relief(self, heavy: int, work: Floats, average: float) -> tuple[int, int] | None:
        speed, unit_load = np.maximum(self.seen.host_speed, 1e-9), self.unit_load
        units = np.flatnonzero((self.host == heavy) & self.free & (unit_load > 0))
        excess = work[heavy] - average * speed[heavy]
        units = units[unit_load[units] <= max(excess, 0.0) + self.policy.tolerance * speed[heavy]]
        if not len(units):
            return None
        after = (work[None, :] + unit_load[units][:, None]) / speed[None, :]
        fits = (after <= average + self.policy.tolerance / 2) & self.up[None, :]
        fits[:, heavy] = False
        if not fits.any():
            return None
        change = self.model.traffic_changes(units, self.host, self.readers)
        hurry = work[heavy] / speed[heavy] > self.policy.crowded
        payback_s = self.policy.payback_crowded_s if hurry else self.policy.payback_s
        change += (self.model.unit_state_bytes[units] / payback_s)[:, None]
        price = np.where(fits, change / unit_load[units][:, None], np.inf)
        row, target = np.unravel_index(int(np.argmin(price)), price.shape)
        return int(units[row]), int(target)

    def _fare(self, units: Ints) -> Floats:
        """What moving a unit's state costs, as traffic over the time in which it must pay."""
        fare: Floats = self.model.unit_state_bytes[units] / self.policy.payback_s
        return fare

    # --- tidy and worst first ---------------------------------------------------------------
    def _score(self, found: Estimate) -> float:
        """A high norm of all ratios: nearly the worst, yet helping one of many bad ones counts."""
        worst = max(found.worst, 1e-9)
        norm = float(((found.path_ratio / worst) ** NORM).sum())
        return log(worst) + (log(norm) / NORM if norm > 0 else 0.0)  # 0: no query costs anything

    def _value(self, found: Estimate) -> float:
        return self._score(found) + self.traffic_weight * found.traffic / self.base_traffic

    def _burden(self, units: Units) -> float:
        fare = float(self._fare(np.array(units)).sum())
        return self.traffic_weight * fare / self.base_traffic

    def _try(self, units: Units, target: int) -> Estimate:
        self.evaluations += 1
        there = self.host.copy()
        there[list(units)] = target
        return self.model.estimate(there)

    def tidy(self) -> None:
        """Moves that save traffic and do not raise the worst ratio."""
        now = self.model.estimate(self.host)
        score = self._score(now)
        could_save = np.where(self.free, self.model.crossing_bytes(self.host), 0.0)
        units = np.argsort(-could_save, kind="stable")[: self.policy.tidy_units]
        units = units[could_save[units] > 0]
        if not len(units):
            return
        change = self.model.traffic_changes(units, self.host, self.readers)
        change[:, ~self.up] = np.inf
        target = change.argmin(axis=1)
        saved = change[np.arange(len(units)), target] + self._fare(units)
        worth = self.policy.gain_min / 4 * self.base_traffic
        for row in np.argsort(saved, kind="stable"):
            if saved[row] > -worth or self.evaluations > self.policy.evaluations_max // 2:
                return
            unit, to = int(units[row]), int(target[row])
            found = self._try((unit,), to)
            fare = float(self._fare(units[row : row + 1])[0])
            if self._score(found) <= score + 1e-9 and found.traffic + fare < now.traffic - worth:
                self._move(unit, to, "saves traffic")
                now, score = found, self._score(found)

    def worst_first(self) -> bool:
        """Whether it came to an end: no move is left that gains."""
        now = self.model.estimate(self.host)
        for _ in range(self.policy.moves_max):
            found = None
            for path in np.argsort(-now.path_ratio, kind="stable")[: self.policy.worst_paths]:
                if self.evaluations > self.policy.evaluations_max:
                    return False
                found = self._best_for(int(path), now)
                if found is not None:
                    break
            if found is None:
                return True
            units, target, after = found
            for unit in units:
                self._move(unit, target, f"worst ratio {now.worst:.1f} to {after.worst:.1f}")
            now = after
        return False

    def _best_for(self, path: int, now: Estimate) -> tuple[Units, int, Estimate] | None:
        """The move that gains most for a path, or the first that gains a lot."""
        before = self._value(now)
        best, chosen = before - self.policy.gain_min, None
        for units, target in self._candidates(path, now):
            found = self._try(units, target)
            value = self._value(found) + self._burden(units)
            if value < best:
                best, chosen = value, (units, target, found)
            if value < before - 5 * self.policy.gain_min:
                break  # better to look at the next worst than at every choice
        return chosen

    def _candidates(self, path: int, now: Estimate) -> list[tuple[Units, int]]:
        flow = self.seen.flow
        ends = np.append(flow.path_starts, len(flow.path_edges))
        edges = flow.path_edges[ends[path] : ends[path + 1]]
        units = np.unique(flow.edge_unit[edges])
        wait = np.where(self.up, now.wait_s, np.inf)
        quiet = np.argsort(wait, kind="stable")[: self.policy.quiet_hosts]
        pairs: list[tuple[Units, int]] = [
            ((u,), t) for u in units.tolist() for t in self._targets(u, units, quiet)
        ]
        pairs += self._together(units, quiet)
        for host in np.unique(self.host[units]).tolist():
            here = np.flatnonzero((self.host == host) & self.free)
            loudest = here[np.argsort(-now.pressure[here], kind="stable")]
            for unit in loudest[: self.policy.company].tolist():
                pairs += [((unit,), t) for t in self._targets(unit, units[:0], quiet[:2])]
        return [
            (some, t)
            for some, t in dict.fromkeys(pairs)
            if self.up[t] and all(self.free[u] and t != self.host[u] for u in some)
        ]

    def _together(self, units: Ints, quiet: Ints) -> list[tuple[Units, int]]:
        """All of a path to one host: where it waits once, instead of at every host it visits.

        One unit after the other would not get there: the first move alone gains nothing.
        """
        if len(units) < 2:
            return []
        places = {*quiet.tolist(), *self.host[units].tolist()}
        places.update(self.seen.flow.unit_native[units].tolist())
        found = []
        for target in sorted(places):
            leaving = tuple(u for u in units.tolist() if self.host[u] != target)
            if len(leaving) > 1:
                found.append((leaving, target))
        return found

    def _targets(self, unit: int, mates: Ints, quiet: Ints) -> list[int]:
        """Where a unit could go: home, to neighbours, to copies of its stream, to quiet hosts."""
        flow = self.seen.flow
        places = {int(flow.unit_native[unit]), *quiet.tolist(), *self.host[mates].tolist()}
        places.update(self.model.neighbour_hosts(unit, self.host).tolist())
        source = self.model.source_edge[unit]
        if source >= 0:
            copies = np.flatnonzero(self.readers[flow.edge_stream[source]])
            by_readers = copies[np.argsort(self.readers[flow.edge_stream[source], copies])]
            places.update(by_readers[:3].tolist())
        return sorted(places)


CENTRAL.add("least_ratio", LeastRatio())
