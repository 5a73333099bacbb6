"""Retention: a segment lives until no cursor and no window needs it.

Removal is committed first; the file goes when every step that began before has ended.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from millstream.language.cql.histories import past_of
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import Operator
from millstream.store import faults
from millstream.store.consumers import consumer_of
from millstream.store.ledger import FIRST
from millstream.store.reach import SELF_READING, marks, reach_of, reachable
from millstream.store.segments import Segment
from millstream.store.streams import Streams


class Retention:
    """Keeps what the streams of one home hold small. `operators` is the live dataflow."""

    def __init__(self, streams: Streams, operators: Mapping[str, Operator]) -> None:
        self.streams, self.operators = streams, operators
        self.ledger, self.store = streams.ledger, streams.files
        # the first number of a copy that other readers may still ask for
        self.passed_on: Callable[[str], int] = lambda stream: FOREVER  # noqa: ARG005

    def retain(self, streams: Iterable[str]) -> None:
        """Drops what nobody can need any more, in one transaction."""
        streams = list(streams)
        readers = self._readers()
        first = next((n for n, s in enumerate(streams) if self._spare(s, readers)), None)
        gone: list[str] = []
        if first is not None:
            with self.ledger.transaction() as ledger:
                readers = self._readers()
                for stream in streams[first:]:
                    # looked at under the lock: a new query may hold them by now
                    if not (spare := self._spare(stream, readers)):
                        continue
                    gone += ledger.replace(spare, None)
                    if any(s.rows for s in spare):
                        ledger.retained_from(stream, max(s.ts_max for s in spare) + 1)
            faults.reach("removal.committed")
        self.streams.remove(gone)  # and what has waited for somebody's reading

    def _readers(self) -> dict[str, list[Operator]]:
        """Who reads each stream."""
        found: dict[str, list[Operator]] = {}
        for operator in list(self.operators.values()):
            for stream in operator.inputs:
                found.setdefault(stream, []).append(operator)
        return found

    def trim(self, stream: str, size_max: int) -> None:
        """Keeps the newest segments of a stream that nobody reads, up to so many bytes."""
        kept, spare = 0, []
        for segment in reversed(self.ledger.segments(stream)):
            kept += segment.size
            if kept > size_max:
                spare.append(segment)
        if spare:
            with self.ledger.transaction() as ledger:
                gone = ledger.replace(spare, None)
            self.streams.remove(gone)

    def _spare(self, stream: str, readers: Mapping[str, Sequence[Operator]]) -> list[Segment]:
        needed = self._needs(stream, readers.get(stream, ()))
        return [] if needed is None else [s for s in self.ledger.segments(stream) if not needed(s)]

    def _needs(self, stream: str, readers: Sequence[Operator]) -> Callable[[Segment], bool] | None:
        """Tells whether someone needs a segment; None where the stream looks after itself."""
        if "#" in stream:  # state: replaced by its operator
            return None
        places = self.ledger.consumers(stream)
        if any(who.kind == "operator" and who.name not in self.operators for who in places):
            return None  # one that is just coming: how far its windows reach is not known yet
        reading = {consumer_of(o.id) for o in readers}
        # nothing from the least place of any reader on may go
        least = min(
            (*(places.get(r, FIRST).next for r in reading),
             *(at.next for consumer, at in places.items() if consumer not in reading)),
            default=FOREVER,
        )  # fmt: skip
        least = min(least, self.passed_on(stream))
        reached = {
            (reach, *(m := marks(self.ledger, o)).items()): (o, m)
            for o in readers
            if (reach := reach_of(o))  # else it reads each row once
        }
        own = self.operators.get(stream)
        self_read = own is not None and own.kind in SELF_READING
        head = self.ledger.stream(stream)
        base = head is not None and head["kind"] == "base"
        if not (readers or self_read or base or stream in self.streams.retains):
            return lambda segment: segment.last >= least  # a result: its cursors say it all
        promised = head["watermark"] if head and head["kind"] == "base" else FOREVER
        newest = head["next"] - 1 if head and head["kind"] == "base" else -1
        # what queries are born with is whole until all have read it: another may yet begin with it
        if past_of(stream.removeprefix("s:")) is not None and self._being_read(stream):
            return lambda _: True
        since = [until for past, until in self._pasts(stream) if self._being_read(past)]
        history = self.streams.retains.get(stream)
        kept_since = FOREVER if history is None or head is None else head["ts_max"] - history

        def needed(segment: Segment) -> bool:
            if segment.last >= least:
                return True
            # a query that starts now needs every row from the present watermark on
            if segment.last == newest or (segment.rows and segment.ts_max >= promised):
                return True
            if segment.rows and since and segment.ts_max >= min(since):
                return True  # with which another query may begin where the past ends
            if segment.rows and segment.ts_max >= kept_since:
                return True  # history for queries to come
            if self_read and segment.rows:
                return True
            return bool(segment.rows) and any(
                reachable(o, segment, at) for o, at in reached.values()
            )

        return needed

    def _pasts(self, stream: str) -> list[tuple[str, int]]:
        """The streams of a stream's past, each with the instant at which it ends."""
        found = ((p, past_of(p.removeprefix("s:"))) for p in self.streams.pasts.get(stream, ()))
        return [(past, told[1]) for past, told in found if told is not None]

    def _being_read(self, past: str) -> bool:
        """Whether rows of a past are still to come, or to be read by who begins with it."""
        head = self.ledger.stream(past)
        if head is None:
            return False
        places = [at.next for at in self.ledger.consumers(past).values()]
        if not places:
            return False
        return bool(head["watermark"] != FOREVER or min(places) < head["next"])
