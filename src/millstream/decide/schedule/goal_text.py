"""QoS specifications from what people write in a line, and back into words.

A line is a template's name, or goals separated by commas:

    delay minimise 0.7, output_rate maximise 0.3
    delay <= 2s, queue_rows minimise 0.5

A goal without quantifier takes that of its limit (`<=` minimises, `>=` maximises), else the usual
one of its statistic; goals without weight share what the others leave. `may_drop` beside a limit of
delay lets a query do without rows that have missed it. Mistakes are told with what
was written; nothing here decides anything about running queries. (Tables of goals: `config`.)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.core.errors import UsageError
from millstream.decide.schedule.measures import PLAN_STATISTICS
from millstream.decide.schedule.quality import (
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
MAY_DROP = "may_drop"
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
    >>> specification_from_text("delay <= 2s, may_drop").may_drop
    True
    """
    line = text.strip()
    if re.fullmatch(r"[a-z_]+", line) and line not in (MAY_DROP, *PLAN_STATISTICS.names()):
        return TEMPLATES.get(line)
    parts = [part.strip() for part in line.split(",")]
    may_drop = MAY_DROP in parts
    wishes = []
    for part in (p for p in parts if p != MAY_DROP):
        match = _GOAL.match(part)
        if match is None:
            raise UsageError(
                f"cannot read the QoS goal {part!r}",
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
    return _specification(wishes, line, may_drop=may_drop)


def _specification(wishes: Sequence[_Wish], name: str, *, may_drop: bool) -> Specification:
    given = sum(wish.weight for wish in wishes if wish.weight is not None)
    open_ = sum(wish.weight is None for wish in wishes)
    share = max(0.0, 1 - given) / open_ if open_ else 0.0
    goals = []
    for wish in wishes:
        usual = PLAN_STATISTICS.get(wish.statistic)
        aim = wish.aim or (MAXIMISE if usual.better == "more" else MINIMISE)
        weight = share if wish.weight is None else wish.weight
        goals.append(Goal(wish.statistic, aim, weight, wish.limit))
    return Specification(tuple(goals), name, may_drop)


def amended(
    quality: Quality,
    specification: Specification | None,
    query: str | None = None,
    weight: float | None = None,
) -> Quality:
    """The same wishes with those of one query, or of all together, changed; None forgets a query's.

    >>> from millstream.decide.schedule.quality import DEFAULT
    >>> fresh = amended(DEFAULT, TEMPLATES.get("fresh"), "errors", weight=2.0)
    >>> fresh.overall.name, {q: (w, s.name) for q, (w, s) in fresh.by_query.items()}
    ('balanced', {'errors': (2.0, 'fresh')})
    >>> amended(fresh, None, "errors") == DEFAULT
    True
    """
    if query is None:
        overall = quality.overall if specification is None else specification
        return Quality(overall, quality.weight if weight is None else weight, quality.by_query)
    others = {name: own for name, own in quality.by_query.items() if name != query}
    if specification is None:
        return Quality(quality.overall, quality.weight, others)
    before = quality.by_query[query][0] if query in quality.by_query else 1.0
    own = (before if weight is None else weight, specification)
    return Quality(quality.overall, quality.weight, {**others, query: own})


def told(standing: Standing) -> str:
    """One goal and where it stands, for a display.

    >>> told(Standing(None, Goal("delay", "minimise", 1.0, limit=2.0), 1.25, True))
    'delay at most 2 s: 1.25 s, met'
    >>> told(Standing("q", Goal("delay", "minimise", 1.0, limit=2.0), 1.25, True, 40.2))
    'delay at most 2 s: 1.25 s, met, at this rate missed in 40 s'
    """
    goal = standing.goal
    unit = _unit(goal)
    value = "not measured yet" if standing.value is None else f"{standing.value:.3g} {unit}".strip()
    verdict = {True: ", met", False: ", not met", None: ""}[standing.met]
    if standing.misses_in_s is not None:
        verdict += f", at this rate missed in {standing.misses_in_s:.0f} s"
    return f"{wish(goal)}: {value}{verdict}"


def wish(goal: Goal) -> str:
    """What a goal asks for.

    >>> wish(Goal("delay", "minimise", 0.7)), wish(Goal("output_rate", "maximise", 1.0, limit=5.0))
    ('delay minimised, weight 0.7', 'output_rate at least 5 rows/s')
    """
    if goal.limit is None:
        return f"{goal.statistic} {goal.quantifier}d, weight {goal.weight:g}"
    bound = "at most" if goal.minimised else "at least"
    return f"{goal.statistic} {bound} {goal.limit:g} {_unit(goal)}".strip()


def _unit(goal: Goal) -> str:
    known = goal.statistic in PLAN_STATISTICS.names()
    return PLAN_STATISTICS.get(goal.statistic).unit if known else ""
