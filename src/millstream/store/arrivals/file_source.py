"""Files as a source: which there are, in which order, in which format, and whether they changed.

A source is one file, a folder, or a pattern such as `logs/*.csv`; files come in order of name.
Which files there are, and with what content, is recorded in the ledger when they are first seen, so
that a run that is started again reads the same input or says that it has changed. What files hold
is parsed elsewhere.
"""

import bz2
import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from millstream.core.errors import StateError, UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.malformed import CsvForm

FORMATS = ("csv", "json", "parquet", "text")
BY_EXTENSION = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".txt": "text", ".log": "text",
}  # fmt: skip
COMPRESSED: Mapping[str, Callable[..., IO[str]] | None] = {
    ".gz": gzip.open, ".bz2": bz2.open, ".zst": None, ".lz4": None, ".snappy": None,
    ".deflate": None,
}  # fmt: skip
NUMBER = "_number"  # column: the number of a row's file in the stream's list
EXPANSION = 8  # how many times larger compressed text is taken to be
HASHED_WHOLE_MAX = 1 << 30
HASHED_PARTS = 64
BLOCK = 1 << 20
PEEKED_CHARACTERS = 1 << 20


def format_of(definition: StreamDefinition, files: Sequence[Path] = ()) -> str:
    """The declared format, else by extension (`.csv.gz` is csv)."""
    named = definition.source.get("format")
    if named:
        if named not in FORMATS:
            raise UsageError(
                f"stream {definition.name} has unknown format {named!r}",
                hint=f"one of {', '.join(FORMATS)}",
            )
        return str(named)
    path = Path(str(definition.source.get("path", "")))
    for candidate in (path, *files):
        bare = candidate.with_suffix("") if compression(candidate) else candidate
        kind = BY_EXTENSION.get(bare.suffix.lower())
        if kind:
            return kind
    raise UsageError(
        f"stream {definition.name} has no format, and its path does not show one",
        hint=f'add format = "csv" (or {", ".join(FORMATS[1:])})',
    )


def compression(path: Path) -> str | None:
    return path.suffix.lower() if path.suffix.lower() in COMPRESSED else None


def expanded_size(path: Path) -> int:
    """About how many bytes of text a file holds."""
    return path.stat().st_size * (EXPANSION if compression(path) else 1)


def hidden(name: str) -> bool:
    """Names that Spark passes over: drafts and notes of other programs."""
    return name[:1] in "._" or name.endswith("._COPYING_")


def list_files(definition: StreamDefinition) -> list[Path]:
    """The files of a stream in order of name; hidden ones and folders are passed over."""
    path = Path(str(definition.source["path"])).absolute()
    if path.is_file():
        if hidden(path.name):
            raise UsageError(
                f"stream {definition.name}: {path.name} is a hidden file, which Spark skips",
                hint="rename it so that it does not begin with . or _",
            )
        return [path]
    named = path.iterdir() if path.is_dir() else path.parent.glob(path.name)
    found = sorted((p for p in named if p.is_file() and not hidden(p.name)), key=lambda p: p.name)
    if found or path.is_dir():
        return found
    raise UsageError(
        f"stream {definition.name}: no such file or folder: {path}",
        hint="paths are relative to the job file",
    )


def identity(path: Path) -> str:
    """Size and a digest of the content; of very large files, of blocks all over it."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= HASHED_WHOLE_MAX:
                while chunk := file.read(BLOCK):
                    digest.update(chunk)
            else:
                for part in range(HASHED_PARTS):
                    file.seek((size - BLOCK) * part // (HASHED_PARTS - 1))
                    digest.update(file.read(BLOCK))
    except OSError as error:
        raise UsageError(f"{path} cannot be read", detail=error.strerror or "") from None
    return f"{size}:{digest.hexdigest()}"


def look(path: Path) -> tuple[int, int, int] | None:
    """What the file system says of a file; another answer later calls for a look at its content."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def verify_unchanged(stream: str, recorded: Sequence[tuple[str, str]]) -> None:
    """Refuses to go on over input that differs from what was read before."""
    for path, known in recorded:
        if not Path(path).exists():
            raise gone(stream, path)
        if identity(Path(path)) != known:
            raise StateError(
                f"stream {stream}: {path} has changed since this run began",
                hint="choose an empty output folder for a new run",
            )


def verify_complete(
    stream: str, recorded: Sequence[tuple[str, str]], present: Sequence[Path]
) -> None:
    """Refuses to go on where a folder that was read as finite has got more files."""
    known = {path for path, _ in recorded}
    added = [p.name for p in present if str(p) not in known]
    if known and added:
        raise StateError(
            f"stream {stream}: {added[0]} was not there when this run began",
            hint="choose an empty output folder for a new run, or declare follow = true",
        )


def gone(stream: str, path: str) -> StateError:
    return StateError(
        f"stream {stream}: {path} was part of this run and is gone",
        hint="put it back, or choose an empty output folder for a new run",
    )


# -- a look at the first lines --------------------------------------------------------------------


def first_lines(path: Path, encoding: str, count: int) -> list[str]:
    """The first lines of a text file, as far as Python can read it; empty where it cannot."""
    kind = compression(path)
    opener = COMPRESSED[kind] if kind else open
    if opener is None:
        return []
    try:
        with opener(path, "rt", encoding=encoding, errors="replace", newline="") as file:
            text = file.read(PEEKED_CHARACTERS).removeprefix("\ufeff")
    except (OSError, EOFError, LookupError):
        return []
    return [line for line in text.replace("\r", "").split("\n") if line.strip()][:count]


def cells_most(path: Path, options: Mapping[str, Any], count: int) -> int:
    """The greatest number of cells in the first lines of a CSV file."""
    form = CsvForm.of(options)
    return max((len(form.cells(line) or ()) for line in _peek(path, options, count)), default=0)


def header_problem(path: Path, definition: StreamDefinition) -> str:
    """Says where a CSV file's own header names the declared columns in another order.

    Columns are declared in file order and may be named otherwise than in the file; but the same
    names in other places are a mistake that would go unnoticed.
    """
    options = dict(definition.source.get("options") or {})
    given = {str(k).lower(): v for k, v in options.items()}
    if str(given.get("header", "false")).lower() != "true":
        return ""
    lines = _peek(path, options, 1)
    found = CsvForm.of(options).cells(lines[0]) if lines else None
    if not found:
        return ""
    header = [name.strip().lower() for name in found]
    declared = [f.name.lower() for f in definition.columns]
    if set(declared) <= set(header) and header[: len(declared)] != declared:
        return f"the header has the columns in another order: {', '.join(found)}"
    return ""


def _peek(path: Path, options: Mapping[str, Any], count: int) -> list[str]:
    given = {str(k).lower(): v for k, v in options.items()}
    return first_lines(path, str(given.get("encoding", given.get("charset", "utf-8"))), count)
