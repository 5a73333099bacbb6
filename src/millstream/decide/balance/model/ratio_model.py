"""What a placement would mean: loads, waits, every query's performance ratio, traffic.

A steady-state estimate from rates, costs and selectivities: hosts are M/G/1 queues, links cost a
fixed time. It answers 'what if this unit ran there' for a policy, and never decides. Rates by edge
do not depend on the placement, so one model serves many questions.
"""

from dataclasses import dataclass

import numpy as np

from millstream.decide.balance.model.arrangement import arrange, steady_rows
from millstream.decide.balance.model.dataflow import Dataflow, Floats, Ints, sum_by

NEARLY_FULL = 0.999  # beyond, a queue has no steady state: waits count as at this load, and more


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    path_ratio: Floats
    load: Floats  # by host
    wait_s: Floats  # by host
    pressure: Floats  # by unit: its part in what makes rows wait at its host
    traffic: float  # bytes a second

    @property
    def worst(self) -> float:
        return float(self.path_ratio.max(initial=0.0))


class RatioModel:
    def __init__(
        self, flow: Dataflow, stream_rates: Floats, host_speed: Floats, transfer_s: float
    ) -> None:
        self.flow, self.transfer_s = flow, transfer_s
        self.speed = np.maximum(host_speed, 1e-9)
        self.rows = steady_rows(flow, stream_rates)
        self.evaluation_s = flow.path_evaluation_s()
        self.unit_load = sum_by(flow.edge_unit, self.rows * flow.work_s, len(flow.units))
        kept = self.rows * flow.window_s * flow.edge_bytes
        self.unit_state_bytes = sum_by(flow.edge_unit, kept, len(flow.units))
        self.edge_flow_bytes = self.rows * flow.edge_bytes
        self._near = self._neighbours()
        self.source_edge = np.full(len(flow.units), -1, dtype=np.int64)  # by unit, its stream's
        source = np.flatnonzero(flow.edge_stream >= 0)
        self.source_edge[flow.edge_unit[source]] = source

    def _neighbours(self) -> tuple[Ints, Ints, Floats]:
        """Pairs (unit, neighbour, bytes a second between them), both ways."""
        flow = self.flow
        edges = np.flatnonzero(flow.edge_from >= 0)
        feeds, reads = flow.edge_from[edges], flow.edge_unit[edges]
        weight = self.edge_flow_bytes[edges]
        order = np.argsort(np.concatenate((feeds, reads)), kind="stable")
        return (
            np.concatenate((feeds, reads))[order],
            np.concatenate((reads, feeds))[order],
            np.concatenate((weight, weight))[order],
        )

    def estimate(self, unit_host: Ints) -> Estimate:
        flow, speed = self.flow, self.speed
        placed = arrange(flow, unit_host)
        at, hosts = placed.edge_host, len(flow.hosts)
        arriving = np.where(placed.entry, self.rows, 0.0)
        load = sum_by(at, arriving * placed.run_s, hosts) / speed
        stir = arriving * placed.run2_s2
        full = np.minimum(load, NEARLY_FULL)
        wait = sum_by(at, stir, hosts) / (2 * speed * speed * (1 - full))
        wait += np.maximum(load - NEARLY_FULL, 0.0) * 10.0  # what ten seconds of overload pile up
        spent = np.where(placed.entry, wait[at] + placed.batch_wait_s / speed[at], 0.0)
        spent += np.where(placed.crossing, self.transfer_s, 0.0)
        own = flow.result_work_s / speed[at]
        on_path = spent[flow.path_edges] + own[flow.path_edges] * flow.path_rows
        return Estimate(
            np.add.reduceat(on_path, flow.path_starts) / self.evaluation_s,
            load,
            wait,
            sum_by(flow.edge_unit, stir, len(flow.units)),
            float((placed.bytes_share * self.rows).sum()),
        )

    def crossing_bytes(self, unit_host: Ints) -> Floats:
        """By unit, the most that moving it could save: what it sends and gets over the network."""
        flow = self.flow
        feeder = np.where(
            flow.edge_stream >= 0, flow.stream_host[flow.edge_stream], unit_host[flow.edge_from]
        )
        far = np.where(feeder != unit_host[flow.edge_unit], self.edge_flow_bytes, 0.0)
        got = sum_by(flow.edge_unit, far, len(flow.units))
        fed = flow.edge_from >= 0
        sent = sum_by(flow.edge_from[fed], far[fed], len(flow.units))
        return got + sent

    def readers(self, unit_host: Ints) -> Ints:
        """How many units read each stream at each host."""
        flow = self.flow
        found = np.zeros((len(flow.streams), len(flow.hosts)), dtype=np.int64)
        source = flow.edge_stream >= 0
        at = unit_host[flow.edge_unit[source]]
        np.add.at(found, (flow.edge_stream[source], at), 1)
        return found

    def neighbour_hosts(self, unit: int, unit_host: Ints) -> Ints:
        first, last = np.searchsorted(self._near[0], [unit, unit + 1])
        return np.unique(unit_host[self._near[1][first:last]])

    def traffic_changes(self, units: Ints, unit_host: Ints, readers: Ints) -> Floats:
        """Bytes a second more or less on the network if a unit ran at a host: units by hosts."""
        flow, hosts = self.flow, len(self.flow.hosts)
        change = np.zeros((len(units), hosts))
        every = np.arange(hosts)
        for row, unit in enumerate(units.tolist()):
            here = int(unit_host[unit])
            first, last = np.searchsorted(self._near[0], [unit, unit + 1])
            for near, weight in zip(
                self._near[1][first:last].tolist(), self._near[2][first:last].tolist(), strict=True
            ):
                there = int(unit_host[near])
                change[row] += weight * ((every != there) * 1.0 - (here != there))
            source = self.source_edge[unit]
            if source >= 0:
                stream = int(flow.edge_stream[source])
                home, weight = int(flow.stream_host[stream]), self.edge_flow_bytes[source]
                copies = (every != home) & (readers[stream] == 0)
                saved = here != home and readers[stream, here] == 1
                change[row] += weight * (copies * 1.0 - saved)
            change[row, here] = 0.0
        return change
