"""The planning problem in numbers: ids become positions, capacities become arrays.

Grows as a manager learns of hosts, streams and operators; nothing is ever renumbered. For a stream
it derives once its *closure*: S(q) and O(q) of SQPR section IV.A, in topological order, as arrays
over which the dynamic programme runs. A view of the problem and its operator graph, for speed; it
holds no placement and decides nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.core.errors import UsageError
from millstream.decide.place.problem import Host, Links, Operator, Problem, Stream, Weights

# Sums of rates are not exact: what is offered counts as more by this share, in whatever unit.
SLACK = 1e-9
LEEWAY = 1 + SLACK

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Level:
    """Streams that need nothing above them: rows first..last of the closure."""

    first: int
    last: int
    op_first: int  # their operators, in order of output
    op_last: int
    inputs: tuple[Ints, ...]  # rows of the first, second, ... input; the zero row where shorter
    starts: Ints  # where each stream's operators begin


@dataclass(frozen=True, slots=True)
class Closure:
    """All that can appear in plans of one stream."""

    streams: tuple[int, ...]
    row: dict[int, int]
    roots: int  # rows 0..roots-1 are streams that no operator computes
    levels: tuple[Level, ...]
    operators: tuple[int, ...]
    first_operator: tuple[int, ...]  # of each row, in `operators`
    rates: Floats
    costs: Floats
    memory: Floats | None


class Catalog:
    """Hosts, streams and operators by position."""

    def __init__(self, links: Links | None = None, weights: Weights | None = None) -> None:
        self.links = links or Links()
        self.weights = weights or Weights()
        self.owned = False  # whether a stream is computed once, and has an owner
        self.relays = False  # whether readers of a base stream may then send it on
        self.host_ids: list[str] = []
        self.host_at: dict[str, int] = {}
        self.hosts: list[Host] = []
        self.alive: list[bool] = []  # whether a host offers anything
        self.stream_ids: list[str] = []
        self.stream_at: dict[str, int] = {}
        self.rate: list[float] = []
        self.base: list[int] = []  # host of a base stream, else -1
        self.operator_ids: list[str] = []
        self.operator_at: dict[str, int] = {}
        self.inputs: list[tuple[int, ...]] = []
        self.output: list[int] = []
        self.cpu: list[float] = []
        self.memory: list[float] = []
        self.producers: list[list[int]] = []  # operators that compute a stream
        self.base_at: list[list[int]] = []  # base streams that enter at a host
        self._closures: dict[int, Closure] = {}
        self.cpu_offered: Floats = np.zeros(0)
        self.in_offered: Floats = np.zeros(0)
        self.out_offered: Floats = np.zeros(0)
        self.memory_offered: Floats = np.zeros(0)
        self.uses_memory = False

    @classmethod
    def of(cls, problem: Problem) -> "Catalog":
        catalog = cls(problem.links, problem.weights)
        catalog.add_hosts(problem.hosts)
        catalog.add_streams(problem.streams)
        catalog.add_operators(problem.operators)
        return catalog

    def by_owner_alone(self, stream: int) -> bool:
        """Whether nobody but its owner sends a stream."""
        return self.owned and not (self.relays and self.base[stream] >= 0)

    def add_hosts(self, hosts: Iterable[Host]) -> None:
        for host in hosts:
            if host.id in self.host_at:
                raise UsageError(f"host {host.id!r} is known already")
            self.host_at[host.id] = len(self.host_ids)
            self.host_ids.append(host.id)
            self.hosts.append(host)
            self.alive.append(max(host.cpu, host.bandwidth_in, host.bandwidth_out) > 0)
            self.base_at.append([])
        self._read_capacities()

    def _read_capacities(self) -> None:
        self.cpu_offered = np.array([host.cpu for host in self.hosts])
        self.in_offered = np.array([host.bandwidth_in for host in self.hosts])
        self.out_offered = np.array([host.bandwidth_out for host in self.hosts])
        self.memory_offered = np.array([host.memory for host in self.hosts])
        self.uses_memory = bool(np.isfinite(self.memory_offered).any())

    def add_streams(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            if stream.id in self.stream_at:
                raise UsageError(f"stream {stream.id!r} is known already")
            self.stream_at[stream.id] = len(self.stream_ids)
            self.stream_ids.append(stream.id)
            self.rate.append(stream.rate)
            self.base.append(-1 if stream.host is None else self.host_at[stream.host])
            self.producers.append([])
            if stream.host is not None:
                self.base_at[self.host_at[stream.host]].append(self.stream_at[stream.id])

    def add_operators(self, operators: Iterable[Operator]) -> None:
        for operator in operators:
            if operator.id in self.operator_at:
                raise UsageError(f"operator {operator.id!r} is known already")
            place = len(self.operator_ids)
            self.operator_at[operator.id] = place
            self.operator_ids.append(operator.id)
            inputs = tuple(dict.fromkeys(self.stream_at[name] for name in operator.inputs))
            self.inputs.append(inputs)
            output = self.stream_at[operator.output]
            self.output.append(output)
            self.cpu.append(operator.cpu)
            self.memory.append(operator.memory)
            self.producers[output].append(place)
        self._closures.clear()

    def closure(self, stream: int) -> Closure:
        """S(q) and O(q) for a query on this stream."""
        found = self._closures.get(stream)
        if found is None:
            found = self._closures[stream] = self._close(stream)
        return found

    def _close(self, target: int) -> Closure:
        height = self._heights(target)
        streams = sorted(height, key=lambda stream: (height[stream], stream))
        row = {stream: number for number, stream in enumerate(streams)}
        zero_row = len(streams)
        operators: list[int] = []
        first_operator = [0] * len(streams)
        levels: list[Level] = []
        first = roots = sum(1 for stream in streams if height[stream] == 0)
        while first < len(streams):
            last = first
            op_first = len(operators)
            starts: list[int] = []
            while last < len(streams) and height[streams[last]] == height[streams[first]]:
                starts.append(len(operators) - op_first)
                first_operator[last] = len(operators)
                operators.extend(self.producers[streams[last]])
                last += 1
            mine = operators[op_first:]
            width = max(len(self.inputs[operator]) for operator in mine)
            inputs = tuple(
                np.array(
                    [
                        row[self.inputs[operator][place]]
                        if place < len(self.inputs[operator])
                        else zero_row
                        for operator in mine
                    ],
                    dtype=np.intp,
                )
                for place in range(width)
            )
            levels.append(
                Level(first, last, op_first, len(operators), inputs, np.array(starts, np.intp))
            )
            first = last
        memory = [self.memory[operator] for operator in operators]
        return Closure(
            streams=tuple(streams),
            row=row,
            roots=roots,
            levels=tuple(levels),
            operators=tuple(operators),
            first_operator=tuple(first_operator),
            rates=np.array([self.rate[stream] for stream in streams]),
            costs=np.array([self.cpu[operator] for operator in operators]),
            memory=np.array(memory) if self.uses_memory and any(memory) else None,
        )

    def _heights(self, target: int) -> dict[int, int]:
        """Longest chain of operators below each stream that the target may need."""
        height: dict[int, int] = {}
        stack = [target]
        while stack:
            stream = stack[-1]
            below = [name for op in self.producers[stream] for name in self.inputs[op]]
            missing = [name for name in below if name not in height]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            height[stream] = 1 + max((height[name] for name in below), default=-1)
        return height


def fits(used: float, more: float, offered: float) -> bool:
    """Whether this much more may be used, but for rounding.

    >>> fits(0.1 + 0.2, 0.0, 0.3)
    True
    """
    return used + more <= offered * LEEWAY
