"""What is read of an engine for one snapshot: each table of its ledger once.

Raw figures only; `engine_parts` makes records of them.
"""

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits between a stream and one operator."""

    rows: int
    bytes: int
    oldest: float | None  # when its oldest row came


@dataclass(frozen=True, slots=True)
class Figures:
    """An engine's ledger at one moment."""

    streams: Mapping[str, sqlite3.Row]
    statistics: Mapping[str, sqlite3.Row]
    queues: Mapping[tuple[str, str], Queue]  # (stream, operator)
    registered: Mapping[str, float]
    late: Mapping[str, int]
    rejected: Mapping[str, int]
    ended: Mapping[str, bool]
    bytes_a_row: Mapping[str, float]  # of each stream, from its retained segments
    segments: int
    segment_bytes: int
    rows_in: int
    counters: Mapping[Any, float] = field(default_factory=dict)  # of which rates are wanted


def figures_of(engine: "Engine") -> Figures:
    from millstream.language.share.dataflow import base_stream  # noqa: PLC0415

    ledger = engine.ledger
    streams = {row["id"]: row for row in ledger.streams()}
    statistics = ledger.operator_statistics()
    counted = ledger.counters()
    names = list(engine.appenders)
    bytes_a_row: dict[str, float] = {}
    segments = segment_bytes = 0
    for stream in streams:
        held = ledger.segments(stream)
        rows, size = sum(s.rows for s in held), sum(s.size for s in held)
        segments, segment_bytes = segments + sum(1 for s in held if s.file), segment_bytes + size
        bytes_a_row[stream] = size / rows if rows else 0.0
    rows_in = sum(streams[base_stream(n)]["rows"] for n in names if base_stream(n) in streams)
    return Figures(
        streams,
        statistics,
        _queues(engine),
        {str(r["name"]): float(r["registered"]) for r in ledger.queries()},
        {n: counted.get(f"late:{n}", 0) for n in names},
        {n: counted.get(f"rejected:{n}", 0) for n in names},
        {n: bool(ledger.ingest_position(base_stream(n)).get("ended")) for n in names},
        bytes_a_row,
        segments,
        segment_bytes,
        rows_in,
        _counters(streams, statistics, rows_in),
    )


def _queues(engine: "Engine") -> dict[tuple[str, str], Queue]:
    found: dict[tuple[str, str], Queue] = {}
    for operator in list(engine.operators.values()):
        for stream, waiting in engine.pending(operator).items():
            full = [s for s in waiting if s.rows]
            found[(stream, operator.id)] = Queue(
                sum(s.rows for s in full),
                sum(s.size for s in full),
                min((s.arrived for s in full), default=None),
            )
    return found


def _counters(
    streams: Mapping[str, sqlite3.Row], statistics: Mapping[str, sqlite3.Row], rows_in: int
) -> dict[Any, float]:
    counters: dict[Any, float] = {"rows in": float(rows_in)}
    for stream, row in streams.items():
        counters["stream", stream] = float(row["rows"])
    total = steps = 0.0
    for operator, row in statistics.items():
        counters["in", operator] = float(row["rows_in"])
        counters["out", operator] = float(row["rows_out"])
        counters["seconds", operator] = float(row["seconds"])
        total, steps = total + float(row["seconds"]), steps + float(row["steps"])
    counters["seconds"], counters["steps"] = total, steps
    return counters


def age_s(arrived: float | None, now: float | None = None) -> float | None:
    """How long ago something came; None where nothing waits."""
    if arrived is None:
        return None
    return round(max(0.0, (time.time() if now is None else now) - arrived), 2)
