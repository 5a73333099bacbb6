"""QoS specifications from what people write: a job file's table, an API body, a line of text.

A line is a template's name, or goals separated by commas:

    delay minimise 0.7, output_rate maximise 0.3
    delay <= 2s, queue_rows minimise 0.5

A goal without quantifier takes that of its limit (`<=` minimises, `>=` maximises), else the usual
one of its statistic; goals without weight share what the others leave. A table holds `template`, or
`goals`, a list of tables with `statistic`, `aim`, `weight`, `at_most`, `at_least`. Mistakes are
told with what was written; nothing here decides anything about running queries.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.errors import UsageError
from millstream.schedule.measures import PLAN_STATISTICS
from millstream.schedule.quality import (
    DEFAULT,
    MAXIMISE,
    MINIMISE,
    TEMPLATES,
    Goal,
    Quality,
    Specification,
    Standing,
    quantifier,
)

_GOAL = re.compile(
    r"^(?P<statistic>\w+)"
    r"(?:\s+(?P<aim>[a-z]+))?"
    r"(?:\s+(?P<weight>\d*\.?\d+)(?P<percent>\s*%)?)?"
    r"(?:\s*(?P<sign><=|>=)\s*(?P<limit>\d*\.?\d+)\s*(?P<unit>ms|s|min)?)?$"
)
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, None: 1.0}


@dataclass(frozen=True, slots=True)
class _Wish:
    statistic: str
    aim: str | None
    weight: float | None
    limit: float | None


def specification_from_text(text: str) -> Specification:
    """A specification from one line.

    >>> spec = specification_from_text("delay <= 500 ms, output_rate max 0.3")
    >>> [(g.statistic, g.quantifier, round(g.weight, 2), g.limit) for g in spec.goals]
    [('delay', 'minimise', 0.7, 0.5), ('output_rate', 'maximise', 0.3, None)]
    """
    line = text.strip()
    if re.fullmatch(r"[a-z_]+", line) and line not in PLAN_STATISTICS.names():
        return TEMPLATES.get(line)
    wishes = []
    for part in line.split(","):
        match = _GOAL.match(part.strip())
        if match is None:
            raise UsageError(
                f"cannot read the QoS goal {part.strip()!r}",
                hint="write for example 'delay minimise 0.7' or 'delay <= 2s'",
            )
        weight = float(match["weight"]) if match["weight"] else None
        if weight is not None and match["percent"]:
            weight /= 100
        limit = float(match["limit"]) * _SECONDS[match["unit"]] if match["limit"] else None
        by_sign = {"<=": MINIMISE, ">=": MAXIMISE, None: None}[match["sign"]]
        aim = quantifier(match["aim"]) if match["aim"] else by_sign
        if by_sign is not None and aim != by_sign:
            raise UsageError(
                f"the limit of {match['statistic']} contradicts its quantifier",
                hint="a minimised statistic has '<=', a maximised one '>='",
            )
        wishes.append(_Wish(match["statistic"], aim, weight, limit))
    return _specification(wishes, line)


def specification_from(table: Mapping[str, Any] | str) -> Specification:
    """A specification from a table or a line."""
    if isinstance(table, str):
        return specification_from_text(table)
    if "template" in table:
        return TEMPLATES.get(str(table["template"]))
    goals = table.get("goals")
    if not isinstance(goals, Sequence) or isinstance(goals, str) or not goals:
        raise UsageError("a QoS table needs `template` or `goals`")
    return _specification([_wish(goal) for goal in goals], "custom")


def _wish(goal: Any) -> _Wish:
    if not isinstance(goal, Mapping) or "statistic" not in goal:
        raise UsageError("a QoS goal needs a `statistic`", detail=f"found {goal!r}")
    known = {"statistic", "aim", "weight", "at_most", "at_least"}
    for key in goal:
        if key not in known:
            raise UsageError(
                f"unknown QoS setting {key!r}", hint=f"one of {', '.join(sorted(known))}"
            )
    if "at_most" in goal and "at_least" in goal:
        raise UsageError(f"{goal['statistic']} has both at_most and at_least")
    aim = quantifier(str(goal["aim"])) if "aim" in goal else None
    limit: float | None = None
    for key, implied in (("at_most", MINIMISE), ("at_least", MAXIMISE)):
        if key in goal:
            if aim not in (None, implied):
                raise UsageError(f"{key} contradicts the aim of {goal['statistic']}")
            aim, limit = implied, _number(goal[key], key)
    weight = _number(goal["weight"], "weight") if "weight" in goal else None
    return _Wish(str(goal["statistic"]), aim, weight, limit)


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what} must be a number, not {value!r}")
    return float(value)


def _specification(wishes: Sequence[_Wish], name: str) -> Specification:
    given = sum(wish.weight for wish in wishes if wish.weight is not None)
    open_ = sum(wish.weight is None for wish in wishes)
    share = max(0.0, 1 - given) / open_ if open_ else 0.0
    goals = []
    for wish in wishes:
        usual = PLAN_STATISTICS.get(wish.statistic)
        aim = wish.aim or (MAXIMISE if usual.better == "more" else MINIMISE)
        weight = share if wish.weight is None else wish.weight
        goals.append(Goal(wish.statistic, aim, weight, wish.limit))
    return Specification(tuple(goals), name)


def quality_from(
    overall: Mapping[str, Any] | str | None, by_query: Mapping[str, Mapping[str, Any] | str]
) -> Quality:
    """The global specification and those of single queries, each with its `weight` (default 1)."""
    specification = DEFAULT.overall if overall is None else specification_from(overall)
    weight = 1.0
    if isinstance(overall, Mapping) and "weight" in overall:
        weight = _number(overall["weight"], "weight")
    wanted: dict[str, tuple[float, Specification]] = {}
    for query, wish in by_query.items():
        own = 1.0
        if isinstance(wish, Mapping) and "weight" in wish:
            own = _number(wish["weight"], "weight")
        wanted[query] = (own, specification_from(wish))
    return Quality(specification, weight, wanted)


def told(standing: Standing) -> str:
    """One goal and where it stands, for a display.

    >>> told(Standing(None, Goal("delay", "minimise", 1.0, limit=2.0), 1.25, True))
    'delay at most 2 s: 1.25 s, met'
    """
    goal = standing.goal
    unit = (
        PLAN_STATISTICS.get(goal.statistic).unit
        if goal.statistic in PLAN_STATISTICS.names()
        else ""
    )
    value = "not measured yet" if standing.value is None else f"{standing.value:.3g} {unit}".strip()
    if goal.limit is None:
        return f"{goal.statistic} {goal.quantifier}d, weight {goal.weight:g}: {value}"
    bound = "at most" if goal.minimised else "at least"
    verdict = {True: ", met", False: ", not met", None: ""}[standing.met]
    return f"{goal.statistic} {bound} {goal.limit:g} {unit}: {value}{verdict}"
