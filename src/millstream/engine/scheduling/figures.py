"""What a running loop chooses from, who is in charge of choosing, and how its goals stand."""

from typing import Any

from millstream.decide.schedule.goal_text import told
from millstream.engine.loop import Loop
from millstream.engine.scheduling.goals import take_wishes


def units_named(loop: Loop) -> dict[str, tuple[str, list[str], list[str]]]:
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


def scheduling_figures(loop: Loop) -> dict[str, Any]:
    """Who is in charge, what scheduling costs, how the goals stand: plain values for JSON."""
    engine = loop.engine
    with engine.lock:
        steps = loop.scheduler
        now = steps.now()
        scheduler = steps.scheduler
        take_wishes(engine, scheduler)
        scheduler.catch_up(now)
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
                "misses_in_s": standing.misses_in_s,
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
            "costs_others": {q: round(v, 4) for q, v in scheduler.costs_others(now).items()},
            "shed": engine.shedding.rows_by_query(engine.ledger.operator_statistics()),
            "met": None if not verdicts or None in verdicts else all(verdicts),
        }
