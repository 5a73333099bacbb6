"""Planning what runs again (SQPR, section IV.B), by as few moves as it takes.

`relieved` takes operators away from hosts that have more to do than they offer, those of light
queries first, until none is overloaded or nothing more helps. `improved` plans all deliveries
again, one by one, and keeps the outcome where the weighted objective falls by a share that makes
the moves worth while. `vacated` empties a host. All work on paper, on a state that they change, and
give moves in an order that has room at every moment.
"""

from collections.abc import Callable, Collection, Mapping

from millstream.decide.place.live.owned import (
    Places,
    in_safe_order,
    moves_between,
    operators_at,
    relocate,
)
from millstream.decide.place.reuse.objective import Scales, objective
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.state import CPU, IN, OUT, PlanState

WAVERING = 1.1  # of what a host offers: less is no overload
MOVES_MAX = 32  # in one plan


def overloaded(state: PlanState) -> tuple[tuple[str, int], ...]:
    """(resource, host) of which more is used than offered, by more than figures waver."""
    found = []
    for resource in (CPU, IN, OUT):
        used, offered = state.use(resource)
        found += [(resource, int(h)) for h in (used > offered * WAVERING + 1e-12).nonzero()[0]]
    return tuple((resource, host) for resource, host in found if state.catalog.alive[host])


def relieved(
    state: PlanState, movable: Collection[str], weight: Mapping[str, float]
) -> tuple[Places, ...]:
    """Moves after which fewer hosts, or none, are overloaded; made on the state."""
    moves: list[Places] = []
    for resource, host in overloaded(state):
        while len(moves) < MOVES_MAX and (resource, host) in overloaded(state):
            going = _going(state, resource, host, movable, weight)
            if going is None:
                break
            moves.append(going)
    return tuple(moves)


def _going(
    state: PlanState,
    resource: str,
    host: int,
    movable: Collection[str],
    weight: Mapping[str, float],
) -> Places | None:
    """The move that helps a host most gently: light queries first, then just as much as needed."""
    catalog = state.catalog
    used, offered = (float(amounts[host]) for amounts in state.use(resource))
    excess = used - offered
    names, cpu = catalog.operator_ids, catalog.cpu
    mine = [o for o, h in operators_at(state).items() if h == host and names[o] in movable]
    # the smallest that is enough by itself, else the largest
    mine.sort(
        key=lambda o: (
            weight.get(names[o], 1.0),
            cpu[o] < excess,
            cpu[o] if cpu[o] >= excess else -cpu[o],
            o,
        )
    )
    free = catalog.cpu_offered - state.cpu_used
    emptiest = sorted(range(len(free)), key=lambda place: (-float(free[place]), place))
    for operator in mine:
        for target in emptiest:
            if target == host or not catalog.alive[target]:
                continue
            mark = state.mark()
            if relocate(state, {operator: target}) is not None:
                continue
            if float(state.use(resource)[0][host]) < used:
                return {operator: target}
            state.rollback(mark)
    return None


def vacated(state: PlanState, host: int, movable: Collection[str]) -> Places:
    """Where the operators of a host go, the largest first; those for which there is room. Made on
    the state."""
    catalog = state.catalog
    mine = [o for o, place in operators_at(state).items() if place == host]
    found: Places = {}
    for operator in sorted(mine, key=lambda o: (-catalog.cpu[o], o)):
        if catalog.operator_ids[operator] not in movable:
            continue
        free = catalog.cpu_offered - state.cpu_used
        for target in sorted(range(len(free)), key=lambda place: (-float(free[place]), place)):
            if target != host and relocate(state, {operator: target}) is None:
                found[operator] = target
                break
    return found


def improved(
    make: Callable[[], PlanState], movable: Collection[str], gain: float
) -> tuple[tuple[Places, ...], float]:
    """Moves that lower the objective's cost by at least that share, and the share they save."""
    state = make()
    before = operators_at(state)
    planner = SqprPlanner(state.catalog, SqprSettings(), state)
    planner.sweep(len(state.clients))
    moved = moves_between(before, operators_at(planner.state))
    names = state.catalog.operator_ids
    if not moved or any(names[operator] not in movable for operator in moved):
        return (), 0.0
    old = make()
    now, then = cost(old), cost(planner.state)
    saved = 1 - then / now if now > 0 else 0.0
    order = in_safe_order(old, moved) if saved >= max(gain, 1e-6) else None
    return (order, saved) if order is not None and len(order) <= MOVES_MAX else ((), 0.0)


def cost(state: PlanState) -> float:
    """The weighted sum of O2, O3 and O4: what a placement of the same queries costs."""
    scales = Scales.of(state.catalog)
    return scales.admit * len(state.clients) - objective(state, scales)
