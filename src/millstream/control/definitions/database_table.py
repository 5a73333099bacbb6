"""The keys of a stream's table that make it a table of a database: `table`, and how to reach it.

Opens nothing: whether the table is there is found out when the stream begins.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from millstream.core.secrets import refers
from millstream.core.suggestions import did_you_mean
from millstream.language.plan.schema import Field, Schema

KIND = "postgres"
OPTIONS = ("dsn", "password", "publication")
OP, COMMITTED = "op", "committed"  # what a change does, and when its transaction was committed
OWN = (Field(OP, "string"), Field(COMMITTED, "timestamp"))
DSN_HINT = 'options = { dsn = "postgresql://me@host/database", password = "env:NAME" }'
IN_THE_OPEN = "a password is written in plain text"
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|\bpassword\s*=")
Note = Callable[[tuple[str, ...], str, str], None]


def database_source(
    table: Mapping[str, Any], options: Mapping[str, Any], note: Note
) -> dict[str, Any]:
    """What the source of a table says of it; mistakes are noted."""
    name = table.get("table")
    if not isinstance(name, str) or not name.strip():
        where = ("table",) if "table" in table else ()
        note(where, "the stream has no table", 'table = "public.people"')
    if "format" in table:
        note(("format",), f"a stream of source {KIND} has no format", "")
    for option in (o for o in options if o not in OPTIONS):
        near = did_you_mean(option, OPTIONS)
        note(("options", option), f"unknown option {option}{near}", f"one of {', '.join(OPTIONS)}")
    if "dsn" not in options:
        note(("options",), "the stream has no dsn", DSN_HINT)
    for key, hint in open_passwords(options).items():
        note(("options", key), IN_THE_OPEN, hint)
    return {"table": name}


def with_own(columns: Schema) -> Schema:
    """The columns of a table and, where they are not among them, those of its changes."""
    names = {field.name for field in columns}
    return (*columns, *(own for own in OWN if own.name not in names))


def as_changes(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a stream, with what holds unless it says otherwise."""
    return {**({"op": OP} if "key" in table else {}), "time": COMMITTED, **table}


def open_passwords(options: Mapping[str, Any]) -> dict[str, str]:
    """Options that show a password, each with how to write it instead."""
    found = {}
    dsn, password = options.get("dsn"), options.get("password")
    if isinstance(password, str) and not refers("password", password):
        found["password"] = 'password = "env:NAME" or "file:PATH"'
    elif isinstance(dsn, str) and not refers("dsn", dsn) and _PASSWORD.search(dsn):
        found["dsn"] = (
            'leave it out and write password = "env:NAME", or dsn = "env:NAME" as a whole'
        )
    return found
