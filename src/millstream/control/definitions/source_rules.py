"""What a client may name as the source of a stream: folders, formats and options, by allow-lists.

For clients that may submit but do not own the processor. A path is resolved first, links and `..`
included. It may not lead below a hidden folder or into a home, which holds all rows and options of
sources. The same holds for each file of a folder or pattern. Checks only where a path leads:
messages do not even reveal whether something outside the folders exists.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from millstream.control.definitions.versioned_table import KINDS as VERSIONED
from millstream.core.errors import UsageError
from millstream.core.secrets import refers

# Formats of Structured Streaming that reach nothing but files in the folders.
FORMATS = ("csv", "json", "parquet", "text", "orc", "rate", "rate-micro-batch")
# Options of Spark's readers that say how files are read; none of them writes, deletes or goes far.
OPTIONS = frozenset(
    {
        "advancemillisperbatch", "allowbackslashescapinganycharacter", "allowcomments",
        "allownonnumericnumbers", "allownumericleadingzeros", "allowsinglequotes",
        "allowunquotedcontrolchars", "allowunquotedfieldnames", "charset",
        "chartoescapequoteescaping", "columnnameofcorruptrecord", "comment", "compression",
        "dateformat", "datetimerebasemode", "delimiter", "dropfieldifallnull", "emptyvalue",
        "enabledatetimeparsingfallback", "encoding", "enforceschema", "escape", "filenameonly",
        "header", "ignoreleadingwhitespace", "ignoretrailingwhitespace", "inferschema",
        "int96rebasemode", "latestfirst", "linesep", "locale", "maxbytespertrigger",
        "maxcharspercolumn", "maxcolumns", "maxfileage", "maxfilespertrigger", "mergeschema",
        "mode",
        "modifiedafter", "modifiedbefore", "multiline", "nanvalue", "negativeinf", "nullvalue",
        "numpartitions", "pathglobfilter", "positiveinf", "preferdate", "prefersdecimal",
        "primitivesasstring", "quote", "rampuptime", "recursivefilelookup", "rowsperbatch",
        "rowspersecond", "samplingratio", "sep", "starttimestamp", "timestampformat",
        "timestampntzformat", "timezone", "unescapedquotehandling", "wholetext",
    }
)  # fmt: skip
NUMBERS_MAX = {  # by option: what is made up has to fit on the disk, buffers in the memory
    "rowspersecond": 1_000_000, "rowsperbatch": 1_000_000, "numpartitions": 1_000,
    "maxcolumns": 100_000, "maxcharspercolumn": 16 << 20,
}  # fmt: skip
NO_LIMIT = "-1"  # of characters: the buffer grows as it has to
GLOB = frozenset("*?[]{}\\")
OF_HOMES = ("ledger.db", "ledger.db-water", "manager.db", "manager.db-water", "replica.json")
OWNER_HINT = "or let the processor's owner declare the stream"


@dataclass(frozen=True, slots=True)
class SourceRules:
    """The allow-lists of one processor; `options` are patterns beside the usual ones.

    `closed` are files and folders that stay the processor's own wherever they lie.
    """

    folders: tuple[Path, ...] = ()
    formats: tuple[str, ...] = ()
    options: tuple[str, ...] = field(default=())
    closed: tuple[Path, ...] = ()

    def check(self, table: Mapping[str, Any]) -> None:
        """Refuses a stream's table that names what a client may not."""
        name = str(table.get("name", ""))[:200]
        kind, options = table.get("source", "file"), table.get("options", {})
        if kind == "spark":
            self._check_format(name, str(table.get("format")))
        if kind in ("kafka", "mqtt", "nats", "postgres", *VERSIONED):
            self._check_format(name, str(kind))
        if kind == "reference" and table.get("format") in VERSIONED:
            self._check_format(name, str(table["format"]))
        elif kind == "reference" and "table" in table:
            self._check_format(name, "postgres")
        for option, value in options.items() if isinstance(options, Mapping) else ():
            self._check_option(name, str(option), value)
        for path in _paths(table):
            self._check_path(name, path, spark=kind == "spark")

    def _check_format(self, stream: str, format_: str) -> None:
        allowed = (*FORMATS, *self.formats)
        if format_ not in allowed:
            raise UsageError(
                f"stream {stream}: format {format_} is not open to clients here",
                detail=f"open are {', '.join(allowed)}",
                hint=f"start the processor with --allow-format {format_}, {OWNER_HINT}",
            )

    def _check_option(self, stream: str, option: str, value: object) -> None:
        lower = option.lower()
        known = lower in OPTIONS or lower == "path"
        if not known and not any(fnmatchcase(lower, one.lower()) for one in self.options):
            raise UsageError(
                f"stream {stream}: option {option} is not open to clients here",
                detail="open are those that say how files are read",
                hint=f"start the processor with --allow-option {option}, {OWNER_HINT}",
            )
        number = str(value)
        countable = number.isascii() and number.isdigit() and len(number) < 10
        most = NUMBERS_MAX.get(lower)
        grows = lower == "maxcharspercolumn" and number == NO_LIMIT
        if most is not None and not grows and not (countable and int(number) <= most):
            raise UsageError(
                f"stream {stream}: {option} is a number up to {most:,} where a client asks",
                hint=f"ask for fewer, {OWNER_HINT}",
            )
        if refers(option, value):
            raise UsageError(
                f"stream {stream}: option {option} refers to a secret of the processor",
                detail="a client may not choose where its value is sent",
                hint=f"leave it out, {OWNER_HINT}",
            )

    def _check_path(self, stream: str, text: str, *, spark: bool) -> None:
        place = _fixed_part(text)
        if place is None:
            raise self._outside(stream, text)
        self._check_place(stream, text, place)
        pattern = (Path("/") / text).relative_to(place).parts
        if pattern and (spark or len(pattern) > 1):  # Spark's patterns also match hidden folders
            raise UsageError(
                f"stream {stream}: {text} is a pattern that clients may not name here",
                detail="a pattern matches files of one folder, and does not work in a Spark source",
                hint='name the folder, with options = { pathGlobFilter = "*.csv" }' if spark
                else "name one folder, or the files of one: /data/in/*.csv",
            )  # fmt: skip
        for found in _files(place, pattern[0] if pattern else "", deep=spark):
            self._check_place(stream, found, Path(found))

    def _check_place(self, stream: str, text: str, place: Path) -> None:
        """Where one file or folder ends up."""
        found = _below(place, self.folders)
        if found is None:
            raise self._outside(stream, text)
        folder, inside = found
        if any(part.startswith(".") for part in inside.parts):
            raise UsageError(
                f"stream {stream}: {text} is hidden",
                detail="clients may not use files and folders whose names begin with a dot",
                hint=f"give it another name, {OWNER_HINT}",
            )
        real = folder / inside
        above = (folder / part for part in (inside, *inside.parents))
        closed = (one.resolve() for one in self.closed)
        own = any(real.is_relative_to(c) and not folder.is_relative_to(c) for c in closed)
        if own or any(os.path.exists(one / name) for one in above for name in OF_HOMES):
            raise UsageError(
                f"stream {stream}: {text} belongs to a processor or a manager",
                detail="homes, tokens and keys are not for clients",
                hint=f"keep data in a folder of its own, {OWNER_HINT}",
            )

    def _outside(self, stream: str, text: str) -> UsageError:
        folders = ", ".join(str(one) for one in self.folders) or "none"
        return UsageError(
            f"stream {stream}: {text} is in no folder that clients may read here",
            detail=f"they may read {folders}",
            hint=f"start the processor with --allow-folder FOLDER, {OWNER_HINT}",
        )


