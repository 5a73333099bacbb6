"""Moves that planning asks for: one after the other, each with room, no more than the budget.

A plan of moves is carried out in its order. The next one begins when the one before is settled,
when the budget of moves a minute allows it, and when there is still room at its target while the
operator runs at both places; a plan that the world has overtaken is given up with a notice, and
whoever wanted it plans again. Decides when; what moves is decided by planning.
"""

from collections.abc import Iterable, Mapping

from millstream.control.manager.events import RequestMove
from millstream.control.manager.state import ManagerState, Relocation
from millstream.control.manager.turn import Turn
from millstream.control.moves import migration, routes
from millstream.decide.place.live.owned import relocate
from millstream.decide.place.live.relays import Routes, routes_of

MINUTE_S = 60.0


def ask_for(
    turn: Turn, moves: Iterable[Mapping[str, str]], reason: str, *, query: str = ""
) -> tuple[Relocation, ...]:
    """Notes a plan: groups of operators with their targets, in order."""
    asked = []
    for group in moves:
        targets: dict[str, list[str]] = {}
        for operator, target in group.items():
            targets.setdefault(target, []).append(operator)
        asked += [Relocation(tuple(o), target, reason, query) for target, o in targets.items()]
    turn.set(relocations=(*turn.state.relocations, *asked))
    return tuple(asked)


def under_way(state: ManagerState) -> bool:
    """Whether a plan of moves is being carried out."""
    return bool(state.relocations) or any(
        not move.settled for move in state.moves.values() if move.id in state.relocating
    )


def advance(turn: Turn) -> None:
    """Begins the next move of a plan where it is its time."""
    state = turn.state
    if not state.relocations:
        return
    wanted = tuple(r for r in state.relocations if not r.query or _waits(state, r.query))
    if state.settings.moves_a_minute <= 0:
        wanted = ()
    if wanted != state.relocations:  # who wanted room has gone, or nothing may move any more
        turn.set(relocations=wanted)
    busy = any(not move.settled for move in state.moves.values())
    if not wanted or busy or not allowed(turn.state, turn.now_s):
        return
    following = wanted[0]
    problem = migration.objection(state, following.operators, following.target)
    problem, ways = (problem, None) if problem else _room(state, following)
    if problem:
        turn.set(relocations=())
        labels = ", ".join(_label(state, name) for name in following.operators)
        sentence = f"{labels} does not go to {following.target} as planned: {problem}"
        turn.decide("notice", sentence, following.reason, subjects=following.operators)
        return
    before = set(state.moves)
    migration.request(turn, RequestMove(following.operators, following.target, following.reason))
    begun = frozenset(turn.state.moves.keys() - before)
    if ways is not None:
        routes.keep(turn, ways)
    turn.set(
        relocations=wanted[1:],
        relocating=begun,
        relocated_s=(*_recent(state, turn.now_s), turn.now_s),
    )


def allowed(state: ManagerState, now_s: float) -> bool:
    """Whether the budget has room for one more move.

    Half a move a minute is one in two minutes.
    """
    rate = state.settings.moves_a_minute
    return rate > 0 and len(_recent(state, now_s)) < max(1, int(rate))


def _recent(state: ManagerState, now_s: float) -> tuple[float, ...]:
    rate = state.settings.moves_a_minute
    window_s = MINUTE_S if rate >= 1 else MINUTE_S / max(rate, 1e-9)
    return tuple(at_s for at_s in state.relocated_s if at_s > now_s - window_s)


def _waits(state: ManagerState, query: str) -> bool:
    known = state.queries.get(query)
    return known is not None and known.awaits_room


def _room(state: ManagerState, following: Relocation) -> tuple[str, Routes | None]:
    """Why it would be too much at its target while it is under way, empty if it is not; and who
    sends copies on once it is there."""
    from millstream.control.admission.planning_state import planning  # noqa: PLC0415

    world = planning(state)
    plan = world.state()
    catalog = plan.catalog
    if any(name not in world.running for name in following.operators):
        return "it is not known what it costs", None
    moved = {
        catalog.operator_at[name]: catalog.host_at[following.target] for name in following.operators
    }
    short = relocate(plan, moved)
    if short is None:
        return "", None if world.routes is None else routes_of(plan)
    place = catalog.host_ids[short.host]
    lacks = f"{short.resource} of {place}: {short.need:.4g} needed, {max(0.0, short.room):.4g} free"
    return lacks, None


def _label(state: ManagerState, name: str) -> str:
    record = state.operators.get(name)
    return record.label if record is not None and record.label else name
