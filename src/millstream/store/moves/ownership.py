"""The owners and copies of streams, and the moves under way: in the ledger.

Records and their tables, no decision. A stream has one owner at a time, with an epoch that grows
with every move; numbers continue across owners. Everything that a processor must know after a kill
is here, so that it continues from its home alone. Methods that change something are called inside a
transaction.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.control.moves.table import ARRIVING, ENDED, Phase
from millstream.core.codec import from_json, to_json
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store.ledger import Ledger
from millstream.store.moves.records import Move, Place

ENDED_KEPT = 200  # records of moves that have ended, so that late messages are known as such


@dataclass(frozen=True, slots=True)
class Owned:
    """A stream that is made here from number `since` on."""

    stream: str
    epoch: int
    since: int


@dataclass(frozen=True, slots=True)
class Handed:
    """A stream that another processor makes from number `next` on."""

    stream: str
    next: int
    epoch: int
    to: Place


@dataclass(frozen=True, slots=True)
class Copy:
    """A stream that is pulled from elsewhere; `next` is None before the first answer."""

    stream: str
    source: Place
    epoch: int  # the least epoch of the stream that is still believed
    home_epoch: int  # and of the source's home
    next: int | None
    kept: bool  # asked for by name, not only for a move


@dataclass(frozen=True, slots=True)
class Declared:
    definition: StreamDefinition
    ingest: bool
    started: bool


class Ownership:
    """The tables of one processor's ledger that concern other processors."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    # -- declared streams -----------------------------------------------------------------------

    def declare(self, definition: StreamDefinition, *, ingest: bool, started: bool) -> None:
        text = definition_text(definition)
        self.ledger.change(
            "INSERT OR REPLACE INTO declared VALUES (?, ?, ?, ?)",
            (definition.name, text, int(ingest), int(started)),
        )

    def declared(self) -> dict[str, Declared]:
        rows = self.ledger.rows("SELECT * FROM declared ORDER BY name")
        return {
            r["name"]: Declared(
                definition_of(r["definition"]), bool(r["ingest"]), bool(r["started"])
            )
            for r in rows
        }

    def forget_declared(self, name: str) -> None:
        self.ledger.change("DELETE FROM declared WHERE name = ?", (name,))

    # -- hosted operators -----------------------------------------------------------------------

    def host(self, query: str, operator: str) -> None:
        self.ledger.change("INSERT OR IGNORE INTO hosted VALUES (?, ?)", (query, operator))

    def unhost(self, query: str, operator: str) -> None:
        self.ledger.change("DELETE FROM hosted WHERE query = ? AND operator = ?", (query, operator))

    def hosted(self) -> dict[str, tuple[str, ...]]:
        """The operators of each query that run here."""
        found: dict[str, list[str]] = {}
        for row in self.ledger.rows("SELECT * FROM hosted ORDER BY query, operator"):
            found.setdefault(row["query"], []).append(row["operator"])
        return {query: tuple(operators) for query, operators in found.items()}

    def hosted_for(self, query: str) -> tuple[str, ...]:
        """The operators of one query that run here."""
        rows = self.ledger.rows(
            "SELECT operator FROM hosted WHERE query = ? ORDER BY operator", (query,)
        )
        return tuple(r["operator"] for r in rows)

    def users(self, operator: str) -> tuple[str, ...]:
        """The queries for which an operator runs here."""
        rows = self.ledger.rows(
            "SELECT query FROM hosted WHERE operator = ? ORDER BY query", (operator,)
        )
        return tuple(r["query"] for r in rows)

    def keep_result(self, query: str) -> None:
        self.ledger.change("INSERT OR IGNORE INTO kept_results VALUES (?)", (query,))

    def drop_result(self, query: str) -> None:
        self.ledger.change("DELETE FROM kept_results WHERE query = ?", (query,))

    def kept_results(self) -> set[str]:
        return {r["query"] for r in self.ledger.rows("SELECT query FROM kept_results")}

    # -- ownership ------------------------------------------------------------------------------

    def own(self, stream: str, epoch: int, since: int) -> None:
        self.ledger.change("INSERT OR REPLACE INTO owned VALUES (?, ?, ?)", (stream, epoch, since))

    def owned(self, stream: str) -> Owned | None:
        rows = self.ledger.rows("SELECT * FROM owned WHERE stream = ?", (stream,))
        return Owned(*rows[0]) if rows else None

    def all_owned(self) -> list[Owned]:
        return [Owned(*row) for row in self.ledger.rows("SELECT * FROM owned ORDER BY stream")]

    def disown(self, stream: str) -> None:
        self.ledger.change("DELETE FROM owned WHERE stream = ?", (stream,))

    def hand(self, stream: str, following: int, epoch: int, to: Place) -> None:
        """From this number on the stream is another's."""
        self.disown(stream)
        self.ledger.change(
            "INSERT OR REPLACE INTO handed VALUES (?, ?, ?, ?, ?)",
            (stream, following, epoch, to.processor, to.url),
        )

    def handed(self, stream: str) -> list[Handed]:
        """All times a stream was handed over from here, the first one first."""
        rows = self.ledger.rows("SELECT * FROM handed WHERE stream = ? ORDER BY next", (stream,))
        return [
            Handed(r["stream"], r["next"], r["epoch"], Place(r["processor"], r["url"]))
            for r in rows
        ]

    def handed_on(self) -> list[Handed]:
        """The latest hand-over of every stream that has not come back."""
        latest: dict[str, Handed] = {}
        for row in self.ledger.rows("SELECT * FROM handed ORDER BY epoch"):
            place = Place(row["processor"], row["url"])
            latest[row["stream"]] = Handed(row["stream"], row["next"], row["epoch"], place)
        return [h for h in latest.values() if self.owned(h.stream) is None]

    def forget_handed(self, stream: str) -> None:
        self.ledger.change("DELETE FROM handed WHERE stream = ?", (stream,))

    def forget_former_life(self, stream: str, epoch: int) -> None:
        """Pointers that are not older than a stream's new epoch are from before it was dropped."""
        self.ledger.change("DELETE FROM handed WHERE stream = ? AND epoch >= ?", (stream, epoch))

    def forget_old_pointers(self, stream: str, keep: int) -> None:
        self.ledger.change(
            "DELETE FROM handed WHERE stream = ? AND next NOT IN "
            "(SELECT next FROM handed WHERE stream = ? ORDER BY next DESC LIMIT ?)",
            (stream, stream, keep),
        )

    def epoch(self, stream: str) -> int:
        """The greatest epoch of a stream that is known here; 0 where none is."""
        owned, copy = self.owned(stream), self.copy(stream)
        known = [h.epoch for h in self.handed(stream)]
        known += [e.epoch for e in (owned, copy) if e is not None]
        return max(known, default=0)

    # -- copies ---------------------------------------------------------------------------------

    def copy(self, stream: str) -> Copy | None:
        rows = self.ledger.rows("SELECT * FROM copies WHERE stream = ?", (stream,))
        return _copy(rows[0]) if rows else None

    def copies(self) -> list[Copy]:
        return [_copy(row) for row in self.ledger.rows("SELECT * FROM copies ORDER BY stream")]

    def set_copy(self, copy: Copy) -> None:
        self.ledger.change(
            "INSERT OR REPLACE INTO copies VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                copy.stream,
                copy.source.processor,
                copy.source.url,
                copy.epoch,
                copy.home_epoch,
                copy.next,
                int(copy.kept),
            ),
        )

    def drop_copy(self, stream: str) -> None:
        """Ends a copy; its source hears that it need not keep the stream for us."""
        copy = self.copy(stream)
        if copy is not None:
            self.leave(stream, copy.source)
            self.ledger.change("DELETE FROM copies WHERE stream = ?", (stream,))

    def leave(self, stream: str, source: Place) -> None:
        """Notes that a source need not keep a stream for us: it is told until it has heard."""
        self.ledger.change(
            "INSERT OR REPLACE INTO farewells VALUES (?, ?, ?)",
            (stream, source.processor, source.url),
        )

    def stay(self, stream: str, processor: str) -> None:
        self.ledger.change(
            "DELETE FROM farewells WHERE stream = ? AND processor = ?", (stream, processor)
        )

    def farewells(self) -> list[tuple[str, Place]]:
        rows = self.ledger.rows("SELECT * FROM farewells ORDER BY stream, processor")
        return [(r["stream"], Place(r["processor"], r["url"])) for r in rows]

    # -- moves ----------------------------------------------------------------------------------

    def move(self, move: str) -> Move | None:
        rows = self.ledger.rows("SELECT * FROM moves WHERE move = ?", (move,))
        return _move(rows[0]) if rows else None

    def moves(self, role: str, phases: Sequence[Phase]) -> list[Move]:
        """The moves in which this processor is the old or the new owner, in some phases."""
        marks = ", ".join("?" for _ in phases)
        rows = self.ledger.rows(
            f"SELECT * FROM moves WHERE role = ? AND phase IN ({marks}) ORDER BY move",
            (role, *phases),
        )
        return [_move(row) for row in rows]

    def arriving(self) -> set[str]:
        """Streams that this processor is about to own."""
        return {operator for move in self.moves("new", ARRIVING) for operator in move.operators}

    def set_move(self, move: Move) -> None:
        """Writes one side of a move; of those that have ended, the latest stay."""
        self.ledger.change(
            "INSERT OR REPLACE INTO moves VALUES (?, ?, ?, ?)",
            (move.id, move.role, move.phase.value, json.dumps(to_json(move))),
        )
        if move.phase in ENDED:
            self._forget_ended()

    def move_on(self, move: Move, phase: Phase, by: str, **changes: Any) -> Move:
        """A move has reached a phase; raises where the table of moves forbids that."""
        reached = replace(move, story=move.story.then(phase, by, time.time()), **changes)
        self.set_move(reached)
        return reached

    def _forget_ended(self) -> None:
        """Drops the records of moves that have ended, all but the latest of each leader."""
        ended = self.ledger.rows("SELECT move FROM moves WHERE phase IN (?, ?)", ENDED)
        if len(ended) <= ENDED_KEPT:
            return
        by_leader: dict[str, list[tuple[tuple[int, ...], str]]] = {}
        for row in ended:
            leader, order = _told_by(row["move"])
            by_leader.setdefault(leader, []).append((order, row["move"]))
        for moves in by_leader.values():
            for _, gone in sorted(moves)[:-ENDED_KEPT]:
                self.ledger.change("DELETE FROM moves WHERE move = ?", (gone,))


