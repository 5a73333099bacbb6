"""The options with which Spark reads text files: what the user gives, and RFC 4180 beside it.

A quote inside quotes is doubled, a quoted cell may hold line breaks, and an empty cell is NULL
where it has no quotes and an empty text where it has some. A JSON file is an object a line or one
array.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.control.discovery.text_sample import OPENERS, UTF_8, TextSample, read_sample
from millstream.core.errors import UsageError
from millstream.spark.ingest.text_times import option
from millstream.store.arrivals.file_source import compression
from millstream.store.arrivals.line_breaks import cells_span_lines, holds_an_array
from millstream.store.arrivals.malformed import CsvForm

# What Spark is told to take for NULL, so that it does not take every empty text for it.
NOTHING = "\x01"
PEEKED_BYTES = 1 << 20
WESTERN = "äöüÄÖÜßéèêëÉÈàâáãåÅæÆøØçÇñÑíìîïóòôõúùûœŠšŽž€’‘“”„–—…«»°§£©®·´¿¡ºª²³½"
WESTERN_MIN = 0.8  # of the letters beyond ASCII
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b]")
# Lines of these encodings do not end with one byte: Spark must read the whole file.
WIDE = ("UTF-16", "UTF-32")


def reader_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for all files of a stream.

    >>> reader_options("csv", {"header": True, "quote": "'"})
    {'header': True, 'quote': "'", 'escape': "'", 'nullValue': '\\x01', 'emptyValue': ''}
    """
    made = dict(options)
    given = {str(name).lower() for name in options}
    if kind == "csv":
        quote = option(options, "quote") if "quote" in given else '"'
        if "escape" not in given and quote:
            made["escape"] = quote
        if "nullvalue" not in given:
            made["nullValue"] = NOTHING
        if "emptyvalue" not in given:
            made["emptyValue"] = ""
    narrow = encoding(options).upper() not in ("", UTF_8) and not _wide(options)
    if kind == "json" and narrow and "linesep" not in given:
        made["lineSep"] = "\n"
    return made


def whole_files(kind: str, path: Path, options: Mapping[str, Any]) -> bool:
    """Whether Spark must read a file as a whole and not line by line."""
    if option(options, "multiLine"):
        return option(options, "multiLine").lower() == "true"
    if kind == "csv":
        return _wide(options) or cells_span_lines(path, CsvForm.of(options))
    return kind == "json" and holds_an_array(path)


def refuse_other_encoding(stream: str, path: Path, options: Mapping[str, Any]) -> None:
    """Refuses text that is not UTF-8 where no encoding is declared: its letters would be lost."""
    if encoding(options) or (compression(path) and path.suffix.lower() not in OPENERS):
        return
    try:
        sample = read_sample(path, size=PEEKED_BYTES)
    except UsageError:  # it breaks off, or is gone: told with the rows before
        return
    found = sample.encoding
    if found != UTF_8 and _plausible(sample):
        raise UsageError(
            f"stream {stream}: {path.name} is not UTF-8 text",
            detail=f"it looks like {found}",
            hint=f'encoding = "{found}", or encoding = "UTF-8" to lose the letters',
        )


def _plausible(sample: TextSample) -> bool:
    """Whether a text reads well in its encoding; stray bytes hurt their own rows alone."""
    if sample.encoding.startswith(WIDE):
        return True
    foreign = [letter for letter in sample.text if not letter.isascii()]
    known = sum(letter in WESTERN for letter in foreign)
    return not CONTROLS.search(sample.text) and known >= WESTERN_MIN * len(foreign)


def encoding(options: Mapping[str, Any]) -> str:
    return option(options, "encoding") or option(options, "charset")


def _wide(options: Mapping[str, Any]) -> bool:
    return encoding(options).upper().startswith(WIDE)
