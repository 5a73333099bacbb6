"""Scenarios: a cluster, its queries, what happens to it and what must come out, as a TOML file.

Reads and validates, and says which field of which file is wrong; `scenario_run` makes a run of it.
A cluster and its queries are either counted (hosts, streams, queries made from the seed) or listed
one by one. Nothing here runs anything.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from millstream.errors import UsageError
from millstream.sim.policies import DEFAULT


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterPart(Strict):
    hosts: int = Field(default=32, ge=1)
    cpu: float = Field(default=1.0, gt=0)
    streams_a_host: int = Field(default=3, ge=1)
    rate: float = Field(default=250.0, ge=0)  # rows a second
    row_bytes: float = Field(default=100.0, gt=0)


class HostPart(Strict):
    id: str
    cpu: float = Field(default=1.0, gt=0)


class StreamPart(Strict):
    id: str
    host: str
    rate: float = Field(ge=0)
    row_bytes: float = Field(default=100.0, gt=0)


class OperatorPart(Strict):
    id: str
    inputs: list[str] = Field(min_length=1, max_length=2)
    cost_us: float = Field(ge=0)
    selectivity: float = Field(ge=0)  # output rows an input row
    window_s: float = Field(default=0.0, ge=0)
    physical: str = ""


class QueryPart(Strict):
    id: str
    operators: list[OperatorPart] = Field(min_length=1)


class NetworkPart(Strict):
    medium: Literal["shared", "switched"] = "shared"
    bandwidth_mbps: float = Field(default=100.0, gt=0)
    latency_ms: float = Field(default=0.1, ge=0)


class WorkloadPart(Strict):
    queries: int = Field(default=500, ge=1)
    operators: int = Field(default=5750, ge=1)
    streams_a_query: tuple[int, int] = (1, 3)
    choice: Literal["uniform", "zipf", "dealt"] = "uniform"
    zipf_theta: float = 0.95
    selectivity: tuple[float, float] = (0.5, 0.8)
    filter_us: float = 20.0
    join_us: float = 80.0
    window_s: tuple[float, float] = (5.0, 20.0)
    filters_above_joins: float = Field(default=0.2, ge=0, le=1)
    shared_filters: float = Field(default=0.0, ge=0, le=1)
    shared_variants: int = Field(default=4, ge=1)


class PolicyPart(Strict):
    name: str = DEFAULT
    settings: dict[str, Any] = Field(default_factory=dict)


class ChangePart(Strict):
    """Streams, by name, by their hosts, or those of hosts drawn by chance, change their rate."""

    at_s: float = Field(ge=0)
    until_s: float | None = None
    factor: float = Field(gt=0)
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
    at_s: float = Field(default=0.0, ge=0)
    until_s: float | None = None
    hosts: list[str] = Field(default_factory=list)
    factor: float = 1.0
    bandwidth_mbps: float | None = None
    probability: float = 0.0
    offset_s: float = 0.0
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
    duration_s: float = Field(default=60.0, gt=0)
    tick_ms: float = Field(default=100.0, gt=0)
    sample_s: float = Field(default=1.0, gt=0)
    pause_ms: float = Field(default=2.0, ge=0)  # that a moving fragment's rows wait
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


def load_scenario(path: Path) -> Scenario:
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(
            f"cannot read the scenario {str(path)!r}", detail=error.strerror or str(error)
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
