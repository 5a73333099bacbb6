"""Lets the watermark of a silent stream follow the others, where its `idle` allows it.

A stream is silent when no row has come for as long as its `idle` says and none is waiting to be
read. Others are the streams that some query reads together with it. What it follows is a durable
empty segment; rows that come later and are older are late.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.engine.dataflow import Dataflow
from millstream.language.cql.change_data import is_reference_table
from millstream.language.cql.histories import past_of
from millstream.language.plan.nodes import sources_of
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import base_stream


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a stream is, and whether it is silent."""

    watermark: int
    last_row: int  # greatest time of a row
    ended: bool = False
    silent: bool = False


def wanted(
    standings: Mapping[str, Standing], together: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """The watermark each silent stream should follow to; `together` has the others of each.

    >>> streams = {"a": Standing(5, 5, silent=True), "b": Standing(9, 9), "c": Standing(7, 7)}
    >>> wanted(streams, {"a": ["b", "c"]})
    {'a': 7}
    >>> wanted({"a": Standing(5, 5, silent=True)}, {"a": []})
    {}
    """
    found: dict[str, int] = {}
    for name, own in standings.items():
        if not own.silent or own.ended:
            continue
        others = [standings[o] for o in together.get(name, ())]
        # a stream that has ended promises everything: its last row is as far as it got
        marks = [o.last_row + 1 if o.ended else o.watermark for o in others if not o.silent]
        if marks and own.watermark < min(marks) and min(marks) > BEGINNING + 1:
            found[name] = min(marks)
    return found


def follow_others(flow: Dataflow, now: float | None = None) -> list[str]:
    """Moves the watermarks of silent streams; gives the names of those that moved."""
    if not any(a.definition.idle_us is not None for a in flow.appenders.values()):
        return []
    moment = time.monotonic() if now is None else now
    standings = {name: _standing(flow, name, moment) for name in flow.appenders}
    together: dict[str, set[str]] = {name: set() for name in standings}
    for query in list(flow.queries.values()):
        # what is long past says nothing about how far the others are
        names = {s.stream for s in sources_of(query.plan.root) if past_of(s.stream) is None}
        for name in names & set(together):
            together[name] |= names - {name}
    targets = wanted(standings, {name: sorted(others) for name, others in together.items()})
    return [name for name, mark in targets.items() if flow.appenders[name].follow(mark)]


def silent_s(flow: Dataflow, name: str, now: float | None = None) -> float:
    """For how long no row of a stream has come while none waited to be read."""
    source = flow.ingests.get(name) or flow.sources.get(name)
    since = source.silent_since() if source is not None else flow.appenders[name].arrived
    return max(0.0, (time.monotonic() if now is None else now) - since)


def _standing(flow: Dataflow, name: str, now: float) -> Standing:
    row = flow.ledger.stream(base_stream(name))
    assert row is not None
    idle = flow.appenders[name].definition.idle_us
    position = flow.ledger.ingest_position(base_stream(name))
    # a table of which nothing was read yet is no empty one: rows wait for it
    missing = is_reference_table(flow.appenders[name].definition.source) and "begun" not in position
    silent = idle is not None and silent_s(flow, name, now) * 1e6 >= idle and not missing
    ended = bool(position.get("ended"))
    return Standing(row["watermark"], row["ts_max"], ended, silent)
