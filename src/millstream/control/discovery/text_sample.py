"""The beginning of a text file and its encoding: compressed or not, with a byte order mark or not.

Text that is valid UTF-8 is UTF-8. Text that is not has the encoding of an alphabet that its letters
tell, or is Western European: bytes from 0x80 to 0x9F are
characters in windows-1252 and none in ISO-8859-1.
"""

import bz2
import codecs
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from millstream.control.discovery.alphabets import other_alphabet
from millstream.core.errors import UsageError

SAMPLE_BYTES = 16 << 20
OPENERS: Mapping[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".bz2": bz2.open}
UTF_8 = "UTF-8"
MARKS = (
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
CONVERT = "export it as CSV or Parquet"
# Files that are no text, by how they begin: what they are, and what to do.
NO_TEXT = (
    (b"PK\x03\x04", "a zip archive or a spreadsheet", "unpack it, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet or another office file", "save the sheet as CSV"),
    (b"\x1f\x8b", "compressed with gzip", "call it {name}.gz"),
    (b"BZh", "compressed with bzip2", "call it {name}.bz2"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "zstd -d {name}"),
    (b"\xfd7zXZ", "compressed with xz", "xz -d {name}"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it"),
    (b"SQLite format 3", "an SQLite database", "sqlite3 -header -csv {name} 'SELECT ...' > x.csv"),
    (b"Obj\x01", "an Avro file", CONVERT),
    (b"ORC", "an ORC file", CONVERT),
    (b"ARROW1", "a Feather file", CONVERT),
    (b"PAR1", "a Parquet file", "call it {name}.parquet"),
    (b"%PDF", "a PDF document", CONVERT),
)
MARKUP = (
    ("<!doctype html", "a web page", "open it: it may say why there was nothing to download"),
    ("<html", "a web page", "open it: it may say why there was nothing to download"),
    ("<?xml", "an XML document", CONVERT),
)


@dataclass(frozen=True, slots=True)
class TextSample:
    """The first characters of a file; `whole` where there are no more."""

    text: str
    encoding: str
    whole: bool

    @property
    def lines(self) -> list[str]:
        """Lines that are not empty; the last one only where it is known to be whole."""
        lines = self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return [line for line in (lines if self.whole else lines[:-1]) if line.strip()]


def read_sample(path: Path, encoding: str = "", size: int = SAMPLE_BYTES) -> TextSample:
    """The first characters of a text file, in its own encoding or the one that is named."""
    opener: Callable[..., IO[Any]] = OPENERS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as file:
            content: bytes = file.read(size + 1)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "does its content match its name? `file` shows what it is"
        raise UsageError(f"cannot read {path}: {reason.lower()}", hint=hint) from None
    _check_text(path.name, content)
    whole = len(content) <= size
    content = content[:size]
    named = encoding or encoding_of(content)
    decoder = codecs.getincrementaldecoder(named)(errors="replace")
    return TextSample(decoder.decode(content, whole).removeprefix("\ufeff"), named, whole)


def _check_text(name: str, content: bytes) -> None:
    """UsageError where a file is something else than rows of text."""
    start = content[:64].decode("latin-1").lstrip("\ufeffï»¿ \r\n").lower()
    for found, what, hint in (
        *((content.startswith(sign), what, hint) for sign, what, hint in NO_TEXT),
        *((start.startswith(sign), what, hint) for sign, what, hint in MARKUP),
    ):
        if found:
            raise UsageError(f"{name} is {what}, no rows of text", hint=hint.format(name=name))


def encoding_of(content: bytes) -> str:
    """The encoding of bytes, as Spark and Python both call it.

    >>> encoding_of("Köln".encode()), encoding_of("Köln".encode("latin-1")), encoding_of(b"5 \\x80")
    ('UTF-8', 'ISO-8859-1', 'windows-1252')
    """
    for mark, name in MARKS:
        if content.startswith(mark):
            return name
    if content.count(0) * 4 > len(content):
        return "UTF-16LE" if content[1:2] == b"\0" else "UTF-16BE"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        if other := other_alphabet(content):
            return other
        return "windows-1252" if any(0x80 <= byte <= 0x9F for byte in content) else "ISO-8859-1"
    return UTF_8
