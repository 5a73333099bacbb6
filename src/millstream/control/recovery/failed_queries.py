"""Queries that have failed on processors: restarted by somebody or by the policy, or given up.

Until then their operators rest where they are and keep their places. A new query that needs one of
those has them begin anew: they stand before what broke them, and would break the new one as well.
"""

from collections.abc import Collection

from millstream.control.manager.state import Query
from millstream.control.manager.turn import Turn
from millstream.control.recovery.restarts import BACKOFF, Restarts, worth_it
from millstream.core.errors import UsageError


def restart(turn: Turn, name: str) -> None:
    """Somebody wants a failed query to go on where it failed."""
    query = turn.state.queries.get(name)
    if query is None:
        raise UsageError(f"there is no query {name}")
    if query.phase != "failed":
        raise UsageError(f"query {name} has not failed", detail=f"it is {query.phase}")
    if not query.resumable:
        raise UsageError(
            f"query {name} cannot continue where it failed",
            detail=f"its unread input is no longer kept; it failed: {query.reason}",
            hint="drop it and submit it again",
        )
    _go_on(turn, query, tried=0)
    turn.decide("notice", f"query {name} is restarted", about=("query", name))


def _go_on(turn: Turn, query: Query, tried: int) -> None:
    turn.query(
        query.name, phase="running", reason="", resumable=False, restarts=query.restarts + 1,
        tried=tried, tried_s=turn.now_s,
    )  # fmt: skip


def restarted_above(turn: Turn, query: Query, restarts: int) -> None:
    """A manager above has had a query restarted so often."""
    if query.phase == "failed" and query.resumable:
        _go_on(turn, query, tried=0)
    turn.query(query.name, restarts=restarts)


def review(turn: Turn) -> None:
    """Restarts who is due, where the settings say so."""
    settings = turn.state.settings
    if settings.restart != BACKOFF:
        return
    for query in list(turn.state.queries.values()):
        if query.phase != "failed" or not query.resumable or not worth_it(query.reason):
            continue
        counted = Restarts(query.tried, query.tried_s).at_failure(query.failed_s)
        if counted.count >= settings.restarts_max or turn.now_s < counted.due_s(query.failed_s):
            continue
        _go_on(turn, query, counted.count + 1)
        turn.decide(
            "notice",
            f"query {query.name} is restarted, {counted.count + 1} of {settings.restarts_max}",
            f"it failed because {query.reason}", about=("query", query.name),
        )  # fmt: skip


def take_over(turn: Turn, name: str, operators: Collection[str]) -> None:
    """Gives failed queries up whose resting operators a new query needs."""
    running = {
        o for q in turn.state.queries.values() if q.phase in ("running", "deploying")
        for o in q.operators
    }  # fmt: skip
    for query in list(turn.state.queries.values()):
        resting = {*query.operators} - running
        if query.resumable and query.name != name and not resting.isdisjoint(operators):
            turn.query(query.name, resumable=False)
            turn.decide(
                "notice",
                f"query {query.name} cannot be restarted any more",
                f"query {name} has the same operators", about=("query", query.name),
            )  # fmt: skip
