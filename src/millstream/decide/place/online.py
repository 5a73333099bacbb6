"""What an online planner is: queries come in batches, answers are decisions, work goes on between.

Defines the protocol that every planner with reuse offers to commands, benchmarks and the manager,
the decision that it gives, and how a refusal is explained. Plans nothing itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Protocol

from millstream.decide.place.problem import Query
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.state import LINK, PlanState, Run, Ship, Shortage
from millstream.decide.place.solution import Refusal

NO_PLAN = "no_plan"  # no operator computes the stream from base streams
TIMEOUT = "timeout"
LATENCY = "latency"
ADMIT = "admit"  # the weight of admitted queries is 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one query: where it is served and what it adds, or why it is refused."""

    query: str
    host: str | None = None  # that delivers it; None when refused
    refusal: Refusal | None = None
    reused: tuple[tuple[str, str], ...] = ()  # (stream, host) that were there and are read
    started: tuple[tuple[str, str], ...] = ()  # (operator, host) that are new
    shipped: tuple[tuple[str, str, str], ...] = ()  # (stream, from, to) that are new
    cpu: float = 0.0  # more than before, over all hosts
    bandwidth: float = 0.0  # more sent than before, over all hosts
    replanned: tuple[str, ...] = ()  # admitted queries that moved to make room

    @property
    def admitted(self) -> bool:
        return self.refusal is None


class OnlinePlanner(Protocol):
    """Plans batches of queries over one mutable state, in the order they come."""

    state: PlanState

    def submit(self, batch: Sequence[Query]) -> tuple[Decision, ...]:
        """Answers in the order of the batch; a refused query changes nothing."""
        ...

    def rest(self) -> None:
        """Background work after a submission; never drops an admitted query."""
        ...


def same_stream(state: PlanState, query: Query) -> int | None:
    """The host that serves this very stream already (algorithm 1 of SQPR, line 3), in time."""
    stream = state.catalog.stream_at[query.stream]
    for host in state.delivered_at.get(stream, ()):
        elsewhere = query.deliver_to not in (None, state.catalog.host_ids[host])
        bound = query.latency_bound
        if not elsewhere and (bound is None or state.lateness(stream, host) <= bound):
            return host
    return None


def served_already(state: PlanState, query: Query) -> Decision | None:
    """The answer to a query whose stream is served already; None where it is to be planned."""
    host = same_stream(state, query)
    if host is None:
        return None
    decision = attach(state, query, host)
    state.commit()
    return decision


def attach(state: PlanState, query: Query, host: int) -> Decision:
    """A query whose stream is delivered from this host already: admitted at no cost."""
    catalog = state.catalog
    stream = catalog.stream_at[query.stream]
    short = state.deliver(query.id, stream, host)
    assert short is None, "a delivered stream costs nothing more"
    name = catalog.host_ids[host]
    return Decision(query.id, host=name, reused=((query.stream, name),))


class Totals:
    """Use over all hosts, to tell what a decision adds."""

    def __init__(self, state: PlanState) -> None:
        self.cpu = float(state.cpu_used.sum())
        self.bandwidth = float(state.out_used.sum())


def admitted(
    state: PlanState,
    query: Query,
    host: int,
    steps: Sequence[Run | Ship],
    before: Totals,
    replanned: tuple[str, ...] = (),
) -> Decision:
    """The decision behind steps that have been applied."""
    catalog, now = state.catalog, Totals(state)
    return Decision(
        query=query.id,
        host=catalog.host_ids[host],
        reused=_reused(catalog, steps, catalog.stream_at[query.stream], host),
        started=tuple(
            (catalog.operator_ids[step.operator], catalog.host_ids[step.host])
            for step in steps
            if isinstance(step, Run)
        ),
        shipped=tuple(
            (
                catalog.stream_ids[step.stream],
                catalog.host_ids[step.source],
                catalog.host_ids[step.target],
            )
            for step in steps
            if isinstance(step, Ship)
        ),
        cpu=now.cpu - before.cpu,
        bandwidth=now.bandwidth - before.bandwidth,
        replanned=replanned,
    )


def _reused(
    catalog: Catalog, steps: Sequence[Run | Ship], stream: int, host: int
) -> tuple[tuple[str, str], ...]:
    """What the steps read that they do not make, base streams at their origin left out."""
    made: set[tuple[int, int]] = set()
    read: dict[tuple[int, int], None] = {}
    for step in steps:
        if isinstance(step, Run):
            read.update(((name, step.host), None) for name in catalog.inputs[step.operator])
            made.add((catalog.output[step.operator], step.host))
        else:
            read[step.stream, step.source] = None
            made.add((step.stream, step.target))
    read[stream, host] = None
    return tuple(
        (catalog.stream_ids[name], catalog.host_ids[place])
        for name, place in read
        if (name, place) not in made and catalog.base[name] != place
    )


def _computable(catalog: Catalog, stream: int) -> bool:
    """Whether base streams lead to a stream at all."""
    able: set[int] = set()
    for name in catalog.closure(stream).streams:  # in topological order
        base = catalog.base[name]
        if base >= 0 or any(
            able.issuperset(catalog.inputs[way]) for way in catalog.producers[name]
        ):
            able.add(name)
    return stream in able


def too_late(query: Query, bound: float, soonest: float | None = None) -> Decision:
    """There is room for the query, but no plan that keeps its latency bound."""
    detail = f"no plan with enough room delivers {query.stream} within {bound:g}"
    if soonest is not None:
        detail += f"; a bound of {soonest:.4g} would fit"
    return Decision(query.id, refusal=Refusal(query.id, LATENCY, detail, query.deliver_to))


def refused(query: Query, short: Shortage | None, catalog: Catalog) -> Decision:
    """The decision behind a shortage; none means that no plan exists at all.

    A stream that something computes is then kept away by the weights, or by links that do not
    exist.
    """
    if short is None:
        reason, detail = NO_PLAN, f"nothing computes {query.stream} from streams that exist"
        computable = _computable(catalog, catalog.stream_at[query.stream])
        if computable and catalog.weights.admit == 0:
            reason = ADMIT
            detail = "weight admit is 0, so that nothing is gained by serving it; more would fit"
        elif computable:
            reason = LINK
            detail = f"no links bring together what {query.stream} is computed from and wanted for"
            detail += "; a link between its inputs' hosts would fit"
        return Decision(query.id, refusal=Refusal(query.id, reason, detail, query.deliver_to))
    short, *others = short.of_plan or (short,)
    share = max(0.0, short.room) / short.need if short.need > 0 else 0.0
    also = " and ".join(f"{_more(other)} of {_where(other, catalog)}" for other in others)
    detail = (
        f"{_where(short, catalog)}: {short.need:.4g} needed, {max(0.0, short.room):.4g} free;"
        f" {_more(short)} more{' with ' + also if also else ''}, or {floor(100 * share)}% of the"
        f" rate, would fit"
    )
    host = catalog.host_ids[short.host]
    return Decision(query.id, refusal=Refusal(query.id, short.resource, detail, host))


def _where(short: Shortage, catalog: Catalog) -> str:
    host = catalog.host_ids[short.host]
    if short.resource == LINK and short.sender >= 0:
        return f"link {catalog.host_ids[short.sender]} -> {host}"
    return f"{short.resource} of host {host}"


def _more(short: Shortage) -> str:
    """What is missing, in four digits and not rounded down."""
    missing = short.need - max(0.0, short.room)
    digits = 3 - floor(log10(missing)) if missing > 0 else 0
    return f"{ceil(missing * 10.0**digits - 1e-6) / 10.0**digits:.4g}"
