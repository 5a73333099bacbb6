"""What an administrator may set: every parameter of the seed's section 6.1, and ours.

Settings are checked when made, so that a wrong one is refused with its name before anything runs.
They never change while in use; a scheduler is given new ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, Literal

from millstream.core.errors import UsageError

THESIS_CANDIDATES = ("round_robin", "fifo", "mtiq", "chain")
NUMBER_MAX = 2**63 - 1  # the largest whole number that TOML promises to hold


class SettingError(UsageError):
    """A setting with a wrong value; knows which, so that a file's reader can show the place."""

    def __init__(self, setting: str, message: str, hint: str = "", *, detail: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.setting = setting


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """How a processor schedules.

    >>> ScheduleSettings(ratio=0.5).ratio
    0.5
    """

    # Which algorithms, and who chooses among them.
    candidates: tuple[str, ...] = (*THESIS_CANDIDATES, "priced")
    selector: str = "foresight"
    slots: int = 1  # steps in flight at once
    seed: int = 0
    # Workload, section 4.1 and figure 4.1.
    ratio: float = 0.3
    threshold_rows: float = 50.0
    adapt_workload: bool = True  # a selector may set the two by the goals and measured costs
    rows_max: float | None = None  # a step never takes more; None: no limit
    # Statistics and scoring, section 6.1.
    statistics_s: float = 1.0
    scoring_s: float = 2.0
    old_weight: float = 0.875  # w of equation 3.1
    start_s: float = 5.0  # the first algorithm alone, so that start-up costs fall on nobody
    explore_s: float = 1.0  # then each algorithm once, and the first again
    decay: float = 0.95  # of equation 5.1; the seed gives no value
    decay_by: Literal["time", "choices"] = "time"
    # Starvation, section 3.2.4.
    starvation_picks_max: int = 1000  # picks without work in one choice
    starvation_wait_s: float | None = 30.0  # runnable work passed over for so long; None: never
    patience_s: float | None = None  # work that waits longer goes next, whoever is in charge
    # Batches of the cost-aware algorithm.
    step_s_max: float = 1.0  # longest step it plans for
    overhead_share: float = 0.1  # fixed cost it accepts as a share of a step, where rows allow
    # Foresight: how far ahead candidates are played, and how much work that may be.
    horizon_s: float = 10.0
    foresight_steps_max: int = 200
    trace_length: int = 10_000  # choices and switches remembered

    def __post_init__(self) -> None:
        if not self.candidates:
            hint = "name at least one in `candidates`"
            raise SettingError("candidates", "no candidate algorithms", hint)
        if len(set(self.candidates)) != len(self.candidates):
            named = ", ".join(self.candidates)
            message = "a candidate algorithm is named twice"
            raise SettingError("candidates", message, detail=named)
        positive = (
            "slots", "threshold_rows", "rows_max", "statistics_s", "scoring_s", "explore_s",
            "starvation_picks_max", "starvation_wait_s", "patience_s", "step_s_max", "horizon_s",
            "foresight_steps_max", "trace_length",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SettingError(name, f"{name} must be above 0, not {value}")
        if not self.start_s >= 0:
            raise SettingError("start_s", f"start_s must not be negative, not {self.start_s}")
        for name in ("ratio", "decay", "overhead_share"):
            value = getattr(self, name)
            if not 0 < value <= 1:
                raise SettingError(name, f"{name} must lie above 0 and at most at 1, not {value}")
        if not 0 <= self.old_weight < 1:
            message = f"old_weight must lie in 0 to below 1, not {self.old_weight}"
            raise SettingError("old_weight", message)
        if self.decay_by not in ("time", "choices"):
            raise SettingError("decay_by", f"unknown decay_by {self.decay_by!r}", "time or choices")

    def with_(self, **changes: Any) -> "ScheduleSettings":
        return replace(self, **changes)


def settings_from(table: Mapping[str, Any]) -> ScheduleSettings:
    """Settings from a job file's table or an API body; an `algorithm` alone means no selector.

    >>> settings_from({"algorithm": "fifo", "ratio": 0.5}).selector
    'fixed'
    """
    given = dict(table)
    if "algorithm" in given:
        algorithm = given.pop("algorithm")
        if not isinstance(algorithm, str):
            raise SettingError("algorithm", "algorithm is a text", 'algorithm = "chain"')
        given["candidates"] = (algorithm,)
        given.setdefault("selector", "fixed")
    known = {field.name: field for field in fields(ScheduleSettings)}
    for name in given:
        if name not in known:
            raise UsageError(
                f"unknown scheduling setting {name!r}",
                hint=f"one of {', '.join(sorted({*known, 'algorithm'}))}",
            )
    for name, value in given.items():
        given[name] = _checked(name, known[name].type, known[name].default, value)
    return ScheduleSettings(**given)


def _checked(name: str, kind: Any, default: Any, value: Any) -> Any:
    """A value of the setting's kind; else what it should be, with the default as example."""
    if kind == float | None and (value is None or value == inf):
        return None  # TOML has no null: what never ends stands for no limit
    if kind in (float, float | None) and not _is_number(value, int | float):
        raise SettingError(name, f"{name} is a finite number", f"{name} = {default or 10.0}")
    if kind is int and not _is_number(value, int):
        raise SettingError(name, f"{name} is a whole number", f"{name} = {default}")
    if kind is bool and not isinstance(value, bool):
        raise SettingError(name, f"{name} is true or false", f"{name} = {str(default).lower()}")
    if kind is str and not isinstance(value, str):
        raise SettingError(name, f"{name} is a text", f'{name} = "{default}"')
    if name == "candidates":
        listed = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        if not listed:
            example = 'candidates = ["fifo", "chain"]'
            raise SettingError(name, "candidates is a list of names", example)
        return tuple(value)
    return value


def _is_number(value: Any, kinds: Any) -> bool:
    """Of the kinds, neither NaN nor infinite nor a whole number beyond all use."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return bool(abs(value) <= NUMBER_MAX)
