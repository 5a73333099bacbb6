"""Names of Spark's types in one spelling: `long` is `bigint`, `NUMERIC(4)` is `decimal(4,0)`.

The spelling is that of Spark's own DDL, so that types compare as text.
"""

import re
from difflib import get_close_matches

from millstream.core.errors import UsageError
from millstream.language.plan.schema import Field, Schema

ALIASES = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "int32": "int",
    "long": "bigint",
    "int64": "bigint",
    "real": "float",
    "text": "string",
    "str": "string",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "datetime": "timestamp",
    "null": "void",
}
SIMPLE = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"}
    | {"date", "timestamp", "timestamp_ntz", "void", "variant", "decimal"}
)
INTEGERS = ("tinyint", "smallint", "int", "bigint")
DEPTH_MAX, DIGITS_MAX, SHOWN_MAX = 50, 10, 200  # of a type, of a number in it, in a message
TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[^\W]+|[<>(),:])", re.UNICODE)


def canonical(text: str) -> str:
    """A type's one spelling.

    >>> canonical("LONG"), canonical("array<struct<a: Integer, b:decimal(10, 2)>>")
    ('bigint', 'array<struct<a:int,b:decimal(10,2)>>')
    """
    tokens = TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s+(?=(?:[^`]*`[^`]*`)*[^`]*$)", "", text):
        raise _unknown(text)
    reader = _Reader(text, tokens)
    result = reader.type()
    if reader.left():
        raise _unknown(text)
    return result


def fields_of(type_: str) -> Schema:
    """The fields of a struct, in its one spelling.

    >>> [f.type for f in fields_of("struct<a:int,b:struct<c:int,d:decimal(4,2)>>")]
    ['int', 'struct<c:int,d:decimal(4,2)>']
    """
    parts, depth = [""], 0
    for sign in type_.removeprefix("struct<").removesuffix(">"):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    pairs = (part.partition(":") for part in parts if part)
    return tuple(Field(name.strip("`"), kind) for name, _, kind in pairs)


class _Reader:
    """Recursive descent over the tokens of one type."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text, self._tokens, self._at = text, tokens, 0
        self._depth = 0

    def left(self) -> bool:
        return self._at < len(self._tokens)

    def _next(self) -> str:
        if not self.left():
            raise _unknown(self._text)
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at] if self.left() else ""

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _unknown(self._text)

    def type(self) -> str:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UsageError(f"a type nests at most {DEPTH_MAX} deep", hint="flatten it")
        found = self._type()
        self._depth -= 1
        return found

    def _type(self) -> str:
        word = self._next().lower()
        name = ALIASES.get(word, word)
        if name == "array":
            return f"array<{self._arguments(1)[0]}>"
        if name == "map":
            return f"map<{','.join(self._arguments(2))}>"
        if name == "struct":
            return self._struct()
        if name in ("varchar", "char", "character"):
            self._numbers()
            return "string"
        if name == "decimal":
            numbers = self._numbers()
            return f"decimal({(*numbers, 10)[0]},{(*numbers, 0, 0)[1]})"
        if name == "interval":
            return self._interval()
        if name not in SIMPLE:
            raise _unknown(word)
        return name

    def _numbers(self) -> tuple[int, ...]:
        """`(10, 2)`, or nothing."""
        found: list[int] = []
        if self._peek() == "(":
            self._next()
            while True:
                word = self._next()
                if not (word.isdigit() and len(word) < DIGITS_MAX):
                    raise _unknown(self._text)
                found.append(int(word))
                if self._next() == ")":
                    break
        return tuple(found)

    def _arguments(self, count: int) -> list[str]:
        self._expect("<")
        types = [self.type()]
        while self._peek() == ",":
            self._next()
            types.append(self.type())
        self._expect(">")
        if len(types) != count:
            raise _unknown(self._text)
        return types

    def _struct(self) -> str:
        self._expect("<")
        fields: list[str] = []
        while self._peek() != ">":
            if fields:
                self._expect(",")
            name = self._next()
            if self._peek() == ":":
                self._next()
            fields.append(f"{name}:{self.type()}")
        self._next()
        return f"struct<{','.join(fields)}>"

    def _interval(self) -> str:
        words = ["interval"]
        while self.left() and re.fullmatch(r"\w+", self._peek()):
            words.append(self._next().lower())
        return " ".join(words)


def _unknown(text: str) -> UsageError:
    text = text[:SHOWN_MAX]
    near = get_close_matches(text.strip().lower(), [*SIMPLE, *ALIASES], 1)
    hint = f"did you mean {near[0]}?" if near else "e.g. string, int, long, double, timestamp"
    return UsageError(f"unknown type {text.strip()}", hint=hint)
