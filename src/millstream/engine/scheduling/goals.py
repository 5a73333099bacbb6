"""Quality of service of a running engine: changed at any time, told beside what is measured.

Goals change the order of work and never a result. What is wanted lies in the engine's settings; the
scheduler takes it from there at its next choice. Whoever drives an engine (a run, a session, a
processor's API) calls these functions; making goals durable is the caller's business.
"""

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.decide.schedule.goal_text import amended
from millstream.decide.schedule.measures import (
    OPERATOR_STATISTICS,
    PLAN_STATISTICS,
    OperatorStatistic,
    PlanStatistic,
)
from millstream.decide.schedule.quality import Quality, Specification
from millstream.decide.schedule.scheduler import Scheduler
from millstream.engine.dataflow import Dataflow

Statistic = OperatorStatistic | PlanStatistic


def register_statistic(flow: Dataflow, statistic: Statistic) -> None:
    """A statistic of the user's own (seed, section 3.3.2), from now on; it can be a goal."""
    with flow.lock:
        taken = {s.name for s in flow.own_statistics if type(s) is type(statistic)}
        usual = OPERATOR_STATISTICS if isinstance(statistic, OperatorStatistic) else PLAN_STATISTICS
        if statistic.name in taken | set(usual.names()):
            raise UsageError(f"statistic {statistic.name!r} exists already")
        flow.own_statistics.append(statistic)


def set_quality(flow: Dataflow, quality: Quality) -> Quality:
    """New goals, from the next choice on."""
    with flow.lock:
        for name in quality.by_query:
            _known(flow, name)
        own = {s.name for s in flow.own_statistics if isinstance(s, PlanStatistic)}
        for goal in quality.goals:
            if goal.statistic not in own:
                PLAN_STATISTICS.get(goal.statistic)  # raises with the near misses
        flow.settings_changed(quality=quality)
    return quality


def change_goals(
    flow: Dataflow,
    specification: Specification | None,
    query: str | None = None,
    weight: float | None = None,
) -> Quality:
    """The goals of all queries together or of one; None forgets a query's own."""
    with flow.lock:
        if query is not None:
            _known(flow, query)
        changed = amended(flow.settings.quality, specification, query, weight)
        present = {n: own for n, own in changed.by_query.items() if n in flow.queries}
        return set_quality(flow, Quality(changed.overall, changed.weight, present))


def take_wishes(flow: Dataflow, scheduler: Scheduler) -> None:
    """Hands a scheduler what was changed since it was last asked; called before each choice."""
    for statistic in flow.own_statistics:
        if not scheduler.statistics.knows(statistic):
            scheduler.statistics.register(statistic)
    if scheduler.quality is not flow.settings.quality:
        scheduler.set_quality(flow.settings.quality)


def _known(flow: Dataflow, query: str) -> None:
    if query not in flow.queries:
        near = did_you_mean(query, flow.queries)
        hint = ", ".join(flow.queries) or "none is registered"
        raise UsageError(f"unknown query {query}{near}", hint=hint)
