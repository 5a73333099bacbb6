"""Rows in expectation: what waits where, what is served, what every query's delay is.

One tick moves rows from streams over the network to hosts and on, as real-valued counts by edge, so
that no row is made or lost. Delays are those of a row that yields a result, along each path:
waiting and working at every host it visits, and the way between hosts. It obeys a placement and
never chooses one. Rates follow with a lag of one tick a hop; delays do not.
"""

from dataclasses import dataclass

import numpy as np

from millstream.decide.balance.model.arrangement import Arrangement, arrange, unit_flows
from millstream.decide.balance.model.dataflow import Dataflow, Floats, Ints, sum_by
from millstream.sim.cluster.hosts import Hosts
from millstream.sim.cluster.network import Network


@dataclass(frozen=True, slots=True, eq=False)
class Ratios:
    """Performance ratios by query, of its worst stream."""

    total: Floats
    processing: Floats
    communication: Floats


class Flows:
    def __init__(self, flow: Dataflow, hosts: Hosts, network: Network, unit_host: Ints) -> None:
        self.flow, self.hosts, self.network = flow, hosts, network
        self.placed: Arrangement = arrange(flow, unit_host.copy())
        self.waiting = np.zeros(flow.edges)  # rows at hosts
        self.under_way = np.zeros(flow.edges)  # rows on the network
        self.sent = np.zeros(flow.edges)  # rows that units gave out in the last tick
        self.arrivals = np.zeros(flow.edges)  # rows a second that reached hosts in the last tick
        self.held_until_s = np.zeros(len(flow.units))  # while a move switches over
        self.rows_by_edge = np.zeros(flow.edges)  # that streams gave, in all
        self.data_bytes = 0.0  # over the network, in all
        self.results = np.zeros(len(flow.queries))
        self.path_p_s = flow.path_evaluation_s()
        self._unit_rows: Floats | None = None  # rows a second by edge, inner edges too

    def move(self, units: Ints, hosts: Ints) -> None:
        """Units run elsewhere from now on; their waiting rows go with them."""
        unit_host = self.placed.unit_host.copy()
        unit_host[units] = hosts
        self.placed = arrange(self.flow, unit_host)
        self._unit_rows = None

    def tick(
        self,
        stream_rates: Floats,
        tick_s: float,
        now_s: float,
        moving_out_bytes: Floats,
        moving_in_bytes: Floats,
    ) -> None:
        flow, placed = self.flow, self.placed
        from_stream = flow.edge_stream >= 0
        fresh = np.where(from_stream, stream_rates[flow.edge_stream] * tick_s, self.sent)
        self.rows_by_edge += np.where(from_stream, fresh, 0.0)
        self.under_way += np.where(placed.crossing, fresh, 0.0)
        under_way_bytes = np.where(
            placed.crossing, self.under_way * placed.bytes_share, self.under_way * flow.edge_bytes
        )
        share = self.network.carry(
            placed.sender,
            placed.edge_host,
            under_way_bytes=under_way_bytes,
            extra_out_bytes=moving_out_bytes,
            extra_in_bytes=moving_in_bytes,
            tick_s=tick_s,
        )
        share = np.where(placed.crossing, share, 1.0)  # what became local while under way is there
        arrived = share * self.under_way
        self.under_way -= arrived
        self.data_bytes += float((share * under_way_bytes)[placed.crossing].sum())
        arriving = arrived + np.where(placed.crossing, 0.0, fresh)
        self.arrivals = arriving / tick_s
        served = self._serve(arriving, tick_s, now_s)
        leaving = served * placed.run_rows
        inner = placed.run_exit >= 0
        self.sent = sum_by(placed.run_exit[inner], leaving[inner], flow.edges)
        done = ~inner
        self.results += sum_by(
            flow.unit_query[flow.edge_unit[done]], leaving[done], len(flow.queries)
        )
        self._unit_rows = None

    def _serve(self, arriving: Floats, tick_s: float, now_s: float) -> Floats:
        flow, placed = self.flow, self.placed
        share_by_host = self.hosts.serve(
            edge_host=placed.edge_host,
            waiting=self.waiting,
            arriving=arriving,
            run_s=placed.run_s,
            run2_s2=placed.run2_s2,
            tick_s=tick_s,
        )
        share = share_by_host[placed.edge_host]
        # Rows that cost nothing (a bare stream passed on) go through wherever the host is up.
        share = np.where(placed.run_s > 0, share, self.hosts.up[placed.edge_host] * 1.0)
        held = self.held_until_s > now_s - tick_s
        if held.any():
            free = np.clip((now_s - self.held_until_s) / tick_s, 0.0, 1.0)
            share = np.where(held[flow.edge_unit], share * free[flow.edge_unit], share)
        present = self.waiting + arriving
        served = share * present
        self.waiting = present - served
        return served

    def _rows(self) -> Floats:
        if self._unit_rows is None:
            self._unit_rows = unit_flows(self.flow, self.placed, self.arrivals)
        return self._unit_rows

    def unit_loads(self) -> Floats:
        """CPU seconds a second that each unit's rows ask for."""
        work = self._rows() * self.placed.work_s
        return sum_by(self.flow.edge_unit, work, len(self.flow.units))

    def unit_backlog_s(self) -> Floats:
        """CPU seconds of work that waits for each unit at its host."""
        work = self.waiting * self.placed.run_s
        return sum_by(self.flow.edge_unit, work, len(self.flow.units))

    def unit_state_bytes(self) -> Floats:
        """What the units' windows hold, at the present rates."""
        kept = self._rows() * self.flow.window_s * self.flow.edge_bytes
        return sum_by(self.flow.edge_unit, kept, len(self.flow.units))

    def path_delays_s(self, now_s: float) -> tuple[Floats, Floats]:
        """Delay of a result-yielding row by path: at hosts, and between them."""
        flow, placed = self.flow, self.placed
        waits = self.hosts.waits_s(now_s)
        speed = np.maximum(self.hosts.cpu / self.hosts.slowdown, 1e-9)
        at = placed.edge_host
        queued = np.where(placed.entry, waits[at] + placed.batch_wait_s / speed[at], 0.0)
        queued += np.maximum(self.held_until_s[flow.edge_unit] - now_s, 0.0)
        link = self.network.delays_s(placed.sender, at, flow.edge_bytes, now_s)
        link = np.where(placed.crossing, link, 0.0)
        own = flow.result_work_s / speed[at]
        edges = flow.path_edges
        worked = queued[edges] + own[edges] * flow.path_rows
        return np.add.reduceat(worked, flow.path_starts), np.add.reduceat(
            link[edges], flow.path_starts
        )

    def ratios(self, now_s: float) -> Ratios:
        """Performance ratios as of now (seed 002, equations 1 to 5, with measured waits)."""
        processing_s, communication_s = self.path_delays_s(now_s)
        return self._by_query(processing_s / self.path_p_s, communication_s / self.path_p_s)

    def _by_query(self, processing: Floats, communication: Floats) -> Ratios:
        queries = len(self.flow.queries)
        total = processing + communication
        worst = np.zeros(queries)
        np.maximum.at(worst, self.flow.path_query, total)
        first = np.full(queries, -1)
        hit = np.flatnonzero(total >= worst[self.flow.path_query])
        first[self.flow.path_query[hit[::-1]]] = hit[::-1]
        return Ratios(worst, processing[first], communication[first])
