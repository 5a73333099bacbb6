"""How a coordinator places one operator, from what its messages told it (seed 003, section 4).

The placement mechanism of section 3 over the few places that a coordinator knows: where its
children lie, common places, the sources below (Edge+), peers met on routes (In-Network), and where
the result is read. Distances come from the view it has gathered; what is missing is asked for first
(`missing_pairs`). Pure: tables in, a table out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from millstream.control.protocol.coordinator_messages import Configuration, Settings, ZoneOperator

View = Mapping[tuple[str, str], float]
CLEARLY = 0.99  # of the direct way: a detour must be shorter than that to be one


@dataclass(frozen=True, slots=True)
class Table:
    """What is known of a placed vertex: its best place, and its configurations by place."""

    id: str
    rate: float
    best: str
    rows: Mapping[str, Configuration]
    descendants: tuple[str, ...]


def distance(view: View, origin: str, target: str) -> float:
    """What the view says; infinite for a pair that could not be measured either way."""
    if origin == target:
        return 0.0
    known = view.get((origin, target))
    return view.get((target, origin), inf) if known is None else known


def places(
    operator: ZoneOperator,
    children: Sequence[Table],
    settings: Settings,
    wanted: Sequence[str],
    candidates: Sequence[str],
) -> tuple[str, ...]:
    """The places at which an operator's cost is worth computing."""
    found = {*settings.read_at, *wanted, *operator.common, *(child.best for child in children)}
    if settings.algorithm != "edge":
        found.update(place for child in children for place in child.descendants)
    if settings.algorithm == "in_network":
        found.update(candidates)
    return tuple(sorted(found))


def missing_pairs(
    children: Sequence[Table],
    settings: Settings,
    at: Sequence[str],
    view: View,
    *,
    root: bool,
) -> Iterator[tuple[str, str]]:
    """The distances that `map_operator` will need and the view lacks."""
    aware = settings.algorithm != "edge"
    bounded = settings.latency_bound is not None
    if aware or bounded:
        for child in children:
            yield from _unknown(view, (child.best,), at)
        if bounded or root:
            for place in at:
                yield from _unknown(view, (place,), settings.read_at)
    if aware:  # the fourth case of Edge+: between places below different children
        for child in children:
            for other in children:
                if other is not child:
                    yield from _unknown(view, child.descendants, other.descendants)


