"""Balancing policies by name, as scenarios and the command line choose them.

A policy names the unit it moves (whole fragments, or single operators) and makes the controllers
that carry it in a run; its settings are those of the code it stands for. It decides nothing itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from millstream.balance import correlation, least_ratio  # noqa: F401  (they register themselves)
from millstream.balance.balancer import Settings
from millstream.balance.central import CENTRAL
from millstream.balance.partners import Limits
from millstream.balance.selection import SELECTIONS
from millstream.errors import UsageError
from millstream.registry import Registry
from millstream.sim.centralised import Centralised
from millstream.sim.cluster import Controller
from millstream.sim.decentralised import Decentralised

DEFAULT = "least_ratio"


@dataclass(frozen=True, slots=True)
class Policy:
    title: str
    unit: str  # "fragment" or "operator"
    make: Callable[[Mapping[str, Any]], list[Controller]]


POLICIES: Registry[Policy] = Registry("balancing policy")


def changed(record: Any, given: Mapping[str, Any]) -> Any:
    """A copy of a settings record with some fields given by name; wrong names are told."""
    known = {field.name for field in fields(record)}
    for name in given:
        if name not in known:
            raise UsageError(
                f"unknown setting {name!r} of {type(record).__name__}",
                hint=f"one of {', '.join(sorted(known))}",
            )
    return replace(record, **given)


def _static(given: Mapping[str, Any]) -> list[Controller]:
    if given:
        raise UsageError("the static policy has no settings", detail=f"got {', '.join(given)}")
    return []


def _decentralised(selection: str) -> Callable[[Mapping[str, Any]], list[Controller]]:
    def make(given: Mapping[str, Any]) -> list[Controller]:
        rest = dict(given)
        limits = Limits.of(int(rest.pop("partners_max", 5)), int(rest.pop("random_tries_max", 10)))
        return [Decentralised(changed(Settings(selection=selection, limits=limits), rest))]

    return make


def _central(name: str, period_s: float) -> Callable[[Mapping[str, Any]], list[Controller]]:
    def make(given: Mapping[str, Any]) -> list[Controller]:
        rest = dict(given)
        period = float(rest.pop("period_s", period_s))
        return [Centralised(changed(CENTRAL.get(name), rest), period_s=period)]

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
