"""Admission by SQPR's planner: does a query fit, where, what does it reuse and cost.

What runs is given: the stream of a running operator is there, at its processor, and costs nothing
more; capacities are what measured use leaves. The planner places the operators that are new, and
its answer has passed the independent checker before it is given on (`place/admission.py`). Rates,
selectivities and costs are those reported for operators of the same kind, else `ASSUMED`. Rates are
bytes a second, CPU is seconds a second, memory bytes, distances milliseconds.

Processors say of themselves (properties): `cpu`, `memory`, `bandwidth_in`, `bandwidth_out`, `site`,
and `distance_ms:OTHER` for latency bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from millstream.control.admission import PLACERS, Placed, Refused, Verdict, Wait, descriptions
from millstream.control.manager_connections import owner_of
from millstream.control.manager_state import NOBODY, ManagerState, OperatorRecord, Query
from millstream.errors import MillstreamError
from millstream.place.admission import Admission
from millstream.place.online import Decision
from millstream.place.problem import Host, Link, Links, Operator, Stream
from millstream.place.problem import Query as Wish
from millstream.plan.distribution import ProcessorDescription

SQPR = "sqpr"


@dataclass(frozen=True, slots=True)
class Assumed:
    """Where nothing of the kind has been measured yet."""

    rows_per_s: float = 1000.0  # of a base stream that does not say
    row_bytes: float = 50.0
    selectivity: float = 0.5  # rows out for each row in
    cpu_s_a_row: float = 2e-5


ASSUMED = Assumed()


@PLACERS.member(SQPR)
def by_planner(
    state: ManagerState, query: Query, operators: Mapping[str, OperatorRecord]
) -> Verdict:
    """SQPR's planner over what is left of the processors."""
    described = descriptions(state)
    if not described:
        return Wait("no processor answers")
    running = {name: o.processor for name, o in operators.items() if o.processor != NOBODY}
    fresh = [o for o in operators.values() if o.processor == NOBODY]
    site = _site(query, described)
    if isinstance(site, Refused):
        return site
    if site is not None and running.get(query.result, site) != site:
        made = running[query.result]
        return Refused(
            "site", site, f"its result is made on {made} for others", f"--deliver-to {made}"
        )
    if not fresh:
        sentence = f"all of it runs already, on {', '.join(sorted(set(running.values())))}"
        return Placed(running, sentence, tuple(running), 0.0, 0.0)
    estimates = Estimates(state)
    try:
        admission = _problem(state, described, fresh, estimates)
        bound = None if query.latency_s is None else query.latency_s * 1000
        wish = Wish(query.name, query.result, site, bound)
        decision = admission.submit(wish)
    except MillstreamError as error:
        return Wait(str(error))
    if decision.refusal is not None:
        share = admission.what_would_fit(wish)
        fits = f"at {share:.0%} of its rate and cost it would fit" if share else ""
        host = decision.refusal.host or ""
        return Refused(decision.refusal.reason, host, decision.refusal.detail, fits)
    table = {**running, **dict(decision.started)}
    if site is not None and table.get(query.result) != site:
        # the plan relays the result; subscribers ask its maker, so it is made where it is wanted
        need = estimates.cpu(operators[query.result])
        left = next(_host(state, d, estimates).cpu for d in described if d.id == site)
        left -= sum(estimates.cpu(operators[o]) for o, host in decision.started if host == site)
        if need > left:
            return Refused("cpu", site, f"{need:.3f} needed at {site}, {max(0.0, left):.3f} free")
        table[query.result] = site
    return _placed(table, operators, decision, estimates)


def _placed(
    table: Mapping[str, str],
    operators: Mapping[str, OperatorRecord],
    decision: Decision,
    estimates: "Estimates",
) -> Verdict:
    started = {o: table[o] for o, _ in decision.started}
    missing = [o for o in operators if o not in table]
    if missing:
        return Wait(f"the plan has no place for {missing[0]}")
    reused = tuple(o for o in operators if o not in started)
    places = ", ".join(sorted(set(started.values())))
    sentence = (
        f"{len(started)} operators on {places}, {len(reused)} reused; {decision.cpu:.3f} CPU and "
        f"{decision.bandwidth / 1000:.1f} kB/s more"
    )
    detail = {
        "delivered_at": decision.host,
        "shipped": [list(flow) for flow in decision.shipped],
        "measured": estimates.measured,
    }
    return Placed(table, sentence, reused, decision.cpu, decision.bandwidth, detail)


def _site(query: Query, described: tuple[ProcessorDescription, ...]) -> str | Refused | None:
    """The processor at which results are wanted: by id, or by its property `site`."""
    if not query.deliver_to:
        return None
    for one in described:
        if query.deliver_to in (one.id, one.properties.get("site")):
            return one.id
    known = sorted({str(one.properties.get("site") or one.id) for one in described})
    return Refused(
        "site", query.deliver_to, f"no processor answers at {query.deliver_to}",
        f"sites: {', '.join(known)}",
    )  # fmt: skip


