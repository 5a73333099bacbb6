"""What users of a session give, read: streams, queries, goals. The same here and on a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.control.definitions.qos_table import specification_of
from millstream.control.definitions.stream_table import StreamReader
from millstream.core.errors import UsageError
from millstream.decide.schedule.goal_text import specification_from_text
from millstream.decide.schedule.quality import Specification
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.parsing.parser import CreateQuery, CreateStream, CreateView, parse

Columns = Mapping[str, str] | Sequence[tuple[str, str]]
Goals = str | Mapping[str, Any] | Specification | None


def stream_of(
    name: str | None, cql: str | None, columns: Columns | None, options: Mapping[str, Any]
) -> StreamDefinition:
    """A stream from the options of a job file, or from a CREATE STREAM."""
    if cql is not None:
        found = [s for s in parse(cql) if isinstance(s, CreateStream)]
        if len(found) != 1 or name is not None or columns is not None or options:
            raise UsageError("cql takes one CREATE STREAM and nothing else")
        return resolved(found[0].definition)
    if name is None:
        raise UsageError("a stream needs a name")
    table: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if columns is not None:
        table["columns"] = dict(columns)
    if "path" in table:
        table["path"] = str(table["path"])
    elif "source" not in table:
        table["source"] = "push"
    return _read(name, table)


def resolved(definition: StreamDefinition) -> StreamDefinition:
    """A stream of CREATE STREAM with its source checked as a job file's is."""
    source = dict(definition.source)
    if "path" not in source and "source" not in source:
        source["source"] = "push"
    columns = {f.name: f.type for f in definition.columns}
    checked = _read(definition.name, {**source, "columns": columns, "time": definition.time})
    return replace(definition, source=checked.source, columns=checked.columns)


def _read(name: str, table: Mapping[str, Any]) -> StreamDefinition:
    """Relative paths begin here."""
    reader = StreamReader(name, table, Path.cwd())
    definition = reader.definition()
    if definition is None or reader.mistakes:
        first = reader.mistakes[0]
        raise UsageError(first.message, hint=first.hint)
    return definition


def naming_of(cql: str) -> tuple[str, bool]:
    """The name that a query gives itself, if any, and whether it says FROM BEGINNING."""
    statements = [s for s in parse(cql) if not isinstance(s, CreateView)]
    if len(statements) != 1 or isinstance(statements[0], CreateStream):
        raise UsageError("expected one query", hint="execute() takes several statements")
    only = statements[0]
    return (only.name, only.from_beginning) if isinstance(only, CreateQuery) else ("", False)


def specification_given(goals: Goals) -> Specification | None:
    if goals is None or isinstance(goals, Specification):
        return goals
    return specification_from_text(goals) if isinstance(goals, str) else specification_of(goals)
