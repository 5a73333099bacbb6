"""Goals of a cluster: `millstream qos URL` at a manager, as at a run.

Every processor chooses by itself what runs next; the manager hands the goals on to those that it
concerns (`configure`): goals of one query to the processors that host it, others to all. They are
checked here before anybody hears of them.
"""

from typing import Any

from fastapi import FastAPI, Request

from millstream.config.qos_table import quality_of
from millstream.control.commands import Configure
from millstream.control.manager_connections import placed_operators
from millstream.control.manager_events import Say
from millstream.control.manager_state import ManagerState
from millstream.errors import UsageError
from millstream.server.access import authorise, json_body
from millstream.server.manager_driver import ManagerDriver


class ClusterGoals:
    """What was asked for, as `[qos]` tables have it."""

    def __init__(self) -> None:
        self.overall: dict[str, Any] = {}
        self.queries: dict[str, dict[str, Any]] = {}

    def change(self, wish: dict[str, Any], known: ManagerState) -> None:
        """Takes a wish of `millstream qos`; a mistake changes nothing."""
        query, goals = wish.get("query"), wish.get("goals")
        if query is not None and query not in known.queries:
            raise UsageError(f"there is no query {query}")
        if wish.get("forget"):
            self.queries.pop(str(query), None)
            return
        if not isinstance(goals, str):
            raise UsageError("goals are missing", hint='{"goals": "delay <= 2s"}')
        entry: dict[str, Any] = {"goals": goals}
        if wish.get("weight") is not None:
            entry["weight"] = wish["weight"]
        overall = self.overall if query is not None else entry
        queries = {**self.queries, str(query): entry} if query is not None else self.queries
        quality_of({**overall, "queries": queries}, list(known.queries))
        self.overall, self.queries = overall, queries

    def table_for(self, state: ManagerState, processor: str) -> dict[str, Any]:
        """The goals that concern a processor."""
        here = {
            q.name
            for q in state.queries.values()
            if any(state.operators[o].processor == processor for o in placed_operators(q))
        }
        mine = {name: entry for name, entry in self.queries.items() if name in here}
        return {**self.overall, **({"queries": mine} if mine else {})}

    def told(self) -> dict[str, Any]:
        """As a run tells its goals; how they stand, each processor knows."""
        goals = (
            [{"query": None, "told": self.overall["goals"], "met": None}] if self.overall else []
        )
        goals += [
            {"query": name, "told": entry["goals"], "met": None}
            for name, entry in self.queries.items()
        ]
        return {
            "algorithm": None, "selector": "each processor's own", "seconds_in_charge": {},
            "switches": 0, "goals": goals, "starving": {}, "met": None,
        }  # fmt: skip


def add_quality_routes(app: FastAPI, driver: ManagerDriver, token: str | None) -> None:
    goals = ClusterGoals()

    @app.get("/qos")
    async def quality(request: Request) -> dict[str, Any]:
        authorise(request, token)
        return goals.told()

    @app.put("/qos")
    async def change(request: Request) -> dict[str, Any]:
        authorise(request, token)
        goals.change(await json_body(request), driver.state)
        for name in driver.state.processors:
            driver.feed(Say((name,), (Configure(quality=goals.table_for(driver.state, name)),)))
        return goals.told()
