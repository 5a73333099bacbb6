"""What a policy with a view of the whole cluster sees, and what it may answer.

Decentralised balancing needs none of this; it is for the rivals that a manager runs, and for a
manager that wants to place by performance ratio. A policy is a pure function from an observation
and its own memory to moves; whoever runs it carries them out and may fail to.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from millstream.core.registry import Registry
from millstream.decide.balance.model.dataflow import Dataflow, Flags, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    now_s: float
    flow: Dataflow  # queries as arrays, with their costs and selectivities
    unit_host: Ints  # where each runs, or is on its way to
    stream_rates: Floats  # rows a second, as measured lately
    host_speed: Floats  # CPU seconds a second; 0 for a host that does not answer
    transfer_s: float  # what a row's way between two hosts lasts, as measured lately
    unit_backlog_s: Floats  # CPU seconds of rows that wait for each unit
    load_history: Floats  # a row a sample, oldest first: CPU seconds a second of each unit
    movable: Flags  # units that are not already on the move


@dataclass(frozen=True, slots=True)
class UnitMove:
    unit: int
    host: int
    reason: str


class CentralPolicy(Protocol):
    def decide(self, seen: Observation, memory: Any) -> tuple[tuple[UnitMove, ...], Any]: ...


CENTRAL: Registry[CentralPolicy] = Registry("central policy")
