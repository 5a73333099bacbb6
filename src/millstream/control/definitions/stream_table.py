"""One `[streams.NAME]` table to a stream definition, and back.

Looks at the table and at whether its path exists; columns that are not declared come from the
files: a footer, a header, the first rows. Knows nothing of where the table stands: a mistake names
its key.
"""

import codecs
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.control.definitions.change_table import change_source, stored_columns, wrapped
from millstream.control.definitions.database_table import KIND as DATABASE
from millstream.control.definitions.database_table import as_changes, database_source, with_own
from millstream.control.definitions.history_table import history_source
from millstream.control.definitions.reference_table import FILES_HINT, as_reference
from millstream.control.definitions.reference_table import with_own as with_versions
from millstream.control.definitions.replicas import REPLICAS_HINT, replicas_problem
from millstream.control.definitions.versioned_table import KINDS as VERSIONED
from millstream.control.definitions.versioned_table import PLACES, versioned_source
from millstream.core.durations import microseconds
from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import DEBEZIUM, ENVELOPE_TIME, REFERENCE
from millstream.language.cql.rule_tables import SOURCE as RULES
from millstream.language.cql.types import canonical
from millstream.language.plan.schema import Field

KEYS = (
    "path", "format", "options", "columns", "time", "lateness", "idle", "max_ahead", "retain",
    "source", "rate", "follow", "trigger", "separator", "encoding", "header", "topic", "start",
    "key", "op", "envelope", "table", "version", "replicas", "history",
)  # fmt: skip
# Keys of the table for options of Spark's readers, by the name that Spark has for them.
SHORT_OPTIONS = {"separator": "sep", "encoding": "encoding", "header": "header"}
SOURCES = (
    "file", "spark", "kafka", "mqtt", "nats", DATABASE, *VERSIONED, "http", "push", RULES,
    REFERENCE,
)  # fmt: skip
TABLES = (DATABASE, *VERSIONED)  # whose rows are changes with the time of their commit
RATE_MAX = 1e12  # rows a second: beyond any disk, and rows due since the start remain countable
TRIGGERS = ("available_now",)
STARTS = ("earliest", "latest")  # of a topic whose messages the broker keeps
# Sources that read a broker: the option that says where it is, and an example.
BROKERS = {
    "kafka": ("bootstrap.servers", "broker:9092"),
    "mqtt": ("host", "broker"),
    "nats": ("servers", "nats://broker:4222"),
}
# What else a broker's client takes; librdkafka checks its own options.
BROKER_OPTIONS = {
    "mqtt": ("host", "port", "username", "password", "client_id", "tls", "ca_file", "session_s"),
    "nats": ("servers", "user", "password", "token", "user_credentials", "stream"),
}
REPLAYED = ("kafka", "nats")  # those that keep messages and can begin anywhere
FILE_FORMATS = ("csv", "json", "parquet", "text")
BY_EXTENSION = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".txt": "text", ".log": "text",
}  # fmt: skip
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
GLOB = "*?["
# Options of Spark's readers that are often written one level too high.
READER_OPTIONS = (
    "sep", "delimiter", "quote", "escape", "comment", "charset", "nullValue",
    "multiLine", "mode", "lineSep", "dateFormat", "timestampFormat", "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
)  # fmt: skip
COLUMNS_HINT = 'columns = { host = "string", at = "long" }, Spark type names in file order'
JAVA_NAMES = {
    "iso8859-1": "ISO-8859-1", "cp1252": "windows-1252", "utf-8": "UTF-8", "utf-8-sig": "UTF-8",
    "utf-16": "UTF-16", "utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE", "ascii": "US-ASCII",
}  # fmt: skip
EXAMPLES = {"separator": 'separator = ";"', "encoding": 'encoding = "ISO-8859-1"'}
TIME_HINT = 'time = "at", or an expression that gives a timestamp: "timestamp_seconds(at)"'


