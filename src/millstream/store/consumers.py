"""The readers of a stream and their positions: a kind and a name, and a cursor. No decision.

The ledger keeps a cursor for every consumer of a stream; that consumer needs nothing before it. A
kind is a column there, so that no code has to recognise a consumer by the letters of its name. An
operator is the one consumer that many modules name all the time: for the ledger its id is enough.
"""

from typing import Literal, NamedTuple

Kind = Literal[
    "operator",
    "processor",  # another one, which copies the stream
    "subscriber",  # whoever reads the results of a query
    "sink",
    "changes",  # the sink of a table's changes, beside its subscriber
    "table",  # keeps the changes that a session's table is made of
    "registration",  # holds streams while a query is being registered in this process
    "deployment",  # holds streams while a manager deploys a query
    "move",  # holds streams until a move has ended
    "rules",  # keeps all rows of a rule table or a reference table, read or not
]

CLIENT = "run"  # the name under which clients of a cluster read streams that are kept for them


class Consumer(NamedTuple):
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Cursor(NamedTuple):
    """The next number that a consumer reads, and the watermark it has reached."""

    next: int
    watermark: int


def consumer_of(reader: Consumer | str) -> Consumer:
    """A consumer; a text is the id of an operator."""
    return Consumer("operator", reader) if isinstance(reader, str) else reader


def remote(processor: str) -> Consumer:
    return Consumer("processor", processor)


def subscriber(query: str) -> Consumer:
    return Consumer("subscriber", query)


def holder(move: str) -> Consumer:
    """The consumer that holds streams for a move."""
    return Consumer("move", move)


def keeper(table: str) -> Consumer:
    """The consumer that keeps the rows of a rule table or a reference table."""
    return Consumer("rules", table)


def hold_of(query: str) -> Consumer:
    """The consumer that holds streams for a query while it is being registered."""
    return Consumer("registration", query)
