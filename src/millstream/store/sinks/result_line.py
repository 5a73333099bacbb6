"""One result made by several queries in turn: where the rows of those before lie, and how far.

A query that takes another's place has a result stream of its own. Whoever reads the result by its
name gets what the former one gave up to a number, then perhaps the rows by which the tables of the
two differ, then what the new one gives. Numbers only ever rise, so that a target that has kept one
knows what it has taken, whichever query gave it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.language.plan.schema import Field, Schema
from millstream.store.ledger import Ledger
from millstream.store.segments import Segment


@dataclass(frozen=True, slots=True)
class Former:
    """A stream that a result was read from, up to a number."""

    stream: str
    until: int  # the first number that comes from elsewhere
    columns: Schema

    def segments(self, ledger: Ledger, since: int) -> list[Segment]:
        """What is there of it from a number on."""
        return [s for s in ledger.segments(self.stream, since) if s.last < self.until]


def formers_key(query: str) -> str:
    """Where the ledger keeps what a query's result was made of before."""
    return f"former:{query}"


def formers_of(ledger: Ledger, query: str) -> tuple[Former, ...]:
    """Streams of which somebody may have rows to read yet, oldest first."""
    listed = json.loads(ledger.meta(formers_key(query)) or "[]")
    return tuple(
        Former(stream, until, tuple(Field(*field) for field in columns))
        for stream, until, columns in listed
    )


def with_formers(ledger: Ledger) -> list[str]:
    """Queries that have any."""
    start = formers_key("")
    found = ledger.rows("SELECT key FROM meta WHERE substr(key, 1, ?) = ?", (len(start), start))
    return [str(row["key"]).removeprefix(start) for row in found]


def note_formers(ledger: Ledger, query: str, formers: Sequence[Former]) -> None:
    """Remembers them, or forgets the note where there are none (inside a transaction)."""
    if not formers:
        ledger.drop_meta(formers_key(query))
        return
    listed = [[f.stream, f.until, [[c.name, c.type] for c in f.columns]] for f in formers]
    ledger.set_meta(formers_key(query), json.dumps(listed))
