"""The rows of a JSON file and the types of their fields, as Spark names them.

Rows stand one a line, or in one array. A field that is a number in one row and a text in another is
a text; whole numbers and others together are `double`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.control.discovery.column_types import whole_type
from millstream.control.discovery.text_sample import TextSample
from millstream.control.discovery.times import ISO
from millstream.core.errors import UsageError
from millstream.language.plan.sql_text import quoted

ROWS_MAX = 20_000
ARRAY_HINT = "give an array of objects, or an object a line"


def json_rows(sample: TextSample, name: str) -> list[dict[str, Any]]:
    """The first rows; UsageError where the file has none."""
    if is_array(sample.text):
        return _elements(sample, name)
    rows = []
    for number, line in enumerate(sample.lines[:ROWS_MAX]):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == 0:
                raise not_rows(sample, name) from None
            continue  # one bad line is a rejected row of the run
        if isinstance(row, dict):
            rows.append(row)
    if not rows:
        raise UsageError(f"{name} has no JSON objects", hint=ARRAY_HINT)
    return rows


def is_array(text: str) -> bool:
    """Whether the rows of a JSON file stand in one array."""
    return text.lstrip("\ufeff \t\r\n").startswith("[")


def _elements(sample: TextSample, name: str) -> list[dict[str, Any]]:
    """The elements of an array, as many as the sample holds whole."""
    decoder, text = json.JSONDecoder(), sample.text
    at = text.index("[") + 1
    rows: list[dict[str, Any]] = []
    while len(rows) < ROWS_MAX:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or text[at] == "]":
            break
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if not rows:
                raise UsageError(f"{name} is not JSON", hint=ARRAY_HINT) from None
            break
        if isinstance(row, dict):
            rows.append(row)
    if not rows:
        raise UsageError(f"{name} is an array without objects", hint=ARRAY_HINT)
    return rows


def not_rows(sample: TextSample, name: str) -> UsageError:
    """What to tell of a file that is one object, perhaps with its rows inside."""
    try:
        whole = json.loads(sample.text)
    except (ValueError, RecursionError):
        hint = ARRAY_HINT
        if sample.text.lstrip("\ufeff \t\r\n").startswith("{"):
            hint += f": jq -c . {name} > rows.ndjson puts each on a line of its own"
        return UsageError(f"{name} is not JSON with one object per line", hint=hint)
    if not isinstance(whole, dict):
        return UsageError(f"{name} has no rows with a time", hint=ARRAY_HINT)
    lists = [key for key, value in whole.items() if isinstance(value, list)]
    detail = f"its rows may be those of {lists[0]!r}" if lists else ""
    message = f"{name} is one JSON object, not rows"
    edit = f"jq -c '.{lists[0]}[]' {name} > rows.ndjson" if lists else f"jq -c . {name}"
    return UsageError(message, detail=detail, hint=f"{ARRAY_HINT}: {edit}")


def field_type(values: Sequence[Any]) -> str:
    """The type that all these values of a field have; `string` fits everything.

    >>> field_type([1, None, 2.5]), field_type([{"a": [1]}]), field_type([1, "x"]), field_type([])
    ('double', 'struct<`a`:array<bigint>>', 'string', 'string')
    """
    present = [value for value in values if value is not None]
    if not present:
        return "string"
    if all(isinstance(value, bool) for value in present):
        return "boolean"
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in present)
    if numbers:
        return whole_type(present) if all(isinstance(v, int) for v in present) else "double"
    if all(isinstance(value, dict) for value in present):
        return _struct(present)
    if all(isinstance(value, list) for value in present):
        return f"array<{field_type([item for value in present for item in value])}>"
    texts = [value for value in present if isinstance(value, str)]
    if len(texts) == len(present) and all(len(t) > 10 and ISO.fullmatch(t) for t in texts):
        return "timestamp"
    return "string"


def _struct(values: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for value in values for name in value))
    if not names:
        return "map<string,string>"
    fields = [f"{quoted(name)}:{field_type([v.get(name) for v in values])}" for name in names]
    return f"struct<{','.join(fields)}>"
