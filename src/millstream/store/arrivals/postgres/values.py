"""Texts that PostgreSQL writes as values of declared types; what does not fit stays a text.

A text in the place of a number makes the row malformed, with the reason, as for any other source.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

INTEGERS = ("tinyint", "smallint", "int", "bigint")
BOOLEANS = {"t": True, "f": False, "true": True, "false": False}
_ZONE = re.compile(r"([+-]\d\d)$")
_BYTES = re.compile(r"\\x((?:[0-9a-f]{2})*)")


def value_of(type_: str, text: str | None) -> Any:
    """A value of a declared type.

    >>> value_of("int", "5"), value_of("boolean", "t"), value_of("int", "five")
    (5, True, 'five')
    >>> value_of("timestamp", "2020-01-02 03:04:05.5+00")
    '2020-01-02T03:04:05.5+00:00'
    """
    if text is None:
        return None
    with suppress(ValueError, InvalidOperation):
        return _way(type_)(text)
    return text


def _way(type_: str) -> Callable[[str], Any]:
    if type_ in INTEGERS:
        return int
    if type_ in ("float", "double"):
        return float
    if type_ == "boolean":
        return lambda text: BOOLEANS.get(text.lower(), text)
    if type_.startswith("decimal"):
        return Decimal
    if type_ in ("timestamp", "timestamp_ntz"):
        return lambda text: _ZONE.sub(r"\1:00", text.replace(" ", "T", 1))
    if type_ == "binary":
        return _bytes
    return str


def _bytes(text: str) -> bytes:
    found = _BYTES.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return bytes.fromhex(found[1])
