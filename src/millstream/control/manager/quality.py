"""Goals and scheduling of a cluster: what was requested, and which processors must still get it.

Every processor chooses by itself what runs next; it gets the goals of all queries together and of
those it hosts, as a `[qos]` table, and the `[schedule]` table of the cluster where there is one.
Requests are durable; what a processor has received is not: the manager sends it again to each new
processor, and to all after its own restart. Operators that move take their queries' goals along.
Tables are checked before they come here.
"""

from collections.abc import Mapping
from typing import Any

from millstream.control.manager.connections import placed_operators
from millstream.control.manager.events import SetGoals, SetSchedule
from millstream.control.manager.state import Goals, ManagerState
from millstream.control.manager.turn import Turn
from millstream.control.protocol.commands import Command, Configure
from millstream.control.protocol.replies import Refusal, Reply

OVERALL = ""  # the goals of all queries together
SCHEDULE = "@schedule"  # no query has such a name


def set_goals(turn: Turn, event: SetGoals) -> None:
    """New goals; an empty table forgets those there were, and is kept until all have heard."""
    turn.put(Goals(event.query, dict(event.table)))
    whose = f"query {event.query}" if event.query else "all queries"
    about = ("query", event.query) if event.query else ("", "")
    if event.table:
        turn.decide("notice", f"goals of {whose}: {words(event.table)}", about=about)
    else:
        turn.decide("notice", f"{whose} has no goals of its own any more", about=about)


def set_schedule(turn: Turn, event: SetSchedule) -> None:
    turn.put(Goals(SCHEDULE, dict(event.table)))
    told = ", ".join(f"{key} = {value}" for key, value in sorted(event.table.items()))
    turn.decide("notice", f"processors schedule by: {told or 'their own settings'}")


def words(table: Mapping[str, Any]) -> str:
    """Goals as a person reads them.

    >>> words({"template": "fresh", "weight": 2.0}), words({"goals": "delay <= 2s"})
    ('fresh (weight 2)', 'delay <= 2s')
    """
    told = table.get("template") or table.get("goals", "")
    if not isinstance(told, str):
        told = ", ".join(" ".join(f"{k} {v}" for k, v in goal.items()) for goal in told)
    if table.get("may_drop"):
        told += ", may_drop"
    weight = table.get("weight")
    return f"{told} (weight {weight:g})" if weight is not None else told


def tidy(turn: Turn) -> None:
    """Goals of queries that are gone go."""
    for name in list(turn.state.goals):
        if name not in (OVERALL, SCHEDULE) and name not in turn.state.queries:
            turn.remove("goals", name)


def overall(state: ManagerState) -> Mapping[str, Any]:
    return state.goals[OVERALL].table if OVERALL in state.goals else {}


def by_query(state: ManagerState) -> dict[str, Mapping[str, Any]]:
    """The goals that queries have of their own."""
    return {
        name: goals.table
        for name, goals in state.goals.items()
        if name not in (OVERALL, SCHEDULE) and goals.table
    }


def wanted(state: ManagerState, processor: str) -> Configure | None:
    """What a processor should have been told; None where nobody has asked for anything."""
    live = state.live[processor]
    have = live.actual
    if have is None or (not state.goals and live.told is None):
        return None
    mine = {
        name: dict(table)
        for name, table in by_query(state).items()
        if name in have.queries and _runs_at(state, name, processor)
    }
    quality = {**overall(state), **({"queries": mine} if mine else {})}
    schedule = state.goals.get(SCHEDULE)
    return Configure(schedule=None if schedule is None else dict(schedule.table), quality=quality)


def _runs_at(state: ManagerState, query: str, processor: str) -> bool:
    operators = placed_operators(state.queries[query]) if query in state.queries else ()
    return any(state.operators[o].processor == processor for o in operators)


def commands_for(state: ManagerState, processor: str) -> tuple[Command, ...]:
    """What has still to be said to a processor."""
    found = wanted(state, processor)
    return () if found is None or found == state.live[processor].told else (found,)


def note(turn: Turn, processor: str, command: Configure, reply: Reply) -> None:
    """A processor has heard; one that refuses is not asked again until something changes."""
    if command.quality is not None:
        turn.live(processor, told=command)
    if command.statistics is not None:
        turn.live(processor, measured=command.statistics)
    if isinstance(reply, Refusal):
        turn.decide(
            "notice", f"{processor} does not take the goals: {reply.message}", reply.detail,
            about=("processor", processor),
        )  # fmt: skip


def from_above(turn: Turn, command: Configure) -> None:
    """A higher manager's goals are ours for what it has us host."""
    if command.quality is not None:
        own = {k: v for k, v in command.quality.items() if k != "queries"}
        wishes: Mapping[str, Any] = command.quality.get("queries", {})
        for name, query in turn.state.queries.items():
            if query.given and (name in wishes or name in turn.state.goals):
                turn.put(Goals(name, dict(wishes.get(name, {}))))
        turn.put(Goals(OVERALL, own))
    if command.schedule is not None:
        turn.put(Goals(SCHEDULE, dict(command.schedule)))
