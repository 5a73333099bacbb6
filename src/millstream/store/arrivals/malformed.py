"""Why a row that Spark's CSV or JSON parser marked as corrupt is malformed, or that it is not.

Spark marks every row whose number of cells differs from the schema's. Cells beyond the declared
ones that are empty do no harm: files with trailing separators are common, and none of their rows
may be lost.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.language.plan.schema import Schema

SHOWN_MAX = 40  # characters of a value that a reason quotes
csv.field_size_limit(1 << 30)  # Python's own limit is 128 KiB; cells of a megabyte are welcome


@dataclass(frozen=True, slots=True)
class CsvForm:
    """What of a CSV reader's options decides where cells begin and end."""

    separator: str = ","
    quote: str = '"'
    escape: str = '"'  # as RFC 4180 has it: a quote inside quotes is doubled
    null: str = ""
    spaced: bool = False  # blanks before a cell do not count, so it may be quoted behind them

    @staticmethod
    def of(options: Mapping[str, Any]) -> "CsvForm":
        """From options as Spark's reader takes them, whatever their case.

        >>> CsvForm.of({"SEP": ";"})
        CsvForm(separator=';', quote='"', escape='"', null='', spaced=False)
        """
        given = {str(k).lower(): v for k, v in options.items()}
        return CsvForm(
            separator=str(given.get("sep", given.get("delimiter", ","))).replace("\\t", "\t"),
            quote=str(given.get("quote", '"')),
            escape=str(given.get("escape", given.get("quote", '"'))),
            null=str(given.get("nullvalue", "")),
            spaced=str(given.get("ignoreleadingwhitespace", "")).lower() == "true",
        )

    def sql_options(self) -> str:
        """The form as the options of Spark's `to_csv`.

        >>> print(CsvForm(separator=";").sql_options())
        map('sep', ';', 'quote', '"', 'escape', '"')
        """
        given = {"sep": self.separator, "quote": self.quote[:1], "escape": self.escape[:1]}
        texts = [text for pair in given.items() if pair[1] for text in pair]
        escaped = [text.replace("\\", "\\\\").replace("'", "\\'") for text in texts]
        return "map('" + "', '".join(escaped) + "')"

    def cells(self, record: str) -> list[str] | None:
        """A record's cells; None where it cannot be taken apart.

        >>> CsvForm().cells('a,"b,c",')
        ['a', 'b,c', '']
        >>> CsvForm(spaced=True).cells('a, "b,c"')
        ['a', 'b,c']
        """
        if len(self.separator) != 1:
            return record.split(self.separator)
        doubled = self.escape == self.quote
        try:
            reader = csv.reader(
                io.StringIO(record, newline="") if "\n" in record else [record],
                delimiter=self.separator,
                quotechar=self.quote[:1] or None,
                quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
                doublequote=doubled,
                escapechar=None if doubled else self.escape[:1] or None,
                skipinitialspace=self.spaced,
            )
            return next(reader, [])
        except csv.Error:
            return None


def csv_reason(
    record: str, values: Sequence[Any], surplus: str, form: CsvForm, columns: Schema
) -> str | None:
    """The reason of a marked CSV row; None where it is a good row with empty cells too many.

    >>> from millstream.language.plan.schema import Field
    >>> columns = (Field("host", "string"), Field("status", "int"))
    >>> csv_reason("a,200,,", ["a", 200], "", CsvForm(), columns)
    >>> csv_reason("a", ["a", None], "", CsvForm(), columns)
    '1 column where 2 are declared'
    >>> csv_reason("a,OK", ["a", None], "", CsvForm(), columns)
    "cannot read 'OK' as int (column status)"
    """
    cells = form.cells(record)
    if cells is None:
        return "malformed CSV"
    declared = len(columns)
    if len(cells) < declared:
        plural = "s" if len(cells) != 1 else ""
        return f"{len(cells)} column{plural} where {declared} are declared"
    if any(cell.strip() for cell in cells[declared:]) or surplus.strip():
        return f"{len(cells)} columns where {declared} are declared"
    absent = ("", form.null)
    for cell, value, field in zip(cells, values, columns, strict=False):
        if value is None and cell.strip() not in absent:
            if field.type == "string":
                return "malformed CSV"
            return f"cannot read {_shown(cell)} as {field.type} (column {field.name})"
    return None


def json_reason(record: str, values: Sequence[Any], columns: Schema) -> str:
    """The reason of a marked JSON row.

    >>> from millstream.language.plan.schema import Field
    >>> json_reason('{"a": "x"}', [None], (Field("a", "int"),))
    "cannot read 'x' as int (column a)"
    >>> json_reason('{"a": ', [None], (Field("a", "int"),))
    'malformed JSON'
    """
    try:
        row = json.loads(record)
    except (ValueError, RecursionError):
        return "malformed JSON"
    if not isinstance(row, dict):
        return "not a JSON object"
    wanted = [row.get(field.name) for field in columns]
    if all(value is None for value in values) and sum(w is not None for w in wanted) > 1:
        return "malformed JSON, or a value of another type than declared"  # nothing came through
    for value, given, field in zip(values, wanted, columns, strict=True):
        if value is None and given is not None:
            return f"cannot read {_shown(given)} as {field.type} (column {field.name})"
    return "malformed JSON, or a value of another type than declared"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
