"""The table of a query's sink, as job files and the Python API write it: kinds, keys, mistakes.

Opens nothing: whether a target is there is found out when rows come, and its trouble is its
query's alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.control.definitions.database_table import IN_THE_OPEN, open_passwords
from millstream.control.definitions.stream_table import Mistake
from millstream.control.definitions.versioned_table import (
    CATALOG,
    ICEBERG,
    catalog_mistakes,
    with_paths,
)
from millstream.core.errors import UsageError
from millstream.core.secrets import HIDDEN, masked, refers
from millstream.core.suggestions import did_you_mean

# What each kind of sink needs, and what it may have beside.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "postgres": ("dsn", "table"),
    "delta": ("path",),
    "iceberg": ("table", "options"),
    "kafka": ("topic", "options"),
    "mqtt": ("topic", "options"),
}
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "postgres": ("password", "key"),
    "delta": ("key",),
    "iceberg": ("key",),
    "kafka": ("key",),
    "mqtt": ("key",),
}
EXAMPLES: Mapping[str, str] = {
    "topic": 'topic = "counts"',
    "options": 'options = { "bootstrap.servers" = "broker:9092" }',
    "dsn": 'dsn = "postgresql://me@host/database"',
    "table": 'table = "public.counts"',
    "path": 'path = "tables/counts", a folder, or the URL of an object store',
}
# Of a client: the option that says where its broker is, and an example.
BROKERS: Mapping[str, tuple[str, str]] = {
    "kafka": ("bootstrap.servers", EXAMPLES["options"]),
    "mqtt": ("host", 'options = { host = "broker", username = "me", password = "env:NAME" }'),
}
MQTT_OPTIONS = ("host", "port", "username", "password", "tls", "ca_file")
PLACEHOLDER = re.compile(r"\{([^{}]+)\}")  # a column in a topic of MQTT
KEY_HINT = 'key = ["host"]: the columns that identify a row of the query\'s table'


@dataclass(frozen=True, slots=True)
class SinkDefinition:
    """Where a result goes beside its files. Secrets stand in it as references."""

    kind: str
    options: Mapping[str, str]
    key: tuple[str, ...] = ()  # of a table; none: its rows are told apart by all that they hold


def read_sink(table: Mapping[str, Any], base: Path) -> tuple[SinkDefinition | None, list[Mistake]]:
    """The sink of a table, or what is wrong with it; paths are relative to `base`.

    >>> read_sink({"type": "postgres", "dsn": "dbname=x", "tabel": "t"}, Path())[1][0].message
    'unknown key tabel; did you mean table?'
    """
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in NEEDED:
        near = did_you_mean(str(kind), tuple(NEEDED)) if kind is not None else ""
        told = f"unknown type of sink {kind!r}{near}" if kind is not None else "a sink has no type"
        path = ("type",) if kind is not None else ()
        return None, [Mistake(path, told, f"one of {', '.join(NEEDED)}")]
    known = ("type", *NEEDED[kind], *ALLOWED[kind])
    mistakes = [
        Mistake(
            (key,),
            f"unknown key {key}{(near := did_you_mean(key, known))}",
            "" if near else f"one of {', '.join(known)}",
            value=False,
        )
        for key in table
        if key not in known
    ]
    mistakes += [
        Mistake((), f"the sink has no {key}", _example(kind, key))
        for key in NEEDED[kind]
        if key not in table
    ]
    mistakes += [
        Mistake((key,), f"{key} is a text", EXAMPLES.get(key, f'{key} = "..."'))
        for key in known
        if key in table and key not in ("type", "key", "options") and not _is_text(table[key])
    ]
    mistakes += _of_key(table.get("key", [])) + _of_secrets(table)
    client = table.get("options", {})
    if "options" in table and "options" in NEEDED[kind]:
        mistakes += _of_client(kind, client) if kind in BROKERS else _of_catalog(client)
    if kind == "mqtt" and not mistakes:
        mistakes += _of_topic(table)
    options = {k: str(v) for k, v in table.items() if k not in ("type", "key", "options")}
    if mistakes:
        return None, mistakes
    if "path" in options and "://" not in options["path"] and not refers("", options["path"]):
        options["path"] = str((base / options["path"]).absolute())
    client = with_paths(client, base) if kind == ICEBERG else client
    options |= {k: _spelt(v) for k, v in client.items()}
    return SinkDefinition(kind, options, tuple(table.get("key", ()))), []


def sink_of(table: Mapping[str, Any]) -> SinkDefinition:
    """The sink that a call asks for."""
    definition, mistakes = read_sink(table, Path())
    if definition is None:
        raise UsageError(mistakes[0].message, hint=mistakes[0].hint)
    return definition


def _example(kind: str, key: str) -> str:
    return CATALOG if (kind, key) == (ICEBERG, "options") else EXAMPLES[key]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _of_key(key: object) -> list[Mistake]:
    if not isinstance(key, list | tuple) or not all(isinstance(k, str) and k for k in key):
        return [Mistake(("key",), "key is a list of columns", KEY_HINT)]
    if len(set(key)) < len(key):
        return [Mistake(("key",), "a column is twice in key", KEY_HINT)]
    return []


def _of_client(kind: str, options: object) -> list[Mistake]:
    """Options of a client go to its library as they are, which checks them when it is opened."""
    broker, example = BROKERS[kind]
    if not isinstance(options, Mapping):
        return [Mistake(("options",), "options is a table", example)]
    if broker not in options:
        return [Mistake(("options",), f"the sink has no {broker}", example)]
    for option, value in options.items():
        if kind == "mqtt" and option not in MQTT_OPTIONS:
            told = f"unknown option {option}{did_you_mean(option, MQTT_OPTIONS)}"
            return [Mistake(("options", option), told, f"one of {', '.join(MQTT_OPTIONS)}")]
        if not isinstance(value, str | int | float):
            told = f"option {option} is a text, a number or true or false"
            return [Mistake(("options", option), told, example)]
    hidden = [option for option, value in masked(options).items() if value == HIDDEN]
    hint = f'{{ "{hidden[0]}" = "env:NAME" }}, or "file:PATH"' if hidden else ""
    return [Mistake(("options", o), "a secret is written in plain text", hint) for o in hidden[:1]]


def _of_topic(table: Mapping[str, Any]) -> list[Mistake]:
    """A retained message stands for one row: its topic tells the rows of a table apart."""
    topic = str(table["topic"])
    if "+" in topic or "#" in topic:
        told = "messages are published to topics, not to patterns"
        return [Mistake(("topic",), told, 'topic = "rooms/{room}/warm", with columns in braces')]
    missing = [k for k in table.get("key", ()) if k not in PLACEHOLDER.findall(topic)]
    told = f"the topic does not have {missing[0]}, which is of the key" if missing else ""
    hint = f'topic = "{topic}/{{{missing[0]}}}": each row of a table has its own' if missing else ""
    return [Mistake(("topic",), told, hint)] if missing else []


def _of_catalog(options: object) -> list[Mistake]:
    """Properties of a catalog go to its library as they are."""
    if not isinstance(options, Mapping):
        return [Mistake(("options",), "options is a table", CATALOG)]
    found = catalog_mistakes(ICEBERG, options)
    return [Mistake(("options", *where), message, hint) for where, message, hint in found]


def _spelt(value: str | float | bool) -> str:
    """A value as librdkafka reads it.

    >>> _spelt(True), _spelt(5)
    ('true', '5')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_secrets(table: Mapping[str, Any]) -> list[Mistake]:
    """Secrets are named, not written: a job file is copied, shown and stored."""
    return [Mistake((key,), IN_THE_OPEN, hint) for key, hint in open_passwords(table).items()]
