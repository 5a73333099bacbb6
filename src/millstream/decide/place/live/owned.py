"""A placement that runs: every stream has one owner; readers get it from there, or from others.

Builds the planner's state (`PlanState`) from where operators run, whether or not that fits, and
moves operators in it: those that rest on a moved operator are served anew with everything else
where it was. A move is only made where there is room while it is under way, when the operator
runs at its old place and is prepared at the new one. Chooses nothing.
"""

from collections.abc import Iterable, Mapping

from millstream.decide.place.live.relays import routed, sender_for, without_idle_relays
from millstream.decide.place.problem import Problem
from millstream.decide.place.reuse.blocking_deliveries import dependents
from millstream.decide.place.reuse.catalog import Catalog, fits
from millstream.decide.place.reuse.state import CPU, PlanState, Shortage

Held = tuple[int, int]  # (stream, host)
Places = dict[int, int]  # operator -> host
EVERY = 1_000_000  # more deliveries than there are


def running_state(
    problem: Problem,
    running: Mapping[str, str],
    routes: Mapping[tuple[str, str], str] | None = None,
) -> PlanState:
    """The state in which these operators run at these hosts, and serve the queries of the problem
    whose result is there. Operators of the problem that do not run are free to be placed.

    `routes` tell for (stream, reader) who sends it on; without them owners send everything.
    """
    catalog = Catalog.of(problem)
    catalog.owned, catalog.relays = True, routes is not None
    state = PlanState(catalog)
    places = {catalog.operator_at[name]: catalog.host_at[host] for name, host in running.items()}
    origin = {catalog.output[operator]: host for operator, host in places.items()}
    source: dict[Held, int] = {
        (catalog.output[operator], host): operator for operator, host in places.items()
    }
    for operator, host in places.items():
        for name in catalog.inputs[operator]:
            owner = catalog.base[name] if catalog.base[name] >= 0 else origin.get(name, host)
            if owner != host:
                source[name, host] = ~owner
    routed(state, source, routes or {})
    served: dict[str, Held] = {}
    for query in problem.queries:
        stream = catalog.stream_at[query.stream]
        if stream in origin:
            served[query.id] = (stream, origin[stream])
    state.take(source, served)
    return state


def operators_at(state: PlanState) -> Places:
    """Where every operator runs."""
    return {origin: host for (_, host), origin in state.source.items() if origin >= 0}


def relocate(state: PlanState, moved: Mapping[int, int]) -> Shortage | None:
    """Operators go to other hosts, together; says what is short instead, if anything.

    Journalled: `rollback` takes it back.
    """
    catalog = state.catalog
    short = _both_at_once(state, moved)
    if short is not None:
        return short
    mark = state.mark()
    former = {catalog.output[operator]: state.owner(catalog.output[operator]) for operator in moved}
    deliveries: dict[Held, None] = {}
    for held in former.items():
        deliveries.update(dict.fromkeys(dependents(state, held, EVERY) or ()))
    origin: dict[int, tuple[int, int]] = {}  # what they rest on: the operator, and where it runs
    sender: dict[Held, int] = {}  # and who else than a former owner sent it where
    for delivery in deliveries:
        for stream, host in state.supports(*delivery):
            operator = state.source.get((stream, host))
            if operator is not None and operator >= 0:
                origin[stream] = operator, host
            elif operator is not None and ~operator != former.get(stream):
                sender[stream, host] = ~operator
    waiting = [(held, state.stop_delivery(*held)) for held in deliveries]
    origin.update((catalog.output[operator], (operator, host)) for operator, host in moved.items())
    state.strict = False  # what runs is put back as it was, be it too much
    for (stream, host), names in waiting:
        place = origin[stream][1] if former.get(stream) == host else host
        _have(state, origin, sender, (stream, place))
        for name in names:
            state.deliver(name, stream, place)
    without_idle_relays(state)
    state.strict = True
    short = worse(state, mark)
    if short is not None:
        state.rollback(mark)
    return short


def worse(state: PlanState, mark: int) -> Shortage | None:
    """Whether a host exceeds what it offers, by more than it did at the mark."""
    for (resource, host), before in state.changes(mark).items():
        used, offered = (float(amounts[host]) for amounts in state.use(resource))
        if used > before and not fits(used, 0.0, offered):
            return Shortage(resource, host, used - before, offered - before)
    return None


def _both_at_once(state: PlanState, moved: Mapping[int, int]) -> Shortage | None:
    """What is short while operators run here still, and are prepared there."""
    catalog, mark = state.catalog, state.mark()
    made = {catalog.output[operator]: host for operator, host in moved.items()}
    short: Shortage | None = None
    needed: dict[int, float] = {}
    for operator, host in moved.items():
        needed[host] = needed.get(host, 0.0) + catalog.cpu[operator]
        for name in catalog.inputs[operator]:
            if short is None and made.get(name) != host and not state.has(name, host):
                owner = sender_for(state, name, host)
                short = state.ship(name, owner, host) if owner >= 0 else None
    state.rollback(mark)
    for host, need in needed.items():
        used, offered = float(state.cpu_used[host]), float(catalog.cpu_offered[host])
        if short is None and not fits(used, need, offered):
            short = Shortage(CPU, host, need, offered - used)
    return short


def _have(
    state: PlanState,
    origin: Mapping[int, tuple[int, int]],
    sender: Mapping[Held, int],
    wanted: Held,
) -> None:
    """Puts a stream at a host with every operator where `origin` says, sent by who is told, else
    by who has room; plans may be deep."""
    catalog = state.catalog
    waiting: list[tuple[Held, bool]] = [(wanted, False)]
    while waiting:
        (stream, host), ready = waiting.pop()
        if state.has(stream, host):
            continue
        operator, owner = origin.get(stream, (-1, catalog.base[stream]))
        if ready:
            if owner == host:
                state.run(operator, host)
            else:
                known = sender.get((stream, host), -1)
                state.ship(stream, known if known >= 0 else sender_for(state, stream, host), host)
            continue
        waiting.append(((stream, host), True))
        if owner == host:
            waiting.extend(((name, host), False) for name in catalog.inputs[operator])
        else:
            waiting.append(((stream, sender.get((stream, host), owner)), False))


def moves_between(before: Mapping[int, int], after: Mapping[int, int]) -> Places:
    """Operators that run in both placements, and elsewhere in the second."""
    return {o: host for o, host in after.items() if before.get(o, host) != host}


def in_safe_order(state: PlanState, wanted: Mapping[int, int]) -> tuple[Places, ...] | None:
    """Moves one after the other, each with room while it is under way; None where there is no
    such order. Operators that go the same way go together where that fits. Carries them out on
    the state."""
    places = operators_at(state)
    ways: dict[tuple[int, int], Places] = {}
    for operator, host in wanted.items():
        ways.setdefault((places[operator], host), {})[operator] = host
    left = [ways[way] for way in sorted(ways)]
    found: list[Places] = []
    while left:
        going = next(
            (group for group in _whole_first(left) if relocate(state, group) is None), None
        )
        if going is None:
            return None
        found.append(going)
        rest = ({o: h for o, h in group.items() if o not in going} for group in left)
        left = [group for group in rest if group]
    return tuple(found)


def _whole_first(groups: Iterable[Places]) -> Iterable[Places]:
    listed = list(groups)
    yield from listed
    for group in listed:
        if len(group) > 1:
            yield from ({operator: host} for operator, host in group.items())
