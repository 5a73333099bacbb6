"""The reduced problem of SQPR (III.8 with IV.9) as rows for a solver, and its answer read back.

`PlacementModel` writes the rows for a scope (what is decided anew, `milp_scope`) and translates
values into sources and deliveries. Applies nothing to a placement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from millstream.decide.place.reuse.objective import Scales
from millstream.decide.place.reuse.planners.milp_scope import Demanded, Scope
from millstream.decide.place.reuse.state import PlanState
from millstream.decide.place.solver import Answer, Model

Held = tuple[int, int]  # (stream, host)


@dataclass(slots=True)
class _Variables:
    has: dict[Held, int] = field(default_factory=dict)  # y
    run: dict[tuple[int, int], int] = field(default_factory=dict)  # z: (operator, host)
    flow: dict[tuple[int, int, int], int] = field(default_factory=dict)  # x: (stream, from, to)
    give: dict[tuple[int, int], int] = field(default_factory=dict)  # d: (demand number, host)


class PlacementModel:
    """Rows for one scope over one placement."""

    def __init__(self, state: PlanState, scope: Scope, gap: float) -> None:
        self.state, self.scope, self.gap = state, scope, gap
        self.scales = Scales.of(state.catalog)
        self.model = Model()
        self.of = _Variables()
        self._relevant = frozenset(scope.streams)
        self._inside = frozenset(scope.hosts)
        self.fixed = {held: origin for held, origin in state.source.items() if not self._free(held)}
        self.steady = self._steady()
        self._make_variables()
        self._availability()
        self._deliveries()
        self._resources()
        if scope.exact:
            self._potentials()

    def _free(self, held: Held) -> bool:
        return held[0] in self._relevant and held[1] in self._inside

    def _steady(self) -> frozenset[Held]:
        """Where relevant streams are in any case: at origins, and what hangs on them."""
        base = self.state.catalog.base
        steady = {(stream, base[stream]) for stream in self.scope.streams if base[stream] >= 0}
        growing = True
        while growing:
            growing = False
            for held, origin in self.fixed.items():
                if held[0] not in self._relevant or held in steady:
                    continue
                if origin >= 0 or (held[0], ~origin) in steady:
                    steady.add(held)
                    growing = True
        return frozenset(steady)

    def _make_variables(self) -> None:
        state, scope, model, scales = self.state, self.scope, self.model, self.scales
        catalog, of = state.catalog, self.of
        for stream in scope.streams:
            for host in scope.hosts:
                if (stream, host) not in self.steady:
                    of.has[stream, host] = model.variable(whole=False)
        for operator in scope.operators:
            for host in scope.hosts:
                if catalog.cpu[operator] <= catalog.cpu_offered[host] + 1e-9:
                    gain = -scales.cpu * catalog.cpu[operator]
                    of.run[operator, host] = model.variable(gain)
        for stream in scope.streams:
            for source, target in self._possible_flows(stream):
                gain = -scales.network * catalog.rate[stream]
                of.flow[stream, source, target] = model.variable(gain)

    def _possible_flows(self, stream: int) -> list[tuple[int, int]]:
        """Pairs between which the stream may flow, without those that have no room for it."""
        scope, rate = self.scope, self.state.catalog.rate[stream]
        base = self.state.catalog.base[stream]
        hosts = scope.hosts
        outside = [
            host for held, host in self.steady if held == stream and host not in self._inside
        ]
        if scope.exact or base < 0:
            senders = [*hosts, *outside]
            pairs = [(source, target) for source in senders for target in hosts]
        else:
            # relays of a base stream follow a fixed order of hosts: no circle can close
            order = self._relay_order(stream)
            pairs = [
                (source, target)
                for number, source in enumerate(order)
                for target in order[number + 1 :]
            ]
            pairs += [(source, target) for source in outside for target in hosts]
        return [
            (source, target)
            for source, target in pairs
            if source != target
            and (stream, target) not in self.steady
            and self._sends(stream, source, target, rate)
        ]

    def _relay_order(self, stream: int) -> list[int]:
        """Origin and present holders first, then by room to send."""
        state = self.state
        free = state.catalog.out_offered - state.out_used
        held = list(state.holders[stream])
        rank = {host: number for number, host in enumerate(held)}
        return sorted(
            self.scope.hosts, key=lambda host: (rank.get(host, len(rank)), -free[host], host)
        )

    def _sends(self, stream: int, source: int, target: int, rate: float) -> bool:
        state, catalog = self.state, self.state.catalog
        if state.source.get((stream, target)) == ~source:
            return True  # it does so now
        if state.links.offered is not None and state.links.offered[source, target] < rate:
            return False
        if self.scope.exact:
            return True
        return bool(
            self._room("in", target) + 1e-9 >= rate and self._room("out", source) + 1e-9 >= rate
            if np.isfinite(catalog.out_offered[source])
            else True
        )

    def _room(self, way: str, host: int) -> float:
        """Bandwidth that is free, or that relevant flows could give back."""
        state = self.state
        catalog = state.catalog
        if way == "in":
            free = float(catalog.in_offered[host] - state.in_used[host])
            return free + sum(
                catalog.rate[stream]
                for (stream, place), origin in state.source.items()
                if place == host and origin < 0 and self._free((stream, place))
            )
        return float(catalog.out_offered[host] - state.out_used[host]) + sum(
            catalog.rate[stream]
            for (stream, place), origin in state.source.items()
            if origin == ~host and self._free((stream, place))
        )

    def _needs(self, held: Held, variable: int) -> None:
        """variable = 1 only where the stream is."""
        if held in self.steady:
            return
        has = self.of.has.get(held)
        if has is None:
            self.model.fix(variable, 0.0)
        else:
            self.model.row({variable: 1.0, has: -1.0}, high=0.0)

    def _availability(self) -> None:
        """(III.5), and everything that fixed operators and flows read."""
        of, catalog, model = self.of, self.state.catalog, self.model
        arriving: dict[Held, list[int]] = {}
        for (stream, source, target), variable in of.flow.items():
            arriving.setdefault((stream, target), []).append(variable)
            if self.scope.exact or catalog.base[stream] >= 0 or (stream, source) in self.steady:
                self._needs((stream, source), variable)
            else:  # composites are sent by their producer alone
                makers = self._makers(stream, source)
                model.row({variable: 1.0, **dict.fromkeys(makers, -1.0)}, high=0.0)
        for held, has in of.has.items():
            sources = [*arriving.get(held, ()), *self._makers(*held)]
            model.row({has: 1.0, **dict.fromkeys(sources, -1.0)}, high=0.0)
        for (operator, host), variable in of.run.items():
            for stream in catalog.inputs[operator]:
                self._needs((stream, host), variable)
        if not self.scope.exact:
            for stream in self.scope.streams:
                makers = [run for host in self.scope.hosts for run in self._makers(stream, host)]
                if makers:
                    model.row(dict.fromkeys(makers, 1.0), high=1.0)
        for held in self._pinned():
            if held in of.has:
                model.fix(of.has[held], 1.0)

    def _makers(self, stream: int, host: int) -> list[int]:
        run = self.of.run
        return [
            run[operator, host]
            for operator in self.state.catalog.producers[stream]
            if (operator, host) in run
        ]

    def _pinned(self) -> set[Held]:
        """Relevant streams that something fixed reads."""
        pinned: set[Held] = set()
        for (stream, host), origin in self.fixed.items():
            if origin >= 0:
                pinned.update((name, host) for name in self.state.catalog.inputs[origin])
            else:
                pinned.add((stream, ~origin))
        return pinned

    def _deliveries(self) -> None:
        """(III.4) and (IV.9)."""
        for number, demand in enumerate(self.scope.demands):
            gain = 0.0 if demand.must else self.scales.admit * len(demand.queries)
            places = (demand.at,) if demand.at is not None else self._possible_places(demand)
            row: dict[int, float] = {}
            for host in places:
                variable = self.model.variable(gain)
                self.of.give[number, host] = variable
                self._needs((demand.stream, host), variable)
                row[variable] = 1.0
            self.model.row(row, low=1.0 if demand.must else 0.0, high=1.0)

    def _possible_places(self, demand: Demanded) -> tuple[int, ...]:
        outside = tuple(
            host
            for stream, host in sorted(self.steady)
            if stream == demand.stream and host not in self._inside
        )
        return (*self.scope.hosts, *outside)

    def _resources(self) -> None:
        """(III.6), less what keeps its place; and the fullest host."""
        state, of, model, scales = self.state, self.of, self.model, self.scales
        catalog = state.catalog
        count = len(state.running)
        used = {name: np.zeros(count) for name in ("cpu", "in", "out", "memory")}
        self._fixed_use(used)
        rows: dict[str, list[dict[int, float]]] = {
            name: [{} for _ in range(count)] for name in used
        }
        links: dict[tuple[int, int], dict[int, float]] = {}
        for (operator, host), variable in of.run.items():
            rows["cpu"][host][variable] = catalog.cpu[operator]
            rows["memory"][host][variable] = catalog.memory[operator]
        for (stream, source, target), variable in of.flow.items():
            rows["in"][target][variable] = catalog.rate[stream]
            rows["out"][source][variable] = catalog.rate[stream]
            links.setdefault((source, target), {})[variable] = catalog.rate[stream]
        for (number, host), variable in of.give.items():
            rows["out"][host][variable] = catalog.rate[self.scope.demands[number].stream]
        offered = {
            "cpu": catalog.cpu_offered,
            "in": catalog.in_offered,
            "out": catalog.out_offered,
            "memory": catalog.memory_offered,
        }
        for name, per_host in rows.items():
            for host, row in enumerate(per_host):
                if row and np.isfinite(offered[name][host]):
                    model.row(row, high=float(offered[name][host] - used[name][host]) + 1e-9)
        self._link_rows(links)
        if scales.balance > 0:
            # the last host to be fullest may be one that nothing here touches
            low = max((float(used["cpu"][host]) for host in range(count)), default=0.0)
            fullest = model.variable(-scales.balance, low=low, high=inf, whole=False)
            for host, row in enumerate(rows["cpu"]):
                if row:
                    model.row({**row, fullest: -1.0}, high=-float(used["cpu"][host]))
        elif scales.balance < 0:
            for host, row in enumerate(rows["cpu"]):
                if row and used["cpu"][host] == 0.0:
                    awake = model.variable(scales.balance * _largest_cpu(state) / count)
                    for variable in row:
                        model.row({variable: 1.0, awake: -1.0}, high=0.0)

    def _fixed_use(self, used: "dict[str, np.typing.NDArray[np.float64]]") -> None:
        state, catalog = self.state, self.state.catalog
        for (stream, host), origin in self.fixed.items():
            if origin >= 0:
                used["cpu"][host] += catalog.cpu[origin]
                used["memory"][host] += catalog.memory[origin]
            else:
                used["in"][host] += catalog.rate[stream]
                used["out"][~origin] += catalog.rate[stream]
        for stream, host in state.clients:
            if stream not in self._relevant:
                used["out"][host] += catalog.rate[stream]

    def _link_rows(self, links: dict[tuple[int, int], dict[int, float]]) -> None:
        offered = self.state.links.offered
        if offered is None:
            return
        fixed: dict[tuple[int, int], float] = {}
        for (stream, host), origin in self.fixed.items():
            if origin < 0:
                key = (~origin, host)
                fixed[key] = fixed.get(key, 0.0) + self.state.catalog.rate[stream]
        for key, row in links.items():
            if np.isfinite(offered[key]):
                self.model.row(row, high=float(offered[key]) - fixed.get(key, 0.0) + 1e-9)

    def _potentials(self) -> None:
        """(III.7): a stream flows downhill."""
        big = len(self.scope.hosts) + 1.0
        potential = {
            (stream, host): self.model.variable(high=big, whole=False)
            for stream in self.scope.streams
            for host in self.scope.hosts
        }
        for (stream, source, target), variable in self.of.flow.items():
            self.model.row(
                {potential[stream, source]: 1.0, potential[stream, target]: -1.0, variable: -big},
                low=1.0 - big,
            )

    # --- solving and reading back --------------------------------------------------------------

    def solve(self, seconds: float, first: PlanState) -> Answer:
        admit = max(1.0, self.scales.admit * sum(len(d.queries) for d in self.scope.demands))
        gap = 0.0 if self.scope.exact else (self.gap + self._indivisible()) / admit
        return self.model.solve(seconds=seconds, start=self._start(first), gap=gap)

    def _indivisible(self) -> float:
        """What half of the largest operator weighs at the fullest host.

        A relaxation halves operators, no placement can: proving more than this is wasted time.
        """
        largest = max((self.state.catalog.cpu[o] for o in self.scope.operators), default=0.0)
        return 0.5 * max(0.0, self.scales.balance) * largest

    def _start(self, first: PlanState) -> dict[int, float] | None:
        """The known solution in the variables of the model; None if one of them is not there."""
        of, catalog, start = self.of, first.catalog, dict[int, float]()
        for held, origin in first.source.items():
            if not self._free(held):
                continue
            stream, host = held
            if origin >= 0:
                variable = of.run.get((origin, host))
            else:
                variable = of.flow.get((stream, ~origin, host))
                makes = first.source.get((stream, ~origin), -1) >= 0
                if not (self.scope.exact or catalog.base[stream] >= 0 or makes):
                    return None  # a relay of a composite stream
            if variable is None:
                return None
            start[variable] = 1.0
        for (number, host), variable in of.give.items():
            demand = self.scope.demands[number]
            start[variable] = float(first.served.get(demand.queries[0]) == (demand.stream, host))
        for variable in (*of.run.values(), *of.flow.values()):
            start.setdefault(variable, 0.0)
        for held, variable in of.has.items():
            start[variable] = float(first.has(*held))
        return start

    def sources(self, values: Sequence[float]) -> dict[Held, int]:
        """Why each host holds what it holds, in the solver's answer."""
        sources = dict(self.fixed)
        output = self.state.catalog.output
        for (stream, source, target), variable in self.of.flow.items():
            if values[variable] > 0.5:
                sources[stream, target] = ~source
        for (operator, host), variable in self.of.run.items():
            if values[variable] > 0.5:
                sources[output[operator], host] = operator
        return sources

    def served(self, values: Sequence[float]) -> dict[str, Held]:
        """Who is served where, in the solver's answer."""
        served = {
            query: held
            for query, held in self.state.served.items()
            if held[0] not in self._relevant
        }
        for (number, host), variable in self.of.give.items():
            if values[variable] > 0.5:
                demand = self.scope.demands[number]
                served.update(dict.fromkeys(demand.queries, (demand.stream, host)))
        return served


def _largest_cpu(state: PlanState) -> float:
    offered = state.catalog.cpu_offered
    return float(offered[np.isfinite(offered)].max(initial=1.0))
