"""From one placement to another in a safe order.

Lists the steps that turn the running placement into the wanted one so that at every moment every
result that both deliver has a real source: what is new starts bottom-up, deliveries switch, and
only then what nobody reads any more stops. Where hosts have room the steps stay within capacity;
where a swap has no room, the step says so, and the manager may pause or throttle. Pure.
"""

from dataclasses import dataclass

from millstream.decide.place.reuse.state import PlanState

Held = tuple[int, int]  # (stream, host)
Cell = tuple[int, int, int]  # stream, host, and the operator or ~sender that provides it there


@dataclass(frozen=True, slots=True)
class Step:
    """One command: start or stop an operator or a flow, or switch where a query is served."""

    kind: str  # "run", "move", "ship", "deliver", "stop", "cut"
    subject: str  # the operator, stream or query
    host: str  # where it runs, arrives or is served after this
    source: str | None = None  # for "ship" and "cut" the sender, for "move" and "deliver" before
    crowded: bool = False  # goes beyond a capacity until later steps make room


def safe_steps(old: PlanState, new: PlanState) -> tuple[Step, ...]:
    """Steps from the old placement to the new one, over the same catalog."""
    return _Transition(old, new).steps()


class _Transition:
    """Cells that run now, those wanted, and the room that is left in between."""

    def __init__(self, old: PlanState, new: PlanState) -> None:
        self.catalog = new.catalog
        self.old, self.new = old, new
        self.running: set[Cell] = {(*held, origin) for held, origin in old.source.items()}
        self.wanted: set[Cell] = {(*held, origin) for held, origin in new.source.items()}
        self.served = dict(old.served)
        self.free: dict[str, list[float]] = {
            "cpu": (self.catalog.cpu_offered - old.cpu_used).tolist(),
            "memory": (self.catalog.memory_offered - old.memory_used).tolist(),
            "in": (self.catalog.in_offered - old.in_used).tolist(),
            "out": (self.catalog.out_offered - old.out_used).tolist(),
        }
        self.out: list[Step] = []
        self._leaving = {
            origin: host
            for _, host, origin in sorted(self.running - self.wanted, reverse=True)
            if origin >= 0
        }

    def steps(self) -> tuple[Step, ...]:
        missing = sorted(self.wanted - self.running)
        while missing:
            ready = [cell for cell in missing if self._fed(cell)]
            fitting = [cell for cell in ready if self._overload(cell) <= 1e-9]
            # nothing fits: the least crowded first, and its host recovers when others stop
            chosen = fitting[0] if fitting else min(ready, key=lambda c: (self._overload(c), c))
            self._start(chosen, crowded=not fitting)
            missing.remove(chosen)
            self._switch()
            self._clear()
        self._switch()
        self._clear()
        return tuple(self.out)

    def _provides(self, held: Held) -> bool:
        stream, host = held
        if self.catalog.base[stream] == host:
            return True
        return any((stream, host, origin) in self.running for origin in self._origins(held))

    def _origins(self, held: Held) -> tuple[int, ...]:
        return tuple(
            origin
            for origin in (self.old.source.get(held), self.new.source.get(held))
            if origin is not None
        )

    def _inputs(self, cell: Cell) -> list[Held]:
        stream, host, origin = cell
        if origin >= 0:
            return [(name, host) for name in self.catalog.inputs[origin]]
        return [(stream, ~origin)]

    def _fed(self, cell: Cell) -> bool:
        """Whether all it reads is there in its final form, so that nothing starts on sand."""
        for held in self._inputs(cell):
            origin = self.new.source.get(held)
            if origin is not None and (*held, origin) not in self.running:
                return False
        return True

    def _needs(self, cell: Cell) -> list[tuple[str, int, float]]:
        stream, host, origin = cell
        if origin >= 0:
            catalog = self.catalog
            return [("cpu", host, catalog.cpu[origin]), ("memory", host, catalog.memory[origin])]
        rate = self.catalog.rate[stream]
        return [("in", host, rate), ("out", ~origin, rate)]

    def _overload(self, cell: Cell) -> float:
        return max((need - self.free[name][host] for name, host, need in self._needs(cell)))

    def _start(self, cell: Cell, *, crowded: bool) -> None:
        stream, host, origin = cell
        names, ids = self.catalog.host_ids, self.catalog
        for name, place, need in self._needs(cell):
            self.free[name][place] -= need
        self.running.add(cell)
        if origin < 0:
            subject, kind, source = ids.stream_ids[stream], "ship", names[~origin]
            self.out.append(Step(kind, subject, names[host], source, crowded))
            return
        left = self._leaving.pop(origin, None)
        before = None if left is None else names[left]
        kind = "run" if before is None else "move"
        self.out.append(Step(kind, ids.operator_ids[origin], names[host], before, crowded))

    def _switch(self) -> None:
        """Deliveries go over as soon as their new place has the stream in its final form."""
        for query, held in self.new.served.items():
            before = self.served.get(query)
            if before == held or not self._final(held):
                continue
            rate, names = self.catalog.rate[held[0]], self.catalog.host_ids
            if held not in self.served.values():
                self.free["out"][held[1]] -= rate
            self.served[query] = held
            if before is not None and before not in self.served.values():
                self.free["out"][before[1]] += rate
            source = None if before is None else names[before[1]]
            self.out.append(Step("deliver", query, names[held[1]], source))
        for query in [name for name in self.served if name not in self.new.served]:
            held = self.served.pop(query)
            if held not in self.served.values():
                self.free["out"][held[1]] += self.catalog.rate[held[0]]

    def _final(self, held: Held) -> bool:
        origin = self.new.source.get(held)
        if origin is None:
            return self.catalog.base[held[0]] == held[1]
        return (*held, origin) in self.running

    def _clear(self) -> None:
        """Stops what is not wanted and what no running reader needs, top-down."""
        clearing = True
        while clearing:
            clearing = False
            read = {held for cell in self.running for held in self._inputs(cell)}
            read.update(self.served.values())
            for cell in sorted(self.running - self.wanted):
                held = cell[:2]
                replaced = self._final(held) and held in self.new.source
                if held in read and not replaced:
                    continue
                self.running.discard(cell)
                for name, place, need in self._needs(cell):
                    self.free[name][place] += need
                self._stopped(cell)
                clearing = True

    def _stopped(self, cell: Cell) -> None:
        stream, host, origin = cell
        ids = self.catalog
        if origin >= 0:
            self._leaving.pop(origin, None)
            self.out.append(Step("stop", ids.operator_ids[origin], ids.host_ids[host]))
        else:
            sender = ids.host_ids[~origin]
            self.out.append(Step("cut", ids.stream_ids[stream], ids.host_ids[host], sender))
