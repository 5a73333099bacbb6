"""What a placement makes of the dataflow: which edges cross hosts, and what one arriving row costs.

A row that reaches a host is worked on there to its end, through every unit of its query that runs
on that host (seed 002, section 2.2: only when a tuple is fully processed is a new one begun). So an
edge between units on one host is no arrival of its own; it continues the run of the edge before. A
row of a stream that several units on a host read is one arrival that works for all of them. Logical
operators that share a physical one on a host each bear their part of its cost. Computed anew when a
unit moves.
"""

from dataclasses import dataclass

import numpy as np

from millstream.decide.balance.model.dataflow import Dataflow, Flags, Floats, Ints, sum_by

DENSE = 8  # possible groups an edge, up to which counting beats sorting


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """By edge, unless said otherwise."""

    unit_host: Ints
    edge_host: Ints  # where the edge's unit runs
    sender: (
        Ints  # where its rows come from: the stream's delegation node, or the feeding unit's host
    )
    entry: Flags  # rows arrive here from a stream or from another host
    crossing: Flags  # rows come over the network
    work_s: Floats  # of the unit alone, after sharing of physical operators
    run_s: Floats  # CPU seconds for an arriving row until it leaves the host
    run2_s2: Floats  # second moment, with the other readers of the same stream on this host
    batch_wait_s: Floats  # mean wait for other readers of the same row
    run_rows: Floats  # rows that leave the host for a row that enters
    run_exit: Ints  # the edge they leave by, NONE for results
    bytes_share: Floats  # bytes on the network for a row: one copy a host, whatever reads it there


def arrange(flow: Dataflow, unit_host: Ints) -> Arrangement:
    edge_host = unit_host[flow.edge_unit]
    from_stream = flow.edge_stream >= 0
    sender = np.where(from_stream, flow.stream_host[flow.edge_stream], unit_host[flow.edge_from])
    crossing = sender != edge_host
    entry = from_stream | crossing
    work_s = shared_work_s(flow, unit_host)
    scale = np.divide(work_s, flow.work_s, out=np.ones_like(work_s), where=flow.work_s > 0)
    run_s, run2_s2 = work_s.copy(), flow.work2_s2 * scale * scale
    run_rows, run_exit = flow.out_rows.copy(), flow.unit_exit[flow.edge_unit]
    depth = flow.unit_depth[flow.edge_unit]
    goes_on = (run_exit >= 0) & ~crossing[run_exit] & ~from_stream[run_exit]
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero((depth == level) & goes_on)
        after = run_exit[here]
        passed = flow.out_rows[here]
        run2_s2[here] += (
            2 * passed * flow.result_work_s[here] * scale[here] * run_s[after]
            + passed * run2_s2[after]
        )
        run_s[here] += passed * run_s[after]
        run_rows[here] = passed * run_rows[after]
        run_exit[here] = run_exit[after]
    group, readers = _same_row(flow, edge_host, from_stream)
    batch_s = sum_by(group, run_s, len(readers))[group]
    others_s = np.where(from_stream, np.maximum(batch_s - run_s, 0.0), 0.0)
    return Arrangement(
        unit_host=unit_host,
        edge_host=edge_host,
        sender=sender,
        entry=entry,
        crossing=crossing,
        work_s=work_s,
        run_s=run_s,
        run2_s2=run2_s2 + run_s * others_s,
        batch_wait_s=others_s / 2,
        run_rows=run_rows,
        run_exit=run_exit,
        bytes_share=np.where(crossing, flow.edge_bytes / readers[group], 0.0),
    )


def _same_row(flow: Dataflow, edge_host: Ints, from_stream: Flags) -> tuple[Ints, Floats]:
    """A group for each arrival: edges that read one stream on one host are one. Also its size."""
    hosts = len(flow.hosts)
    first_other = len(flow.streams) * hosts
    group = np.where(
        from_stream,
        flow.edge_stream * hosts + edge_host,
        first_other + np.arange(flow.edges),
    )
    if first_other > DENSE * flow.edges:  # too many possible groups to count them all
        _, group = np.unique(group, return_inverse=True)
    return group, np.bincount(group).astype(np.float64)


def shared_work_s(flow: Dataflow, unit_host: Ints) -> Floats:
    """Mean work by edge when each logical operator bears 1/n of a physical one that n share."""
    if not flow.shares:
        return flow.work_s
    hosts = len(flow.hosts)
    key = flow.operator_physical * hosts + unit_host[flow.operator_unit]
    _, group, count = np.unique(key, return_inverse=True, return_counts=True)
    cost = flow.operator_cost_s / count[group]
    weights = cost[flow.cost_operator] * flow.cost_rows
    return sum_by(flow.cost_edge, weights, flow.edges)


def unit_flows(flow: Dataflow, placed: Arrangement, arrivals: Floats) -> Floats:
    """Rows entering by every edge, given those that arrive at hosts: runs are followed upwards."""
    rows = np.where(placed.entry, arrivals, 0.0)
    depth = flow.unit_depth[flow.edge_unit]
    exits = flow.unit_exit[flow.edge_unit]
    inner = (exits >= 0) & ~placed.entry[exits]
    for level in range(int(depth.max(initial=0)), 0, -1):
        here = np.flatnonzero((depth == level) & inner)
        np.add.at(rows, exits[here], flow.out_rows[here] * rows[here])
    return rows


def traffic_bytes(placed: Arrangement, arrivals: Floats) -> float:
    """Bytes a second on the network for the given arrivals a second."""
    return float((placed.bytes_share * arrivals).sum())


def steady_rows(flow: Dataflow, stream_rates: Floats) -> Floats:
    """Rows a second by edge when nothing is throttled; the same wherever units run."""
    rows = np.where(flow.edge_stream >= 0, stream_rates[flow.edge_stream], 0.0)
    depth = flow.unit_depth[flow.edge_unit]
    exits = flow.unit_exit[flow.edge_unit]
    for level in range(int(depth.max(initial=0)), 0, -1):
        here = np.flatnonzero((depth == level) & (exits >= 0))
        np.add.at(rows, exits[here], flow.out_rows[here] * rows[here])
    return rows