def _unknown(
    view: View, origins: Sequence[str], targets: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for origin in origins:
        for target in targets:
            if origin != target and (origin, target) not in view:
                yield origin, target


@dataclass(slots=True)
class _Mapper:
    """One operator being placed; rows are improved in place until the choice is made."""

    operator: ZoneOperator
    children: Sequence[Table]
    settings: Settings
    view: View
    root: bool
    rows: dict[str, Configuration]

    def weight(self, origin: str, target: str) -> float:
        if self.settings.algorithm == "edge":
            return 0.0 if origin == target else 1.0
        return distance(self.view, origin, target)

    def to_proxy(self, place: str) -> float:
        """The way on, to the farthest who reads the result in time."""
        return max(distance(self.view, place, end) for end in self.settings.timed_at)

    def shipped(self, child: Table, origin: str, place: str) -> Configuration | None:
        """The child at `origin`, the operator at `place`: cost and delays as they arrive."""
        row = child.rows.get(origin)
        if row is None:
            return None
        cost = row.cost
        if origin != place and child.rate:
            cost += child.rate * self.weight(origin, place)
        if self.settings.latency_bound is None:
            return Configuration(origin, cost)
        # The triangulation of section 4.5; the seed forgets the way from child to operator.
        detour = (
            distance(self.view, origin, place) + self.to_proxy(place) - self.to_proxy(origin)
            if origin != place
            else 0.0
        )
        delays = tuple(delay + detour for delay in row.delays)
        if max(delays) > self.settings.latency_bound * (1 + 1e-9) + 1e-9:
            return None
        return Configuration(origin, cost, delays)

    def outgoing(self, place: str) -> float:
        """The root's edge to the proxy, missing in the seed's objective (1); a shared operator has
        one to every processor that reads it."""
        ends = [end for end in self.settings.read_at if end != place]
        if not self.root or not ends or not self.operator.rate:
            return 0.0
        return self.operator.rate * sum(self.weight(place, end) for end in ends)

    def offer(self, place: str, parts: Sequence[Configuration | None]) -> None:
        """Takes a configuration if it is the cheapest for its place so far."""
        cost = self.outgoing(place)
        delays: list[float] = []
        for part in parts:
            if part is None:
                return
            cost += part.cost
            delays.extend(part.delays)
        known = self.rows.get(place)
        if cost < inf and (known is None or cost < known.cost):
            at = tuple(part.location for part in parts if part is not None)
            self.rows[place] = Configuration(place, cost, tuple(delays), at)

    def offer_equation_5(self, place: str) -> None:
        """Each child stays where it is best or moves along, whichever is cheaper."""
        parts: list[Configuration | None] = []
        for child in self.children:
            stay = self.shipped(child, child.best, place)
            move = self.shipped(child, place, place)
            if move is not None and (stay is None or move.cost < stay.cost):
                parts.append(move)
            else:
                parts.append(stay)
        self.offer(place, parts)

    def cheapest(self, among: Sequence[str]) -> str | None:
        valid = [place for place in sorted(among) if place in self.rows]
        return min(valid, key=lambda place: self.rows[place].cost, default=None)


def map_operator(
    operator: ZoneOperator,
    children: Sequence[Table],
    settings: Settings,
    view: View,
    *,
    at: Sequence[str],
    candidates: Sequence[str],
    root: bool,
) -> Table | None:
    """An operator's table with its chosen place; None if nothing keeps the latency bound."""
    mapper = _Mapper(operator, children, settings, view, root, {})
    for place in at:
        mapper.offer_equation_5(place)
    best = _choose(mapper, candidates)
    if best is None:
        return None
    descendants = tuple(sorted({place for child in children for place in child.descendants}))
    return Table(operator.id, operator.rate, best, mapper.rows, descendants)


def _choose(mapper: _Mapper, candidates: Sequence[str]) -> str | None:
    rate_at: dict[str, float] = {}
    for child in mapper.children:
        rate_at[child.best] = rate_at.get(child.best, 0.0) + child.rate
    heaviest = max(sorted(rate_at), key=lambda place: rate_at[place])
    options = [*mapper.operator.common, heaviest, *mapper.settings.read_at]
    best = mapper.cheapest(options)
    if best is None or mapper.settings.algorithm == "edge":
        return best
    lying = mapper.rows[best].children
    separation = sum(distance(mapper.view, place, best) for place in lying)
    _gather_children(mapper, separation)
    descendants = {place for child in mapper.children for place in child.descendants}
    best = mapper.cheapest([*options, *descendants])
    if best is None or mapper.settings.algorithm == "edge_plus":
        return best
    if mapper.root and len(mapper.settings.read_at) > 1:  # it may pay to lie among the readers
        return mapper.cheapest([best, *candidates, mapper.settings.proxy])
    return mapper.cheapest([best, *_between(mapper, candidates), *_detours(mapper, candidates)])


def _gather_children(mapper: _Mapper, separation_max: float) -> None:
    """The fourth case of Edge+ (section 3.3), the operator at each place below it in turn."""
    for place in sorted({p for child in mapper.children for p in child.descendants}):
        parts: list[Configuration | None] = []
        apart = 0.0
        for child in mapper.children:
            near = [
                (part.cost, distance(mapper.view, origin, place), origin, part)
                for origin in child.descendants
                if distance(mapper.view, origin, place) <= separation_max
                and (part := mapper.shipped(child, origin, place)) is not None
            ]
            chosen = min(near, default=None, key=lambda entry: entry[:3])
            if chosen is None:
                break
            apart += chosen[1]
            parts.append(chosen[3])
        if len(parts) == len(mapper.children) and apart <= separation_max:
            mapper.offer(place, parts)


def _detours(mapper: _Mapper, candidates: Sequence[str]) -> list[str]:
    """Candidates over which the way to a reader is shorter than the direct one. In the seed's
    networks there is none: distances are shortest ways there; measured ones are not always."""
    found: dict[str, float] = {}
    view, here = mapper.view, {child.best for child in mapper.children}
    for place in sorted(here):
        for end in mapper.settings.read_at:
            direct = distance(view, place, end)
            for candidate in candidates:
                way = distance(view, place, candidate) + distance(view, candidate, end)
                if way < CLEARLY * direct and candidate in mapper.rows:
                    found[candidate] = min(way, found.get(candidate, inf))
    return sorted(found, key=lambda candidate: (found[candidate], candidate))[: mapper.settings.k]


def _between(mapper: _Mapper, candidates: Sequence[str]) -> list[str]:
    """The candidate set of section 3.4 among the peers known, the k nearest to the children."""
    here = sorted({child.best for child in mapper.children})
    if len(here) < 2:
        return []
    view = mapper.view
    room = {
        place: min(distance(view, place, other) for other in here if other != place)
        for place in here
    }
    inside = [
        candidate
        for candidate in candidates
        if candidate in mapper.rows
        and all(distance(view, place, candidate) < room[place] for place in here)
    ]
    inside.sort(
        key=lambda candidate: (
            sum(distance(view, child.best, candidate) for child in mapper.children),
            candidate,
        )
    )
    return inside[: mapper.settings.k]
