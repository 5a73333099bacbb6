"""How far a query is with the past that it began with: rows left, and how long they take.

What lay in its base streams when it was registered is its history. Told from cursors alone, so that
a restart changes nothing but the measured pace.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from millstream.engine.dataflow import Dataflow
from millstream.engine.query import Query, history_of
from millstream.language.cql.histories import past_of
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import is_base
from millstream.store.ledger import Ledger

LOOK_S = 1.0  # for which one knows who still reads the past
ROWS = "rows"  # of a table of the past, in the position of its source


def is_past(stream: str) -> bool:
    """Whether a base stream is the past of another."""
    return past_of(stream.removeprefix("s:")) is not None


def note_history(ledger: Ledger, query: str, streams: Sequence[str]) -> None:
    """Notes what the base streams of a query hold as it begins (inside a transaction)."""
    heads = {s: int(row["next"]) for s in streams if (row := ledger.stream(s)) is not None}
    heads |= {s: FOREVER for s in heads if is_past(s)}  # all that will come of it
    ledger.set_meta(history_of(query), json.dumps(heads))


class Histories:
    """Progress of the queries of one engine with their history."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._ends: dict[str, dict[str, int]] = {}
        self._looked, self._backfilling = 0.0, frozenset[str]()
        self._first: dict[str, tuple[float, int]] = {}  # when one first looked, and rows left then

    def figures(self, query: Query) -> dict[str, Any]:
        """Rows of history yet to be read, and seconds at the pace so far; empty once they are."""
        left = self.rows_left(query)
        if left is None:  # how much there is will be known when its source has looked
            return {"history_rows": None, "history_s": None}
        if not left:
            self._first.pop(query.name, None)
            return {}
        now = time.monotonic()
        since, then = self._first.setdefault(query.name, (now, left))
        done = then - left
        seconds = round(left * (now - since) / done, 1) if done > 0 else None
        return {"history_rows": left, "history_s": seconds}

    def rows_left(self, query: Query) -> int | None:
        """None where a table of the past was not yet looked at."""
        ends = self._ends.get(query.name)
        if ends is None:
            ends = json.loads(self._flow.ledger.meta(history_of(query.name)) or "{}")
            self._ends[query.name] = ends
        coming = [self._to_come(stream) for stream in ends if is_past(stream)]
        known = [rows for rows in coming if rows is not None]
        unread = sum(self._unread(query, stream, end) for stream, end in ends.items())
        return unread + sum(known) if len(known) == len(coming) else None

    def backfilling(self) -> frozenset[str]:
        """Operators that all still read the past: they are behind because they began far back."""
        now = time.monotonic()
        if now - self._looked > LOOK_S:
            self._looked = now
            late = [q for q in list(self._flow.queries.values()) if self.rows_left(q) != 0]
            others = [q for q in list(self._flow.queries.values()) if q not in late]
            busy = {o for q in late for o in q.operators}
            self._backfilling = frozenset(busy - {o for q in others for o in q.operators})
        return self._backfilling

    def forget(self, query: str) -> None:
        self._ends.pop(query, None)
        self._first.pop(query, None)

    def _to_come(self, stream: str) -> int | None:
        """Rows of a table of the past that its source has yet to bring."""
        position = self._flow.ledger.ingest_position(stream)
        if position.get("ended"):
            return 0
        if ROWS not in position:
            return None
        return max(0, int(position[ROWS]) - int(position.get("taken", 0)))

    def _unread(self, query: Query, stream: str, end: int) -> int:
        """Rows of a base stream before a number that an operator of the query has yet to read."""
        ledger = self._flow.ledger
        known = (self._flow.operators.get(o) for o in query.operators)
        readers = [o for o in known if o is not None and stream in o.inputs and is_base(stream)]
        if not readers:
            return 0
        following = min(ledger.cursor(o.id, stream)[0] for o in readers)
        return sum(s.rows for s in ledger.segments(stream, following) if s.last < end)
