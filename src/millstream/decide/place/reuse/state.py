"""A placement being worked on: who holds which stream and why, and what that costs each host.

Every (stream, host) has one source, an operator there or a flow from another host, and a count of
its uses; when the last use goes, the source goes with it, and so on down to base streams. Changes
are journalled, so a planner may try, compare and take back exactly. Knows capacities only to say
what a step would violate; never chooses anything.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from millstream.decide.place.problem import Query
from millstream.decide.place.reuse.catalog import Catalog, Floats, fits
from millstream.decide.place.reuse.link_room import LinkRoom
from millstream.decide.place.solution import Delivered, Flow, PlacedOperator

CPU, IN, OUT, LINK, MEMORY = "cpu", "bandwidth_in", "bandwidth_out", "link", "memory"


class Run(NamedTuple):
    """Step of a plan: run an operator at a host."""

    operator: int
    host: int


class Ship(NamedTuple):
    """Step of a plan: send a stream from one host to another."""

    stream: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a step lacks: the resource, the host (and sender, for a link), need and room; and all
    that the whole plan lacks beside what is there, the scarcest first, where that is known."""

    resource: str
    host: int
    need: float
    room: float
    sender: int = -1
    of_plan: tuple["Shortage", ...] = ()


class PlanState:
    """Mutable, journalled placement over a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        count = len(catalog.host_ids)
        self.cpu_used: Floats = np.zeros(count)
        self.in_used: Floats = np.zeros(count)
        self.out_used: Floats = np.zeros(count)
        self.memory_used: Floats = np.zeros(count)
        self.running: list[int] = [0] * count  # operators on each host
        self.streams_at: list[dict[int, None]] = [{} for _ in range(count)]  # with a source there
        self.links = LinkRoom(catalog)
        self.source: dict[tuple[int, int], int] = {}  # operator, or ~sender of a flow
        self.holders: dict[int, dict[int, None]] = defaultdict(dict)
        self.uses: dict[tuple[int, int], int] = defaultdict(int)
        self.clients: dict[
            tuple[int, int], dict[str, None]
        ] = {}  # queries served at (stream, host)
        self.delivered_at: dict[int, dict[int, None]] = {}  # hosts that deliver a stream
        self.served: dict[str, tuple[int, int]] = {}  # query -> (stream, host)
        self.pinned: set[str] = set()  # queries whose result is wanted at a certain host
        self.bounds: dict[str, float] = {}  # queries with a latency bound
        self.strict = True  # whether steps keep capacities; what runs may exceed them
        self._journal: list[tuple[Any, ...]] = []  # how to take each change back
        for stream, host in enumerate(catalog.base):
            if host >= 0:
                self.holders[stream][host] = None

    # --- what is known -------------------------------------------------------------------------

    def use(self, resource: str) -> tuple[Floats, Floats]:
        """Of a resource of hosts: what is used and what is offered, by host."""
        catalog = self.catalog
        match resource:
            case "cpu":
                return self.cpu_used, catalog.cpu_offered
            case "bandwidth_in":
                return self.in_used, catalog.in_offered
            case "bandwidth_out":
                return self.out_used, catalog.out_offered
            case _:
                return self.memory_used, catalog.memory_offered

    def _lacking(self, resource: str, host: int, need: float) -> Shortage | None:
        used, offered = self.use(resource)
        if not self.strict or fits(used[host], need, offered[host]):
            return None
        return Shortage(resource, host, need, offered[host] - used[host])

    def has(self, stream: int, host: int) -> bool:
        held = self.holders.get(stream)
        return held is not None and host in held

    def owner(self, stream: int) -> int:
        """The host where a stream enters or is computed; -1 where it is not there at all."""
        base = self.catalog.base[stream]
        if base >= 0:
            return base
        held = self.holders.get(stream, ())
        return next((host for host in held if self.source[stream, host] >= 0), -1)

    # --- transactions --------------------------------------------------------------------------

    def mark(self) -> int:
        """A point to which `rollback` can return."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        journal = self._journal
        while len(journal) > mark:
            self._undo(journal.pop())

    def changes(self, mark: int) -> dict[tuple[str, int], float]:
        """Use of host resources before the first change since the mark, where it changed."""
        names = {id(self.cpu_used): CPU, id(self.in_used): IN, id(self.out_used): OUT}
        before: dict[tuple[str, int], float] = {}
        for entry in self._journal[mark:]:
            if entry[0] == "used":
                name = names.get(id(entry[1]))
                if name is not None:
                    before.setdefault((name, entry[2]), entry[3])
        return before

    def commit(self) -> None:
        """Forget how to take back; only with no transaction open outside."""
        self._journal.clear()

    def _undo(self, entry: tuple[Any, ...]) -> None:
        match entry:
            case ("used", array, place, value):
                array[place] = value
            case ("uses", key, count):
                self.uses[key] = count
            case ("gain", stream, host):
                del self.source[stream, host]
                del self.holders[stream][host]
                del self.streams_at[host][stream]
            case ("lose", stream, host, source, held):
                self.source[stream, host] = source
                self.holders[stream] = held
                self.streams_at[host][stream] = None
            case ("call", function, *arguments):
                function(*arguments)

    def _add(self, array: Floats, place: int | tuple[int, int], amount: float) -> None:
        old = array[place]
        self._journal.append(("used", array, place, old))
        array[place] = old + amount

    def _use(self, key: tuple[int, int], more: int) -> int:
        old = self.uses[key]
        self._journal.append(("uses", key, old))
        self.uses[key] = old + more
        return old + more

    def _link(self, source: int, target: int, rate: float) -> None:
        if self.links.used is not None:
            self._add(self.links.used, (source, target), rate)

    def _run_count(self, host: int, more: int) -> None:
        self._journal.append(("used", self.running, host, self.running[host]))
        self.running[host] += more

    # --- steps ---------------------------------------------------------------------------------

    def run(self, operator: int, host: int) -> Shortage | None:
        """Starts an operator whose inputs are here; says what is short instead, if anything."""
        catalog = self.catalog
        cost, memory = catalog.cpu[operator], catalog.memory[operator]
        short = self._lacking(CPU, host, cost)
        if short is None and memory:
            short = self._lacking(MEMORY, host, memory)
        if short is not None:
            return short
        output = catalog.output[operator]
        self._add(self.cpu_used, host, cost)
        if memory:
            self._add(self.memory_used, host, memory)
        self._run_count(host, 1)
        for stream in catalog.inputs[operator]:
            self._use((stream, host), 1)
        self.source[output, host] = operator
        self.holders[output][host] = None
        self.streams_at[host][output] = None
        self._journal.append(("gain", output, host))
        return None

    def ship(self, stream: int, source: int, target: int) -> Shortage | None:
        """Starts a flow; says what is short instead, if anything."""
        catalog = self.catalog
        rate = catalog.rate[stream]
        short = self._lacking(IN, target, rate) or self._lacking(OUT, source, rate)
        if short is not None:
            return short
        if self.strict and not self.links.fits(source, target, rate):
            return Shortage(LINK, target, rate, self.links.free(source, target), sender=source)
        self._link(source, target, rate)
        self._add(self.in_used, target, rate)
        self._add(self.out_used, source, rate)
        self._use((stream, source), 1)
        self.source[stream, target] = ~source
        self.holders[stream][target] = None
        self.streams_at[target][stream] = None
        self._journal.append(("gain", stream, target))
        return None

    def reroute(self, stream: int, target: int, sender: int) -> None:
        """Another host sends a stream, whatever that has room for."""
        before, rate = ~self.source[stream, target], self.catalog.rate[stream]
        self.source[stream, target] = ~sender
        self._journal.append(("call", self._restore_sender, stream, target, before))
        for host, sign in ((sender, 1), (before, -1)):
            self._add(self.out_used, host, sign * rate)
            self._link(host, target, sign * rate)
        self._use((stream, sender), 1)
        self.release(stream, before)

    def _restore_sender(self, stream: int, target: int, sender: int) -> None:
        self.source[stream, target] = ~sender

    def deliver(self, query: str, stream: int, host: int) -> Shortage | None:
        """Serves a query from here; a stream delivered here already costs nothing more."""
        key = (stream, host)
        if key not in self.clients:
            rate = self.catalog.rate[stream]
            short = self._lacking(OUT, host, rate)
            if short is not None:
                return short
            self._add(self.out_used, host, rate)
            self._use(key, 1)
            self.clients[key] = {}
            self.delivered_at.setdefault(stream, {})[host] = None
            self._journal.append(("call", self._forget_delivery, key))
        self.clients[key][query] = None
        self.served[query] = key
        self._journal.append(("call", self._forget_client, key, query))
        return None

    def _forget_delivery(self, key: tuple[int, int]) -> None:
        del self.clients[key]
        del self.delivered_at[key[0]][key[1]]
        if not self.delivered_at[key[0]]:
            del self.delivered_at[key[0]]

    def _forget_client(self, key: tuple[int, int], query: str) -> None:
        del self.clients[key][query]
        del self.served[query]

    def apply(self, steps: tuple[Run | Ship, ...]) -> Shortage | None:
        """All steps in order, or none of them and the first shortage."""
        mark = self.mark()
        for step in steps:
            if isinstance(step, Run):
                if self.has(self.catalog.output[step.operator], step.host):
                    continue
                short = self.run(step.operator, step.host)
            else:
                if self.has(step.stream, step.target):
                    continue
                short = self.ship(step.stream, step.source, step.target)
            if short is not None:
                self.rollback(mark)
                return short
        return None

    def withdraw(self, query: str) -> None:
        """Takes a query away, with all that served it alone."""
        key = self.served.pop(query)
        del self.clients[key][query]
        self._journal.append(("call", self._restore_client, key, query))
        if not self.clients[key]:
            self.stop_delivery(*key)

    def stop_delivery(self, stream: int, host: int) -> tuple[str, ...]:
        """Stops serving a stream from a host; its queries are returned, to be served anew."""
        key = (stream, host)
        waiting = tuple(self.clients[key])
        for query in waiting:
            del self.served[query]
        self._journal.append(("call", self._restore_delivery, key, dict(self.clients[key])))
        self._forget_delivery(key)
        self._add(self.out_used, host, -self.catalog.rate[stream])
        self.release(stream, host)
        return waiting

    def _restore_client(self, key: tuple[int, int], query: str) -> None:
        self.clients[key][query] = None
        self.served[query] = key

    def _restore_delivery(self, key: tuple[int, int], clients: dict[str, None]) -> None:
        self.clients[key] = clients
        self.delivered_at.setdefault(key[0], {})[key[1]] = None
        for query in clients:
            self.served[query] = key

    def release(self, stream: int, host: int) -> None:
        """One use less; what nobody uses any more stops, and so on down."""
        stack = [(stream, host)]
        while stack:
            key = stack.pop()
            if self._use(key, -1) > 0 or key not in self.source:
                continue
            stack.extend(self._stop(*key))

    def _stop(self, stream: int, host: int) -> list[tuple[int, int]]:
        """Ends the source of an unused stream; gives what it used itself."""
        catalog = self.catalog
        origin = self.source.pop((stream, host))
        held = self.holders[stream]
        self._journal.append(("lose", stream, host, origin, dict(held)))
        del held[host]
        del self.streams_at[host][stream]
        if origin >= 0:
            self._add(self.cpu_used, host, -catalog.cpu[origin])
            if catalog.memory[origin]:
                self._add(self.memory_used, host, -catalog.memory[origin])
            self._run_count(host, -1)
            return [(name, host) for name in catalog.inputs[origin]]
        sender, rate = ~origin, catalog.rate[stream]
        self._add(self.in_used, host, -rate)
        self._add(self.out_used, sender, -rate)
        self._link(sender, host, -rate)
        return [(stream, sender)]

    def supports(self, stream: int, host: int) -> list[tuple[int, int]]:
        """Every (stream, host) that this one rests on, itself included."""
        found: dict[tuple[int, int], None] = {}
        stack = [(stream, host)]
        while stack:
            key = stack.pop()
            if key in found:
                continue
            found[key] = None
            origin = self.source.get(key)
            if origin is None:
                continue
            if origin >= 0:
                stack.extend((name, key[1]) for name in self.catalog.inputs[origin])
            else:
                stack.append((key[0], ~origin))
        return list(found)

    def lateness(self, stream: int, host: int) -> float:
        """How long after its inputs a stream is at a host: the longest of its ways."""
        distance = self.links.distance
        if distance is None:
            return 0.0
        late: dict[tuple[int, int], float] = {}
        stack = [(stream, host)]
        while stack:
            key = stack[-1]
            origin = self.source.get(key)
            if origin is None:
                late[key] = 0.0
            elif origin >= 0:
                below = [(name, key[1]) for name in self.catalog.inputs[origin]]
                missing = [held for held in below if held not in late]
                if missing:
                    stack.extend(missing)
                    continue
                late[key] = max(late[held] for held in below)
            else:
                sender = (key[0], ~origin)
                if sender not in late:
                    stack.append(sender)
                    continue
                late[key] = late[sender] + float(distance[~origin, key[1]])
            stack.pop()
        return late[stream, host]

    def bound_of(self, queries: Iterable[str]) -> float | None:
        """The strictest latency bound among queries."""
        return min((self.bounds[name] for name in queries if name in self.bounds), default=None)

    def adopt(self, other: "PlanState") -> None:
        """Takes over a placement as it is, whether or not it fits; only when empty."""
        self.take(other.source, other.served)

    def take(
        self, source: Mapping[tuple[int, int], int], served: Mapping[str, tuple[int, int]]
    ) -> None:
        """Takes a placement by its sources and deliveries as it is, fitting or not; when empty."""
        catalog = self.catalog
        for (stream, host), origin in source.items():
            self.source[stream, host] = origin
            self.holders[stream][host] = None
            self.streams_at[host][stream] = None
            rate = catalog.rate[stream]
            if origin >= 0:
                self.cpu_used[host] += catalog.cpu[origin]
                self.memory_used[host] += catalog.memory[origin]
                self.running[host] += 1
                for name in catalog.inputs[origin]:
                    self.uses[name, host] += 1
            else:
                self.in_used[host] += rate
                self.out_used[~origin] += rate
                self.uses[stream, ~origin] += 1
                if self.links.used is not None:
                    self.links.used[~origin, host] += rate
        for query, (stream, host) in served.items():
            key = stream, host
            if key not in self.clients:
                self.clients[key] = {}
                self.delivered_at.setdefault(stream, {})[host] = None
                self.out_used[host] += catalog.rate[stream]
                self.uses[key] += 1
            self.clients[key][query] = None
        self.served = dict(served)

    # --- what came out -------------------------------------------------------------------------

    def placed(self) -> tuple[PlacedOperator, ...]:
        catalog = self.catalog
        return tuple(
            sorted(
                PlacedOperator(catalog.operator_ids[origin], catalog.host_ids[host])
                for (_, host), origin in self.source.items()
                if origin >= 0
            )
        )

    def flows(self) -> tuple[Flow, ...]:
        catalog = self.catalog
        return tuple(
            sorted(
                Flow(catalog.stream_ids[stream], catalog.host_ids[~origin], catalog.host_ids[host])
                for (stream, host), origin in self.source.items()
                if origin < 0
            )
        )

    def delivered(self) -> tuple[Delivered, ...]:
        catalog = self.catalog
        return tuple(
            Delivered(query, catalog.stream_ids[stream], catalog.host_ids[host])
            for query, (stream, host) in self.served.items()
        )

    def remember_wishes(self, queries: Iterable[Query]) -> None:
        """Where and how soon results are wanted, for whenever they are planned again."""
        for query in queries:
            if query.deliver_to is not None:
                self.pinned.add(query.id)
            if query.latency_bound is not None:
                self.bounds[query.id] = query.latency_bound

    def fixed_place(self, stream: int, host: int, queries: Iterable[str]) -> int | None:
        """The host, where results must stay: they are wanted there, or also elsewhere."""
        several = len(self.delivered_at.get(stream, ())) > (
            1 if (stream, host) in self.clients else 0
        )
        return host if several or any(query in self.pinned for query in queries) else None

    def deliveries(self) -> Iterator[tuple[int, int]]:
        """Every (stream, host) that is delivered."""
        return iter(list(self.clients))
