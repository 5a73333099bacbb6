"""Whether to place a running tree anew when distances or rates have changed.

Compares what runs with what a planner would do now, on the problem as it is now, and answers with
a decision that a person can read: keep, or move these operators because. A move pays when the
latency bound is broken and can be kept again, or when the saving, over the time until the next
look, outweighs what moving the operators' state costs. Moves nothing itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.core.placement import Placement
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Infeasible, Options
from millstream.decide.place.network.planner import DEFAULT_NETWORK_PLANNER, plan
from millstream.decide.place.network.tree import NetworkTree
from millstream.decide.place.problem import within


@dataclass(frozen=True, slots=True)
class Patience:
    """What a saving must outweigh; costs are rate x distance, state is rate x time."""

    saving_least: float = 0.05  # of the present cost: below, distances are not known well enough
    horizon_s: float = 300.0  # until the next look
    state_size: Mapping[str, float] = field(default_factory=dict)  # by operator, unit of rate x s


@dataclass(frozen=True, slots=True)
class Replacement:
    """The decision. `moves` is empty when all stays; `placement` is what is wanted from now on."""

    placement: Placement
    moves: Mapping[str, tuple[str, str]]  # operator to (from, to)
    reason: str
    cost_now: float
    cost_then: float


def reconsider(
    problem: NetworkTree,
    running: Placement,
    *,
    planner: str = DEFAULT_NETWORK_PLANNER,
    options: Options | None = None,
    patience: Patience | None = None,
    present: NetworkTree | None = None,
) -> Replacement:
    """Keep or move, on the problem as it is now; `running` must place every operator.

    `present` is the problem as it stands for what runs, where its result is handed over at
    another proxy than the problem's: one that may be handed over anywhere.
    """
    patience = patience or Patience()
    cost_now, delay_now = cost_and_delay(present or problem, running)
    outcome = plan(problem, planner, options)
    if isinstance(outcome, Infeasible):
        reason = f"delay is {delay_now:g}; {planner} finds no placement that keeps the bound"
        return Replacement(dict(running), {}, reason, cost_now, cost_now)
    now, found = Judged(cost_now, delay_now), Judged(outcome.cost, outcome.delay)
    return weighed(problem, running, outcome.placement, now, found, patience)


class Judged(NamedTuple):
    """What a placement costs, and how long its slowest way is."""

    cost: float
    delay: float


def weighed(
    problem: NetworkTree,
    running: Placement,
    placement: Placement,
    now: Judged,
    found: Judged,
    patience: Patience,
) -> Replacement:
    """Whether to go from what runs to a placement that somebody has found."""
    bound = problem.latency_bound
    moves = {
        name: (running[name], node)
        for name, node in sorted(placement.items())
        if running[name] != node
    }
    then = Replacement(placement, moves, "", now.cost, found.cost)
    if not moves:
        return _with(then, "nothing better is known", running)
    if not within(found.delay, bound) and found.delay >= now.delay:
        return _with(then, f"delay {found.delay:g} would exceed the bound {bound:g}", running)
    if not within(now.delay, bound):
        return _with(
            then,
            f"delay {now.delay:g} exceeds the bound {bound:g}, {found.delay:g} is possible",
        )
    cost_now = now.cost
    saving = cost_now - found.cost
    if saving < patience.saving_least * cost_now or saving <= 0:
        share = saving / cost_now if cost_now else 0.0
        return _with(then, f"a saving of {share:.1%} is too small to trust", running)
    price = _price_of_moving(problem, moves, patience)
    gained = saving * patience.horizon_s
    if gained <= price:
        return _with(then, f"moving costs {price:g}, the saving is {gained:g}", running)
    return _with(then, f"cost falls from {cost_now:g} to {found.cost:g}")


def _price_of_moving(
    problem: NetworkTree, moves: Mapping[str, tuple[str, str]], patience: Patience
) -> float:
    index = {node: i for i, node in enumerate(problem.nodes)}
    return float(
        sum(
            patience.state_size.get(name, 0.0) * problem.distance[index[old], index[new]]
            for name, (old, new) in moves.items()
        )
    )


def _with(then: Replacement, reason: str, keep: Placement | None = None) -> Replacement:
    if keep is None:
        return Replacement(then.placement, then.moves, reason, then.cost_now, then.cost_then)
    return Replacement(dict(keep), {}, reason, then.cost_now, then.cost_now)
