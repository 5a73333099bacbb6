"""Queries that are born with history: up to which instant it counts, and the streams of the past.

Decides once, when a query is registered, and writes the instant into its text, so that every later
process means the same. The past of a stream is read once for all queries that begin with it while
it is whole; it is whole until all of them have read it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from millstream.core.errors import UsageError
from millstream.engine.changes.flow import ChangingFlow
from millstream.language.cql.histories import instant_text, past_name, past_of
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.nodes import Plan, sources_of
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import base_stream
from millstream.store.consumers import hold_of
from millstream.store.moves.transfer import RefusedError

WORD = "HISTORY"


def until_of(cql: str) -> int | None:
    """The instant up to which the history of a query counts; None where it begins without."""
    if WORD not in cql.upper():
        return None
    history = parse_query(cql).history
    return None if history is None else history.until_us


def pasts_of(plan: Plan) -> list[str]:
    """The streams of the past that a plan reads."""
    return sorted({s.stream for s in sources_of(plan.root) if past_of(s.stream) is not None})


class Births:
    """What queries of one engine have as history."""

    def __init__(self, flow: ChangingFlow) -> None:
        self._flow = flow

    def decided(self, name: str, cql: str, known: str | None) -> str:
        """A text with the instant up to which history counts, where it begins with history.

        `known` is the text with which the query was registered before, if it was.
        """
        if WORD not in cql.upper():
            return cql
        history = parse_query(cql).history
        if history is None:
            return cql
        if known is not None:
            if history.until_us is None and (until := until_of(known)) is not None:
                return _until(cql, history.span.end, until)
            return cql
        streams = self._streams(cql)
        with self._flow.ledger.transaction():
            for stream in streams:  # what lies there now stays until the query holds it itself
                self._flow.streams.hold(hold_of(name), base_stream(stream))
        try:
            if history.until_us is None:
                return _until(cql, history.span.end, self._chosen(streams))
            self._check(streams, history.until_us)
        except UsageError:
            with self._flow.ledger.transaction() as ledger:
                ledger.drop_consumer(hold_of(name))
            raise
        return cql

    def open(self, plan: Plan) -> None:
        """Opens the pasts that a plan reads and that are not open yet."""
        flow = self._flow
        for past in pasts_of(plan):
            flow.streams.pasts.setdefault(_of(past), set()).add(base_stream(past))
            if past not in flow.appenders:
                flow.hosting.add_stream(flow.catalog.stream(past))

    def start(self, plan: Plan) -> None:
        """Lets their rows come, now that somebody holds them."""
        for past in pasts_of(plan):
            source = self._flow.sources.get(past)
            if source is not None and self._flow.on_arrival:  # a loop runs already
                source.start()

    def forget(self, plan: Plan) -> None:
        """Lets go of pasts that no query reads any more."""
        for past in pasts_of(plan):
            if past in self._flow.appenders:
                with suppress(RefusedError):  # another query reads it
                    self._flow.hosting.forget(past)
                    self._flow.streams.pasts[_of(past)].discard(base_stream(past))

    # -- the instant ----------------------------------------------------------------------------

    def _streams(self, cql: str) -> list[str]:
        plan = self._flow.hosting.compile(cql, None).plan
        return sorted({told[0] for past in pasts_of(plan) if (told := past_of(past)) is not None})

    def _chosen(self, streams: Sequence[str]) -> int:
        """The least instant from which all live rows are there; that of another query where its
        history is still whole, so that one scan serves both."""
        least = max(self._whole_since(stream) for stream in streams)
        for until in self._known(streams):
            if until >= least and self._all_whole(streams, until):
                return until
        while not self._all_whole(streams, least):
            least += 1  # an earlier query has used up that past
        return least

    def _check(self, streams: Sequence[str], until: int) -> None:
        for stream in streams:
            row = self._flow.ledger.stream(base_stream(stream))
            since = BEGINNING if row is None else int(row["retained_from"])
            if since > until:
                raise UsageError(
                    f"rows of stream {stream} before {instant_text(since)} are gone",
                    detail=f"history was to count until {instant_text(until)}, live rows from then",
                    hint=f"FROM HISTORY UNTIL '{instant_text(since)}', or without UNTIL",
                )
        if not self._all_whole(streams, until):
            raise UsageError(
                f"the history until {instant_text(until)} was read by queries before",
                detail="the rows that they no longer need are gone",
                hint="name another instant, or leave UNTIL out: the table is read again",
            )

    def _whole_since(self, stream: str) -> int:
        row = self._flow.ledger.stream(base_stream(stream))
        since = BEGINNING if row is None else int(row["retained_from"])
        if since > BEGINNING:
            return since
        times = [s.ts_min for s in self._flow.ledger.segments(base_stream(stream)) if s.rows]
        if not times:
            raise UsageError(
                f"stream {stream} has no row yet that would show where its history ends",
                hint="say until when history counts: FROM HISTORY UNTIL '2024-05-01T00:00:00Z'",
            )
        return min(times)

    def _known(self, streams: Sequence[str]) -> Iterator[int]:
        for query in list(self._flow.queries.values()):
            pasts = [told for p in pasts_of(query.plan) if (told := past_of(p)) is not None]
            if {stream for stream, _ in pasts} >= set(streams):
                yield pasts[0][1]

    def _all_whole(self, streams: Sequence[str], until: int) -> bool:
        """Whether no row of these pasts was let go of yet."""
        rows = [self._flow.ledger.stream(base_stream(past_name(s, until))) for s in streams]
        return all(row is None or int(row["retained_from"]) == BEGINNING for row in rows)


def _of(past: str) -> str:
    """The base stream whose past a stream is."""
    told = past_of(past)
    assert told is not None
    return base_stream(told[0])


def _until(cql: str, end: int, until: int) -> str:
    """A text that says FROM HISTORY and not until when, with the instant behind it."""
    return f"{cql[: end + 1]} UNTIL '{instant_text(until)}'{cql[end + 1 :]}"
