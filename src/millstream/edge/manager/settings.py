"""How a manager is reached and decides, and which of that may change while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar

from millstream.client.http import checked_url
from millstream.control.admission.rules import PLACERS
from millstream.control.manager.decisions import FRAGMENTS, SQPR
from millstream.control.manager.state import Settings
from millstream.control.recovery import restarts
from millstream.core.errors import UsageError
from millstream.decide.balance.cost_models import COST_MODELS
from millstream.decide.balance.redistribution import POLICIES
from millstream.decide.place.patterns import PATTERNS
from millstream.edge.http.serving import Listening

STRATEGIES: Mapping[str, Any] = {
    "pattern": PATTERNS, "cost_model": COST_MODELS, "policy": POLICIES, "placer": PLACERS,
}  # fmt: skip
ROWS_MAX = 9e8
SWITCHES = ("redistribute", "replace", "relays")
# From the least to the most; whole numbers where the least is one.
AMOUNTS: Mapping[str, tuple[float, float]] = {
    "percent_difference": (0.0, 100.0),
    "check_s": (0.1, 1e6),
    "moves_max": (1, 1000),
    "state_rows_min": (0.0, ROWS_MAX),
    "state_rows_max": (0.0, ROWS_MAX),  # the most means any number
    "replace_s": (0.0, 1e6),
    "replace_gain": (0.0, 1.0),
    "replan_s": (0.0, 1e6),
    "replan_gain": (0.0, 1.0),
    "moves_a_minute": (0.0, 1000.0),
    "restarts_max": (1, 1000),
    "replicas": (1, 3),
    "lost_after_s": (0.0, 1e6),
    "weight_admit": (0.0, 1e6),
    "weight_network": (0.0, 1e6),
    "weight_cpu": (0.0, 1e6),
    "weight_balance": (-1e6, 1e6),  # below 0: few processors work, others stay idle
}
# Of redistribution (table 6.1); lists of names, where null means all of them.
NAMED = ("eligible_operators", "eligible_processors")
PARAMETERS = (
    "percent_difference", "check_s", "moves_max", "state_rows_min", "state_rows_max", *NAMED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ManagerSettings(Listening):
    """How a manager is reached, and how it decides."""

    WHO: ClassVar[str] = "a manager"
    port: int = 8360
    name: str = "manager"  # as a manager above knows it
    above: str | None = None  # URL of that one
    join: str | None = None  # URL of a member of a cluster that has had no manager
    store: str | None = None  # PostgreSQL's address: a memory that several managers share
    deciding: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        Listening.__post_init__(self)
        if self.above is not None:
            checked_url(self.above, "--above")
        if self.join is not None:
            checked_url(self.join, "--join")
        for registry, name in (
            (PATTERNS, self.deciding.pattern),
            (COST_MODELS, self.deciding.cost_model),
            (POLICIES, self.deciding.policy),
        ):
            registry.get(name)
        restarts.checked(self.deciding.restart)
        if self.deciding.placer not in (SQPR, FRAGMENTS, *PLACERS.names()):
            PLACERS.get(self.deciding.placer)


def changed(known: Settings, body: Mapping[str, Any]) -> Settings:
    """Settings with other strategies; only what may change while a manager runs."""
    changes: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for key, value in body.items():
        if key in STRATEGIES:
            if key != "placer" or value not in (SQPR, FRAGMENTS):
                STRATEGIES[key].get(str(value))
            changes[key] = str(value)
        elif key in SWITCHES:
            changes[key] = _switch(key, value)
        elif key == "restart":
            changes[key] = restarts.checked(str(value))
        elif key in NAMED:
            parameters[key] = _names(key, value)
        elif key in AMOUNTS:
            (parameters if key in PARAMETERS else changes)[key] = _amount(key, value)
        else:
            raise UsageError(
                f"unknown setting {key!r}",
                hint=f"one of {', '.join((*STRATEGIES, *SWITCHES, 'restart', *AMOUNTS, *NAMED))}",
            )
    if parameters.get("state_rows_max") == ROWS_MAX:
        parameters["state_rows_max"] = inf
    if parameters:
        changes["parameters"] = replace(known.parameters, **parameters)
    return replace(known, **changes)


def read_weights(text: str) -> dict[str, float]:
    """Weights of planning as a command line gives them, by the names of settings.

    >>> read_weights("network=2, balance=-1")
    {'weight_network': 2.0, 'weight_balance': -1.0}
    """
    found: dict[str, float] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, _, said = (word.strip() for word in part.partition("="))
        key = f"weight_{name}"
        if key not in AMOUNTS:
            named = ", ".join(k.removeprefix("weight_") for k in AMOUNTS if k.startswith("weight_"))
            raise UsageError(
                f"unknown weight {name!r}", detail=f"in --weights {text}", hint=f"one of {named}"
            )
        try:
            value = float(said)
        except ValueError:
            raise UsageError(
                f"weight {name} is {said!r}", detail=f"in --weights {text}",
                hint="a finite number, as in network=2",
            ) from None  # fmt: skip
        found[key] = float(_amount(key, value))
    return found


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{key} is {value!r}", hint="true or false")
    return value


def _names(key: str, value: Any) -> frozenset[str] | None:
    """Names as a list; null for all of them, however many there come to be."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise UsageError(f"{key} is {value!r}", hint="a list of names, or null for all")
    return frozenset(value)


def read_names(text: str) -> list[str] | None:
    """Names as a command line gives them; `all` lifts the limit.

    >>> read_names("p1, p2"), read_names("all")
    (['p1', 'p2'], None)
    """
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    return None if names == ["all"] else names


def read_state_rows(text: str) -> dict[str, float]:
    """A range of rows as a command line gives it, by the names of settings.

    >>> read_state_rows("1000:50000")
    {'state_rows_min': 1000.0, 'state_rows_max': 50000.0}
    """
    least, colon, most = (part.strip() for part in text.partition(":"))
    try:
        if not colon:
            raise ValueError
        return {
            "state_rows_min": float(least or 0),
            "state_rows_max": float(most or ROWS_MAX),
        }
    except ValueError:
        raise UsageError(
            f"--state-rows is {text!r}", hint="the least and the most, as in 0:100000 or 1000:"
        ) from None


def _amount(key: str, value: Any) -> float | int:
    least, most = AMOUNTS[key]
    whole = isinstance(least, int)
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "a whole number" if whole else "a number"
        raise UsageError(f"{key} is {value!r}", hint=f"{what} from {least:g} to {most:g}")
    return value if whole else float(value)
