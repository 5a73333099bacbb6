"""A manager's own snapshot as the manager above sees it: that of one processor with its operators.

What is wrong below must be seen above: operators that wait for a processor that is away say so
(`away`), and every error among the alarms below is a trouble of this manager. Pure.
"""

from dataclasses import replace

from millstream.control.snapshot.alarms import AWAY
from millstream.control.snapshot.model import ProcessorSnapshot, Snapshot


def as_processor(seen: Snapshot) -> Snapshot:
    """A manager's snapshot, judged already, with itself as the only processor."""
    away = {p.id: f"processor {p.id} is {p.state}" for p in seen.processors if p.state in AWAY}
    places = {s.id: s.processor for s in seen.streams if not s.ended}
    inputs: dict[str, list[str]] = {}
    for edge in seen.edges:
        inputs.setdefault(edge.target, []).append(edge.source)
    operators = tuple(
        replace(
            o,
            away=o.away
            or next(
                (
                    away[place]
                    for place in (o.processor, *(places.get(s, "") for s in inputs.get(o.id, ())))
                    if place in away
                ),
                "",
            ),
        )
        for o in seen.operators
    )
    running = [p for p in seen.processors if p.state == "running"]
    troubles = tuple(
        alarm.sentence
        for alarm in seen.overview.alarms
        if alarm.severity == "error" and alarm.subject_kind != "query"
    )
    mine = ProcessorSnapshot(
        seen.overview.title,
        load=sum(p.load for p in running) / len(running) if running else 0.0,
        slots=sum(p.slots for p in running),
        segments=sum(p.segments for p in running),
        segment_bytes=sum(p.segment_bytes for p in running),
        ledger_bytes=sum(p.ledger_bytes for p in running),
        steps=sum(p.steps for p in running),
        steps_per_s=sum(p.steps_per_s for p in running),
        troubles=troubles,
    )
    return replace(seen, operators=operators, processors=(mine,))
