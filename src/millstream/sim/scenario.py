"""Scenarios: a cluster, its queries, what happens to it and what must come out, as a TOML file.

Reads and validates, and says which field of which file is wrong; `scenario_run` makes a run of it.
A cluster and its queries are either counted (hosts, streams, queries made from the seed) or listed
one by one. Nothing here runs anything.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from millstream.core.errors import UsageError
from millstream.sim.policies import DEFAULT

# Far beyond anything real, and near enough that no product of them leaves the range of numbers.
HOSTS_MAX = 100_000
STEPS_MAX = 10_000_000  # ticks or samples of a run
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Speed = Annotated[float, Field(ge=1e-6, le=1e9)]  # of a processor; Mbps of a network
Factor = Annotated[float, Field(ge=1e-9, le=1e6)]
Rate = Annotated[float, Field(ge=0, le=1e9)]  # rows a second
RowBytes = Annotated[float, Field(gt=0, le=1e9)]
CostUs = Annotated[float, Field(ge=0, le=1e12)]
Selectivity = Annotated[float, Field(ge=0, le=1e6)]  # output rows an input row


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ClusterPart(Strict):
    hosts: int = Field(default=32, ge=1, le=HOSTS_MAX)
    cpu: Speed = 1.0
    streams_a_host: int = Field(default=3, ge=1, le=HOSTS_MAX)
    rate: Rate = 250.0
    row_bytes: RowBytes = 100.0


class HostPart(Strict):
    id: str
    cpu: Speed = 1.0


class StreamPart(Strict):
    id: str
    host: str
    rate: Rate
    row_bytes: RowBytes = 100.0


class OperatorPart(Strict):
    id: str
    inputs: list[str] = Field(min_length=1, max_length=2)
    cost_us: CostUs
    selectivity: Selectivity
    window_s: Seconds = 0.0
    physical: str = ""


class QueryPart(Strict):
    id: str
    operators: list[OperatorPart] = Field(min_length=1)


class NetworkPart(Strict):
    medium: Literal["shared", "switched"] = "shared"
    bandwidth_mbps: Speed = 100.0
    latency_ms: float = Field(default=0.1, ge=0, le=1e9)


class WorkloadPart(Strict):
    queries: int = Field(default=500, ge=1, le=1_000_000)
    operators: int = Field(default=5750, ge=1, le=10_000_000)
    streams_a_query: tuple[int, int] = (1, 3)
    choice: Literal["uniform", "zipf", "dealt"] = "uniform"
    zipf_theta: float = Field(default=0.95, ge=-10, le=10)
    selectivity: tuple[Selectivity, Selectivity] = (0.5, 0.8)
    filter_us: CostUs = 20.0
    join_us: CostUs = 80.0
    window_s: tuple[Seconds, Seconds] = (5.0, 20.0)
    filters_above_joins: float = Field(default=0.2, ge=0, le=1)
    shared_filters: float = Field(default=0.0, ge=0, le=1)
    shared_variants: int = Field(default=4, ge=1)

    @model_validator(mode="after")
    def _ranges_rise(self) -> "WorkloadPart":
        for name, (low, high) in (("selectivity", self.selectivity), ("window_s", self.window_s)):
            if low > high:
                raise ValueError(f"{name} is from low to high, not from {low:g} to {high:g}")
        return self


class PolicyPart(Strict):
    name: str = DEFAULT
    settings: dict[str, Any] = Field(default_factory=dict)


class ChangePart(Strict):
    """Streams, by name, by their hosts, or those of hosts drawn by chance, change their rate."""

    at_s: Seconds
    until_s: Seconds | None = None
    factor: Factor
    streams: list[str] = Field(default_factory=list)
    hosts: list[str] = Field(default_factory=list)
    random_hosts: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _names_something(self) -> "ChangePart":
        if not (self.streams or self.hosts or self.random_hosts):
            raise ValueError("a change names streams, hosts or a number of random_hosts")
        if self.until_s is not None and self.until_s <= self.at_s:
            raise ValueError("until_s must be after at_s")
        return self


class FaultPart(Strict):
    kind: str
    at_s: Seconds = 0.0
    until_s: Seconds | None = None
    hosts: list[str] = Field(default_factory=list)
    factor: Factor = 1.0
    bandwidth_mbps: Speed | None = None
    probability: float = 0.0
    offset_s: float = Field(default=0.0, ge=-1e9, le=1e9)
    drift: float = 0.0


class ChecksPart(Strict):
    """What must come out, as means over the last `over_s` seconds of the run."""

    over_s: float = Field(default=10.0, gt=0)
    worst_ratio_max: float | None = None
    load_max: float | None = None
    load_deviation_max: float | None = None
    moves_max: int | None = None  # in that span: a settled cluster is quiet


class WhatIfPart(Strict):
    name: str
    change: str  # as on the command line: see what_if


class Scenario(Strict):
    name: str
    title: str = ""
    seed: int = 0
    duration_s: float = Field(default=60.0, gt=0, le=1e9)
    tick_ms: float = Field(default=100.0, gt=0, le=1e9)
    sample_s: float = Field(default=1.0, gt=0, le=1e9)
    pause_ms: float = Field(default=2.0, ge=0, le=1e9)  # that a moving fragment's rows wait
    cluster: ClusterPart = ClusterPart()
    hosts: list[HostPart] = Field(default_factory=list)
    streams: list[StreamPart] = Field(default_factory=list)
    queries: list[QueryPart] = Field(default_factory=list)
    network: NetworkPart = NetworkPart()
    workload: WorkloadPart = WorkloadPart()
    policy: PolicyPart = PolicyPart()
    changes: list[ChangePart] = Field(default_factory=list)
    faults: list[FaultPart] = Field(default_factory=list)
    checks: ChecksPart = ChecksPart()
    what_if: list[WhatIfPart] = Field(default_factory=list)

    @model_validator(mode="after")
    def _begins_and_ends(self) -> "Scenario":
        if self.tick_ms / 1e3 > self.duration_s:
            raise ValueError("tick_ms is longer than duration_s: nothing would happen")
        for name, step_s in (("tick_ms", self.tick_ms / 1e3), ("sample_s", self.sample_s)):
            if self.duration_s > step_s * STEPS_MAX:
                raise ValueError(f"duration_s is more than {STEPS_MAX} times {name}")
        return self


def load_scenario(path: Path) -> Scenario:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot read the scenario {str(path)!r}", detail=error.strerror or str(error)
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8", detail=str(error), hint="save it as UTF-8: TOML knows no other"
        ) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML", detail=str(error)) from error
    return parse_scenario({"name": path.stem, **data}, str(path))


def parse_scenario(data: dict[str, Any], source: str) -> Scenario:
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UsageError(
            f"{source}: {where}: {first['msg'].removeprefix('Value error, ').lower()}{more}",
            hint="examples/scenarios has complete ones",
        ) from error
