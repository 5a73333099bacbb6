"""Alarms as rows of `sys.alarms`: one when an alarm is raised, one when it has ended.

Pure: from the alarms that were told before and those that stand now.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.control.snapshot.model import Alarm

RAISED, ENDED = "raised", "ended"
Key = tuple[str, str, str]
Row = dict[str, Any]


def by_key(alarms: Iterable[Alarm]) -> dict[Key, Alarm]:
    """Alarms by what they are about: the same one keeps its key while its figures change."""
    return {(a.kind, a.subject_kind, a.subject): a for a in alarms}


def changes(before: Mapping[Key, Alarm], now: Mapping[Key, Alarm]) -> list[Row]:
    """Rows about what has begun and ended; one that has grown worse is raised again.

    >>> late = Alarm("warning", "query q is 2 min behind", "query", "q", "delay")
    >>> [row["state"] for row in changes({}, by_key([late]))]
    ['raised']
    >>> [row["state"] for row in changes(by_key([late]), {})]
    ['ended']
    """
    known = {key: alarm.severity for key, alarm in before.items()}
    raised = [row_of(a, RAISED) for key, a in now.items() if known.get(key) != a.severity]
    ended = [row_of(a, ENDED) for key, a in before.items() if key not in now]
    return raised + ended


def row_of(alarm: Alarm, state: str) -> Row:
    return {
        "state": state, "severity": alarm.severity, "kind": alarm.kind,
        "subject_kind": alarm.subject_kind, "subject": alarm.subject, "sentence": alarm.sentence,
        "culprit": alarm.culprit, "queries": ", ".join(alarm.queries), "todo": alarm.todo,
    }  # fmt: skip
