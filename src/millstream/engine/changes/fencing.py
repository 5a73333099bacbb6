"""Two queries at the same place: how far each may read until one takes the other's place.

Where both run, neither reads rows of base streams that come from now on; once nothing is left
before them, both have made all they can of the same rows. Where the old one stands still, the new
one goes as far as the old one went in every stream that both read. Fences are in memory alone:
after a crash they are set again.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from millstream.engine.dataflow import Dataflow
from millstream.engine.query import Query
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import is_base


@dataclass(slots=True)
class Fence:
    """How far the operators of two queries may go."""

    flow: Dataflow
    old: str
    new: str
    standing: bool | None = None  # whether the old one stood still when it was set; None: not set
    stops: dict[str, dict[str, int]] = field(default_factory=dict)
    watched: tuple[str, ...] = ()  # operators that must have nothing left to do

    @property
    def queries(self) -> tuple[Query, Query]:
        return self.flow.queries[self.old], self.flow.queries[self.new]

    @property
    def operators(self) -> frozenset[str]:
        """Those of both."""
        return frozenset(o for query in self.queries for o in query.operators)

    def near(self) -> bool:
        """Whether what the new one has yet to read is no more than a batch."""
        new = self.queries[1]
        waiting = (self.flow.pending(self.flow.operators[o]) for o in new.operators)
        left = (sum(s.rows for found in one.values() for s in found) for one in waiting)
        return max(left, default=0) <= self.flow.settings.batch_rows

    def set_running(self) -> None:
        """Before the rows that come from now on."""
        self.lift()
        self.watched = tuple(o for o in self.operators if o in self.flow.operators)
        for name in self.watched:
            read = [s for s in self.flow.operators[name].inputs if is_base(s)]
            if read:
                self.stops[name] = {s: self._head(s) for s in read}
        self.flow.fences.update(self.stops)
        self.standing = False

    def set_standing(self) -> None:
        """Where the old one stands."""
        self.lift()
        old, new = self.queries
        mine = tuple(o for o in new.operators if o not in old.operators)
        theirs = [o for o in old.operators if o not in new.operators and o in self.flow.operators]
        for name in mine:
            self.stops[name] = {
                stream: FOREVER if stream in mine else self._stop(stream, theirs)
                for stream in self.flow.operators[name].inputs
            }
        self.watched = mine
        self.flow.fences.update(self.stops)
        self.standing = True

    def _stop(self, stream: str, theirs: Collection[str]) -> int:
        readers = [o for o in theirs if stream in self.flow.operators[o].inputs]
        places = [self.flow.ledger.cursor(o, stream).next for o in readers]
        return min(places, default=self._head(stream))

    def _head(self, stream: str) -> int:
        row = self.flow.ledger.stream(stream)
        return 1 if row is None else int(row["next"])

    def lift(self) -> None:
        for name in self.stops:
            self.flow.fences.pop(name, None)
        self.stops, self.standing, self.watched = {}, None, ()

    def overrun(self) -> bool:
        """Whether a step that had begun before went further."""
        return any(
            self.flow.ledger.cursor(name, stream).next > stop
            for name, stops in self.stops.items()
            for stream, stop in stops.items()
        )

    def reached(self, busy: Collection[str]) -> bool:
        """Whether nobody has anything left to do before it."""
        if any(name in busy for name in self.operators):
            return False
        return not any(
            segment.last < self.stops.get(name, {}).get(stream, FOREVER)
            for name in self.watched
            for stream, found in self.flow.pending(self.flow.operators[name]).items()
            for segment in found
        )
