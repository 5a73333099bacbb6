"""What the mixed-integer planner decides anew for a batch of queries, and what keeps its place.

The problem reduction of SQPR (section IV.A): only streams and operators that can appear in plans
of the new queries, and, in systems too large to solve whole, only hosts that matter to them.
Reads a placement; changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.decide.place.problem import Query
from millstream.decide.place.reuse.prices import price_curve, price_hosts
from millstream.decide.place.reuse.state import PlanState

EXACT_HOSTS = 4  # more hosts than this are never solved whole


@dataclass(frozen=True, slots=True)
class Demanded:
    """A stream that must or may be delivered: by whom, where, whether it already is."""

    stream: int
    queries: tuple[str, ...]
    at: int | None = None
    must: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """What the solver may decide: streams, operators and hosts; demands; all else is fixed."""

    streams: tuple[int, ...]
    operators: tuple[int, ...]
    hosts: tuple[int, ...]
    demands: tuple[Demanded, ...]
    exact: bool

    @classmethod
    def of(
        cls,
        state: PlanState,
        first: PlanState,
        waiting: Sequence[Query],
        exact_cells: int,
        most_hosts: int,
    ) -> "Scope":
        """The scope for some queries; `first` is a known solution that must lie within it."""
        catalog = state.catalog
        streams: dict[int, None] = {}
        operators: dict[int, None] = {}
        for query in waiting:
            closure = catalog.closure(catalog.stream_at[query.stream])
            streams.update(dict.fromkeys(closure.streams))
            operators.update(dict.fromkeys(closure.operators))
        everywhere = tuple(place for place in range(len(state.running)) if catalog.alive[place])
        exact = len(everywhere) <= EXACT_HOSTS and len(streams) * len(everywhere) <= exact_cells
        hosts = everywhere if exact else _hosts(state, first, streams, waiting, most_hosts)
        return cls(
            tuple(streams), tuple(operators), hosts, _demands(state, streams, waiting), exact
        )


def _hosts(
    state: PlanState,
    first: PlanState,
    streams: dict[int, None],
    waiting: Sequence[Query],
    most: int,
) -> tuple[int, ...]:
    """Where relevant streams enter, are computed or wanted, and the cheapest others."""
    catalog = state.catalog
    if len(state.running) <= most:
        return tuple(place for place in range(len(state.running)) if catalog.alive[place])
    chosen: dict[int, None] = {}
    for query in waiting:
        if query.deliver_to is not None:
            chosen[catalog.host_at[query.deliver_to]] = None
    for stream in streams:
        if catalog.base[stream] >= 0:
            chosen[catalog.base[stream]] = None
        for host in state.holders.get(stream, ()):
            if state.source.get((stream, host), -1) >= 0:
                chosen[host] = None
    for (stream, host), origin in first.source.items():
        if stream in streams and state.source.get((stream, host)) != origin:
            chosen[host] = None
            if origin < 0:
                chosen[~origin] = None
    prices = price_hosts(state, price_curve(catalog.weights))
    order = np.argsort(prices.cpu + prices.incoming, kind="stable").tolist()
    for host in order:
        if len(chosen) >= most:
            break
        if catalog.alive[host]:
            chosen[host] = None
    return tuple(sorted(chosen))


def _demands(
    state: PlanState, streams: dict[int, None], waiting: Sequence[Query]
) -> tuple[Demanded, ...]:
    """Deliveries of relevant streams that exist (IV.9), and those asked for."""
    catalog = state.catalog
    demands: list[Demanded] = []
    for stream in streams:
        hosts = state.delivered_at.get(stream, {})
        for host in hosts:
            queries = tuple(state.clients[stream, host])
            fixed = state.fixed_place(stream, host, queries)
            demands.append(Demanded(stream, queries, fixed, must=True))
    asked: dict[tuple[int, int | None], list[str]] = {}
    for query in waiting:
        at = None if query.deliver_to is None else catalog.host_at[query.deliver_to]
        asked.setdefault((catalog.stream_at[query.stream], at), []).append(query.id)
    demands.extend(Demanded(stream, tuple(names), at) for (stream, at), names in asked.items())
    return tuple(demands)
