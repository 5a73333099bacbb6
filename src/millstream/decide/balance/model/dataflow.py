"""Queries as arrays: what each unit costs a row, where its rows come from, which paths rows take.

Built once from fragments (or single operators) and streams. A *unit* is what a policy moves; an
*edge* is one input of a unit, from a stream or from another unit. For an edge, per row entering
there: rows that come out of the unit, mean CPU seconds, second moment of that, and what a row that
yields a result costs (seed 002, equation 1). A *path* leads from a stream to a query's result.
A view of the queries' operator graphs, for speed. Nothing here depends on where units run: that is
`arrangement`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream.decide.balance.model.fragments import Delegation, Fragment, native_node
from millstream.decide.balance.model.operator_tree import Operator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
NONE = -1
LEAST_EVALUATION_S = 1e-6


@dataclass(frozen=True, slots=True)
class Stream:
    id: str
    host: str  # its delegation node
    rate: float  # rows a second
    row_bytes: float = 100.0


@dataclass(frozen=True, slots=True, eq=False)
class Dataflow:
    """All queries of a run. Arrays are never written after construction."""

    hosts: tuple[str, ...]
    streams: tuple[Stream, ...]
    units: tuple[Fragment, ...]
    queries: tuple[str, ...]
    stream_host: Ints
    stream_bytes: Floats
    unit_query: Ints
    unit_native: Ints
    unit_exit: Ints  # the edge that reads the unit's output, NONE at the root
    unit_depth: Ints  # units between it and the root
    edge_unit: Ints
    edge_stream: Ints  # NONE where a unit feeds the edge
    edge_from: Ints  # the unit that feeds the edge, NONE for streams
    edge_bytes: Floats  # of a row on the edge
    out_rows: Floats  # a: rows out of the unit for a row into the edge
    work_s: Floats  # b: mean CPU seconds for a row into the edge
    work2_s2: Floats  # its second moment
    result_work_s: Floats  # T: CPU seconds for a row that yields a result
    result_rows: Floats  # how many rows such a row has become at the unit's end, at least one
    cost_edge: Ints  # operator costs by edge: edge, operator, rows that reach the operator
    cost_operator: Ints
    cost_rows: Floats
    operator_cost_s: Floats
    operator_unit: Ints
    operator_physical: Ints  # equal numbers on one host are one physical operator
    shares: bool  # whether any two operators could be one
    window_s: Floats  # by edge: seconds that a row entering there stays in state, weighed by rows
    path_edges: Ints  # the edges of all paths, leaf to root, one path after the other
    path_rows: Floats  # beside each: rows that a result-yielding row has become before it
    path_starts: Ints
    path_query: Ints

    @property
    def edges(self) -> int:
        return len(self.edge_unit)

    def path_evaluation_s(self) -> Floats:
        """p of every path; one without work is taken to cost a microsecond, for ratios' sake."""
        weighed = self.result_work_s[self.path_edges] * self.path_rows
        return np.maximum(np.add.reduceat(weighed, self.path_starts), LEAST_EVALUATION_S)


def sum_by(index: Ints, values: Floats, size: int) -> Floats:
    """Values added up by index.

    >>> sum_by(np.array([0, 2, 0]), np.array([1.0, 2.0, 3.0]), 3).tolist()
    [4.0, 0.0, 2.0]
    """
    return np.bincount(index, values, minlength=size).astype(np.float64, copy=False)


def build(
    hosts: Sequence[str],
    streams: Sequence[Stream],
    units: Sequence[Fragment],
    *,
    cost_variation: float = 1.0,
) -> Dataflow:
    """Arrays for the given units; `cost_variation`: an operator's time, squared."""
    return _Builder(tuple(hosts), tuple(streams), tuple(units), cost_variation).dataflow()


