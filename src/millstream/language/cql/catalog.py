"""What queries can name: streams with their columns and time, and user functions.

A catalog is a value: adding gives a new one. Lookup prefers the exact spelling and accepts another
case where only one name fits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from millstream.core.errors import UsageError
from millstream.core.names import problem_of
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.histories import KEY as HISTORY
from millstream.language.cql.histories import KIND as PAST
from millstream.language.cql.histories import UNTIL, past_of
from millstream.language.cql.rule_tables import is_rule_table, with_validity
from millstream.language.cql.system_streams import IDLE_US, SOURCE, columns_of
from millstream.language.cql.types import canonical
from millstream.language.plan.schema import Field, Schema

T = TypeVar("T")
TIME = "ts"  # the implicit time column of every stream


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """A base stream as a job file or CREATE STREAM declares it."""

    name: str
    columns: Schema
    time: str  # a column's name, or an expression that gives a timestamp
    lateness_us: int = 0
    idle_us: int | None = None
    max_ahead_us: int | None = None
    source: Mapping[str, Any] = field(default_factory=dict)  # path, format, options, rate, ...
    retain_us: int | None = None  # rows this much older than the newest stay, read or not
    replicas: int = 1  # processors that are to have its rows, in a cluster

    def __post_init__(self) -> None:
        columns = tuple(Field(f.name, canonical(f.type)) for f in self.columns)
        if is_rule_table(self.source) and columns:
            columns, time = with_validity(self.name, columns, self.time)
            object.__setattr__(self, "time", time)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "source", MappingProxyType(dict(self.source)))
        if not self.name:
            raise UsageError("a stream needs a name")
        if problem := problem_of(self.name):  # it becomes a folder's
            raise UsageError(problem, hint="choose another name for the stream")
        if not columns:
            raise UsageError(f"stream {self.name} has no columns", hint="declare them, in order")
        repeated = {f.name for f in columns if sum(g.name == f.name for g in columns) > 1}
        if repeated:
            raise UsageError(f"stream {self.name} has two columns named {min(repeated)}")
        if not self.time.strip():
            raise UsageError(
                f"stream {self.name} has no time", hint="name the column of the event time"
            )
        if (at := self.time_column) is not None:  # in the column's own spelling: Spark looks it up
            quote = "`" if self.time.strip()[:1] == "`" else ""
            name = columns[at].name.replace("`", "``") if quote else columns[at].name
            object.__setattr__(self, "time", f"{quote}{name}{quote}")

    @property
    def time_column(self) -> int | None:
        """The position of the column that is the time; None where it is computed."""
        bare = self.time.strip()
        name = bare[1:-1].replace("``", "`") if bare[:1] == "`" and bare[-1:] == "`" else bare
        found = lookup(name, [f.name for f in self.columns])
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A deterministic function registered with Spark under its name.

    Queries that use it carry name and version in their fingerprints, so that a new version never
    shares results with an old one.
    """

    name: str
    version: str = ""
    aggregate: bool = False
    returns: str = ""  # the type of an aggregate's value

    @property
    def call_name(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


def lookup(name: str, choices: Iterable[str]) -> tuple[int, ...]:
    """Positions of the choices that a name can mean: exact ones, else those in another case."""
    listed = list(choices)
    exact = tuple(i for i, choice in enumerate(listed) if choice == name)
    return exact or tuple(i for i, c in enumerate(listed) if c.lower() == name.lower())


@dataclass(frozen=True, slots=True)
class Catalog:
    """Streams and user functions by name."""

    streams: tuple[StreamDefinition, ...] = ()
    functions: tuple[UserFunction, ...] = ()
    history_until: int | None = None  # of the query being bound, which begins with history

    def with_stream(self, definition: StreamDefinition) -> "Catalog":
        if any(s.name == definition.name for s in self.streams):
            raise UsageError(f"stream {definition.name} exists already")
        return replace(self, streams=(*self.streams, definition))

    def without_stream(self, name: str) -> "Catalog":
        return replace(self, streams=tuple(s for s in self.streams if s.name != name))

    def with_function(self, function: UserFunction) -> "Catalog":
        others = tuple(f for f in self.functions if f.name.lower() != function.name.lower())
        return replace(self, functions=(*others, function))

    def stream(self, name: str) -> StreamDefinition:
        """The stream of a name; UsageError, with a near name, where there is none."""
        names = [s.name for s in self.streams]
        found = lookup(name, names)
        if len(found) == 1:
            return self.streams[found[0]]
        if not found and (columns := columns_of(name)) is not None:
            source = {"source": SOURCE}
            return StreamDefinition(name.lower(), columns, "at", idle_us=IDLE_US, source=source)
        if not found and (past := self._past(name)) is not None:
            return past
        if found:
            raise UsageError(
                f"stream {name} is ambiguous", hint=" or ".join(names[i] for i in found)
            )
        known = "known streams: " + ", ".join(sorted(names)) if names else "no stream is declared"
        raise UsageError(f"unknown stream {name}{did_you_mean(name, names)}", hint=known)

    def _past(self, name: str) -> StreamDefinition | None:
        """The past of a stream as a stream, where it was declared with a table of it."""
        told = past_of(name)
        of = None if told is None else next((s for s in self.streams if s.name == told[0]), None)
        if told is None or of is None or HISTORY not in of.source:
            return None
        source = {"source": PAST, UNTIL: told[1], **of.source[HISTORY]}
        return StreamDefinition(name, of.columns, of.time, source=source)

    def function(self, name: str) -> UserFunction | None:
        found = lookup(name, [f.name for f in self.functions])
        return self.functions[found[0]] if found else None
