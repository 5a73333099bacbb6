"""The keys of tables that keep their versions, Delta and Iceberg: where they are, what is read.

Opens nothing: whether the table is there is found out when somebody reads or writes it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.core.secrets import HIDDEN, masked, refers

DELTA, ICEBERG = "delta", "iceberg"
KINDS = (DELTA, ICEBERG)
PLACES = {DELTA: "path", ICEBERG: "table"}  # the key that says which table
PLACE_HINTS = {
    DELTA: 'path = "tables/people", a folder, or the URL of an object store',
    ICEBERG: 'table = "shop.people", as the catalog names it',
}
CATALOG = 'options = { type = "sql", uri = "sqlite:///catalog.db", warehouse = "tables" }'
OPEN_SECRET = "a secret is written in plain text"
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@")
_SQLITE = re.compile(r"sqlite:///(?!/)(?=.)")
Note = Callable[[tuple[str, ...], str, str], None]


def versioned_source(
    kind: str, table: Mapping[str, Any], options: Mapping[str, Any], base: Path, note: Note
) -> dict[str, Any]:
    """What the source of a table with versions says of it; mistakes are noted."""
    key = PLACES[kind]
    named, version = table.get(key), table.get("version")
    if not isinstance(named, str) or not named.strip():
        note((key,) if key in table else (), f"the stream has no {key}", PLACE_HINTS[kind])
        return {}
    for where, message, hint in catalog_mistakes(kind, options):
        note(("options", *where), message, hint)
    source: dict[str, Any] = {key: placed(named, base) if kind == DELTA else named}
    if options:
        source["options"] = with_paths(options, base)
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        note(("version",), "version is a number", "version = 12, or that of a snapshot of Iceberg")
    elif version is not None:
        source["version"] = version
    return source


def placed(path: str, base: Path) -> str:
    """A path as it is from anywhere; a URL as it is.

    >>> placed("tables/t", Path("/jobs")), placed("s3://b/t", Path("/jobs"))
    ('/jobs/tables/t', 's3://b/t')
    """
    if "://" in path or refers("", path):
        return path
    return str((base / path).absolute())


def with_paths(options: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Properties of a catalog whose paths are relative to a folder.

    >>> with_paths({"type": "sql", "uri": "sqlite:///c.db", "warehouse": "wh"}, Path("/jobs"))
    {'type': 'sql', 'uri': 'sqlite:////jobs/c.db', 'warehouse': '/jobs/wh'}
    """
    found = dict(options)
    uri, warehouse = found.get("uri"), found.get("warehouse")
    if isinstance(uri, str) and _SQLITE.match(uri):
        found["uri"] = f"sqlite:///{(base / uri.removeprefix('sqlite:///')).absolute()}"
    if isinstance(warehouse, str) and found.get("type") == "sql":
        found["warehouse"] = placed(warehouse, base)
    return found


def catalog_mistakes(
    kind: str, options: Mapping[str, Any]
) -> list[tuple[tuple[str, ...], str, str]]:
    """What is wrong with the options of a table, each with its key and what to do."""
    if kind == ICEBERG and "type" not in options and "uri" not in options:
        return [((), "the options name no catalog", CATALOG)]
    for option, shown in masked(options).items():
        password = isinstance(shown, str) and not refers(option, shown) and _PASSWORD.search(shown)
        if shown == HIDDEN or password:
            hint = f'options = {{ "{option}" = "env:NAME" }}, or "file:PATH"'
            return [((option,), OPEN_SECRET, hint)]
    return []
