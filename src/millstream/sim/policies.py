"""Balancing policies by name, as scenarios and the command line choose them.

A policy names the unit it moves (whole fragments, or single operators) and makes the controllers
that carry it in a run; its settings are those of the code it stands for. It decides nothing itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

from millstream.core.errors import UsageError
from millstream.core.registry import Registry
from millstream.decide.balance.balancer import Settings
from millstream.decide.balance.model import correlation, least_ratio  # noqa: F401  (they register themselves)
from millstream.decide.balance.model.central_policy import CENTRAL
from millstream.decide.balance.partners import Limits
from millstream.decide.balance.selection import SELECTIONS
from millstream.sim.centralised import Centralised
from millstream.sim.cluster.cluster import Controller
from millstream.sim.decentralised import Decentralised

DEFAULT = "least_ratio"
SPAN_S_MIN = 0.001  # what happens more often than ticks would only keep a run from ending


@dataclass(frozen=True, slots=True)
class Policy:
    title: str
    unit: str  # "fragment" or "operator"
    make: Callable[[Mapping[str, Any]], list[Controller]]


POLICIES: Registry[Policy] = Registry("balancing policy")


def changed(record: Any, given: Mapping[str, Any]) -> Any:
    """A copy of a settings record with some fields given by name; wrong ones are told."""
    known = {field.name for field in fields(record)}
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"unknown setting {name!r} of {type(record).__name__}",
                hint=f"one of {', '.join(sorted(known))}",
            )
        _fits(name, value, getattr(record, name))
    return replace(record, **given)


def _fits(name: str, value: Any, usual: Any) -> None:
    """Refuses a value of another kind than the usual one."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match usual:
        case bool() | str():
            fits, kind = type(value) is type(usual), "true or false" if usual in (0, 1) else "text"
        case int():
            fits, kind = number and value == value // 1 >= 0, "a whole number, 0 or more"
        case float() if name.endswith("_s"):
            fits = number and SPAN_S_MIN <= value < inf
            kind = f"a number of seconds, {SPAN_S_MIN} or more"
        case float():
            fits, kind = number and 0 <= value < inf, "a number, 0 or more"
        case _:
            fits, kind = False, "left as it is"
    if not fits:
        raise UsageError(
            f"the policy's setting {name!r} cannot be {value!r}", hint=f"it must be {kind}"
        )


def _static(given: Mapping[str, Any]) -> list[Controller]:
    if given:
        raise UsageError("the static policy has no settings", detail=f"got {', '.join(given)}")
    return []


def _decentralised(selection: str) -> Callable[[Mapping[str, Any]], list[Controller]]:
    def make(given: Mapping[str, Any]) -> list[Controller]:
        rest = dict(given)
        counts = {"partners_max": 5, "random_tries_max": 10}
        for name, usual in counts.items():
            counts[name] = rest.pop(name, usual)
            _fits(name, counts[name], usual)
        limits = Limits.of(*(int(count) for count in counts.values()))
        return [Decentralised(changed(Settings(selection=selection, limits=limits), rest))]

    return make


def _central(name: str, period_s: float) -> Callable[[Mapping[str, Any]], list[Controller]]:
    def make(given: Mapping[str, Any]) -> list[Controller]:
        rest = dict(given)
        period = rest.pop("period_s", period_s)
        _fits("period_s", period, period_s)
        return [Centralised(changed(CENTRAL.get(name), rest), period_s=float(period))]

    return make


POLICIES.add("static", Policy("nothing moves", "fragment", _static))
TITLES = {
    "flow_aware": "no manager: seed 002, fragments by data flow",
    "intermediate": "no manager: foreign fragments first",
    "elementary": "no manager: fragments by load density only",
}
for _name in SELECTIONS.names():
    _title = TITLES.get(_name, f"no manager: {_name}")
    POLICIES.add(_name, Policy(_title, "fragment", _decentralised(_name)))
POLICIES.add(
    "operator_based",
    Policy("manager: operators by correlation", "operator", _central("operator_based", 5.0)),
)
POLICIES.add(
    "operator_based_global",
    Policy(
        "manager: operators by correlation, placed anew at first",
        "operator",
        _central("operator_based_global", 5.0),
    ),
)
POLICIES.add(
    "least_ratio",
    Policy("manager: lowers the worst ratio", "fragment", _central("least_ratio", 1.0)),
)
