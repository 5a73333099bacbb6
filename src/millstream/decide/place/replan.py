"""Planning again when reality departs from the estimates (SQPR, section IV.B).

From measured rates and costs, and from queries that starve, it lists the queries to plan again,
takes them out of the placement on paper, puts them back at the measured values, and gives the
steps that lead there in a safe order. A query that no longer fits anywhere keeps its place and is
reported; none is dropped. Changes estimates and placement of the planner it is given.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from millstream.decide.place.moves import Step, safe_steps
from millstream.decide.place.reuse.cheapest import Plan
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner
from millstream.decide.place.reuse.rebuild import recounted
from millstream.decide.place.reuse.state import CPU, IN, MEMORY, OUT, PlanState

Held = tuple[int, int]  # (stream, host)


@dataclass(frozen=True, slots=True)
class Measured:
    """What monitoring saw: mean rates of streams, CPU of operators, queries that starve."""

    rates: Mapping[str, float] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    starving: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Replan:
    """The outcome: which queries were planned again and why, how to get there, who is short."""

    reasons: Mapping[str, str]  # query -> why it was planned again
    steps: tuple[Step, ...]
    moved: tuple[str, ...]  # queries served otherwise than before
    short: tuple[str, ...]  # queries for which no place with enough room was found


def replan(planner: SqprPlanner, measured: Measured, threshold: float = 0.2) -> Replan:
    """Plans departed and starving queries again; `threshold` is a share of the estimate."""
    before = planner.state
    departed = departures(before, measured, threshold)
    catalog = before.catalog
    for name, rate in measured.rates.items():
        catalog.change_rate(name, rate)
    for name, cpu in measured.cpu.items():
        catalog.change_cost(name, cpu)
    old = recounted(before)
    planner.state = state = recounted(before)
    reasons = _reasons(state, departed, measured)
    short = _plan_again(planner, tuple(reasons))
    moved = tuple(query for query in reasons if _support(old, query) != _support(state, query))
    return Replan(reasons, safe_steps(old, state), moved, short)


def departures(state: PlanState, measured: Measured, threshold: float) -> dict[Held | int, str]:
    """Streams and operators whose measured use differs from the estimate by the threshold.

    Keys are (stream, -1) for streams and numbers for operators.
    """
    catalog = state.catalog
    found: dict[Held | int, str] = {}
    for name, rate in sorted(measured.rates.items()):
        estimate = catalog.rate[catalog.stream_at[name]]
        if abs(rate - estimate) > threshold * max(estimate, 1e-12):
            found[catalog.stream_at[name], -1] = f"rate of {name} is {rate:.4g}, not {estimate:.4g}"
    for name, cpu in sorted(measured.cpu.items()):
        estimate = catalog.cpu[catalog.operator_at[name]]
        if abs(cpu - estimate) > threshold * max(estimate, 1e-12):
            found[catalog.operator_at[name]] = f"cpu of {name} is {cpu:.4g}, not {estimate:.4g}"
    return found


def _reasons(
    state: PlanState, departed: Mapping[Held | int, str], measured: Measured
) -> dict[str, str]:
    """Queries to plan again: departed estimates, starving ones, those on overloaded hosts."""
    crowded = overloaded_hosts(state)
    reasons: dict[str, str] = {}
    for query, held in state.served.items():
        if query in measured.starving:
            reasons[query] = "it starves"
            continue
        for stream, host in state.supports(*held):
            origin = state.source.get((stream, host))
            why = departed.get((stream, -1)) or (
                departed.get(origin) if origin is not None and origin >= 0 else None
            )
            if why is None and host in crowded and origin is not None:
                why = f"{crowded[host]} of {state.catalog.host_ids[host]} is exceeded"
            if why is not None:
                reasons[query] = why
                break
    return reasons


def overloaded_hosts(state: PlanState) -> dict[int, str]:
    """Hosts whose use exceeds what they offer, with the resource."""
    found: dict[int, str] = {}
    for name in (CPU, IN, OUT, MEMORY):
        used, offered = state.use(name)
        for host in ((used - offered) > 1e-9 * offered.clip(1.0, 1e300)).nonzero()[0].tolist():
            found.setdefault(host, name)
    return found


def _plan_again(planner: SqprPlanner, queries: tuple[str, ...]) -> tuple[str, ...]:
    """All out and in again; if one does not fit so, one at a time, each keeping its place."""
    state = planner.state
    mark = state.mark()
    deliveries = list(dict.fromkeys(state.served[query] for query in queries))
    waiting = [(held, state.stop_delivery(*held)) for held in deliveries]
    for held, names in waiting:
        plan = planner.find_again(held, names)
        if not isinstance(plan, Plan):
            break
        planner.serve(plan, names)
    else:
        state.commit()
        return ()
    state.rollback(mark)
    short: list[str] = []
    for held in deliveries:
        mark = state.mark()
        names = state.stop_delivery(*held)
        plan = planner.find_again(held, names)
        if isinstance(plan, Plan):
            planner.serve(plan, names)
        else:
            state.rollback(mark)
            short.extend(names)
    state.commit()
    crowded = overloaded_hosts(state)
    return tuple(
        query
        for query in short
        if any(host in crowded for _, host in state.supports(*state.served[query]))
    )


def _support(state: PlanState, query: str) -> set[tuple[Held, int | None]]:
    return {(held, state.source.get(held)) for held in state.supports(*state.served[query])}
