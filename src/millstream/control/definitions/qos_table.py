"""`[qos]` and `[schedule]` of a job file: what is wanted, and how a processor may schedule.

[qos]
template = "balanced"            # or goals = "delay <= 2s, output_rate maximise 0.3"
                                 # or goals = [{ statistic = "delay", minimise = 1.0, limit = 2.0 }]
[qos.queries.errors]
template = "fresh"
weight   = 2.0                   # beside the weight of all queries together, 1 by default
                                 # may_drop = true beside a limit of delay: late rows are dropped

[schedule]
algorithm = "chain"              # or candidates and a selector

Bodies of the HTTP API and what a run keeps of changed goals have the same form.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.decide.schedule.algorithms import ALGORITHMS
from millstream.decide.schedule.goal_text import MAY_DROP
from millstream.decide.schedule.goal_text import specification_from_text as line_of
from millstream.decide.schedule.measures import PLAN_STATISTICS
from millstream.decide.schedule.quality import TEMPLATES, Goal, Quality, Specification
from millstream.decide.schedule.selectors import SELECTORS
from millstream.decide.schedule.settings import ScheduleSettings, SettingError, settings_from

T = TypeVar("T")
SPECIFICATION_KEYS = ("template", "goals", "weight", MAY_DROP)
GOAL_KEYS = ("statistic", "minimise", "maximise", "limit")


class TableError(UsageError):
    """A mistake at a path below the table."""

    def __init__(self, path: Sequence[str], message: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = tuple(path)


def quality_of(table: Mapping[str, Any], queries: Sequence[str]) -> Quality:
    """The wishes of a `[qos]` table over the job's queries."""
    own = {k: v for k, v in table.items() if k != "queries"}
    overall = specification_of(own) if set(own) - {"weight"} else TEMPLATES.get("balanced")
    by_query = {}
    for name, entry in _table(("queries",), table.get("queries", {})).items():
        path = ("queries", name)
        if name not in queries:
            near = did_you_mean(name, queries)
            raise TableError(path, f"unknown query {name}{near}", ", ".join(queries))
        entry = _table(path, entry)  # noqa: PLW2901  (the same, known to be a table)
        by_query[name] = (_weight(path, entry), specification_of(entry, path))
    return _checked((), lambda: Quality(overall, _weight((), own), by_query))


def schedule_of(table: Mapping[str, Any]) -> ScheduleSettings:
    """The settings of a `[schedule]` table."""
    settings = _checked((), lambda: settings_from(table))
    named = ("algorithm" if "algorithm" in table else "candidates",)
    for name in settings.candidates:
        _checked(named, partial(ALGORITHMS.get, name))
    _checked(("selector",), lambda: SELECTORS.get(settings.selector))
    return settings


def _checked(path: tuple[str, ...], make: Callable[[], T]) -> T:
    """What a maker gives; its complaint at a place."""
    try:
        return make()
    except TableError:
        raise  # it knows its place
    except UsageError as error:
        hint = "; ".join(part for part in (error.detail, error.hint) if part)
        at = (*path, error.setting) if isinstance(error, SettingError) else path
        raise TableError(at, error.message, hint) from None


def table_of(quality: Quality) -> dict[str, Any]:
    """The table that gives these wishes.

    >>> quality = quality_of({"goals": "delay <= 2s", "queries": {"q": {"template": "small"}}}, "q")
    >>> table = table_of(quality)
    >>> table["goals"], quality_of(table, ["q"]) == quality
    ([{'statistic': 'delay', 'minimise': 1.0, 'limit': 2.0}], True)
    """
    table = specification_table(quality.overall) | {"weight": quality.weight}
    if quality.by_query:
        table["queries"] = {
            name: specification_table(specification) | {"weight": weight}
            for name, (weight, specification) in quality.by_query.items()
        }
    return table


def specification_table(specification: Specification) -> dict[str, Any]:
    """The table of one specification, without a weight beside others."""
    if specification.name in TEMPLATES.names():
        return {"template": specification.name}
    goals = []
    for goal in specification.goals:
        limit = {} if goal.limit is None else {"limit": goal.limit}
        goals.append({"statistic": goal.statistic, goal.quantifier: goal.weight} | limit)
    return {"goals": goals} | ({MAY_DROP: True} if specification.may_drop else {})


def specification_of(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Specification:
    """The goals of one table: a template, a line, or a list of tables."""
    for key in table:
        if key not in SPECIFICATION_KEYS:
            near = did_you_mean(key, SPECIFICATION_KEYS)
            raise TableError((*path, key), f"unknown key {key}{near}")
    if ("template" in table) == ("goals" in table):
        raise TableError(path, "give either a template or goals", ", ".join(TEMPLATES.names()))
    may_drop = _flag(path, table, MAY_DROP)
    if "template" in table:
        template = _checked((*path, "template"), lambda: TEMPLATES.get(str(table["template"])))
        return _checked((*path, MAY_DROP), lambda: replace(template, may_drop=may_drop))
    goals = table["goals"]
    if isinstance(goals, str):
        line = _checked((*path, "goals"), lambda: line_of(goals))
        allowed = may_drop or line.may_drop
        return _checked((*path, MAY_DROP), lambda: Specification(line.goals, may_drop=allowed))
    if not isinstance(goals, list):
        example = 'goals = "delay <= 2s", or [{ statistic = "delay", minimise = 1.0, limit = 2.0 }]'
        raise TableError((*path, "goals"), "goals is a line or a list", example)
    made = [_goal((*path, "goals", str(i)), goal) for i, goal in enumerate(goals)]
    plain = _checked((*path, "goals"), lambda: Specification(tuple(made)))
    return _checked((*path, MAY_DROP), lambda: replace(plain, may_drop=may_drop))


def _goal(path: tuple[str, ...], value: Any) -> Goal:
    table = _table(path, value)
    for key in table:
        if key not in GOAL_KEYS:
            near = did_you_mean(key, GOAL_KEYS)
            raise TableError((*path, key), f"unknown key {key}{near}")
    statistic = str(table.get("statistic", ""))
    _checked((*path, "statistic"), lambda: PLAN_STATISTICS.get(statistic))
    wishes = [key for key in ("minimise", "maximise") if key in table]
    if len(wishes) != 1:
        raise TableError(path, "a goal has either minimise or maximise", "minimise = 1.0")
    weight, limit = _number(path, table, wishes[0]), _number(path, table, "limit")
    return _checked(path, lambda: Goal(statistic, wishes[0], weight or 0.0, limit))


def _flag(path: tuple[str, ...], table: Mapping[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise TableError((*path, key), f"{key} is true or false", f"{key} = true")
    return value


def _weight(path: tuple[str, ...], table: Mapping[str, Any]) -> float:
    found = _number(path, table, "weight")
    return 1.0 if found is None else found


def _number(path: tuple[str, ...], table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TableError((*path, key), f"{key} is a number")
    try:
        return float(value)
    except OverflowError:
        raise TableError((*path, key), f"{key} is too large", f"{key} = 1.0") from None


def _table(path: tuple[str, ...], value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TableError(path, f"{path[-1]} is a table")
    return value
