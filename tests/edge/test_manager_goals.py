"""How a manager tells the goals of its cluster: beside what the processors measure."""

from millstream.control.snapshot.model import (
    GoalSnapshot,
    Overview,
    QuerySnapshot,
    Snapshot,
)
from millstream.edge.manager.quality import measured

ANSWER = {
    "algorithm": None, "selector": "each processor's own", "seconds_in_charge": {}, "switches": 0,
    "goals": [
        {"query": None, "told": "balanced", "met": None},
        {"query": "q7", "told": "delay <= 2s", "met": None},
        {"query": "away", "told": "fresh", "met": None},
    ],
    "starving": {}, "met": None, "costs_others": {}, "schedule": {},
}  # fmt: skip


def seen(goal: GoalSnapshot) -> Snapshot:
    return Snapshot(
        1.0, Overview("c"), queries=(QuerySnapshot("q7", "", goals=(goal,), goals_cost=0.2),)
    )


def test_goals_stand_beside_what_processors_measure() -> None:
    late = measured(dict(ANSWER), seen(GoalSnapshot("delay (s)", "at most 2 s", 3.0, False)))
    told = {goal["query"]: goal["told"] for goal in late["goals"]}
    assert told == {
        None: "balanced", "q7": "delay (s) at most 2 s: 3, not met", "away": "fresh",
    }  # fmt: skip
    assert (late["met"], late["costs_others"]) == (False, {"q7": 0.2})
    soon = measured(dict(ANSWER), seen(GoalSnapshot("delay (s)", "at most 2 s", 1.0, True, 40.0)))
    assert soon["met"] is True
    assert soon["goals"][1]["told"].endswith("met, at this rate missed in 40 s")
    assert measured(dict(ANSWER), Snapshot(1.0, Overview("c")))["met"] is None
