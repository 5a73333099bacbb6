"""Which waiting rows a query drops: those that have already missed its limit of delay.

A query whose goals say `may_drop` beside a limit of delay drops rows that have waited for longer
than the limit: their results would be too late. The step that would have read them skips them,
counts them in its own commit, and advances to their watermark. Rules:

- Operators that read a source and nothing else shed, as soon as *every* query that they serve
  allows it, by the longest of their limits. Work that has been done is never thrown away.
- Operators that shed run in jobs of their own, apart from those that keep every row.
- Only rows that came while the query ran here: neither history nor what waited for a restart.
- A join loses the pairs whose later row was dropped. Row windows, DISTINCT, sessions and ranks
  need every row: operators of these kinds never shed.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.decide.schedule.limits import delay_limit_s
from millstream.decide.schedule.quality import Quality
from millstream.engine.query import Query
from millstream.language.share.dataflow import Operator, is_base
from millstream.store.segments import EMPTY, Segment

SHEDDING_KINDS = frozenset({"map", "join", "partial", "running"})
SHED_ROWS = "shed_rows"  # where an operator's durable notes count them


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one operator may pass over."""

    limit_s: float
    since: float  # rows that came before are kept


@dataclass(frozen=True, slots=True)
class Useful:
    """Segments as one step sees them: those that are of no use any more have no rows."""

    allowance: Allowance | None
    now: float

    def of(self, segment: Segment) -> Segment:
        """The segment, or the same place in its stream with nothing but its watermark.

        What comes of a watermark has waited since the limit, not since the rows that were dropped.
        """
        allowed = self.allowance
        if allowed is None or not segment.rows:
            return segment
        latest = self.now - allowed.limit_s
        if not allowed.since <= segment.arrived < latest:
            return segment
        return replace(segment.holding(EMPTY), arrived=latest)


EVERY_ROW = Useful(None, 0.0)


class Shedding:
    """The allowances of one processor's operators, as its goals have them."""

    def __init__(
        self,
        operators: Mapping[str, Operator],
        queries: Mapping[str, Query],
        quality: Callable[[], Quality],
    ) -> None:
        self._operators, self._queries, self._quality = operators, queries, quality
        self._key: tuple[object, ...] = ()
        self._allowances: dict[str, Allowance] = {}

    def allowances(self) -> Mapping[str, Allowance]:
        """By operator; worked out again when goals, queries or operators have changed."""
        quality = self._quality()
        key = (quality, tuple(self._queries), tuple(self._operators))
        if key != self._key:
            self._key = key
            own = [specification for _, specification in quality.by_query.values()]
            wanted = any(s.may_drop for s in (quality.overall, *own))
            self._allowances = dict(self._work_out()) if wanted else {}
        return self._allowances

    def together(self, operators: Iterable[Operator]) -> Allowance | None:
        """What all of some operators may pass over; None where one of them needs every row."""
        known = self.allowances()
        if not known:
            return None
        each = [known.get(operator.id) for operator in operators]
        allowed = [one for one in each if one is not None]
        if len(allowed) < len(each):
            return None
        return Allowance(max(a.limit_s for a in allowed), max(a.since for a in allowed))

    def rows_by_query(self, statistics: Mapping[str, Any]) -> dict[str, int]:
        """How many rows each query did without, from the operators' rows in the ledger.

        Queries that had every row are left out.
        """
        shed = {name: rows for name, row in statistics.items() if (rows := shed_rows(row))}
        if not shed:
            return {}
        counts = {
            query.name: sum(shed.get(name, 0) for name in query.operators)
            for query in list(self._queries.values())
        }
        return {name: rows for name, rows in counts.items() if rows}

    def _work_out(self) -> Iterable[tuple[str, Allowance]]:
        quality = self._quality()
        users: dict[str, list[Query]] = {}
        for query in self._queries.values():
            for name in query.operators:
                users.setdefault(name, []).append(query)
        for operator in self._operators.values():
            if operator.kind not in SHEDDING_KINDS or not all(map(is_base, operator.inputs)):
                continue
            served = users.get(operator.id, [])
            wanted = [quality.of(query.name)[1] for query in served]
            limits = [delay_limit_s(s) for s in wanted if s.may_drop]
            kept = [limit for limit in limits if limit is not None]
            if served and len(kept) == len(served):
                yield operator.id, Allowance(max(kept), max(q.here_since for q in served))


def shed_rows(operator_row: Any) -> int:
    """How many rows an operator has passed over, by its row in the ledger."""
    notes = operator_row["progress"]
    return int(json.loads(notes).get(SHED_ROWS, 0)) if SHED_ROWS in notes else 0
