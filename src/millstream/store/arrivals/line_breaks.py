"""Whether the rows of a text file stand one a line: a quoted cell of CSV may hold line breaks.

The whole file is looked at, for a reader that works line by line is faster and splits large files.
A file that ends inside quotes has a stray one: there each line is read by itself, so that the quote
spoils its own row alone.
"""

import bz2
import codecs
import gzip
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from millstream.store.arrivals.malformed import CsvForm

BLOCK = 8 << 20
OPENERS: Mapping[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".bz2": bz2.open}
NEWLINE = ord("\n")
PEEKED_BYTES = 4096
# Also the bytes of byte order marks and the zeros of UTF-16: none of them begins a row.
MARKS_AND_BLANKS = b" \t\r\n\0" + codecs.BOM_UTF8 + codecs.BOM_UTF16


def cells_span_lines(path: Path, form: CsvForm) -> bool:
    """Whether a quoted cell of a CSV file holds a line break."""
    if len(form.quote) != 1 or not form.quote.isascii():
        return False
    quote = form.quote.encode()
    escaped = b"" if form.escape in ("", form.quote) else form.escape.encode() + quote
    quotes, found = 0, False
    for block in _blocks(path):
        text = block.replace(escaped, b"") if escaped else block
        if not found and (quote in text or quotes % 2):
            data = np.frombuffer(text, np.uint8)
            marks, ends = np.flatnonzero(data == quote[0]), np.flatnonzero(data == NEWLINE)
            before = np.searchsorted(marks, ends) + quotes  # quotes before each end of a line
            found = bool(np.any(before % 2))
        quotes += text.count(quote)
    return found and quotes % 2 == 0


def holds_an_array(path: Path) -> bool:
    """Whether the rows of a JSON file stand in one array."""
    for block in _blocks(path, PEEKED_BYTES):
        if text := block.translate(None, MARKS_AND_BLANKS):
            return text.startswith(b"[")
    return False


def _blocks(path: Path, size: int = BLOCK) -> Iterator[bytes]:
    """The content of a file, as far as it can be read."""
    opener: Callable[..., IO[Any]] = OPENERS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as file:
            while block := file.read(size):
                yield block
    except (OSError, EOFError):
        return
