"""Goals of a cluster: `millstream qos URL` at a manager, as at a run.

    GET /qos     the goals; those of queries beside what is measured, met or not
    PUT /qos     {"goals" or "template", "query", "weight", "forget"}, or {"schedule": {...}}

They are checked here before anybody hears of them; the manager keeps them and hands them on to the
processors that they concern (`control/manager/quality.py`).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import Request

from millstream.control.definitions.qos_table import quality_of, schedule_of
from millstream.control.manager.events import SetGoals, SetSchedule
from millstream.control.manager.quality import OVERALL, SCHEDULE, by_query, overall, words
from millstream.control.manager.state import ManagerState
from millstream.control.snapshot.model import GoalSnapshot, Snapshot
from millstream.core.errors import UsageError
from millstream.decide.schedule.goal_text import MAY_DROP
from millstream.edge.http.access import json_body
from millstream.edge.http.roles import reads, submits
from millstream.edge.http.serving import Application
from millstream.edge.manager.driver import ManagerDriver

TABLE_KEYS = ("goals", "template", "weight", MAY_DROP)
KEYS = (*TABLE_KEYS, "query", "forget", "schedule")


def wish_of(wish: Mapping[str, Any], known: ManagerState) -> SetGoals | SetSchedule:
    """What `millstream qos` asks for, as an event; a mistake is raised."""
    for key in wish:
        if key not in KEYS:
            raise UsageError(f"unknown key {key}", hint=f"one of {', '.join(KEYS)}")
    if "schedule" in wish:
        return SetSchedule(_schedule(wish["schedule"]))
    query = wish.get("query")
    if query is not None and (not isinstance(query, str) or query not in known.queries):
        raise UsageError(f"there is no query {query}")
    if wish.get("forget"):
        return SetGoals(query or OVERALL, {})
    table = {key: wish[key] for key in TABLE_KEYS if wish.get(key) is not None}
    if "goals" not in table and "template" not in table:
        raise UsageError("goals are missing", hint='{"goals": "delay <= 2s"}')
    whole = table if query is None else {**overall(known), "queries": {query: table}}
    quality_of(whole, list(known.queries))
    return SetGoals(query or OVERALL, table)


def _schedule(table: Any) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise UsageError("schedule is a table", hint='{"schedule": {"algorithm": "chain"}}')
    if table:
        schedule_of(table)
    return table


def told(state: ManagerState) -> dict[str, Any]:
    """As a run tells its goals; how they stand, the processors know."""
    whole, schedule = overall(state), state.goals.get(SCHEDULE)
    goals = [{"query": None, "told": words(whole), "met": None}] if whole else []
    goals += [
        {"query": name, "told": words(table), "met": None}
        for name, table in by_query(state).items()
    ]
    return {
        "algorithm": None, "selector": "each processor's own", "seconds_in_charge": {},
        "switches": 0, "goals": goals, "starving": {}, "met": None, "costs_others": {},
        "schedule": dict(schedule.table) if schedule is not None else {},
    }  # fmt: skip


def measured(answer: dict[str, Any], seen: Snapshot) -> dict[str, Any]:
    """The same beside what the processors that give the results say: value, met, what it costs."""
    found = {q.name: q for q in seen.queries if q.goals}
    goals: list[dict[str, Any]] = []
    for entry in answer["goals"]:
        query = found.get(entry["query"] or "")
        goals += [entry] if query is None else [_standing(query.name, g) for g in query.goals]
    verdicts = [goal["met"] for goal in goals if goal["met"] is not None]
    costs = {name: q.goals_cost for name, q in found.items() if q.goals_cost}
    return answer | {
        "goals": goals, "met": all(verdicts) if verdicts else None, "costs_others": costs,
    }  # fmt: skip


def _standing(query: str, goal: GoalSnapshot) -> dict[str, Any]:
    value = "not measured yet" if goal.value is None else f"{goal.value:.3g}"
    verdict = {True: ", met", False: ", not met", None: ""}[goal.met]
    if goal.misses_in_s is not None:
        verdict += f", at this rate missed in {goal.misses_in_s:.0f} s"
    return {
        "query": query, "statistic": goal.statistic, "value": goal.value, "met": goal.met,
        "misses_in_s": goal.misses_in_s,
        "told": f"{goal.statistic} {goal.wish}: {value}{verdict}",
    }  # fmt: skip


def add_quality_routes(
    app: Application, driver: ManagerDriver, look: Callable[[], Awaitable[Snapshot]]
) -> None:
    """`look` asks every processor that is up what it says of itself."""

    @app.get("/qos")
    @reads
    async def quality() -> dict[str, Any]:
        answer = told(driver.state)
        return measured(answer, await look()) if by_query(driver.state) else answer

    @app.put("/qos")
    @submits
    async def change(request: Request) -> dict[str, Any]:
        driver.feed(wish_of(await json_body(request), driver.state))
        return told(driver.state)
