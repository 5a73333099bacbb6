"""How a manager is reached and decides, and which of that may change while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
SWITCHES = ("redistribute", "replace")
# From the least to the most; whole numbers where the least is one.
AMOUNTS: Mapping[str, tuple[float, float]] = {
    "percent_difference": (0.0, 100.0),
    "check_s": (0.1, 1e6),
    "moves_max": (1, 1000),
    "replace_s": (0.0, 1e6),
    "replace_gain": (0.0, 1.0),
    "replan_s": (0.0, 1e6),
    "replan_gain": (0.0, 1.0),
    "moves_a_minute": (0.0, 1000.0),
    "restarts_max": (1, 1000),
    "weight_admit": (0.0, 1e6),
    "weight_network": (0.0, 1e6),
    "weight_cpu": (0.0, 1e6),
    "weight_balance": (-1e6, 1e6),  # below 0: few processors work, others stay idle
}
PARAMETERS = ("percent_difference", "check_s", "moves_max")  # of redistribution


@dataclass(frozen=True, slots=True)
class ManagerSettings(Listening):
    """How a manager is reached, and how it decides."""

    WHO: ClassVar[str] = "a manager"
    port: int = 8360
    name: str = "manager"  # as a manager above knows it
    above: str | None = None  # URL of that one
    join: str | None = None  # URL of a member of a cluster that has had no manager
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
        elif key in AMOUNTS:
            (parameters if key in PARAMETERS else changes)[key] = _amount(key, value)
        else:
            raise UsageError(
                f"unknown setting {key!r}",
                hint=f"one of {', '.join((*STRATEGIES, *SWITCHES, 'restart', *AMOUNTS))}",
            )
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


def with_weights(text: str, known: Settings) -> Settings:
    """Settings with the weights that a command line gives."""
    return changed(known, read_weights(text))


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{key} is {value!r}", hint="true or false")
    return value


def _amount(key: str, value: Any) -> float | int:
    least, most = AMOUNTS[key]
    whole = isinstance(least, int)
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "a whole number" if whole else "a number"
        raise UsageError(f"{key} is {value!r}", hint=f"{what} from {least:g} to {most:g}")
    return value if whole else float(value)
