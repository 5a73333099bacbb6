"""Queries that are born with history: which rows come from the table of the past, which live ones.

A stream may name a table with its past. `FROM HISTORY UNTIL t` takes the rows before t from there
and those from t on from the stream itself: one instant divides them, so that no row is missing and
none comes twice where both have it. The past up to an instant is a stream of its own, which all
queries share that begin with it. It is known by its name: whoever compiles a text needs no more.
"""

import re
from datetime import UTC, datetime, timedelta

from millstream.language.plan.expressions import Call, Literal, Time
from millstream.language.plan.nodes import Filter, Node, Source, Union

KEY = "history"  # of a stream's declaration: the table that has its past
KIND = "history"  # of the source that reads such a table
UNTIL = "until"  # key of that source: the instant in microseconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"(.+)\.history\.(-?\d+)", re.DOTALL)


def past_name(stream: str, until_us: int) -> str:
    """
    >>> past_name("s", 5)
    's.history.5'
    """
    return f"{stream}.history.{until_us}"


def past_of(name: str) -> tuple[str, int] | None:
    """The stream whose past a stream is, and until when; None for any other.

    >>> past_of("s.history.5"), past_of("s")
    (('s', 5), None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


def born(live: Source, until_us: int) -> Node:
    """The rows of a stream, those before an instant from its past."""
    instant = Literal(f"TIMESTAMP '{instant_text(until_us)}'", "timestamp")
    since = Filter(live, Call(">=", (Time(), instant)))
    return Union((Source(past_name(live.stream, until_us), live.columns), since))


def microseconds_of(text: str) -> int:
    """An instant as it is written, in UTC where it names no zone; ValueError where it is none.

    >>> microseconds_of("1970-01-01T00:00:01Z"), microseconds_of("1970-01-02")
    (1000000, 86400000000)
    """
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - EPOCH) // timedelta(microseconds=1)


def instant_text(until_us: int) -> str:
    """
    >>> instant_text(1_000_000)
    '1970-01-01T00:00:01Z'
    """
    return (EPOCH + timedelta(microseconds=until_us)).isoformat().replace("+00:00", "Z")