def table_of(definition: StreamDefinition) -> dict[str, Any]:
    """The stream's table with its name; paths are absolute, so that it means the same elsewhere.

    >>> from millstream.language.plan.schema import Field
    >>> stream = StreamDefinition("a", (Field("x", "int"),), "x", 5, source={"source": "push"})
    >>> table_of(stream)["lateness"], table_of(stream)["columns"]
    ('5 us', {'x': 'int'})
    """
    source = dict(definition.source)
    table: dict[str, Any] = {
        "name": definition.name,
        "columns": {field.name: field.type for field in definition.columns},
        "time": definition.time,
        **source,
    }
    if source.get("source") in ("spark", *TABLES, REFERENCE, *BROKERS):
        table["options"] = dict(source.get("options", {}))
    for key, length in (
        ("lateness", definition.lateness_us),
        ("idle", definition.idle_us),
        ("max_ahead", definition.max_ahead_us),
        ("retain", definition.retain_us),
    ):
        if length:
            table[key] = f"{length} us"
    if definition.replicas > 1:
        table["replicas"] = definition.replicas
    return table


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong at a key, given by its path below the stream's table."""

    path: tuple[str, ...]
    message: str
    hint: str = ""
    value: bool = True  # at the value, else at the key


class StreamReader:
    """Reads one table; `mistakes` tells what is wrong with it."""

    def __init__(self, name: str, table: Mapping[str, Any], base: Path) -> None:
        self.name, self.table, self.base = name, table, base
        self.mistakes: list[Mistake] = []
        self._implied_time: str | None = None

    def definition(self) -> StreamDefinition | None:
        for key, value in self.table.items():
            if key not in KEYS:
                near = "" if key in READER_OPTIONS else did_you_mean(key, KEYS)
                hint = "" if near else f"one of {', '.join(KEYS)}"
                if key in READER_OPTIONS:
                    hint = f"options = {{ {key} = {_toml(value)} }}"
                self._note((key,), f"unknown key {key}{near}", hint, value=False)
        kind = self._source_kind()
        if kind in TABLES:
            self.table = as_changes(self.table)
        elif kind == REFERENCE:
            self.table = as_reference(self.table, self._note)
        source = self._source(kind)
        columns = self._columns(kind, source)
        if "history" in self.table:
            source["history"] = self._history(kind)
        if columns is not None and kind in TABLES:
            columns = with_own(columns)
        elif columns is not None and kind == REFERENCE:
            columns = with_versions(columns, self._note)
        if columns is not None:
            source |= change_source(self.table, columns, self._note)
            columns = stored_columns(self.table, columns)
        time = self._text("time") or self._implied_time
        if time is None and kind == RULES:
            time = ""  # the system's to add
        if time is None and wrapped(self.table):
            time = ENVELOPE_TIME
        elif time is None and "time" not in self.table:
            self._note((), f"stream {self.name} has no time", TIME_HINT)
        lateness = self._duration("lateness") or 0
        idle, ahead = self._duration("idle"), self._duration("max_ahead")
        retain = self._duration("retain")
        replicas = self.table.get("replicas", 1)
        if problem := replicas_problem(replicas):
            self._note(("replicas",), problem, REPLICAS_HINT)
        if self.mistakes or columns is None or time is None:
            return None
        try:
            return StreamDefinition(
                self.name, columns, time, lateness, idle, ahead, source, retain, replicas
            )
        except UsageError as mistake:
            self._note((), mistake.message, mistake.hint)
            return None

    def _note(self, path: tuple[str, ...], message: str, hint: str = "", **at: bool) -> None:
        self.mistakes.append(Mistake(path, message, hint, **at))

    def _text(self, key: str) -> str | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self._note((key,), f"{key} is a text", f'{key} = "..."')
            return None
        return value

    def _duration(self, key: str) -> int | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self._note((key,), f"{key} is a length of time in quotes", f'{key} = "5 seconds"')
            return None
        try:
            length = microseconds(value)
        except UsageError as mistake:
            self._note((key,), mistake.message, mistake.hint)
            return None
        if length < 0:
            self._note((key,), f"{key} is negative", f'{key} = "5 seconds"')
        return length

    # -- where rows come from -------------------------------------------------------------------

    def _source_kind(self) -> str:
        kind = self._text("source") or "file"
        if kind not in SOURCES:
            near = did_you_mean(kind, SOURCES)
            self._note(("source",), f"unknown source {kind!r}{near}", f"one of {_listed(SOURCES)}")
            return "file"
        return kind

    def _source(self, kind: str) -> dict[str, Any]:
        source: dict[str, Any] = {"source": kind}
        format_ = self._text("format")
        format_ = "json" if format_ == DEBEZIUM else format_
        options = self._options()
        if options:
            source["options"] = options
        if kind == "file":
            source |= self._file_source(format_)
        elif kind == "spark":
            if format_ is None:
                hint = 'format = "rate", "kafka", ... as Structured Streaming names it'
                self._note((), f"stream {self.name} has no format", hint)
            source["format"] = format_
            source |= self._trigger()
            for key in ("rate", "follow"):
                if key in self.table:
                    self._note((key,), f"{key} is for files", f"remove {key}", value=False)
        elif kind in BROKERS:
            source |= self._broker_source(kind, options)
        elif kind == DATABASE:
            source |= database_source(self.table, options, self._note) | self._trigger()
        elif kind in VERSIONED:
            source |= self._versioned(kind, options) | self._trigger()
        elif kind == REFERENCE and (of := self._versioned_reference()):
            source |= {"format": of} | self._versioned(of, options)
        elif kind == REFERENCE and "path" not in self.table:
            source |= database_source(self.table, options, self._note)
        elif kind in (RULES, REFERENCE) and "path" in self.table:
            source |= self._row_file(format_)
        for key, kinds in (
            ("trigger", ("spark", *REPLAYED, *TABLES)), ("topic", BROKERS), ("start", REPLAYED),
            ("table", (DATABASE, "iceberg", REFERENCE)), ("version", VERSIONED),
        ):  # fmt: skip
            if kind not in kinds and key in self.table:
                self._note((key,), f"{key} is for sources {_listed(tuple(kinds))}", value=False)
        if kind not in ("file", "delta", RULES, REFERENCE) and "path" in self.table:
            if kind == "spark":
                source["options"] = {**options, "path": str(self.base / str(self.table["path"]))}
            else:
                self._note(("path",), f"a stream of source {kind} has no path", value=False)
        return source

    def _history(self, kind: str) -> dict[str, Any]:
        if kind in (RULES, REFERENCE) or "key" in self.table or wrapped(self.table):
            told = f"stream {self.name}, whose rows are changes, has no history"
            self._note(("history",), told, "read the past as a stream of its own", value=False)
        return history_source(self.table["history"], self.base, self._note)

    def _versioned(self, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        if kind == self.table.get("source") and "format" in self.table:
            told = f"a stream of source {kind} has no format"
            self._note(("format",), told, "remove it", value=False)
        return versioned_source(kind, self.table, options, self.base, self._note)

    def _versioned_reference(self) -> str:
        """The kind of table with versions that a reference table is of; empty for others."""
        named = str(self.table.get("format", ""))
        if named in VERSIONED and PLACES[named] in self.table:
            return named
        path = self.table.get("path")
        if isinstance(path, str) and (self.base / path / "_delta_log").is_dir():
            return "delta"
        return ""

    def _row_file(self, format_: str | None) -> dict[str, Any]:
        """One file, read again whenever it changes."""
        source = {k: v for k, v in self._file_source(format_).items() if k in ("path", "format")}
        if Path(source.get("path", "")).is_dir() or source.get("format") == "text":
            self._note(("path",), "such a table is one file of rows", FILES_HINT)
        return source

    def _broker_source(self, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
        topic, start = self._text("topic"), self._text("start") or STARTS[0]
        if topic is None and "topic" not in self.table:
            self._note((), f"stream {self.name} has no topic", 'topic = "requests"')
        address, example = BROKERS[kind]
        if address not in options:
            hint = f'options = {{ "{address}" = "{example}" }}'
            self._note(("options",), f"stream {self.name} has no {address}", hint)
        known = BROKER_OPTIONS.get(kind, tuple(options))
        for option in (o for o in options if o not in known):
            near = did_you_mean(option, known)
            hint = f"one of {_listed(known)}"
            self._note(("options", option), f"unknown option {option}{near}", hint)
        if start not in STARTS:
            hint = f"one of {_listed(STARTS)}"
            self._note(("start",), f"unknown start {start!r}", hint)
        if self.table.get("format", DEBEZIUM) != DEBEZIUM:
            hint = "values are JSON objects, or a column named value"
            self._note(("format",), f"a stream of source {kind} has no format", hint, value=False)
        replayed = {"start": start} | self._trigger() if kind in REPLAYED else {}
        return {"topic": topic} | replayed

    def _trigger(self) -> dict[str, str]:
        named = self._text("trigger")
        if named is None:
            return {}
        if named not in TRIGGERS:
            hint = 'trigger = "available_now" reads what is there and ends'
            self._note(("trigger",), f"unknown trigger {named!r}", hint)
        return {"trigger": named}

    def _file_source(self, format_: str | None) -> dict[str, Any]:
        source: dict[str, Any] = {}
        path = self._path()
        if path is not None:
            source["path"] = str(path)
        kind = self._file_format(format_, path)
        if kind:
            source["format"] = kind
        rate, follow = self.table.get("rate"), self.table.get("follow", False)
        if rate is not None:
            number = isinstance(rate, int | float) and not isinstance(rate, bool)
            if not number or not 0 < rate <= RATE_MAX:
                hint = "rate = 1000, or no rate to read as fast as possible"
                self._note(("rate",), "rate is a number of rows a second", hint)
            else:
                source["rate"] = rate
        if not isinstance(follow, bool):
            self._note(("follow",), "follow is true or false")
        elif follow:
            source["follow"] = True
            if path is not None and not path.is_dir():
                self._note(("follow",), "only a folder can be followed", "give a folder as path")
        return source

    def _path(self) -> Path | None:
        text = self._text("path")
        if text is None:
            if "path" not in self.table:
                hint = 'path = "requests.csv", a file or a folder, relative to the job file'
                self._note((), f"stream {self.name} has no path", hint)
            return None
        path = (self.base / text).absolute()
        if any(sign in text for sign in GLOB) and not path.exists():
            if not files_of(path):
                hint = f"looked for {path}; paths are relative to the job file"
                self._note(("path",), f"no file has a name like {text}", hint)
                return None
            return path
        hint = f"looked for {path}; paths are relative to the job file"
        try:
            there = path.exists()
            beside = [] if there or not path.parent.is_dir() else list(path.parent.iterdir())
        except OSError as error:  # a name too long, or a folder that may not be entered
            reason = (error.strerror or str(error)).lower()
            self._note(("path",), f"cannot look for the path: {reason}", hint)
            return None
        if not there:
            near = did_you_mean(path.name, [p.name for p in beside])
            self._note(("path",), f"no such file or folder: {text}{near}", hint)
            return None
        return path

    def _file_format(self, named: str | None, path: Path | None) -> str | None:
        if named is not None:
            if named not in FILE_FORMATS:
                near = did_you_mean(named, FILE_FORMATS)
                hint = f"one of {_listed(FILE_FORMATS)}"
                self._note(("format",), f"unknown format {named!r}{near}", hint)
                return None
            return named
        if path is None or "format" in self.table:
            return None
        for candidate in files_of(path):
            if kind := format_by_name(candidate):
                return kind
        message = f"stream {self.name} has no format, and its path does not show it"
        self._note(("path",), message, f'format = "csv" (or {_listed(FILE_FORMATS[1:])})')
        return None

    def _options(self) -> dict[str, Any]:
        """Options for Spark's reader, with those that have a key of their own."""
        short = {}
        for key, option in SHORT_OPTIONS.items():
            value = self.table.get(key)
            if value is None:
                continue
            if key == "header" and not isinstance(value, bool):
                self._note((key,), "header is true or false", "header = true")
            elif key != "header" and not (isinstance(value, str) and value):
                self._note((key,), f"{key} is a text", EXAMPLES[key])
            elif key == "encoding" and not (value := known_encoding(value)):
                self._note((key,), f"unknown encoding {self.table[key]}", EXAMPLES[key])
            else:
                short[option] = value
        return short | self._reader_options()

    def _reader_options(self) -> dict[str, Any]:
        options = self.table.get("options", {})
        if not isinstance(options, dict):
            self._note(("options",), "options is a table", 'options = { sep = ";", header = true }')
            return {}
        for key, value in options.items():
            if not isinstance(value, str | bool | int | float):
                self._note(("options", key), f"option {key} is a text, a number or true or false")
        return dict(options)

    # -- columns --------------------------------------------------------------------------------

    def _columns(self, kind: str, source: dict[str, Any]) -> tuple[Field, ...] | None:
        columns = self.table.get("columns")
        if columns is None:
            return self._implied_columns(kind, source)
        if not isinstance(columns, dict) or not columns:
            self._note(("columns",), "columns is a table of names and types", COLUMNS_HINT)
            return None
        found = []
        for name, type_ in columns.items():
            path = ("columns", name)
            if not isinstance(type_, str):
                self._note(path, f"the type of column {name} is a text", COLUMNS_HINT)
                continue
            try:
                found.append(Field(name, canonical(type_)))
            except UsageError as mistake:
                self._note(path, mistake.message, mistake.hint)
        if source.get("format") == "text" and kind == "file" and len(columns) != 1:
            self._note(("columns",), "text has one column", 'columns = { line = "string" }')
        return tuple(found)

    def _implied_columns(self, kind: str, source: dict[str, Any]) -> tuple[Field, ...] | None:
        """Columns as the files tell them; a line of text is one column."""
        format_ = source.get("format")
        if kind == "file" and format_ == "text":
            if "time" not in self.table and "path" in source:
                with suppress(UsageError):  # then the time has to be declared
                    self._seen_columns(files_of(Path(source["path"])), source)
            return (Field("value", "string"),)
        if kind != "file" or format_ is None or "path" not in source:
            if kind != "file" or format_ is not None:
                self._note((), f"stream {self.name} has no columns", COLUMNS_HINT)
            return None
        files = files_of(Path(source["path"]))
        try:
            if format_ == "parquet" and "time" in self.table:  # the footer does: no row is read
                from millstream.control.definitions.parquet_footer import (  # noqa: PLC0415
                    parquet_columns,
                )

                return parquet_columns(files)
            if format_ != "parquet":
                return self._told_columns(files, source)
            return self._seen_columns(files, source)
        except UsageError as mistake:
            self._note(("path",), mistake.message, mistake.hint or COLUMNS_HINT)
            return None

    def _told_columns(self, files: list[Path], source: dict[str, Any]) -> tuple[Field, ...] | None:
        try:
            return self._seen_columns(files, source)
        except UsageError as mistake:
            message = f"stream {self.name} has no columns, and its files do not show them"
            self._note((), f"{message}: {mistake.message}", COLUMNS_HINT)
            return None

    def _seen_columns(self, files: list[Path], source: dict[str, Any]) -> tuple[Field, ...]:
        """Columns, options and a time as they are found in the files; what is declared holds."""
        from millstream.control.discovery.look import look_at  # noqa: PLC0415  (brings Arrow)

        found = look_at(files, source["format"], source.get("options", {}))
        if found.options:
            source["options"] = dict(found.options)
        if found.time and "time" not in self.table:
            self._implied_time = found.time
        return found.columns


def files_of(path: Path) -> list[Path]:
    """A file, the files of a folder or those that a pattern names, by name."""
    if path.is_file():
        return [path]
    found = path.iterdir() if path.is_dir() else path.parent.glob(path.name)
    return sorted((p for p in found if p.is_file() and p.name[0] not in "._"), key=lambda p: p.name)


def format_by_name(path: Path) -> str | None:
    """The format that a file's name tells.

    >>> format_by_name(Path("a.csv.gz")), format_by_name(Path("a.doc"))
    ('csv', None)
    """
    bare = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return BY_EXTENSION.get(bare.suffix.lower())


def known_encoding(name: str) -> str:
    """An encoding as Spark calls it; empty where nobody knows it.

    >>> known_encoding("latin-1"), known_encoding("cp1252"), known_encoding("utf8")
    ('ISO-8859-1', 'windows-1252', 'UTF-8')
    """
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return ""
    return JAVA_NAMES.get(found, name)


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words)


def _toml(value: object) -> str:
    """A simple value as it stands in a file.

    >>> _toml(True), _toml(";")
    ('true', '";"')
    """
    return json.dumps(value, default=str)
