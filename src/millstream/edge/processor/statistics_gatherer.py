"""The statistics gatherer: figures of a processor, told as increments.

A report holds what has changed since the version that the asker had, and of operators only the
statistics that the manager has asked for (D-CAPE, sections 4.4 and 6.1). Versions grow across
restarts, because they begin with the home's epoch.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.edge.processor.all_processed import settled
from millstream.engine.query import restarted
from millstream.engine.scheduling.idleness import silent_s
from millstream.store.reach import marks, reachable

if TYPE_CHECKING:
    from millstream.edge.processor.execution_engine import ExecutionEngine
    from millstream.engine.processor import Processor

NOTICES_MAX = 100
Figures = dict[str, float]
SECTIONS = ("operators", "streams", "edges", "processor", "queries")


class StatisticsGatherer:
    def __init__(self, processor: "Processor", engine: "ExecutionEngine") -> None:
        self.processor, self._engine = processor, engine
        self.wanted: frozenset[str] | None = None  # None: all
        self._version = processor.engine.ledger.epoch << 32
        self._first = self._version
        self._told: dict[tuple[str, str], tuple[Any, int]] = {}  # value, version of its change
        self._notices: deque[tuple[int, str]] = deque(maxlen=NOTICES_MAX)
        self._lock = threading.Lock()
        self._clock, self._busy = time.monotonic(), 0.0
        self._load = 0.0
        self.noted = threading.Event()  # something that nobody should wait to hear
        self.others: list[Callable[[], Figures]] = []  # figures of other parts of the processor

    def notice(self, text: str) -> None:
        """Something a person should hear of."""
        with self._lock:
            self._version += 1
            self._notices.append((self._version, text[:2000]))
        self.noted.set()

    def report(self, since: int) -> dict[str, Any]:
        """What has changed since a version; everything for one from before this process."""
        found = self._gathered()
        with self._lock:
            for section, entries in found.items():
                for key, value in entries.items():
                    known = self._told.get((section, key))
                    if known is None or known[0] != value:
                        self._version += 1
                        self._told[section, key] = (value, self._version)
            present = {(s, k) for s, entries in found.items() for k in entries}
            self._told = {k: v for k, v in self._told.items() if k in present}
            least = since if self._first <= since <= self._version else 0
            changed: dict[str, Any] = {section: {} for section in SECTIONS}
            for (section, key), (value, version) in self._told.items():
                if version > least:
                    changed[section][key] = value
            notices = tuple(text for version, text in self._notices if version > least)
            own = changed["processor"].get("", {})
            return {**changed, "processor": own, "notices": notices, "version": self._version}

    # -- figures --------------------------------------------------------------------------------

    def _gathered(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {
            "operators": self._operators(),
            "streams": self._streams(),
            "edges": self._edges(),
            "processor": {"": self._own()},
        }
        if self.wanted is not None:
            wanted = self.wanted
            told = found["operators"]
            found["operators"] = {name: _only(figures, wanted) for name, figures in told.items()}
        ratios = self.processor.engine.path_times.ratios()
        found["queries"] = {
            q.name: {
                "state": q.state,
                "reason": q.reason,
                "restartable": q.restartable,
                "restarts": restarted(self.processor.engine.ledger, q.name),
                **(ratios[q.name].figures() if q.name in ratios else {}),
            }
            for q in list(self.processor.engine.queries.values())
        }
        return found

    def _operators(self) -> dict[str, Figures]:
        engine = self.processor.engine
        statistics = engine.ledger.operator_statistics()
        costs = self._engine.costs(set(engine.operators))
        found: dict[str, Figures] = {}
        for operator in list(engine.operators.values()):
            row = statistics.get(operator.id)
            waiting = [s for part in engine.pending(operator).values() for s in part]
            reached = self.reached(operator) if self._wants("state_rows", "state_bytes") else []
            found[operator.id] = {
                "rows_in": row["rows_in"] if row else 0,
                "rows_out": row["rows_out"] if row else 0,
                "seconds": round(row["seconds"], 6) if row else 0.0,
                "steps": row["steps"] if row else 0,
                "queue_rows": sum(s.rows for s in waiting),
                "queue_bytes": sum(s.size for s in waiting),
                "state_rows": sum(s.rows for s in reached),
                "state_bytes": sum(s.size for s in reached),
            }
            if operator.id in costs:
                fixed_s, row_s = costs[operator.id]
                found[operator.id] |= {"fixed_s": round(fixed_s, 5), "row_s": round(row_s, 9)}
            for name, seconds in self.processor.pauses.get(operator.id, {}).items():
                found[operator.id][name] = round(seconds, 4)
        return found

    def _wants(self, *names: str) -> bool:
        """Whether anybody asked for one of these: what costs time is not worked out for nobody."""
        return self.wanted is None or not self.wanted.isdisjoint(names)

    def reached(self, operator: Any) -> list[Any]:
        """What an operator's windows can still reach: its state."""
        engine = self.processor.engine
        at = marks(engine.ledger, operator)
        return [
            s
            for stream in operator.inputs
            for s in engine.ledger.segments(stream)
            if s.rows
            and s.last < engine.ledger.cursor(operator.id, stream)[0]
            and reachable(operator, s, at)
        ]

    def _streams(self) -> dict[str, Figures]:
        engine, found = self.processor.engine, {}
        counters = engine.ledger.counters()
        for owned in self.processor.ownership.all_owned():
            head = engine.ledger.stream(owned.stream)
            if head is None:
                continue
            held = engine.ledger.segments(owned.stream)
            figures = {
                "rows": head["rows"],
                "bytes": sum(s.size for s in held),
                "held_rows": sum(s.rows for s in held),
                "watermark_us": head["watermark"],
                "next": head["next"],
            }
            if owned.stream.startswith("s:"):
                name = owned.stream.removeprefix("s:")
                position = engine.ledger.ingest_position(owned.stream)
                figures["ended"] = int(bool(position.get("ended")))
                figures["late"] = counters.get(f"late:{name}", 0)
                figures["rejected"] = counters.get(f"rejected:{name}", 0)
                if not figures["ended"] and name in engine.appenders:
                    figures["silent_s"] = round(silent_s(engine, name), 1)
            found[owned.stream] = figures
        return found

    def _edges(self) -> dict[str, Figures]:
        """What this processor has pulled, and how far behind its source it is."""
        counters = self.processor.engine.ledger.counters()
        return {
            f"{copy.stream}>{self.processor.id}": {
                "rows": counters.get(f"pulled_rows:{copy.stream}", 0),
                "bytes": counters.get(f"pulled_bytes:{copy.stream}", 0)
                + counters.get(f"copied_bytes:{copy.stream}", 0),
                "relayed_bytes": counters.get(f"relayed_bytes:{copy.stream}", 0),
                "behind_rows": self.processor.receiver.behind.get(copy.stream, 0),
            }
            for copy in self.processor.ownership.copies()
        }

    def _own(self) -> Figures:
        now, busy = time.monotonic(), self._engine.busy_seconds
        span = now - self._clock
        if span >= 1.0:
            slots = max(1, self.processor.engine.settings.slots)
            self._load = min(1.0, (busy - self._busy) / span / slots)
            self._clock, self._busy = now, busy
        machine = self.processor.engine.plane.machine
        process = None if machine is None else machine.process()
        memory, cpu = usage(getattr(process, "pid", None))
        return {
            "load": round(self._load, 3),
            "memory_bytes": memory,
            "memory_bytes_max": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "steps": self._engine.steps,
            "settled": int(settled(self.processor)),
            "cpu_s": round(cpu, 1),
            **{name: value for figures in self.others for name, value in figures().items()},
        }


def _only(figures: Mapping[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    return {k: v for k, v in figures.items() if k in wanted}


def usage(other: int | None) -> tuple[int, float]:
    """Resident bytes and CPU seconds of this process and another one, as far as they are known."""
    memory, cpu = 0, 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    for name in ("self", str(other) if other is not None else None):
        if name is None:
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        cpu += (int(fields[11]) + int(fields[12])) / ticks
        memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return memory, cpu
