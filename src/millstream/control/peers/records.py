"""Records of queries in a cluster without a manager: who has accepted which, how far it is.

Every member keeps all of them, so that any can answer, and so that they outlive their acceptor.
Only the coordinator of a query changes its record: its acceptor while that is there, else the first
by name of those that are. Of two records the newer counts (`Stand`), on every member alike. What
runs where is not their matter: processors know that.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from millstream.control.protocol.member_messages import RECORDS_MAX, QueryRecord, Stand

Records = Mapping[str, QueryRecord]
GONE_KEPT = 1000  # records of dropped queries, so that no older one comes back


def merged(known: Records, news: Iterable[QueryRecord]) -> Records:
    """The records that count, of both."""
    found = dict(known)
    for record in news:
        present = found.get(record.name)
        if present is None or _newer(record.stand, present.stand):
            found[record.name] = record
    gone = [name for name, record in found.items() if record.phase == "gone"]
    for name in gone[: max(0, len(gone) - GONE_KEPT)]:
        del found[name]
    return known if found == known else found


def _newer(stand: Stand, other: Stand) -> bool:
    if stand[:2] != other[:2]:
        return stand[:2] > other[:2]
    return stand[2] < other[2]


def lacking(known: Records, stands: Mapping[str, Stand]) -> tuple[QueryRecord, ...]:
    """Records that somebody does not have who has told how new its own are."""
    found = [
        record for name, record in known.items()
        if name not in stands or _newer(record.stand, stands[name])
    ]  # fmt: skip
    return tuple(found[:RECORDS_MAX])


def changed(record: QueryRecord, **changes: Any) -> QueryRecord:
    """A record after something has happened; the same one where nothing has."""
    after = replace(record, **changes)
    return record if after == record else replace(after, revision=record.revision + 1)


def accepted(
    known: Records, name: str, cql: str, by: str, now_s: float, **wishes: Any
) -> QueryRecord:
    """A new record; it outdoes the one of a dropped query of this name."""
    former = known.get(name)
    return QueryRecord(
        name, cql, by, submitted_s=max(0.0, now_s), **wishes,
        revision=former.revision + 1 if former is not None else 1,
    )  # fmt: skip


def coordinator_of(record: QueryRecord, up: Collection[str]) -> str:
    """Who leads what is to be done about a query: its acceptor, or whoever takes its place."""
    return record.acceptor if record.acceptor in up or not up else min(up)


def unfinished(known: Records, me: str, up: Collection[str]) -> tuple[QueryRecord, ...]:
    """What this member has to bring to an end: its own, and what others left behind."""
    open_ones = (record for record in known.values() if record.unfinished)
    return tuple(record for record in open_ones if coordinator_of(record, up) == me)