class _Builder:
    def __init__(
        self,
        hosts: tuple[str, ...],
        streams: tuple[Stream, ...],
        units: tuple[Fragment, ...],
        cost_variation: float,
    ) -> None:
        self.hosts, self.streams, self.units = hosts, streams, units
        self.variation = cost_variation
        self.host_index = {host: n for n, host in enumerate(hosts)}
        self.stream_index = {stream.id: n for n, stream in enumerate(streams)}
        self.unit_index = {unit.id: n for n, unit in enumerate(units)}
        self.query_index: dict[str, int] = {}
        self.physical: dict[str, int] = {}
        self.edge: list[tuple[int, int, int, int]] = []  # unit, stream, from, entry
        self.costs: list[tuple[int, int, float]] = []
        self.operator: list[tuple[float, int, int]] = []  # cost, unit, physical
        self.first_operator: list[int] = []  # by unit

    def dataflow(self) -> Dataflow:
        delegation: Delegation = {stream.id: stream.host for stream in self.streams}
        for unit in self.units:
            self.query_index.setdefault(unit.query, len(self.query_index))
        exits = self._edges()
        shapes = [self._shape(n, edge) for n, edge in enumerate(self.edge)]
        paths, rows, starts, owners = self._paths(exits, [shape[5] for shape in shapes])
        depth = self._depths(exits)
        edge = np.array(self.edge, dtype=np.int64).reshape(-1, 4)
        operator = np.array(self.operator).reshape(-1, 3)
        costs = np.array(self.costs).reshape(-1, 3)
        values = np.array(shapes).reshape(-1, 6)
        stream_bytes = np.array([stream.row_bytes for stream in self.streams])
        widest = float(stream_bytes.max(initial=1.0))
        bytes_in = np.where(edge[:, 1] >= 0, stream_bytes[edge[:, 1]], widest)
        return Dataflow(
            hosts=self.hosts,
            streams=self.streams,
            units=self.units,
            queries=tuple(self.query_index),
            stream_host=np.array([self.host_index[s.host] for s in self.streams], dtype=np.int64),
            stream_bytes=stream_bytes,
            unit_query=np.array([self.query_index[u.query] for u in self.units], dtype=np.int64),
            unit_native=np.array(
                [self.host_index[native_node(u, delegation)] for u in self.units], dtype=np.int64
            ),
            unit_exit=np.array(exits, dtype=np.int64),
            unit_depth=np.array(depth, dtype=np.int64),
            edge_unit=edge[:, 0],
            edge_stream=edge[:, 1],
            edge_from=edge[:, 2],
            edge_bytes=bytes_in,
            out_rows=values[:, 0],
            work_s=values[:, 1],
            work2_s2=values[:, 2],
            result_work_s=values[:, 3],
            window_s=values[:, 4],
            result_rows=values[:, 5],
            cost_edge=costs[:, 0].astype(np.int64),
            cost_operator=costs[:, 1].astype(np.int64),
            cost_rows=costs[:, 2],
            operator_cost_s=operator[:, 0],
            operator_unit=operator[:, 1].astype(np.int64),
            operator_physical=operator[:, 2].astype(np.int64),
            shares=len(self.physical) < len(self.operator),
            path_edges=np.array(paths, dtype=np.int64),
            path_rows=np.array(rows),
            path_starts=np.array(starts, dtype=np.int64),
            path_query=np.array(owners, dtype=np.int64),
        )

    def _edges(self) -> list[int]:
        """Numbers the edges and the operators; gives each unit's exit."""
        for n, unit in enumerate(self.units):
            self.first_operator.append(len(self.operator))
            for operator in unit.operators:
                name = operator.physical or f"{unit.id}/{operator.id}"
                number = self.physical.setdefault(name, len(self.physical))
                self.operator.append((operator.cost_s, n, number))
            if unit.reads_stream:
                self.edge.append((n, self.stream_index[unit.stream], NONE, 0))
        exits = [NONE] * len(self.units)
        for n, unit in enumerate(self.units):
            if unit.downstream is not None:
                exits[n] = len(self.edge)
                self.edge.append((self.unit_index[unit.downstream], NONE, n, unit.entry))
        return exits

    def _shape(self, number: int, edge: tuple[int, int, int, int]) -> tuple[float, ...]:
        """Rows out, work, its second moment, result work, state seconds, result rows."""
        unit, _, _, entry = edge
        operators = self.units[unit].operators[entry:]
        first = self.first_operator[unit] + entry
        rows, kept, result_rows, result_work = 1.0, 0.0, 1.0, 0.0
        for n, operator in enumerate(operators):
            self.costs.append((number, first + n, rows))
            kept += rows * operator.window_s
            result_work += operator.cost_s * result_rows
            rows *= operator.selectivity
            result_rows *= max(operator.selectivity, 1.0)
        mean, second = moments(operators, self.variation)
        return rows, mean, second, result_work, kept, result_rows

    def _depths(self, exits: list[int]) -> list[int]:
        depth = [NONE] * len(self.units)
        for n in range(len(self.units)):
            chain, unit = [], n
            while depth[unit] == NONE:
                chain.append(unit)
                if exits[unit] == NONE:
                    break
                unit = self.edge[exits[unit]][0]
            base = -1 if exits[unit] == NONE and depth[unit] == NONE else depth[unit]
            for back, member in enumerate(reversed(chain)):
                depth[member] = base + 1 + back
        return depth

    def _paths(
        self, exits: list[int], result_rows: list[float]
    ) -> tuple[list[int], list[float], list[int], list[int]]:
        paths: list[int] = []
        rows: list[float] = []
        starts: list[int] = []
        owners: list[int] = []
        for first, (unit, stream, _, _) in enumerate(self.edge):
            if stream == NONE:
                continue
            starts.append(len(paths))
            owners.append(self.query_index[self.units[unit].query])
            edge, grown = first, 1.0
            while edge != NONE:
                paths.append(edge)
                rows.append(grown)
                grown *= result_rows[edge]
                edge = exits[self.edge[edge][0]]
        return paths, rows, starts, owners


def moments(operators: Sequence[Operator], variation: float) -> tuple[float, float]:
    """Mean and second moment of the CPU seconds that a row entering at the first operator causes.

    A row passes an operator with its selectivity as probability; a selectivity above one gives that
    many rows on average. Times vary with the given squared coefficient of variation.

    >>> moments([Operator("f", ("s",), 2.0, 0.5), Operator("g", ("f",), 4.0, 1.0)], 0.0)
    (4.0, 20.0)
    """
    mean = second = 0.0
    for operator in reversed(operators):
        cost, share = operator.cost_s, operator.selectivity
        spread = max(share * share - share, 0.0) * mean * mean  # only above one
        second = cost * cost * (1 + variation) + 2 * cost * share * mean + share * second + spread
        mean = cost + share * mean
    return mean, second
