"""Types of expressions by Spark's analyser, and the casts it would add where they can raise.

Spark runs with ANSI rules: `text > 5` casts the text, and fails on one that is no number. Such a
cast is written into the expression, so that what can raise is visible (`expressions.total`).
Widening casts stay Spark's own business.
"""

from collections.abc import Sequence
from itertools import islice

from sqlglot import exp

from millstream.language.cql.analyzer import AnalysisFailure, Analyzer
from millstream.language.cql.binding.expressions import Lowering, name_span, span_of
from millstream.language.cql.binding.patterns import refuse_unreadable
from millstream.language.cql.functions import INSTEAD
from millstream.language.cql.known_types import known_type
from millstream.language.cql.literals import ConstantError, cast, number, plain_text, refuse_moving
from millstream.language.cql.parsing.syntax import Span
from millstream.language.cql.times_of_text import (
    LAMBDA_HINT,
    TimeTextError,
    as_type,
    read_as_times,
    refuse_parsed,
    with_dated_lambdas,
)
from millstream.language.cql.types import INTEGERS
from millstream.language.plan.expressions import (
    COMPARISONS,
    Call,
    Cast,
    Expr,
    Lambda,
    Literal,
    children,
    walk,
)
from millstream.language.plan.schema import Schema
from millstream.language.plan.sql_text import DATED, sql

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
        self._seen = 0  # so many of the trail have a type

    def check(self, roots: Sequence[tuple[Expr, exp.Expr]]) -> list[tuple[Expr, str]]:
        """Types everything on the trail; gives the roots with casts made visible."""
        nodes: dict[Expr, exp.Expr] = {}
        trail = self._lowering.trail
        for made, node in islice(trail, min(self._seen, len(trail)), None):
            if made in self._types or (isinstance(made, Literal) and made.type in SYNTAX):
                continue
            self._nodes.setdefault(made, node)
            known = known_type(made, self._columns, self._types.get)
            if known is None:
                nodes.setdefault(made, node)
            else:
                self._types[made] = known
        self._types.update(zip(nodes, self._analyse(list(nodes), nodes), strict=True))
        refuse_unreadable(self._lowering.text, self._analyzer, nodes.items(), self._types.get)
        self._seen = len(trail)
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
            hint = failure.hint
            if isinstance(at, exp.Anonymous):  # Spark has it, but not with these arguments
                hint = hint or INSTEAD.get(at.name.lower(), "")
            raise self._lowering.text.error(message, _spot(at, failure.message), hint) from None

    def _root(self, made: Expr, node: exp.Expr) -> tuple[Expr, str]:
        if depth(made) > DEPTH_MAX:
            raise self._lowering.fail(
                f"the expression nests more than {DEPTH_MAX} deep", node, "split it"
            )
        try:
            return self._visible(made, node), self._types[made]
        except TimeTextError as mistake:
            raise self._lowering.fail(mistake.message, node, mistake.hint) from None

    def _visible(self, made: Expr, node: exp.Expr) -> Expr:
        node = self._nodes.get(made, node)
        match made:
            case Call(name, args):
                refuse_parsed(made, self._types.get(made))
                wanted = self._wanted(name, made)
                pairs = list(zip(args, wanted, strict=True))
                shown = [self._cast(self._visible(a, node), a, w, node) for a, w in pairs]
                return self._dated(Call(name, tuple(shown)), made, node)
            case Cast(arg, type_, lenient):
                guarded = as_type(self._visible(arg, node), self._types.get(arg), type_)
                return Cast(guarded, type_, lenient)
            case _:
                return made

    def _dated(self, shown: Call, made: Call, node: exp.Expr) -> Expr:
        """The call with texts guarded that Spark itself would cast to timestamps."""
        if any(isinstance(a, Lambda) for a in shown.args):
            return self._with_lambdas(shown)
        moving = read_as_times(made, self._types.get, self._analyzer)
        args = list(shown.args)
        for i in moving:
            original = made.args[i]
            if isinstance(original, Literal):
                self._refuse_moving(original, node)
            args[i] = Call(DATED, (args[i],))
        return Call(shown.name, tuple(args))

    def _refuse_moving(self, text: Literal, node: exp.Expr) -> None:
        try:
            refuse_moving(plain_text(text), "timestamp")
        except ConstantError as mistake:
            at = self._nodes.get(text, node)
            raise self._lowering.fail(str(mistake), at, mistake.hint) from None

    def _with_lambdas(self, call: Call) -> Call:
        """Types inside lambdas are Spark's to know: it says whether a text is read there."""
        for part in walk(call):
            if isinstance(part, Call):
                refuse_parsed(part, self._types.get(part))
        if not self._analyzer.reads_texts_as_times(self._columns, sql(call)):
            return call
        guarded = with_dated_lambdas(call)
        if self._analyzer.reads_texts_as_times(self._columns, sql(guarded)):
            raise TimeTextError("a text is read as a timestamp inside a lambda", LAMBDA_HINT)
        return guarded

    def _cast(self, visible: Expr, original: Expr, wanted: str | None, node: exp.Expr) -> Expr:
        known = self._types.get(original)
        if wanted is None or wanted == "string":
            return visible
        if known != "string":
            as_type(visible, known, wanted)  # an array of texts that becomes one of timestamps
            return visible
        try:
            made = cast(as_type(visible, known, wanted), wanted)
            if isinstance(made, Literal) and wanted == "bigint":  # as if written without quotes
                made = number(made.text.removesuffix("L"))
        except ConstantError as mistake:
            at = self._nodes.get(original, node)
            raise self._lowering.fail(str(mistake), at, mistake.hint) from None
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
