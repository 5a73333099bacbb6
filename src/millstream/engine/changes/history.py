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
from millstream.language.share.dataflow import is_base
from millstream.store.ledger import Ledger


def note_history(ledger: Ledger, query: str, streams: Sequence[str]) -> None:
    """Notes what the base streams of a query hold as it begins (inside a transaction)."""
    heads = {s: int(row["next"]) for s in streams if (row := ledger.stream(s)) is not None}
    ledger.set_meta(history_of(query), json.dumps(heads))


class Histories:
    """Progress of the queries of one engine with their history."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._ends: dict[str, dict[str, int]] = {}
        self._first: dict[str, tuple[float, int]] = {}  # when one first looked, and rows left then

    def figures(self, query: Query) -> dict[str, Any]:
        """Rows of history yet to be read, and seconds at the pace so far; empty once they are."""
        left = self.rows_left(query)
        if not left:
            self._first.pop(query.name, None)
            return {}
        now = time.monotonic()
        since, then = self._first.setdefault(query.name, (now, left))
        done = then - left
        seconds = round(left * (now - since) / done, 1) if done > 0 else None
        return {"history_rows": left, "history_s": seconds}

    def rows_left(self, query: Query) -> int:
        ends = self._ends.get(query.name)
        if ends is None:
            ends = json.loads(self._flow.ledger.meta(history_of(query.name)) or "{}")
            self._ends[query.name] = ends
        return sum(self._unread(query, stream, end) for stream, end in ends.items())

    def forget(self, query: str) -> None:
        self._ends.pop(query, None)
        self._first.pop(query, None)

    def _unread(self, query: Query, stream: str, end: int) -> int:
        """Rows of a base stream before a number that an operator of the query has yet to read."""
        ledger = self._flow.ledger
        known = (self._flow.operators.get(o) for o in query.operators)
        readers = [o for o in known if o is not None and stream in o.inputs and is_base(stream)]
        if not readers:
            return 0
        following = min(ledger.cursor(o.id, stream)[0] for o in readers)
        return sum(s.rows for s in ledger.segments(stream, following) if s.last < end)