def _paths(table: Mapping[str, Any]) -> Iterator[str]:
    if "path" in table:
        yield str(table["path"])
    options = table.get("options", {})
    for option, value in options.items() if isinstance(options, Mapping) else ():
        if str(option).lower() == "path":
            yield str(value)


def _fixed_part(text: str) -> Path | None:
    """The path up to its first pattern; None where a pattern could lead out of it, or a URL does.

    >>> str(_fixed_part("/data/in/*.csv")), _fixed_part("/data/*/../x"), _fixed_part("file:/etc")
    ('/data/in', None, None)
    """
    path = Path("/") / text
    patterns = [i for i, part in enumerate(path.parts) if GLOB & set(part)]
    if ":" in path.parts[min(1, len(path.parts) - 1)] or "\0" in text:
        return None
    if not patterns:
        return path
    rest = path.parts[patterns[0] :]
    if ".." in rest or any(set("{}\\") & set(part) for part in rest):
        return None
    return Path(*path.parts[: patterns[0]])


def _files(place: Path, pattern: str, *, deep: bool) -> Iterator[str]:
    """What a folder holds now, or what its names match, without what readers pass over."""
    left, seen = [os.path.realpath(place)], set()
    while left:
        folder = left.pop()
        seen.add(folder)
        try:
            found = sorted(os.listdir(folder))
        except OSError:  # one file, or nothing yet
            continue
        for name in found:
            path = os.path.join(folder, name)
            if name[0] in "._" or not fnmatchcase(name, pattern or "*"):
                continue
            if deep or os.path.isfile(path):
                yield path
            if deep and os.path.isdir(path) and (real := os.path.realpath(path)) not in seen:
                left.append(real)


def _below(path: Path, folders: tuple[Path, ...]) -> tuple[Path, Path] | None:
    """The folder that a path ends up in, and the path as seen from there."""
    try:
        real = path.resolve()
        for folder in folders:
            if real.is_relative_to(at := folder.resolve()):
                return at, real.relative_to(at)
    except (OSError, RuntimeError):  # a name too long, or links in a circle
        return None
    return None


def usual_folders(started_in: Path) -> tuple[Path, ...]:
    """Where a processor was started, unless that is everywhere.

    >>> usual_folders(Path("/")), [str(p) for p in usual_folders(Path("/srv/p1"))]
    ((), ['/srv/p1'])
    """
    return () if started_in.parent == started_in else (started_in.absolute(),)
