"""The dialect of a separated file: which sign separates, how cells are quoted, whether names lead.

The separator that gives the most cells in the most records wins, and the first record has to have
cells as well: `time;price` over `10:00;1,50` is no row of commas. Quotes inside quotes are doubled
(RFC 4180) unless the text escapes them with a backslash.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.control.discovery.text_sample import TextSample

# Of two that do as well the first is meant: commas stand in numbers and in prose too.
SEPARATORS = ("\t", ";", "|", "^", "~", "\x01", ",")
RECORDS_MAX = 20_000
AGREEING_MIN = 0.8  # of the records that have as many cells as most
csv.field_size_limit(1 << 30)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text becomes cells."""

    separator: str = ","
    quote: str = '"'
    backslash: bool = False  # quotes inside quotes are escaped, not doubled
    comment: str = ""
    spaced: bool = False  # quoted cells begin behind a space

    def records(self, sample: TextSample, most: int = RECORDS_MAX) -> list[list[str]]:
        """The cells of the first records; the last one only where it is whole."""
        text = sample.text
        if self.comment:
            lines = text.splitlines(keepends=True)
            text = "".join(line for line in lines if not line.startswith(self.comment))
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self.separator,
            quotechar=self.quote,
            doublequote=not self.backslash,
            escapechar="\\" if self.backslash else None,
            skipinitialspace=self.spaced,
        )
        found: list[list[str]] = []
        try:
            for record in reader:
                if record and any(cell.strip() for cell in record):
                    found.append(record)
                if len(found) > most:
                    break
        except csv.Error:
            pass
        return found[:most] if len(found) > most or sample.whole else found[:-1]


def dialect_of(sample: TextSample) -> Dialect:
    """The dialect that takes a text apart into the most cells, evenly."""
    lines = sample.lines
    commented = bool(lines) and lines[0].startswith("#")
    comment = "#" if commented and not all(line.startswith("#") for line in lines) else ""
    quote = '"'
    if re.search(r"(^|[,;\t|])'[^']*'([,;\t|]|$)", sample.text, re.MULTILINE):
        quote = '"' if '"' in sample.text else "'"
    backslash = f"\\{quote}" in sample.text and quote * 2 not in sample.text
    scored: list[tuple[tuple[float, bool, int, int], Dialect]] = []
    for separator in SEPARATORS:
        spaced = f"{separator} {quote}" in sample.text
        dialect = Dialect(separator, quote, backslash, comment, spaced)
        records = dialect.records(sample, 500)
        agreeing, cells = _evenness(records)
        if cells > 1 and agreeing >= AGREEING_MIN:
            score = (round(agreeing, 1), len(records[0]) > 1, cells, -len(scored))
            scored.append((score, dialect))
    if not scored:
        return Dialect(",", quote, backslash, comment)
    return max(scored, key=lambda one: one[0])[1]


def _evenness(records: Sequence[Sequence[str]]) -> tuple[float, int]:
    """Which part of the records has as many cells as most, and how many those are."""
    if not records:
        return 0.0, 0
    cells, count = Counter(len(record) for record in records).most_common(1)[0]
    return count / len(records), cells
