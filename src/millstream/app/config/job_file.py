"""A job file: what `millstream run` reads.

From TOML text to stream definitions, queries and settings (formats.md, 'Job file'). All mistakes
of a file are found in one go, each with its line, column and a hint. Whether a query is right is
the binder's to say; `JobQuery.located` puts its words at the right place of the file.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from millstream.app.config.job_queries import JobQuery, JobText, with_definitions
from millstream.app.config.toml_mistakes import TomlMistake, parsed
from millstream.app.config.toml_places import Places, places_of
from millstream.control.definitions.qos_table import TableError, quality_of, schedule_of
from millstream.control.definitions.replicas import REPLICAS_HINT, replicas_problem
from millstream.control.definitions.sink_table import SinkDefinition, read_sink
from millstream.control.definitions.stream_table import StreamReader
from millstream.control.recovery import restarts
from millstream.core.errors import CqlError, UsageError
from millstream.core.names import problem_of
from millstream.core.suggestions import did_you_mean
from millstream.decide.schedule.settings import ScheduleSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.share.matching import MATCHINGS

T = TypeVar("T")
SECTIONS = ("streams", "views", "queries", "engine", "qos", "schedule")
VIEW_KEYS = ("cql",)
QUERY_KEYS = ("cql", "from_beginning", "paused", "sink", "replicas")
FLAGS = ("from_beginning", "paused")
ENGINE_KEYS: Mapping[str, type] = {
    "batch_rows": int,
    "step_rows_max": int,
    "step_seconds_max": float,
    "pairs_max": int,
    "backlog_rows_max": int,
    "collect_bytes_max": int,
    "quota_bytes": int,
    "restart": str,
    "restarts_max": int,
    "slots": int,
    "pace_s": float,
    "local_disk": bool,
    "sharing": str,
    "spark": dict,
}
CHOICES: Mapping[str, Sequence[str]] = {
    "sharing": tuple(MATCHINGS.names()),
    "restart": restarts.POLICIES,
}
KIND_WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number of seconds",
    bool: "true or false",
    str: "a word",
    dict: "a table",
}
AT_LEAST: Mapping[type, int] = {int: 1, float: 0}
LEAST, GREATEST = -(2**63), 2**63 - 1  # the whole numbers that TOML promises to hold
TOO_LARGE = ("a whole number is too large", "whole numbers of TOML have 64 bits")
RESERVED_ENDINGS = (".changes", ".rejected", ".late")


class JobFileError(UsageError):
    """One or more mistakes in a job file; the first line of each is `file:line:column: what`."""

    def __init__(self, mistakes: Sequence[UsageError]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n\n".join(str(m) for m in mistakes))


@dataclass(frozen=True, slots=True)
class Job:
    """A job file without mistakes."""

    path: Path
    text: JobText
    streams: tuple[StreamDefinition, ...]
    queries: tuple[JobQuery, ...]
    engine: Mapping[str, Any] = field(default_factory=dict)  # as EngineSettings takes it
    spark: Mapping[str, str] = field(default_factory=dict)

    def stream_mistake(self, stream: str, error: UsageError) -> UsageError:
        """An error of a stream as a whole, told with its place in the file."""
        path = ("streams", stream)
        return self.text.mistake(path, error.message, error.hint, detail=error.detail, value=False)

    def time_mistake(self, stream: str, error: UsageError) -> UsageError:
        """An error of a stream's time, told with its place in the file."""
        path = ("streams", stream, "time")
        return self.text.mistake(path, error.message, error.hint, detail=error.detail)


def load_job(path: Path) -> Job:
    """The job of a file; JobFileError with all its mistakes."""
    job, mistakes = inspect_job(path)
    if job is None or mistakes:
        raise JobFileError(mistakes)
    return job


def inspect_job(path: Path) -> tuple[Job | None, list[UsageError]]:
    """The job, or what is wrong with the file."""
    try:
        return _inspected(path)
    except RecursionError:  # wherever it was: in TOML's parser, among the places, in a table
        hint = "a job file needs few levels of tables and lists"
        return None, [UsageError(f"{path} is nested too deeply", hint=hint)]


