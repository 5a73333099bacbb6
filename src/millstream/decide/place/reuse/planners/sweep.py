"""Background re-planning: admitted queries are planned again while nothing else is to be done.

Four kinds of trial, each kept only if it lowers the potential, so none ever drops a query. *One*:
a delivery is taken out and planned again. *Group*: all deliveries that rest on one stream at one
host are taken out together, so that what serves few can go. *Flow*: the same for all that rests on
a base stream sent to one host, in a drawn order: flows of base streams are few and dear, and many
deliveries rest on each. *Seed*: a popular stream that nobody computes is computed on trial, and
those that could read it are planned again. Chooses what to try, in turn; the planner finds the
plans. The same submissions give the same trials.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from millstream.decide.place.reuse.blocking_deliveries import dependents
from millstream.decide.place.reuse.cheapest import Plan
from millstream.decide.place.reuse.demand import Demand
from millstream.decide.place.reuse.prices import PriceCurve, change_of_potential
from millstream.decide.place.reuse.state import PlanState, Shortage

GAIN = 1e-9  # a trial is kept if it lowers the potential by more
GROUP = 12  # most deliveries in a group
FLOW_GROUP = 30  # likewise for what rests on a base stream sent to one host
LOOKS = 24  # streams looked at to find a group
READERS = 12  # most deliveries planned again for a seeded stream

Held = tuple[int, int]  # (stream, host)


class Finder(Protocol):
    """What a sweep needs of a planner."""

    state: PlanState
    demand: Demand
    curve: PriceCurve

    def find(self, stream: int) -> Plan | Shortage | None: ...

    def find_again(self, delivery: Held, queries: Sequence[str]) -> Plan | Shortage | None: ...

    def serve(self, plan: Plan, queries: Sequence[str]) -> None: ...


class Sweep:
    """Turns over deliveries, computed streams and popular streams."""

    def __init__(self) -> None:
        self._deliveries: list[Held] = []
        self._computed: list[Held] = []
        self._popular: list[int] = []
        self._flows: list[Held] = []
        self._random = Random(1)

    def ones(self, planner: Finder, trials: int) -> int:
        """Plans single deliveries again; gives how many moved."""
        kept = 0
        for _ in range(trials):
            if not self._deliveries:
                self._deliveries = list(reversed(planner.state.clients))
            if not self._deliveries:
                break
            delivery = self._deliveries.pop()
            if delivery in planner.state.clients:
                kept += _again(planner, (delivery,))
        return kept

    def groups(self, planner: Finder, trials: int) -> int:
        """Plans all that rests on one computed or shipped stream again; gives how many moved."""
        state, kept = planner.state, 0
        for _ in range(trials):
            found = _next_group(state, self._computed, lambda: list(reversed(state.source)), GROUP)
            if found is not None:
                kept += _again(planner, found)
        return kept

    def flows(self, planner: Finder, trials: int) -> int:
        """Plans all that rests on a base stream sent to one host again; gives how many moved."""
        state, kept = planner.state, 0
        base = state.catalog.base

        def drawn() -> list[Held]:
            flows = [held for held, origin in state.source.items() if origin < 0 <= base[held[0]]]
            self._random.shuffle(flows)
            return flows

        for _ in range(trials):
            found = _next_group(state, self._flows, drawn, FLOW_GROUP)
            if found is not None:
                self._random.shuffle(found)
                kept += _again(planner, found)
        return kept

    def seeds(self, planner: Finder, trials: int) -> int:
        """Computes a popular stream on trial; gives how many deliveries came to use it."""
        state, kept = planner.state, 0
        for _ in range(trials):
            if not self._popular:
                wanted = planner.demand.wanted
                self._popular = sorted(
                    (s for s, count in wanted.items() if count > 2 and not state.holders.get(s)),
                    key=lambda stream: (wanted[stream], -stream),
                )
            if not self._popular:
                break
            stream = self._popular.pop()
            if not state.holders.get(stream):
                kept += _seeded(planner, stream)
        return kept


def _next_group(
    state: PlanState, waiting: list[Held], again: Callable[[], list[Held]], most: int
) -> list[Held] | None:
    """What rests on the next in turn on which several rest; most serve one, or too many."""
    for _ in range(LOOKS):
        if not waiting:
            waiting.extend(again())
        if not waiting:
            return None
        held = waiting.pop()
        if held in state.source:
            found = dependents(state, held, most)
            if found is not None and len(found) > 1:
                return found
    return None


def _again(planner: Finder, deliveries: Sequence[Held]) -> int:
    state = planner.state
    mark = state.mark()
    waiting = [(held, state.stop_delivery(*held)) for held in deliveries]
    for held, names in waiting:
        plan = planner.find_again(held, names)
        if not isinstance(plan, Plan):
            break
        planner.serve(plan, names)
    else:
        if change_of_potential(state, mark, planner.curve, planner.demand.grain) < -GAIN:
            state.commit()
            return len(deliveries)
    state.rollback(mark)
    return 0


def _seeded(planner: Finder, stream: int) -> int:
    """The stream is held up by a query that nobody asked, until readers hold it up themselves."""
    state = planner.state
    readers = [
        (target, host)
        for target in planner.demand.targets.get(stream, ())
        for host in state.delivered_at.get(target, ())
    ][:READERS]
    if len(readers) < 2:
        return 0
    mark = state.mark()
    plan = planner.find(stream)
    if not isinstance(plan, Plan):
        return 0
    planner.serve(plan, (SEED,))
    moved = 0
    for held in readers:
        inner = state.mark()
        names = state.stop_delivery(*held)
        again = planner.find_again(held, names)
        if isinstance(again, Plan):
            planner.serve(again, names)
            if change_of_potential(state, inner, planner.curve, planner.demand.grain) < -GAIN:
                moved += 1
                continue
        state.rollback(inner)
    state.withdraw(SEED)
    if change_of_potential(state, mark, planner.curve, planner.demand.grain) < -GAIN:
        state.commit()
        return moved
    state.rollback(mark)
    return 0


SEED = "\0seed"  # no user's query has this name
