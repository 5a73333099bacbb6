"""Performance ratios of the queries whose results are made here: delay over evaluation time.

Seed 002, section 2, measured. A batch of rows is the tuple of the seed (its footnote 1): the delay
of a result is the time from the arrival of the oldest rows behind it to the commit that gives it,
and the evaluation time is that of the steps on its longest path, each as its operator took lately.
What comes from another processor brings its path with it (`Page.path`), and the time of its
transfer counts as communication. Watches; changes nothing.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millstream.decide.balance.performance_ratio import PerformanceRatio, SourceRow, observe
from millstream.engine.query import Query
from millstream.engine.steps.reports import StepReport
from millstream.language.share.dataflow import Operator
from millstream.store.moves.transfer import PathTime

KEPT = 0.7  # of what is known, when a new value comes


@dataclass(frozen=True, slots=True)
class QueryRatio:
    """How well a query is served, lately."""

    delay_s: float
    evaluation_s: float
    processing: float  # parts of the ratio (equation 3)
    communication: float
    at: float  # of the last result

    @property
    def ratio(self) -> float:
        return self.processing + self.communication

    def figures(self) -> dict[str, float]:
        return {
            "delay_s": round(self.delay_s, 4),
            "evaluation_s": round(self.evaluation_s, 4),
            "ratio": round(self.ratio, 3),
            "ratio_processing": round(self.processing, 3),
            "ratio_communication": round(self.communication, 3),
        }


class PathTimes:
    """Listens to the steps of one engine: `stepped` is called after each."""

    def __init__(self, operators: Mapping[str, Operator], queries: Mapping[str, Query]) -> None:
        self._operators, self._queries = operators, queries
        self._lock = threading.Lock()
        self._step_s: dict[str, float] = {}  # of operators, lately
        self._copied: dict[str, PathTime] = {}  # streams from elsewhere, as their source told
        self._transfer_s: dict[str, float] = {}
        self._ratios: dict[str, QueryRatio] = {}  # by result stream
        self._known: tuple[tuple[str, float], frozenset[str]] = (("", 0.0), frozenset())

    def stepped(self, report: StepReport) -> None:
        """A step has been committed."""
        with self._lock:
            name = report.operator
            self._step_s[name] = _mixed(self._step_s.get(name), report.seconds)
            if report.rows_out and name in self._results(report):
                self._note_result(name, report.arrived)

    def _results(self, report: StepReport) -> frozenset[str]:
        """The result streams, looked up once for all members of a job."""
        job = (report.job or report.operator, report.started)
        if self._known[0] != job:
            self._known = (job, frozenset(q.stream for q in list(self._queries.values())))
        return self._known[1]

    def _note_result(self, stream: str, arrived: float) -> None:
        path, now = self._path(stream), time.time()
        seen = observe(SourceRow(arrived, (now,), path.evaluation_s, path.communication_s))
        if seen is None or now < arrived:
            return
        known = self._ratios.get(stream)
        # What a transfer took lately may be more than this result's whole delay.
        found = PerformanceRatio(max(0.0, seen.processing), seen.communication)
        self._ratios[stream] = QueryRatio(
            _mixed(known.delay_s if known else None, now - arrived),
            path.evaluation_s,
            _mixed(known.processing if known else None, found.processing),
            _mixed(known.communication if known else None, found.communication),
            now,
        )

    def pulled(self, stream: str, path: PathTime, transfer_s: float) -> None:
        """Segments of a stream have come from elsewhere."""
        with self._lock:
            self._copied[stream] = path
            self._transfer_s[stream] = _mixed(self._transfer_s.get(stream), transfer_s)

    def path(self, stream: str) -> PathTime:
        """What rows of a stream have cost until they lie here."""
        with self._lock:
            return self._path(stream)

    def _path(self, stream: str, known: dict[str, PathTime] | None = None) -> PathTime:
        known = {} if known is None else known
        if stream in known:
            return known[stream]
        operator = self._operators.get(stream)
        if operator is None:
            told = self._copied.get(stream, PathTime())
            more_s = self._transfer_s.get(stream, 0.0)
            return PathTime(told.evaluation_s, told.communication_s + more_s)
        below = [self._path(s, known) for s in operator.inputs]
        longest = max(below, key=lambda p: p.evaluation_s + p.communication_s, default=PathTime())
        own_s = self._step_s.get(stream, 0.0)
        known[stream] = PathTime(longest.evaluation_s + own_s, longest.communication_s)
        return known[stream]

    def ratios(self) -> Mapping[str, QueryRatio]:
        """By query; only of those that have given results here."""
        return dict(self._by_query())

    def _by_query(self) -> Iterator[tuple[str, QueryRatio]]:
        queries = list(self._queries.values())
        with self._lock:
            present = {q.stream for q in queries}
            self._ratios = {s: r for s, r in self._ratios.items() if s in present}
            known = set(self._operators)
            self._step_s = {o: s for o, s in self._step_s.items() if o in known}
            found = dict(self._ratios)
        for query in queries:
            if query.stream in found:
                yield query.name, found[query.stream]


def _mixed(known: float | None, new: float) -> float:
    return new if known is None else KEPT * known + (1 - KEPT) * new
