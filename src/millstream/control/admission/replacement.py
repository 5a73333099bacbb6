"""Periodic re-placement: running queries move when distances or rates have changed, if it pays.

At its interval every running query is looked at with measured rates and distances (seed 003,
section 3: "applied periodically to dynamically adapt to changes"). Its operators move when the
planner's placement saves at least the least gain, and more until the next look than carrying their
state over costs; or when the latency bound is broken and can be kept again. What was moved a short
while ago, by whomever, stays, so that nothing swings back and forth; a processor without room gets
nothing. Every decision is a sentence; carrying it out is the manager's ordinary move.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millstream.control.admission.parts import Part, moved, shared_parts
from millstream.control.admission.query_tree import QueryTree, Survey, query_tree, survey
from millstream.control.manager.events import RequestMove
from millstream.control.manager.state import ManagerState
from millstream.control.manager.turn import Turn
from millstream.core.errors import UsageError
from millstream.core.placement import Placement
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.replacement import (
    Patience,
    Replacement,
    reconsider,
    weighed,
)
from millstream.decide.place.problem import within

REST = 3  # looks that a query is left alone after one of its operators was moved
ROOM = 0.9  # of a processor's CPU that is given away


@dataclass(frozen=True, slots=True)
class Proposal:
    """What becomes of one query: moves by (from, to), or none; why, in a sentence."""

    query: str  # or the operator that several share
    moves: Mapping[str, tuple[str, str]]
    sentence: str
    reason: str
    cost_now: float = 0.0
    cost_then: float = 0.0
    reader: str = ""  # of a shared operator: the first query that has it

    def wishes(self) -> tuple[RequestMove, ...]:
        """One move for each processor that gets something."""
        targets: dict[str, list[str]] = {}
        for operator, (_, target) in self.moves.items():
            targets.setdefault(target, []).append(operator)
        return tuple(RequestMove(tuple(o), t, self.reason) for t, o in sorted(targets.items()))


def proposals(state: ManagerState, *, gain: float | None = None) -> tuple[Proposal, ...]:
    """What would be done now with every running query; later ones see the earlier ones' moves."""
    found: list[Proposal] = []
    table, seen = state, survey(state)
    for name, query in sorted(state.queries.items()):
        if query.phase != "running":
            continue
        proposal = propose(table, name, gain=gain, seen=seen)
        found.append(proposal)
        table = moved(table, proposal.moves)
    for part in tuple(shared_parts(table, seen)):
        proposal = propose_part(table, part, part.cheapest(), seen, gain=gain)
        found += [proposal] if proposal.moves else []
        table = moved(table, proposal.moves)
    return tuple(found)


def propose_part(
    state: ManagerState,
    part: Part,
    placement: Placement,
    seen: Survey,
    *,
    gain: float | None = None,
    rests: bool = False,
) -> Proposal:
    """Keep a part where it is, or go to a placement that somebody has found for it."""
    settings = state.settings
    what = f"what {' and '.join(part.queries)} share" if part.shared else f"query {part.id}"
    if not part.measured:
        return _kept(part.id, "what it reads has not been measured yet", what=what)
    now = part.judged(part.running)
    patience = Patience(
        settings.replace_gain if gain is None else gain,
        settings.replace_s or Patience().horizon_s,
        part.state_bytes,
    )
    decision = weighed(part.problem, part.running, placement, now, part.judged(placement), patience)
    if not decision.moves:
        return _kept(part.id, decision.reason, decision, what)
    late = not within(now.delay, part.problem.latency_bound)
    if not late and (rests or _restless(state, part.running)):
        return _kept(part.id, "it was moved a short while ago", decision, what)
    full = _no_room(state, decision, seen)
    if full:
        return _kept(part.id, full, decision, what)
    proposal = _anew(state, part.id, decision, what, late=late)
    return replace(proposal, reader=part.queries[0])