def _inspected(path: Path) -> tuple[Job | None, list[UsageError]]:
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        data, mended, syntax = parsed(text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        reason += did_you_mean(path.name, _jobs_beside(path))
        hint = "give the path of a job file (TOML)"
        return None, [UsageError(f"cannot read {path}: {reason}", hint=hint)]
    except UnicodeDecodeError as error:
        hint = f"save it as UTF-8: iconv -f WINDOWS-1252 -t UTF-8 {path}"
        detail = f"at byte {error.start}"
        return None, [UsageError(f"{path} is not UTF-8 text", detail=detail, hint=hint)]
    except ValueError:  # Python reads no whole number of thousands of digits
        return None, [_endless_number(path, text)]
    wrong: list[UsageError] = [_syntax_error(path, text, mistake) for mistake in syntax]
    if data is None:
        return None, wrong
    written = JobText(path, str(path), places_of(mended))
    if too_large := [at for at, value in _integers((), data) if not LEAST <= value <= GREATEST]:
        return None, [*wrong, *(written.mistake(at, *TOO_LARGE) for at in too_large)]
    reader = _JobReader(written, data)
    job = reader.job()
    wrong += reader.mistakes
    return (None if wrong else job), wrong


def _jobs_beside(path: Path) -> list[str]:
    """Job files that may have been meant instead of one that is not there."""
    try:
        return [] if path.exists() else [found.name for found in path.parent.glob("*.toml")]
    except OSError:
        return []


def _integers(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every whole number of a table or list, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _integers((*path, key), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _integers((*path, str(index)), inner)
    elif isinstance(value, int):
        yield path, value


def _endless_number(path: Path, text: str) -> CqlError:
    """A number too long for the parser, which does not say where it stands."""
    found = re.search(r"(?<![\w.\"'])\d[\d_]{4000,}", text)
    offset, length = (found.start(), len(found[0])) if found else (0, 1)
    return JobText(path, str(path), Places(text)).at(offset, length, *TOO_LARGE)


def _syntax_error(path: Path, text: str, mistake: TomlMistake) -> CqlError:
    """A mistake in the TOML, at its place."""
    return CqlError(
        f"{path}:{mistake.line}:{mistake.column}: {mistake.message}",
        source=text,
        line=mistake.line,
        column=mistake.column,
        hint=mistake.hint,
    )


class _JobReader:
    """Turns the parsed values into a job, noting every mistake."""

    def __init__(self, text: JobText, data: Mapping[str, Any]) -> None:
        self.text, self.data = text, data
        self.mistakes: list[UsageError] = []

    def job(self) -> Job:
        for key in self.data:
            if key not in SECTIONS:
                self._note((key,), f"unknown section {key}", SECTIONS)
        streams = self._streams()
        queries, more = with_definitions(self._queries(), self._views(), streams)
        self.mistakes += more
        engine = self._engine()
        spark = {str(k): _spark_value(v) for k, v in dict(engine.pop("spark", {})).items()}
        names = [q.name for q in queries]
        quality = self._wishes("qos", lambda table: quality_of(table, names))
        schedule = self._wishes("schedule", schedule_of)
        if quality is not None:
            engine["quality"] = quality
            engine["schedule"] = ScheduleSettings()  # who has goals has the selector as well
        if schedule is not None:
            engine["schedule"] = schedule
        return Job(self.text.path, self.text, streams, queries, engine, spark)

    def _wishes(self, name: str, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """A table that another module reads; its mistakes stand at their place."""
        table = self.data.get(name)
        if table is None:
            return None
        if not isinstance(table, dict):
            self.mistakes.append(self.text.mistake((name,), f"{name} is a table", f"[{name}]"))
            return None
        try:
            return read(table)
        except TableError as error:
            self.mistakes.append(self.text.mistake((name, *error.path), error.message, error.hint))
            return None

    def _note(self, path: tuple[str, ...], message: str, choices: Sequence[str]) -> None:
        near = did_you_mean(path[-1], choices)
        hint = "" if near else f"one of {', '.join(choices)}"
        self.mistakes.append(self.text.mistake(path, message + near, hint, value=False))

    def _section(self, name: str, example: str) -> list[tuple[str, dict[str, Any]]]:
        """The named tables of a section."""
        section = self.data.get(name, {})
        if not isinstance(section, dict):
            self.mistakes.append(self.text.mistake((name,), f"{name} is a table", example))
            return []
        if not section and name != "views":
            self.mistakes.append(
                self.text.mistake((name,), f"the job has no {name}", f"add {example}", value=False)
            )
        found = []
        for key, value in section.items():
            if not isinstance(value, dict):
                self.mistakes.append(
                    self.text.mistake((name, key), f"{name}.{key} is a table", example)
                )
            elif problem := _bad_name(key):
                hint = "results are written to a folder of that name"
                self.mistakes.append(self.text.mistake((name, key), problem, hint, value=False))
            else:
                found.append((key, value))
        return found

    def _streams(self) -> tuple[StreamDefinition, ...]:
        found = []
        for name, table in self._section("streams", '[streams.NAME] with path = "..."'):
            reader = StreamReader(name, table, self.text.path.parent)
            definition = reader.definition()
            for mistake in reader.mistakes:
                path = ("streams", name, *mistake.path)
                self.mistakes.append(
                    self.text.mistake(path, mistake.message, mistake.hint, value=mistake.value)
                )
            if definition is not None:
                found.append(definition)
        return tuple(found)

    def _queries(self) -> tuple[JobQuery, ...]:
        found = []
        for name, table in self._section("queries", '[queries.NAME] with cql = "SELECT ..."'):
            for key in table:
                if key not in QUERY_KEYS:
                    self._note(("queries", name, key), f"unknown key {key}", QUERY_KEYS)
            cql = table.get("cql")
            flags = {key: table.get(key, False) for key in FLAGS}
            odd = next((key for key, value in flags.items() if not isinstance(value, bool)), "")
            path = ("queries", name)
            if cql is None:
                self.mistakes.append(
                    self.text.mistake(path, f"query {name} has no cql", 'cql = "SELECT ..."')
                )
            elif not isinstance(cql, str):
                self.mistakes.append(
                    self.text.mistake((*path, "cql"), "cql is a text", 'cql = "SELECT ..."')
                )
            elif problem := replicas_problem(table.get("replicas", 1)):
                self.mistakes.append(self.text.mistake((*path, "replicas"), problem, REPLICAS_HINT))
            elif odd:
                self.mistakes.append(self.text.mistake((*path, odd), "true or false is expected"))
            else:
                sink = self._sink(name, table)
                found.append(
                    JobQuery(
                        name, cql, self.text, sink=sink, replicas=table.get("replicas", 1), **flags
                    )
                )
        return tuple(found)

    def _sink(self, query: str, table: Mapping[str, Any]) -> SinkDefinition | None:
        written, path = table.get("sink"), ("queries", query, "sink")
        if written is None:
            return None
        if not isinstance(written, dict):
            hint = f'[queries.{query}.sink] with type = "..."'
            self.mistakes.append(self.text.mistake(path, "sink is a table", hint))
            return None
        definition, mistakes = read_sink(written, self.text.path.parent)
        for mistake in mistakes:
            at, words = (*path, *mistake.path), f"query {query}: {mistake.message}"
            self.mistakes.append(self.text.mistake(at, words, mistake.hint, value=mistake.value))
        return definition

    def _views(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, table in self._section("views", '[views.NAME] with cql = "SELECT ..."'):
            for key in table:
                if key not in VIEW_KEYS:
                    self._note(("views", name, key), f"unknown key {key}", VIEW_KEYS)
            if isinstance(table.get("cql"), str):
                found[name] = table["cql"]
            else:
                words = f"view {name} has no cql"
                self.mistakes.append(self.text.mistake(("views", name), words, 'cql = "SELECT"'))
        return found

    def _engine(self) -> dict[str, Any]:
        section = self.data.get("engine", {})
        if not isinstance(section, dict):
            self.mistakes.append(self.text.mistake(("engine",), "engine is a table", "[engine]"))
            return {}
        found = {}
        for key, value in section.items():
            path = ("engine", key)
            kind = ENGINE_KEYS.get(key)
            if kind is None:
                self._note(path, f"unknown setting {key}", tuple(ENGINE_KEYS))
            elif not _is_a(kind, value):
                self.mistakes.append(self.text.mistake(path, f"{key} is {KIND_WORDS[kind]}"))
            elif kind in AT_LEAST and not AT_LEAST[kind] <= value < inf:
                least = f"at least {AT_LEAST[kind]}"
                self.mistakes.append(self.text.mistake(path, f"{key} is {value}", least))
            elif key in CHOICES and value not in CHOICES[key]:
                names = CHOICES[key]
                message = f"unknown {key} {value!r}{did_you_mean(value, names)}"
                hint = f"one of {', '.join(names)}"
                self.mistakes.append(self.text.mistake(path, message, hint))
            else:
                found[key] = value
        return found


def _is_a(kind: type, value: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _bad_name(name: str) -> str:
    """What is wrong with a name that becomes a folder's."""
    if name.endswith(RESERVED_ENDINGS):
        return f"{name} ends like a folder that Millstream itself writes"
    return problem_of(name)


def _spark_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
