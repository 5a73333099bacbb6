"""Goals of quality beside what is measured, as snapshots and alarms tell them."""

import contextlib
from collections.abc import Mapping

from millstream.control.snapshot.model import GoalSnapshot
from millstream.decide.schedule.measures import PLAN_STATISTICS
from millstream.decide.schedule.quality import Standing
from millstream.engine.dataflow import Dataflow

DIGITS = 3


def goals_told(flow: Dataflow) -> Mapping[str | None, tuple[GoalSnapshot, ...]]:
    """By query; those of None hold for all queries together. None while no loop runs."""
    found: dict[str | None, tuple[GoalSnapshot, ...]] = {}
    with contextlib.suppress(RuntimeError):  # the loop notes figures meanwhile
        for standing in flow.standings():
            before = found.get(standing.query, ())
            found[standing.query] = (*before, standing_goal(standing))
    return found


def standing_goal(standing: Standing) -> GoalSnapshot:
    """A goal of the QoS specification in words."""
    goal = standing.goal
    known = goal.statistic in PLAN_STATISTICS.names()
    unit = PLAN_STATISTICS.get(goal.statistic).unit if known else ""
    if goal.limit is None:
        wish = "as little as possible" if goal.minimised else "as much as possible"
    else:
        wish = f"at {'most' if goal.minimised else 'least'} {goal.limit:g} {unit}".rstrip()
    value = None if standing.value is None else round(standing.value, DIGITS)
    name = f"{goal.statistic} ({unit})" if unit else goal.statistic
    return GoalSnapshot(name, wish, value, standing.met, standing.misses_in_s)
