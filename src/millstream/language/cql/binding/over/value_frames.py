"""Frames of RANGE over a table: rows whose value of ORDER BY lies within so much of the row's own.

The one key of ORDER BY becomes a number that keeps its order, so that edges are whole: whole
numbers as they are, decimals in their last digit's unit, times and dates in microseconds. Floating
numbers stay what they are, and edges are in millionths (`OverFrame` says which).
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal as OneOf

from sqlglot import exp

from millstream.language.cql.binding.over.clauses import length_us
from millstream.language.cql.literals import DAY_US, cast
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import span_of
from millstream.language.cql.types import INTEGERS
from millstream.language.plan.expressions import Call, Expr, Literal
from millstream.language.plan.windows import BEGINNING, FOREVER, OverFrame

MILLIONTHS = 6
DIGITS_MAX = 18  # of what fits into 64 bits
NUMBER_HINT = "RANGE BETWEEN 10 PRECEDING AND CURRENT ROW"
TIME_HINT = "RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW"


@dataclass(frozen=True, slots=True)
class ValueFrame:
    """A frame, and the key whose values its edges are added to."""

    frame: OverFrame
    key: Expr


def has_lengths(window: exp.Window) -> bool:
    """Whether a frame is of RANGE and one of its edges is a length."""
    spec = window.args.get("spec")
    if spec is None or str(spec.args.get("kind") or "").upper() != "RANGE":
        return False
    return any(isinstance(spec.args.get(edge), exp.Expr) for edge in ("start", "end"))


def value_frame(text: Text, window: exp.Window, key: Expr, type_: str) -> ValueFrame:
    spec = window.args["spec"]
    if spec.args.get("exclude"):
        raise text.error("EXCLUDE in a frame is not supported", span_of(window), NUMBER_HINT)
    if type_ in ("timestamp", "date"):
        return _framed(text, window, _instant(key, type_), None)
    if type_ in ("float", "double"):
        return _framed(text, window, cast(key, "double"), MILLIONTHS, "doubles")
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_)
    if type_ not in INTEGERS and found is None:
        raise text.error(
            f"RANGE with a length over values of type {type_}", span_of(window),
            "order by a number, a date or a timestamp, or count rows: ROWS BETWEEN 9 PRECEDING "
            "AND CURRENT ROW",
        )  # fmt: skip
    places = max([int(found[2]) if found else 0, *_places(spec)])
    digits = int(found[1]) - int(found[2]) if found else 0
    if digits + places > DIGITS_MAX:
        raise text.error(
            f"RANGE with a length over values of type {type_}", span_of(window),
            "cast what it is ordered by: ORDER BY CAST(v AS DOUBLE)",
        )  # fmt: skip
    scaled = cast(key, "bigint")
    if places:
        exact = cast(key, f"decimal(38,{places})")
        unit = Literal(f"{10**places}BD", f"decimal({places + 1},0)")
        scaled = cast(Call("*", (exact, unit)), "bigint")
    return _framed(text, window, scaled, places)


def _instant(key: Expr, type_: str) -> Expr:
    """Microseconds since the epoch."""
    if type_ == "timestamp":
        return Call("unix_micros", (key,))
    days = cast(Call("unix_date", (key,)), "bigint")
    return Call("*", (days, Literal(f"{DAY_US}L", "bigint")))


def _framed(
    text: Text,
    window: exp.Window,
    key: Expr,
    places: int | None,
    by: OneOf["values", "doubles"] = "values",
) -> ValueFrame:
    """Edges have so many places behind the point; none are those of times."""
    spec = window.args["spec"]
    first = _edge(text, spec, "start", places)
    last = 0
    if spec.args.get("end") is not None:
        last = _edge(text, spec, "end", places)
    if first > last or last == BEGINNING or first == FOREVER:
        raise text.error("a frame that ends before it begins", span_of(window), NUMBER_HINT)
    return ValueFrame(OverFrame(by, first, last), key)


def _edge(text: Text, spec: exp.Expr, which: str, places: int | None) -> int:
    edge, side = spec.args[which], str(spec.args.get(f"{which}_side") or "PRECEDING").upper()
    if edge == "CURRENT ROW":
        return 0
    if edge == "UNBOUNDED":
        return FOREVER if side == "FOLLOWING" else BEGINNING
    size = length_us(text, edge) if places is None else _size(text, edge, places)
    return -size if side == "PRECEDING" else size


def _size(text: Text, node: exp.Expr, places: int) -> int:
    """A length in units of the last of so many places."""
    written = _number(node)
    if written is None or written.scaleb(places) != int(written.scaleb(places)):
        what = "RANGE takes a number here" if written is None else "RANGE with a finer length"
        raise text.error(what, span_of(node), f"{NUMBER_HINT}; frames of time: {TIME_HINT}")
    return int(written.scaleb(places))


def _number(node: object) -> Decimal | None:
    plain = isinstance(node, exp.Literal) and not node.is_string
    return Decimal(str(node.this)) if plain and isinstance(node, exp.Literal) else None


def _places(spec: exp.Expr) -> list[int]:
    """How many places behind the point the edges of a frame have."""
    written = (_number(spec.args.get(edge)) for edge in ("start", "end"))
    return [max(0, -int(n.as_tuple().exponent)) for n in written if n is not None]
