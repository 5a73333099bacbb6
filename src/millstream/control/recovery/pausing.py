"""Queries that a user pauses, and that continue where they stopped.

The request is a count in the query's record: if it is odd, the query is paused. Every processor
with a part of it gets the count with the query's text, notes the highest it has received, and
reports it back. So messages may be lost, come twice or late, and a move or a manager without memory
changes nothing.
"""

from millstream.control.manager.state import Query
from millstream.control.manager.turn import Turn
from millstream.control.protocol.replies import HostedQuery
from millstream.core.errors import UsageError


def pause(turn: Turn, name: str, *, wanted: bool) -> None:
    """Somebody wants a query to rest, or to go on; said twice it changes nothing."""
    query = turn.state.queries.get(name)
    if query is None:
        raise UsageError(f"there is no query {name}")
    if query.phase in ("failed", "refused", "dropping"):
        raise UsageError(
            f"query {name} cannot {'pause' if wanted else 'continue'}: it is {query.phase}",
            detail=query.reason,
            hint="restart it, or drop it" if query.phase == "failed" else "",
        )
    if query.paused == wanted:
        return
    turn.query(name, pauses=query.pauses + 1)
    turn.decide("notice", f"query {name} {'is paused' if wanted else 'continues'}",
                "a user requested it", about=("query", name))  # fmt: skip


def paused_above(turn: Turn, query: Query, pauses: int) -> None:
    """A manager above has told a query so often to rest or to go on."""
    if pauses > query.pauses:
        turn.query(query.name, pauses=pauses)


def learn(turn: Turn, name: str, hosted: HostedQuery) -> None:
    """A processor has heard more of a query than this manager remembers."""
    query = turn.state.queries[name]
    same = (query.cql, query.start) == (hosted.cql, hosted.start)
    if same and hosted.pauses > query.pauses:
        turn.query(name, pauses=hosted.pauses)
