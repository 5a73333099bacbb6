"""A manager's state as rows: JSON records by kind and key, and a few words beside them.

Stores differ in where rows lie; what a row means is said here, once. Decides nothing, writes
nothing.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints
from uuid import uuid4

from millstream.control.manager.state import (
    DURABLE,
    LIVES_KEPT,
    Decision,
    ManagerState,
    Settings,
)
from millstream.core.codec import from_json, to_json
from millstream.core.errors import StateError, UsageError

# What each durable table of the state holds.
KINDS: Mapping[str, type[Any]] = {
    kind: get_args(table)[1]
    for kind, table in get_type_hints(ManagerState).items()
    if kind in DURABLE
}
Row = tuple[str, str, str]  # kind, key, JSON
Words = Mapping[str, str]  # beside the records: epoch, lineage, ...


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be written; a record without JSON goes."""

    records: tuple[tuple[str, str, str | None], ...]
    words: Words


def begun(known: Words) -> Words:
    """Words of the next life of a memory: an epoch that was never used, a lineage of its own."""
    former = (*json.loads(known.get("lives", "[]")), known.get("lineage", ""))
    return {
        "epoch": str(int(known.get("epoch", "0")) + 1),
        "lineage": uuid4().hex,
        "lives": json.dumps([life for life in former if life][-LIVES_KEPT:]),
    }


def read(
    words: Words, rows: Iterable[Row], settings: Settings, *, place: str, hint: str
) -> ManagerState:
    """The durable half as it was written; `place` is where, for whoever must see to it."""
    tables: dict[str, Any] = {kind: {} for kind in KINDS}
    decisions: list[Decision] = []
    for kind, key, value in rows:
        try:
            if kind == "decisions":
                decisions.append(from_json(Decision, json.loads(value)))
            elif kind in KINDS:
                tables[kind][key] = from_json(KINDS[kind], json.loads(value))
        except (UsageError, ValueError) as error:
            raise StateError(
                f"{place} has a broken record: {kind} {key}", detail=str(error), hint=hint
            ) from None
    order = json.loads(words.get("order", "{}"))
    for kind, keys in order.items():  # the order of arrival is part of the meaning
        known = tables[kind]
        tables[kind] = {k: known[k] for k in [*keys, *known] if k in known}
    decisions.sort(key=lambda d: d.number)
    counter = max([int(words.get("counter", "0")), *(d.number for d in decisions)])
    revision = int(words.get("revision", "0"))
    return ManagerState(
        epoch=int(words["epoch"]),
        lineage=words["lineage"],
        lives=tuple(json.loads(words["lives"])),
        revision=revision,
        loaded=revision,
        settings=settings,
        **tables,
        decisions=tuple(decisions),
        counter=counter,
    )


def between(before: ManagerState, after: ManagerState) -> Changes | None:
    """What differs between two states; None where nothing that is kept does."""
    found: list[tuple[str, str, Any]] = []
    for kind in DURABLE:
        found += _differing(kind, getattr(before, kind), getattr(after, kind))
    if after.decisions is not before.decisions:
        old = {str(d.number): d for d in before.decisions}
        new = {str(d.number): d for d in after.decisions}
        found += _differing("decisions", old, new)
    words: dict[str, str] = {}
    if (after.epoch, after.lineage) != (before.epoch, before.lineage):
        words |= {"epoch": str(after.epoch), "lineage": after.lineage}
        words["lives"] = json.dumps(after.lives)
    if after.counter != before.counter:
        words["counter"] = str(after.counter)
    if not found and not words:
        return None
    if after.revision != before.revision:
        words["revision"] = str(after.revision)
    if {kind for kind, _, _ in found} & {"queries", "moves"}:
        order = {"queries": list(after.queries), "moves": list(after.moves)}
        words["order"] = json.dumps(order)
    records = tuple(
        (kind, key, None if record is None else json.dumps(to_json(record)))
        for kind, key, record in found
    )
    return Changes(records, words)


def _differing(
    kind: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[str, str, Any]]:
    if before is after:
        return []
    found = [(kind, k, v) for k, v in after.items() if before.get(k) is not v]
    return found + [(kind, k, None) for k in before if k not in after]
