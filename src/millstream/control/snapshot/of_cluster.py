"""A manager's snapshot with what its processors say of themselves laid over it.

The manager knows queries, places and decisions; a processor knows what its operators did in the
last seconds, which algorithm schedules them and why. Pure: two kinds of snapshots in, one out. What
a processor says of an operator counts only while the operator has its place there.
"""

from collections.abc import Mapping
from dataclasses import replace

from millstream.control.snapshot.alarms import judged
from millstream.control.snapshot.diagnosis import cause_of, costs_of
from millstream.control.snapshot.model import (
    DecisionSnapshot,
    EdgeSnapshot,
    OperatorSnapshot,
    ProcessorSnapshot,
    QuerySnapshot,
    Snapshot,
    StreamSnapshot,
)

NUMBERS_APART = 1_000_000_000  # between the numbers of processors' own decisions


def laid_over(whole: Snapshot, parts: Mapping[str, Snapshot]) -> Snapshot:
    """The manager's snapshot with fresher figures; `parts` is by processor."""
    if not parts:
        return whole
    own = {name: {o.id: o for o in part.operators} for name, part in parts.items()}
    operators = tuple(_operator(o, own.get(o.processor, {}).get(o.id)) for o in whole.operators)
    by_id = {o.id: o for o in operators}
    queries = tuple(_query(q, by_id, parts) for q in whole.queries)
    edges = tuple(_edge(e, by_id, parts) for e in whole.edges)
    processors = tuple(_processor(p, parts.get(p.id)) for p in whole.processors)
    overview = replace(
        whole.overview,
        backlog_rows=sum(o.queue_rows for o in operators),
        backlog_bytes=sum(o.queue_bytes for o in operators),
        rows_in_per_s=sum(p.overview.rows_in_per_s for p in parts.values()),
    )
    return judged(
        replace(
            whole,
            overview=overview,
            operators=operators,
            queries=queries,
            edges=edges,
            streams=tuple(_stream(s, parts.get(s.processor)) for s in whole.streams),
            processors=processors,
            decisions=(*whole.decisions, *_switches(parts)),
        )
    )


def _operator(known: OperatorSnapshot, told: OperatorSnapshot | None) -> OperatorSnapshot:
    if told is None:
        return known
    return replace(
        told,
        processor=known.processor,
        state=known.state if known.state != "running" else told.state,
        queries=known.queries,
        label=known.label or told.label,
    )


def _query(
    query: QuerySnapshot, operators: Mapping[str, OperatorSnapshot], parts: Mapping[str, Snapshot]
) -> QuerySnapshot:
    needed = [operators[o] for o in query.operators if o in operators]
    own, shared, load_own, load_shared = costs_of(query.name, needed)
    cause = cause_of(needed)
    waits = [o.waiting_s for o in needed if o.waiting_s is not None]
    result = operators.get(query.result)
    part = parts.get(result.processor) if result is not None else None
    there = next((q for q in part.queries if q.name == query.name), None) if part else None
    return replace(
        query,
        rows_per_s=there.rows_per_s if there is not None else query.rows_per_s,
        goals=there.goals if there is not None else query.goals,
        goals_cost=there.goals_cost if there is not None else query.goals_cost,
        ratio=there.ratio if there is not None else query.ratio,
        ratio_communication=there.ratio_communication
        if there is not None
        else query.ratio_communication,
        delay_s=max(waits) if waits else 0.0,
        cost_s_own=round(own, 3),
        cost_s_shared=round(shared, 3),
        load_own=load_own,
        load_shared=load_shared,
        cause=cause.sentence if cause else "",
        cause_operator=cause.operator if cause else "",
    )


def _edge(
    edge: EdgeSnapshot, operators: Mapping[str, OperatorSnapshot], parts: Mapping[str, Snapshot]
) -> EdgeSnapshot:
    target = operators.get(edge.target)
    part = parts.get(target.processor) if target is not None else None
    if part is None:
        return edge
    for told in part.edges:
        if (told.source, told.target) == (edge.source, edge.target):
            between = edge.bytes_per_s or told.bytes_per_s  # what was pulled is known better
            return replace(told, bytes_per_s=between)
    return edge


def _stream(known: StreamSnapshot, part: Snapshot | None) -> StreamSnapshot:
    told = next((s for s in part.streams if s.id == known.id), None) if part else None
    return known if told is None else replace(told, processor=known.processor)


def _processor(known: ProcessorSnapshot, part: Snapshot | None) -> ProcessorSnapshot:
    if part is None or not part.processors or known.state in ("silent", "lost"):
        return known
    told = part.processors[0]
    return replace(
        known,
        load=told.load,
        slots=told.slots,
        algorithm=told.algorithm,
        selector=told.selector,
        scores=told.scores,
        goals=told.goals,
        segments=told.segments,
        segment_bytes=told.segment_bytes,
        ledger_bytes=told.ledger_bytes,
        steps=told.steps,
        steps_per_s=told.steps_per_s,
        troubles=told.troubles,
    )


def _switches(parts: Mapping[str, Snapshot]) -> list[DecisionSnapshot]:
    """Changes of algorithm, under numbers that are nobody else's."""
    return [
        replace(d, number=NUMBERS_APART * (index + 1) + d.number)
        for index, name in enumerate(sorted(parts))
        for d in parts[name].decisions
        if d.kind == "switch"
    ]
