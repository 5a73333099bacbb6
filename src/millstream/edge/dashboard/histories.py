"""The last hour of every query, operator, stream and processor, kept for pages that reload.

A point every ten seconds from the snapshots that pass; what is gone is forgotten with its points.
Bounded: 360 points of three single-precision numbers for each thing.
"""

import threading
from array import array
from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Any

from millstream.control.snapshot.model import Snapshot

EVERY_S = 10.0
POINTS_KEPT = 360  # an hour
# What is kept of each kind; a figure that is not known is a gap.
FIGURES: Mapping[str, tuple[str, ...]] = {
    "query": ("delay_s", "rows_per_s", "load"),
    "operator": ("waiting_s", "rows_in_per_s", "step_s"),
    "stream": ("rows_per_s", "late", "rejected"),
    "processor": ("load", "steps_per_s", "segment_bytes"),
}


class Histories:
    """Figures of everything over the last hour."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._times: list[float] = []
        self._points: dict[tuple[str, str], array[float]] = {}
        self._work: dict[str, tuple[float, int]] = {}  # of operators: seconds and steps so far
        self._lock = threading.Lock()

    def note(self, snapshot: Snapshot) -> None:
        """Keeps a point, unless the last one is too young."""
        with self._lock:
            if self._times and snapshot.taken - self._times[-1] < self._every_s:
                return
            found = dict(self._found(snapshot))
            before = len(self._times)
            self._times.append(snapshot.taken)
            for key in self._points.keys() - found.keys():
                del self._points[key]
            for key, figures in found.items():
                kept = self._points.get(key)
                if kept is None:
                    kept = self._points[key] = array("f", [nan] * (before * len(figures)))
                kept.extend(nan if value is None else value for value in figures)
            if len(self._times) > POINTS_KEPT:
                del self._times[0]
                for (kind, _), kept in self._points.items():
                    del kept[: len(FIGURES[kind])]

    def _found(self, snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], tuple[Any, ...]]]:
        for q in snapshot.queries:
            yield ("query", q.name), (q.delay_s, q.rows_per_s, q.load_own + q.load_shared)
        work = {o.id: (o.cost_s, o.steps) for o in snapshot.operators}
        for o in snapshot.operators:
            cost_s, steps = self._work.get(o.id, (0.0, 0))
            taken = o.steps - steps
            step_s = (o.cost_s - cost_s) / taken if taken > 0 else None
            waited = o.waiting_s if o.queue_rows else 0.0
            yield ("operator", o.id), (waited, o.rows_in_per_s, step_s)
        self._work = work
        for s in snapshot.streams:
            yield ("stream", s.name), (s.rows_per_s, s.late, s.rejected)
        for p in snapshot.processors:
            yield ("processor", p.id), (p.load, p.steps_per_s, p.segment_bytes)

    def of(self, kind: str, name: str) -> dict[str, list[float | None]]:
        """Times and figures of one thing, oldest first; none where it is not known."""
        with self._lock:
            kept = self._points.get((kind, name))
            figures = FIGURES.get(kind, ())
            if kept is None:
                return {"at": [], **{figure: [] for figure in figures}}
            told: dict[str, list[float | None]] = {"at": list(self._times)}
            for index, figure in enumerate(figures):
                column = kept[index :: len(figures)]
                told[figure] = [None if isnan(v) else round(v, 4) for v in column]
            return told
