"""What a client may name as the source of a stream: folders, formats and options, by allow-lists.

For those who may submit but do not own the processor. A path counts where it ends up, links and
`..` followed, and never below a hidden folder. Looks at nothing but where a path leads: what lies
beyond the folders is not even said to exist.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

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
GLOB = frozenset("*?[]{}\\")
OWNER_HINT = "or let the processor's owner declare the stream"


@dataclass(frozen=True, slots=True)
class SourceRules:
    """The allow-lists of one processor; `options` are patterns beside the usual ones."""

    folders: tuple[Path, ...] = ()
    formats: tuple[str, ...] = ()
    options: tuple[str, ...] = field(default=())

    def check(self, table: Mapping[str, Any]) -> None:
        """Refuses a stream's table that names what a client may not."""
        name = str(table.get("name", ""))[:200]
        kind, options = table.get("source", "file"), table.get("options", {})
        if kind == "spark":
            self._check_format(name, str(table.get("format")))
        if kind in ("kafka", "mqtt", "nats", "postgres"):
            self._check_format(name, str(kind))
        if kind == "reference" and "table" in table:
            self._check_format(name, "postgres")
        for option, value in options.items() if isinstance(options, Mapping) else ():
            self._check_option(name, str(option), value)
        for path in _paths(table):
            self._check_path(name, path)

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
        if refers(option, value):
            raise UsageError(
                f"stream {stream}: option {option} refers to a secret of the processor",
                detail="a client does not choose who is told it",
                hint=f"leave it out, {OWNER_HINT}",
            )

    def _check_path(self, stream: str, text: str) -> None:
        fixed = _fixed_part(text)
        found = None if fixed is None else _below(fixed, self.folders)
        if found is None:
            folders = ", ".join(str(one) for one in self.folders) or "none"
            raise UsageError(
                f"stream {stream}: {text} is in no folder that clients may read here",
                detail=f"they may read {folders}",
                hint=f"start the processor with --allow-folder FOLDER, {OWNER_HINT}",
            )
        if any(part.startswith(".") for part in found.parts):
            raise UsageError(
                f"stream {stream}: {text} is hidden",
                detail="files and folders whose names begin with a dot are not for clients",
                hint=f"give it another name, {OWNER_HINT}",
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


def _below(path: Path, folders: tuple[Path, ...]) -> Path | None:
    """A path as seen from the folder that it ends up in."""
    try:
        real = path.resolve()
        for folder in folders:
            if real.is_relative_to(folder.resolve()):
                return real.relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a name too long, or links in a circle
        return None
    return None


def usual_folders(home: Path, started_in: Path) -> tuple[Path, ...]:
    """Where a processor keeps its home and where it was started, unless that is everywhere.

    >>> [str(p) for p in usual_folders(Path("/srv/p1"), Path("/"))]
    ['/srv/p1']
    """
    everywhere = started_in.parent == started_in
    return (home.absolute(),) if everywhere else (started_in.absolute(), home.absolute())
