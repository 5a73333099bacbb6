"""Quality of service of a running engine: changed at any time, told beside what is measured.

Goals change the order of work and never a result. What is wanted lies in the engine's settings; the
scheduler takes it from there at its next choice. Whoever drives an engine (a run, a session, a
processor's API) calls these functions; making goals durable is the caller's business.
"""

from typing import TYPE_CHECKING, Any

from millstream.cql.suggestions import did_you_mean
from millstream.errors import UsageError
from millstream.schedule.goal_text import amended, told
from millstream.schedule.measures import (
    OPERATOR_STATISTICS,
    PLAN_STATISTICS,
    OperatorStatistic,
    PlanStatistic,
)
from millstream.schedule.quality import Quality, Specification
from millstream.schedule.scheduler import Scheduler

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.loop import Loop

Statistic = OperatorStatistic | PlanStatistic


def register_statistic(engine: "Engine", statistic: Statistic) -> None:
    """A statistic of the user's own (seed, section 3.3.2), from now on; it can be a goal."""
    with engine.lock:
        taken = {s.name for s in engine.own_statistics if type(s) is type(statistic)}
        usual = OPERATOR_STATISTICS if isinstance(statistic, OperatorStatistic) else PLAN_STATISTICS
        if statistic.name in taken | set(usual.names()):
            raise UsageError(f"statistic {statistic.name!r} exists already")
        engine.own_statistics.append(statistic)


def set_quality(engine: "Engine", quality: Quality) -> Quality:
    """New goals, from the next choice on."""
    with engine.lock:
        for name in quality.by_query:
            _known(engine, name)
        own = {s.name for s in engine.own_statistics if isinstance(s, PlanStatistic)}
        for goal in quality.goals:
            if goal.statistic not in own:
                PLAN_STATISTICS.get(goal.statistic)  # raises with the near misses
        engine.settings_changed(quality=quality)
    return quality


def change_goals(
    engine: "Engine",
    specification: Specification | None,
    query: str | None = None,
    weight: float | None = None,
) -> Quality:
    """The goals of all queries together or of one; None forgets a query's own."""
    with engine.lock:
        if query is not None:
            _known(engine, query)
        changed = amended(engine.settings.quality, specification, query, weight)
        present = {n: own for n, own in changed.by_query.items() if n in engine.queries}
        return set_quality(engine, Quality(changed.overall, changed.weight, present))


def take_wishes(engine: "Engine", scheduler: Scheduler) -> None:
    """Hands a scheduler what was changed since it was last asked; called before each choice."""
    for statistic in engine.own_statistics:
        if not scheduler.statistics.knows(statistic):
            scheduler.statistics.register(statistic)
    if scheduler.quality is not engine.settings.quality:
        scheduler.set_quality(engine.settings.quality)


def units_named(loop: "Loop") -> dict[str, tuple[str, list[str], list[str]]]:
    """What the scheduler chooses from: a label for people, the operators and the queries of each.

    Operators that run together are one unit.
    """
    engine, found = loop.engine, {}
    users: dict[str, list[str]] = {}
    with engine.lock:
        for query in engine.queries.values():
            for operator in query.operators:
                users.setdefault(operator, []).append(query.name)
        for unit in loop.scheduler.trains.units():
            names = [o.id for o in unit.operators]
            label = unit.operators[0].label
            if len(names) > 1:
                label = f"{len(names)} operators like {label}"
            queries = dict.fromkeys(q for name in names for q in users.get(name, ()))
            found[unit.id] = (label, names, list(queries))
    return found


def _known(engine: "Engine", query: str) -> None:
    if query not in engine.queries:
        near = did_you_mean(query, engine.queries)
        hint = ", ".join(engine.queries) or "none is registered"
        raise UsageError(f"unknown query {query}{near}", hint=hint)


def scheduling_figures(loop: "Loop", now: float) -> dict[str, Any]:
    """Who is in charge, what scheduling costs, how the goals stand: plain values for JSON."""
    engine = loop.engine
    with engine.lock:
        steps = loop.scheduler
        scheduler = steps.scheduler
        take_wishes(engine, scheduler)
        starving = scheduler.starving(now)
        named = units_named(loop) if starving else {}
        labels = {name: label for name, (label, _, _) in named.items()}
        goals = [
            {
                "query": standing.query,
                "statistic": standing.goal.statistic,
                standing.goal.quantifier: standing.goal.weight,
                "limit": standing.goal.limit,
                "value": standing.value,
                "met": standing.met,
                "told": told(standing),
            }
            for standing in scheduler.standings()
        ]
        verdicts = [goal["met"] for goal in goals if goal["limit"] is not None]
        return {
            "algorithm": scheduler.algorithm,
            "selector": scheduler.settings.selector,
            "candidates": list(scheduler.settings.candidates),
            "switches": max(0, scheduler.switches - 1),  # the first was no change
            "seconds_in_charge": {k: round(v, 3) for k, v in scheduler.in_charge(now).items()},
            "seconds_choosing": round(steps.seconds, 6),
            "barren_picks": dict(scheduler.starvation),
            "starving": {labels.get(name, name): round(s, 1) for name, s in starving.items()},
            "goals": goals,
            "met": None if not verdicts or None in verdicts else all(verdicts),
        }
