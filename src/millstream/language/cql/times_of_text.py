"""Texts that become timestamps: what is read may not depend on the day of the run.

Spark takes a text with a time of day alone ('12:30') for a time of today, and words such as 'now'
for what they mean while it plans. A constant of that kind is refused. Any other text passes
`dated` on its way to a timestamp: one that does not begin with a year stops being readable there,
so a cast of it fails and a `try_cast` gives NULL, as for any malformed text.
"""

import re
from collections.abc import Callable, Sequence

from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.literals import ConstantError, plain_text, refuse_moving
from millstream.language.cql.types import TOKEN
from millstream.language.plan.expressions import (
    COMPARISONS,
    Call,
    Cast,
    Column,
    Expr,
    Lambda,
    Literal,
    columns_of,
    transform,
    uses_time,
    walk,
)
from millstream.language.plan.schema import Field
from millstream.language.plan.sql_text import DATED, sql

TIMES = ("date", "timestamp", "timestamp_ntz")
PARSERS = frozenset({"from_json", "from_csv", "from_xml", "variant_get", "try_variant_get"})
# Read their texts as texts, or have them cast in `coercion.py`: no need to ask Spark.
UNASKED = frozenset(
    {*COMPARISONS, "and", "or", "not", "in", "like", "ilike", "rlike", "like_escape", "||"}
    | {"is_null", "is_not_null", "case", "if", "coalesce", "nvl", "ifnull", "nullif", "greatest"}
    | {"least", "lower", "upper", "length", "trim", "ltrim", "rtrim", "concat", "concat_ws"}
    | {"substring", "substr", "left", "right", "replace", "split", "element", "field", "instr"}
    | {"regexp_replace", "regexp_extract", "startswith", "endswith", "contains", "isnan"}
    | {"named_struct", "to_json", DATED, *PARSERS}
)
NESTED_HINT = "make each a text first: CAST(CAST(x AS string) AS timestamp)"
LAMBDA_HINT = "write CAST(x AS timestamp) where it is read"
TypeOf = Callable[[Expr], str | None]


class TimeTextError(Exception):
    """A text that would be read as a timestamp where nothing can guard it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def as_type(arg: Expr, known: str | None, wanted: str) -> Expr:
    """An argument on its way to another type: guarded where it is a text that becomes a time.

    >>> as_type(Column(0), "string", "timestamp")
    Call(name='dated', args=(Column(index=0),))
    >>> as_type(Column(0), "string", "date"), as_type(Column(0), "bigint", "timestamp")
    (Column(index=0), Column(index=0))
    """
    if known is None or isinstance(arg, Literal):
        return arg
    if known == "string":
        folded = wanted in TIMES and not columns_of(arg) and not uses_time(arg)
        return Call(DATED, (arg,)) if wanted == "timestamp" or folded else arg
    if becomes_time(known, wanted):
        raise TimeTextError(f"texts in {known} cannot be read as timestamps at once", NESTED_HINT)
    return arg


def becomes_time(known: str, wanted: str) -> bool:
    """Whether a cast between the types reads a text as a timestamp somewhere inside.

    >>> becomes_time("array<string>", "array<timestamp>"), becomes_time("variant", "timestamp")
    (True, True)
    >>> becomes_time("struct<a:string,b:timestamp>", "struct<x:string,y:timestamp>")
    False
    """
    old, new = leaves(known), leaves(wanted)
    if len(old) != len(new):
        return "timestamp" in new and bool({"string", "variant"} & set(old))
    return any(
        a in ("string", "variant") and b == "timestamp" for a, b in zip(old, new, strict=True)
    )


def leaves(type_: str) -> tuple[str, ...]:
    """The simple types that a type is made of, in order.

    >>> leaves("map<string,struct<timestamp:int,b:timestamp>>")
    ('string', 'int', 'timestamp')
    """
    tokens = TOKEN.findall(type_)
    pairs = zip(tokens, [*tokens[1:], ""], strict=True)
    return tuple(t for t, after in pairs if after not in (":", "<") and re.match(r"\w|`", t))


def refuse_parsed(call: Call, result: str | None) -> None:
    """Refuses functions that parse texts with timestamps in them: their reading has no guard."""
    if call.name not in PARSERS:
        return
    texts = [a.text for a in call.args[1:] for a in walk(a) if isinstance(a, Literal)]
    if "'timestampformat'" in (t.lower() for t in texts):
        return  # with a pattern of its own Spark never adds the day
    schema = " ".join(texts) if result is None else " ".join(leaves(result))
    if re.search(r"\btimestamp\b", schema, re.IGNORECASE):
        raise TimeTextError(
            f"{call.name} cannot read timestamps: a time of day alone would become today's",
            "read it as a string, then CAST(... AS timestamp)",
        )


def read_as_times(call: Call, type_of: TypeOf, analyzer: Analyzer) -> frozenset[int]:
    """Which arguments, texts all, Spark casts to timestamps by itself."""
    if call.name in UNASKED or any(isinstance(a, Lambda) for a in call.args):
        return frozenset()
    texts = [i for i, arg in enumerate(call.args) if _askable(arg, type_of(arg))]
    if not texts:
        return frozenset()
    moving = [i for i in texts if not _constant(call.args[i])]
    for chosen in (texts, moving):  # some arguments must be constants
        found = analyzer.read_as_times(*_probe(call, chosen, type_of))
        if found is not None:
            return found & frozenset(chosen)
    return frozenset()


def _askable(arg: Expr, type_: str | None) -> bool:
    if type_ != "string":
        return False
    if not isinstance(arg, Literal):
        return True
    try:
        refuse_moving(plain_text(arg), "timestamp")
    except ConstantError:
        return True
    return False


def _constant(arg: Expr) -> bool:
    return not columns_of(arg) and not uses_time(arg)


def _probe(call: Call, chosen: Sequence[int], type_of: TypeOf) -> tuple[tuple[Field, ...], str]:
    """The call over a column for each argument that is chosen or no constant."""
    fields, args = [], []
    for i, arg in enumerate(call.args):
        type_ = type_of(arg)
        column = type_ is not None and (i in chosen or not _constant(arg))
        fields.append(Field(f"c{i}", type_ if column and type_ else "string"))
        args.append(Column(i) if column else arg)
    return tuple(fields), sql(Call(call.name, tuple(args)))


def with_dated_lambdas(call: Call) -> Call:
    """Casts to timestamps inside lambdas, by way of guarded texts."""

    def change(part: Expr) -> Expr | None:
        if isinstance(part, Cast) and part.type == "timestamp":
            return Cast(Call(DATED, (Cast(part.arg, "string"),)), part.type, part.lenient)
        return None

    return Call(
        call.name, tuple(transform(a, change) if isinstance(a, Lambda) else a for a in call.args)
    )
