"""Types of expressions by Spark's analyser, and the casts it would add where they can raise.

Spark runs with ANSI rules: `text > 5` casts the text, and fails on one that is no number. Such a
cast is written into the expression, so that what can raise is visible (`expressions.total`).
Widening casts stay Spark's own business.
"""

from collections.abc import Sequence

from sqlglot import exp

from millstream.cql.analyzer import AnalysisFailure, Analyzer
from millstream.cql.expressions import Lowering, name_span, span_of
from millstream.cql.known_types import known_type
from millstream.cql.literals import ConstantError, cast, number
from millstream.cql.patterns import refuse_unreadable
from millstream.cql.syntax import Span
from millstream.cql.types import INTEGERS
from millstream.plan.expressions import COMPARISONS, Call, Cast, Expr, Literal, children
from millstream.plan.schema import Schema
from millstream.plan.sql_text import sql

# What a text among the arguments of these functions is cast to; the last repeats. They are total
# otherwise (`plan.expressions.TOTAL`).
ARGUMENTS: dict[str, tuple[str | None, ...]] = {
    "and": ("boolean",),
    "or": ("boolean",),
    "not": ("boolean",),
    "isnan": ("double",),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofmonth"), ("date",)),
    **dict.fromkeys(("dayofweek", "weekday", "dayofyear", "weekofyear"), ("date",)),
    **dict.fromkeys(("hour", "minute", "second"), ("timestamp",)),
    "date_trunc": (None, "timestamp"),
    **dict.fromkeys(("substring", "substr"), (None, "int", "int")),
    **dict.fromkeys(("left", "right"), (None, "int")),
}
DEPTH_MAX = 200  # Spark and the walks over plans recurse
SYNTAX = frozenset({"unit", "name"})  # constants that are words of the syntax, not values


class Typed:
    """Expressions over one kind of row, with their types."""

    def __init__(self, lowering: Lowering, columns: Schema, analyzer: Analyzer) -> None:
        self._lowering, self._columns, self._analyzer = lowering, columns, analyzer
        self._types: dict[Expr, str] = {}
        self._nodes: dict[Expr, exp.Expr] = {}

    def check(self, roots: Sequence[tuple[Expr, exp.Expr]]) -> list[tuple[Expr, str]]:
        """Types everything on the trail; gives the roots with casts made visible."""
        nodes: dict[Expr, exp.Expr] = {}
        for made, node in self._lowering.trail:
            if made in self._types or (isinstance(made, Literal) and made.type in SYNTAX):
                continue
            self._nodes.setdefault(made, node)
            known = known_type(made, self._columns, self._types.get)
            if known is None:
                nodes.setdefault(made, node)
            else:
                self._types[made] = known
        self._types.update(zip(nodes, self._analyse(list(nodes), nodes), strict=True))
        refuse_unreadable(self._lowering.text, self._analyzer, nodes.items())
        return [self._root(made, node) for made, node in roots]

    def _analyse(self, made: list[Expr], nodes: dict[Expr, exp.Expr]) -> tuple[str, ...]:
        try:
            return self._analyzer.analyse(self._columns, [sql(e) for e in made])
        except AnalysisFailure as failure:
            at = nodes[made[failure.index]]
            message = failure.message
            if isinstance(at, exp.Anonymous):
                message = message.replace("this aggregate", f"aggregate {at.name}")
                message = message.replace("the expression", at.name)
            raise self._lowering.text.error(
                message, _spot(at, failure.message), failure.hint
            ) from None

    def _root(self, made: Expr, node: exp.Expr) -> tuple[Expr, str]:
        if depth(made) > DEPTH_MAX:
            raise self._lowering.fail(
                f"the expression nests more than {DEPTH_MAX} deep", node, "split it"
            )
        return self._visible(made), self._types[made]

    def _visible(self, made: Expr) -> Expr:
        match made:
            case Call(name, args):
                wanted = self._wanted(name, made)
                pairs = zip(args, wanted, strict=True)
                return Call(name, tuple(self._cast(self._visible(a), a, w) for a, w in pairs))
            case Cast(arg, type_, lenient):
                return Cast(self._visible(arg), type_, lenient)
            case _:
                return made

    def _cast(self, visible: Expr, original: Expr, wanted: str | None) -> Expr:
        if wanted is None or self._types.get(original) != "string" or wanted == "string":
            return visible
        try:
            made = cast(visible, wanted)
            if isinstance(made, Literal) and wanted == "bigint":  # as if written without quotes
                made = number(made.text.removesuffix("L"))
        except ConstantError as mistake:
            raise self._lowering.fail(str(mistake), self._nodes[original]) from None
        if isinstance(made, Literal):  # a constant of another type: does Spark read it?
            self._analyse([made], {made: self._nodes[original]})
        return made

    def _wanted(self, name: str, call: Call) -> tuple[str | None, ...]:
        """For each argument the type a text there is cast to, or None."""
        args = call.args
        types = [self._types.get(a) for a in args]
        if name in COMPARISONS or name == "nullif":
            return tuple(_promoted(types[1 - i]) for i in range(2))
        if name == "in":
            others = [t for t in types if t not in (None, "string", "void")]
            return (_promoted(others[0] if others else None),) * len(args)
        if name in ARGUMENTS:
            given = ARGUMENTS[name]
            return tuple(given[min(i, len(given) - 1)] for i in range(len(args)))
        result = self._types.get(call)
        if name in ("coalesce", "nvl", "ifnull", "greatest", "least"):
            return (result,) * len(args)
        if name == "if":
            return ("boolean", result, result)[: len(args)]
        if name == "case":
            arms = tuple("boolean" if i % 2 == 0 else result for i in range(len(args) - 1))
            return (*arms, result)
        return (None,) * len(args)


def depth(made: Expr) -> int:
    """How deeply calls nest."""
    level, count = [made], 0
    while level:
        level, count = [child for e in level for child in children(e)], count + 1
    return count


def _promoted(other: str | None) -> str | None:
    """What ANSI casts a text to when it meets a value of this type."""
    if other is None or other in ("string", "void"):
        return None
    if other in INTEGERS:
        return "bigint"
    if other == "float" or other.startswith("decimal"):
        return "double"
    return other


def _spot(node: exp.Expr, message: str) -> Span:
    """A function's own name where the message is about it, else all of the node."""
    if isinstance(node, exp.Anonymous) and (
        "unknown function" in message or "not deterministic" in message or "argument" in message
    ):
        return name_span(node)
    return span_of(node)


def as_condition(lowering: Lowering, clause: str, typed: tuple[Expr, str], node: exp.Expr) -> Expr:
    """A condition of a clause; NULL is one that is never true."""
    made, type_ = typed
    if type_ == "void":
        return cast(made, "boolean")
    if type_ != "boolean":
        raise lowering.fail(f"{clause} needs a condition, got {type_}", node, "compare it")
    return made