def _problem(
    state: ManagerState,
    described: tuple[ProcessorDescription, ...],
    fresh: list[OperatorRecord],
    estimates: "Estimates",
) -> Admission:
    hosts = [_host(state, one, estimates) for one in described]
    admission = Admission(hosts, _links(described))
    alive, made = {h.id for h in hosts}, {o.id for o in fresh}
    given: dict[str, Stream] = {}
    for operator in fresh:
        for name in operator.inputs:
            place = owner_of(state, name)
            if name not in made and place in alive:
                given[name] = Stream(name, estimates.bytes_per_s(name), place)
    new = [Stream(o.id, estimates.bytes_per_s(o.id, o)) for o in fresh]
    ways = [Operator(o.id, o.inputs, o.id, estimates.cpu(o)) for o in fresh]
    admission.learn([*given.values(), *new], ways)
    return admission


def _host(state: ManagerState, one: ProcessorDescription, estimates: "Estimates") -> Host:
    """What measured use leaves of a processor."""
    used = estimates.used_cpu(one.id)
    received = sent = 0.0
    for edge, figures in state.statistics.edges.items():
        stream, _, target = edge.partition(">")
        rate = figures.rates.get("bytes", 0.0)
        received += rate if target == one.id else 0.0
        sent += rate if owner_of(state, stream) == one.id else 0.0
    return Host(
        one.id,
        max(0.0, one.number("cpu", 1.0) - used),
        max(0.0, one.number("bandwidth_in", inf) - received),
        max(0.0, one.number("bandwidth_out", inf) - sent),
    )


def _links(described: tuple[ProcessorDescription, ...]) -> Links | None:
    """Distances between processors, where they say them."""
    found = [
        Link(one.id, other.id, distance=one.number(f"distance_ms:{other.id}", 0.0))
        for one in described
        for other in described
        if one.id != other.id
    ]
    told = any(f"distance_ms:{b.id}" in a.properties for a in described for b in described)
    return Links(listed=tuple(found)) if told else None


class Estimates:
    """Rates and costs of what would run, from reports of what runs."""

    def __init__(self, state: ManagerState) -> None:
        self._state = state
        self.measured = False
        self._kinds: dict[str, tuple[float, float, float]] = {}  # rows in, rows out, seconds
        for name, figures in state.statistics.operators.items():
            record = state.operators.get(name)
            rows = figures.values.get("rows_in", 0.0)
            if record is None or rows <= 0:
                continue
            known = self._kinds.get(record.kind, (0.0, 0.0, 0.0))
            self._kinds[record.kind] = (
                known[0] + rows,
                known[1] + figures.values.get("rows_out", 0.0),
                known[2] + figures.values.get("seconds", 0.0),
            )
        self._rows: dict[str, float] = {}

    def rows_per_s(self, stream: str, fresh: OperatorRecord | None = None) -> float:
        if stream not in self._rows:
            self._rows[stream] = self._rows_of(stream, fresh)
        return self._rows[stream]

    def _rows_of(self, stream: str, fresh: OperatorRecord | None) -> float:
        state = self._state
        for figures, key in (
            (state.statistics.streams.get(stream), "rows"),
            (state.statistics.operators.get(stream), "rows_out"),
        ):
            if figures is not None and key in figures.rates:
                self.measured = True
                return figures.rates[key]
        record = fresh or state.operators.get(stream)
        if record is None:
            table = state.streams.get(stream.removeprefix("s:"))
            rate = table.table.get("rate") if table is not None else None
            return float(rate) if isinstance(rate, int | float) else ASSUMED.rows_per_s
        return self._rows_in(record) * self.selectivity(record.kind)

    def _rows_in(self, record: OperatorRecord) -> float:
        return sum(self.rows_per_s(s) for s in record.inputs)

    def selectivity(self, kind: str) -> float:
        rows_in, rows_out, _ = self._kinds.get(kind, (0.0, 0.0, 0.0))
        return rows_out / rows_in if rows_in else ASSUMED.selectivity

    def bytes_per_s(self, stream: str, fresh: OperatorRecord | None = None) -> float:
        record = fresh or self._state.operators.get(stream)
        width = record.row_bytes if record is not None and record.row_bytes else ASSUMED.row_bytes
        return self.rows_per_s(stream, fresh) * width

    def cpu(self, record: OperatorRecord) -> float:
        rows_in, _, seconds = self._kinds.get(record.kind, (0.0, 0.0, 0.0))
        each = seconds / rows_in if rows_in else ASSUMED.cpu_s_a_row
        return self._rows_in(record) * each

    def used_cpu(self, processor: str) -> float:
        """CPU seconds a second of the operators on a processor, measured or expected."""
        used = 0.0
        for record in self._state.operators.values():
            if record.processor != processor:
                continue
            figures = self._state.statistics.operators.get(record.id)
            known = figures.rates.get("seconds") if figures is not None else None
            used += known if known is not None else self.cpu(record)
        return used
