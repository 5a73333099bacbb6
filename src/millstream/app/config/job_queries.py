"""Queries of a job file: where their texts stand, and what they read of each other by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millstream.app.config.toml_places import Places
from millstream.control.definitions.sink_table import SinkDefinition
from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.views import whole_text


@dataclass(frozen=True, slots=True)
class JobText:
    """A job file's text with the places in it."""

    path: Path
    shown: str  # the file's name as the user gave it
    places: Places

    def at(self, offset: int, length: int, message: str, hint: str = "") -> CqlError:
        line, column = self.places.line_column(offset)
        return CqlError(
            f"{self.shown}:{line}:{column}: {message}",
            source=self.places.text,
            line=line,
            column=column,
            length=length,
            hint=hint,
        )

    def mistake(
        self,
        path: tuple[str, ...],
        message: str,
        hint: str = "",
        *,
        detail: str = "",
        value: bool = True,
    ) -> CqlError:
        """An error at a value, or at its key."""
        offset, length = self.places.value(path) if value else self.places.key(path)
        error = self.at(offset, length, message, hint)
        if detail:
            error.detail = f"{error.detail}\n{detail}"
        return error


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A query of a job file and where its text stands."""

    name: str
    cql: str  # with the views and queries of the job that it reads
    job: JobText
    from_beginning: bool = False
    paused: bool = False  # it rests; its rows are kept for it
    sink: SinkDefinition | None = None  # beside its files
    replicas: int = 1  # processors that are to have what it needs, in a cluster
    written: int = -1  # characters of cql that stand in the file; all where it is negative

    def located(self, error: UsageError) -> UsageError:
        """The same error, told with the place in the job file."""
        path = ("queries", self.name, "cql")
        if not isinstance(error, CqlError):
            return self.job.mistake(
                path, f"query {self.name}: {error.message}", error.hint, detail=error.detail
            )
        lines = error.source.split("\n")
        offset = sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1
        if 0 <= self.written < offset:
            words = f"query {self.name}: in what it reads: {error.message}"
            return self.job.mistake(path, words, error.hint, detail=error.detail)
        at = self.job.places.inside(path, offset)
        return self.job.at(at, error.length, f"query {self.name}: {error.message}", error.hint)


def with_definitions(
    queries: Sequence[JobQuery], views: Mapping[str, str], streams: Sequence[StreamDefinition]
) -> tuple[tuple[JobQuery, ...], list[UsageError]]:
    """Queries with what they read by name, views and other queries; a stream goes before both."""
    known = {**{q.name: q.cql for q in queries}, **views}
    for stream in streams:
        known.pop(stream.name, None)
    made: list[JobQuery] = []
    mistakes: list[UsageError] = []
    for query in queries:
        others = {name: text for name, text in known.items() if name != query.name}
        try:
            if query.name in views:
                raise UsageError(f"there is a view {query.name}", hint="rename one of them")
            text = whole_text(query.cql, others.get)
        except UsageError as error:
            mistakes.append(query.located(error))
        else:
            made.append(replace(query, cql=text, written=len(query.cql)))
    return tuple(made), mistakes
