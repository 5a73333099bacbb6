"""Constants in one spelling each, as Spark reads them back.

A constant that cannot be what it is compared with is refused here, when the query is registered.
"""

import re

from millstream.language.cql.types import INTEGERS
from millstream.language.plan.expressions import Cast, Expr, Literal

SUFFIXES = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
SPECIAL_TIME = re.compile(r"(now|today|tomorrow|yesterday)(\s.*)?", re.IGNORECASE | re.DOTALL)
TIME_OF_DAY = re.compile(r"T\d|\d{1,2}:")
DAY_US = 86_400_000_000


class ConstantError(Exception):
    """A text that is no value of the wanted type."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def number(text: str) -> Literal:
    """
    >>> number("5"), number("1.50"), number("3000000000").type
    (Literal(text='5', type='int'), Literal(text='1.50', type='decimal(3,2)'), 'bigint')
    """
    if "e" in text.lower():
        return Literal(text, "double")
    digits = text.lstrip("-")
    if "." in digits:
        whole, _, part = digits.partition(".")
        precision = max(len(whole.lstrip("0") + part), len(part), 1)
        return Literal(text, f"decimal({precision},{len(part)})")
    value = int(text)
    for type_ in ("int", "bigint"):
        if _fits(value, type_):
            return Literal(text, type_)
    return Literal(text, f"decimal({len(digits.lstrip('0'))},0)")


def negated(literal: Literal) -> Literal | None:
    """-5 as a constant; None for what is no number."""
    if not re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?[A-Z]*", literal.text, re.IGNORECASE):
        return None
    text = literal.text[1:] if literal.text.startswith("-") else f"-{literal.text}"
    if literal.type in ("int", "bigint") and text[-1].isdigit():
        return number(text)
    return Literal(text, literal.type)


def string(text: str) -> Literal:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return Literal(f"'{escaped}'", "string")


def plain_text(literal: Literal) -> str:
    """The text of a string constant."""
    inner = literal.text[1:-1]
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], inner)


def interval(length_us: int) -> Literal:
    """
    >>> interval(90_000_000).text
    "INTERVAL '0 00:01:30.000000' DAY TO SECOND"
    """
    sign, left = ("-" if length_us < 0 else ""), abs(length_us)
    days, left = divmod(left, DAY_US)
    hours, left = divmod(left, 3_600_000_000)
    minutes, left = divmod(left, 60_000_000)
    seconds, us = divmod(left, 1_000_000)
    text = f"{sign}{days} {hours:02}:{minutes:02}:{seconds:02}.{us:06}"
    return Literal(f"INTERVAL '{text}' DAY TO SECOND", "interval day to second")


def cast(arg: Expr, type_: str, *, lenient: bool = False) -> Expr:
    """A cast, done at once where the argument is a constant and the outcome plain.

    >>> cast(number("5"), "bigint")
    Literal(text='5L', type='bigint')
    """
    if not isinstance(arg, Literal):
        return Cast(arg, type_, lenient)
    if arg.type == type_:
        return arg
    if arg.type == "void":
        return Cast(arg, type_, lenient=True)  # a typed NULL never raises
    if arg.type == "string" and type_ in ("date", "timestamp", "timestamp_ntz"):
        refuse_moving(plain_text(arg), type_)
        if type_ != "timestamp_ntz" and not lenient:
            return Literal(f"{type_.upper()} {string(plain_text(arg)).text}", type_)
    if arg.type == "string" and type_ in INTEGERS and not lenient:
        return _integer(plain_text(arg).strip(), type_)
    if arg.type == "string" and re.fullmatch(r"-?\d+\.\d+", plain_text(arg)):
        exact = number(plain_text(arg))
        return exact if exact.type == type_ else Cast(arg, type_, lenient)
    if arg.type in ("int", "bigint") and type_ in INTEGERS and arg.text.lstrip("-").isdigit():
        return _integer(arg.text, type_)
    if type_ == "double" and re.fullmatch(r"-?[\d.]+", arg.text):
        return Literal(f"{arg.text}D", "double")
    return Cast(arg, type_, lenient)


def _integer(text: str, type_: str) -> Literal:
    if not re.fullmatch(r"[-+]?\d+", text):
        raise ConstantError(f"'{text}' is no {type_}")
    value = int(text)
    if not _fits(value, type_):
        raise ConstantError(f"{value} does not fit {type_}")
    return Literal(f"{value}{SUFFIXES[type_]}", type_)


def refuse_moving(text: str, type_: str) -> None:
    """Refuses a text that means another time on another day.

    >>> refuse_moving("2026-01-31 12:30", "timestamp"), refuse_moving("epoch", "timestamp")
    (None, None)
    """
    bare = text.strip()
    if SPECIAL_TIME.fullmatch(bare):
        raise ConstantError(f"'{text}' depends on when it is read", "write the date: '2026-01-31'")
    if type_ == "timestamp" and TIME_OF_DAY.match(bare):
        raise ConstantError(
            f"'{text}' is a time of day without a date",
            "a result may not depend on the day of the run; write the date as well: "
            f"'2026-01-31 {bare.removeprefix('T')}'",
        )


def _fits(value: int, type_: str) -> bool:
    half: int = 2 ** (BITS[type_] - 1)
    return -half <= value < half