def propose(
    state: ManagerState, name: str, *, gain: float | None = None, seen: Survey | None = None
) -> Proposal:
    """Keep or move one query's operators."""
    settings = state.settings
    seen = seen or survey(state)
    try:
        tree = query_tree(state, name, seen)
    except UsageError as error:
        return _kept(name, error.message)
    if not tree.measured:
        return _kept(name, "what it reads has not been measured yet")
    patience = Patience(
        settings.replace_gain if gain is None else gain,
        settings.replace_s or Patience().horizon_s,
        tree.state_bytes,
    )
    problem, _ = tree.planned(settings.replace_planner)
    present = tree.present()
    decision = reconsider(
        problem,
        tree.running,
        planner=settings.replace_planner,
        patience=patience,
        present=present,
    )
    if not decision.moves:
        return _kept(name, decision.reason, decision)
    late = _broken(tree)
    if not late and _restless(state, tree.running):
        return _kept(name, "it was moved a short while ago", decision)
    full = _no_room(state, decision, seen)
    if full:
        return _kept(name, full, decision)
    return _anew(state, name, decision, f"query {name}", late=late)


def _anew(
    state: ManagerState, name: str, decision: Replacement, what: str, *, late: bool
) -> Proposal:
    saved = 1 - decision.cost_then / decision.cost_now if decision.cost_now else 0.0
    reason = decision.reason if late else f"traffic x distance falls by {saved:.0%}"
    labels = "; ".join(
        f"{state.operators[o].label or o} from {a} to {b}" for o, (a, b) in decision.moves.items()
    )
    sentence = f"{what} is placed anew: {labels}"
    return Proposal(name, decision.moves, sentence, reason, decision.cost_now, decision.cost_then)


def review(turn: Turn) -> tuple[RequestMove, ...]:
    """At its interval, the moves that pay; noted whether or not they are carried out."""
    state = turn.state
    every_s = state.settings.replace_s
    if not every_s or turn.now_s - state.replaced_s < every_s:
        return ()
    turn.set(replaced_s=turn.now_s)
    if any(not move.over for move in state.moves.values()):
        return ()
    wishes: list[RequestMove] = []
    for proposal in proposals(state):
        said = proposal.sentence if proposal.moves else ""
        known = state.proposed.get(proposal.query, "")
        turn.in_table("proposed", proposal.query, said)
        if not proposal.moves:
            continue
        about = ("query", proposal.reader or proposal.query)
        if state.settings.replace:
            turn.decide("notice", said, proposal.reason, about=about)
            wishes += proposal.wishes()
        elif said != known:  # the same wish is told once
            would = said.replace(" is placed anew", " would be placed anew", 1)
            turn.decide("notice", would, proposal.reason, about=about)
    for gone in state.proposed.keys() - state.queries.keys() - state.operators.keys():
        turn.remove("proposed", gone)
    return tuple(wishes)


def _kept(name: str, reason: str, decision: Replacement | None = None, what: str = "") -> Proposal:
    costs = (decision.cost_now, decision.cost_now) if decision else (0.0, 0.0)
    what = what or f"query {name}"
    return Proposal(name, {}, f"{what} stays where it is: {reason}", reason, *costs)


def _broken(tree: QueryTree) -> bool:
    _, delay = cost_and_delay(tree.present(), tree.running)
    return not within(delay, tree.problem.latency_bound)


def _restless(state: ManagerState, running: Placement) -> bool:
    """Whether an operator of the tree was moved within the last few looks."""
    since_s = state.now_s - REST * state.settings.replace_s
    return any(
        move.begun_s > since_s and not running.keys().isdisjoint(move.operators)
        for move in state.moves.values()
    )


def _no_room(state: ManagerState, decision: Replacement, seen: Survey) -> str:
    """Which processor would have more to do than it can; empty where all have room."""
    known = seen.known
    load: dict[str, float] = {}
    for operator in state.operators.values():
        if operator.processor and operator.id in known:
            place = decision.placement.get(operator.id, operator.processor)
            load[place] = load.get(place, 0.0) + known[operator.id].cpu
    for target in sorted({to for _, to in decision.moves.values()}):
        said = state.processors[target].properties.get("cpu", 1.0)
        room = (float(said) if isinstance(said, int | float) else 1.0) * ROOM
        if load.get(target, 0.0) > room:
            return f"{target} has no room: {load[target]:.2f} of {room:.2f} CPU would be needed"
    return ""