def _copy(row: Any) -> Copy:
    place = Place(row["processor"], row["url"])
    return Copy(
        row["stream"], place, row["epoch"], row["home_epoch"], row["next"], bool(row["kept"])
    )


def _move(row: Any) -> Move:
    return from_json(Move, json.loads(row["record"]))


def definition_text(definition: StreamDefinition) -> str:
    """A declaration as the ledger keeps it."""
    return json.dumps(
        {
            "name": definition.name,
            "columns": [[f.name, f.type] for f in definition.columns],
            "time": definition.time,
            "lateness_us": definition.lateness_us,
            "idle_us": definition.idle_us,
            "max_ahead_us": definition.max_ahead_us,
            "source": dict(definition.source),
            **({"retain_us": definition.retain_us} if definition.retain_us else {}),
            **({"replicas": definition.replicas} if definition.replicas > 1 else {}),
        },
        default=str,
    )


def definition_of(text: str) -> StreamDefinition:
    """The inverse."""
    found = json.loads(text)
    columns = tuple(Field(name, kind) for name, kind in found.pop("columns"))
    return StreamDefinition(columns=columns, **found)


def _told_by(move: str) -> tuple[str, tuple[int, ...]]:
    """Who leads a move, and its place among those: ids end with an epoch and a number.

    >>> _told_by("b-p0-2-10"), _told_by("mine")
    (('b-p0', (2, 10)), ('', ()))
    """
    parts = move.split("-")
    numbers: list[int] = []
    while len(parts) > 1 and parts[-1].isdecimal() and len(numbers) < 2:
        numbers.insert(0, int(parts.pop()))
    return "-".join(parts) if numbers else "", tuple(numbers)
