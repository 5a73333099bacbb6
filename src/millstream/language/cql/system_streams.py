"""Streams about the system itself: declared always, opened when a query reads one.

Their names begin with `sys.`; the time is `at`, when something was seen or happened. A system that
runs feeds them (one engine: `engine/sources/system_source.py`; a manager:
`edge/manager/system_feed.py`); here is only what they look like.
"""

from millstream.language.plan.schema import Field

PREFIX = "sys."
SOURCE = "system"
IDLE_US = 2_000_000  # one that is silent follows the others of its query

COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    # every operator, once a second
    "sys.operators": (
        ("at", "timestamp"), ("operator", "string"), ("kind", "string"), ("processor", "string"),
        ("queries", "int"), ("rows_in", "bigint"), ("rows_out", "bigint"), ("steps", "bigint"),
        ("seconds", "double"), ("queue_rows", "bigint"), ("queue_bytes", "bigint"),
    ),
    # every step, when it is done
    "sys.steps": (
        ("at", "timestamp"), ("operator", "string"), ("kind", "string"), ("processor", "string"),
        ("rows_in", "bigint"), ("rows_out", "bigint"), ("bytes_in", "bigint"),
        ("bytes_out", "bigint"), ("seconds", "double"), ("commit_seconds", "double"),
        ("waited", "double"), ("tail_segments", "int"),
    ),
    # every query that gives results, once a second: how well it is served (seed 002, section 2)
    "sys.queries": (
        ("at", "timestamp"), ("query", "string"), ("processor", "string"), ("delay", "double"),
        ("evaluation", "double"), ("ratio", "double"), ("ratio_processing", "double"),
        ("ratio_communication", "double"),
    ),
    # every operator that came to a processor ("in"), left it ("out"), or, after a move that was
    # undone, stayed there ("undone")
    "sys.moves": (
        ("at", "timestamp"), ("operator", "string"), ("kind", "string"), ("processor", "string"),
        ("direction", "string"), ("reason", "string"),
    ),
    # every query that was taken, refused, queued, dropped, parked or has failed
    "sys.admissions": (
        ("at", "timestamp"), ("query", "string"), ("decision", "string"), ("reason", "string"),
        ("operators", "int"), ("shared", "int"),
    ),
    # every alarm, when it is raised or grows worse, and when it has ended
    "sys.alarms": (
        ("at", "timestamp"), ("state", "string"), ("severity", "string"), ("kind", "string"),
        ("subject_kind", "string"), ("subject", "string"), ("sentence", "string"),
        ("culprit", "string"), ("queries", "string"), ("todo", "string"),
    ),
}  # fmt: skip


def columns_of(name: str) -> tuple[Field, ...] | None:
    """The columns of a system stream, whatever the case of its name; None where there is none.

    >>> columns_of("SYS.Steps")[0].name, columns_of("steps")
    ('at', None)
    """
    found = COLUMNS.get(name.lower())
    return tuple(Field(n, t) for n, t in found) if found is not None else None
