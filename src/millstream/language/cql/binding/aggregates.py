"""Aggregates of a select: calls over the rows of FROM, and names over the groups they give."""

from dataclasses import dataclass

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.analyzer import AnalysisFailure, Analyzer
from millstream.language.cql.binding.coercion import Typed, as_condition
from millstream.language.cql.binding.expressions import NULL, Lowering, name_span, span_of
from millstream.language.cql.binding.storing import refuse_incomparable, refuse_unwritable
from millstream.language.cql.functions import AGGREGATES
from millstream.language.cql.literals import string
from millstream.language.plan.expressions import Call, Expr, Literal
from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.sql_text import sql

NUMERIC = frozenset({"sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"})
ORDERED = frozenset({"min", "max"})
MANY = frozenset({"count"})  # takes more than one argument


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """An aggregate in the text; `node` includes its FILTER."""

    node: exp.Expr
    call: exp.Anonymous
    condition: exp.Expr | None


def find(node: exp.Expr) -> list[Found]:
    """The aggregates of an expression, outermost ones only."""
    found: list[Found] = []
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, exp.Subquery | exp.Select):
            continue
        if isinstance(here, exp.Filter) and _aggregate(here.this):
            found.append(Found(here, here.this, here.expression.this))
        elif isinstance(here, exp.Anonymous) and _aggregate(here):
            found.append(Found(here, here, None))
        else:
            waiting += reversed(list(here.iter_expressions()))
    return found


def _aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


class CallBinder:
    """Binds the aggregates of one select over the rows of its FROM."""

    def __init__(self, lowering: Lowering, row: Schema, analyzer: Analyzer) -> None:
        self._lowering, self._row, self._analyzer = lowering, row, analyzer

    def bind(self, found: list[Found]) -> list[AggregateCall]:
        """One call for each, in order."""
        arguments = [self._arguments(f) for f in found]
        lowered = [[self._lowering.lower(a) for a in args] for args, _ in arguments]
        conditions = [
            None if f.condition is None else self._lowering.lower(f.condition) for f in found
        ]
        typed = Typed(self._lowering, self._row, self._analyzer)
        typed.check([])
        calls = []
        for f, made, nodes, condition in zip(found, lowered, arguments, conditions, strict=True):
            args = typed.check(list(zip(made, nodes[0], strict=True)))
            where = None
            if condition is not None and f.condition is not None:
                (found_type,) = typed.check([(condition, f.condition)])
                where = as_condition(self._lowering, "FILTER", found_type, f.condition)
            self._refuse_unstorable(f, args, nodes)
            calls.append(self._call(f, args, nodes[1], where))
        return self._typed(found, calls)

    def _refuse_unstorable(
        self, found: Found, args: list[tuple[Expr, str]], nodes: tuple[list[exp.Expr], bool]
    ) -> None:
        """Values are kept until their group is complete, except by a plain count."""
        (arguments, distinct), text = nodes, self._lowering.text
        if AGGREGATES[found.call.name.lower()] == "count" and not distinct:
            return
        for (_, type_), node in zip(args, arguments, strict=True):
            refuse_unwritable(text, type_, node)
        if distinct:
            keys = tuple(
                Field(text.slice(span_of(node)), type_)
                for (_, type_), node in zip(args, arguments, strict=True)
            )
            refuse_incomparable(text, self._analyzer, "DISTINCT", keys, arguments)

    def _arguments(self, found: Found) -> tuple[list[exp.Expr], bool]:
        """The arguments, and whether DISTINCT stands before them."""
        call, name = found.call, found.call.name
        args: list[exp.Expr] = list(call.expressions)
        distinct = len(args) == 1 and isinstance(args[0], exp.Distinct)
        if distinct:
            args = list(args[0].expressions)
        for arg in args:
            if find(arg):
                raise self._fail("an aggregate inside an aggregate", arg, "use a subquery in FROM")
        if AGGREGATES[name.lower()] not in MANY and len(args) != 1:
            raise self._fail(f"{name} takes one argument, got {len(args)}", call)
        if not args:
            raise self._fail(f"{name} needs an argument", call, f"write {name}(*)")
        if len(args) == 1 and isinstance(args[0], exp.Star):
            if AGGREGATES[name.lower()] != "count" or distinct:
                raise self._fail(f"{name} does not take *", args[0], "name a column")
            args = []
        return args, distinct

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._lowering.text.error(message, span_of(node), hint)

    def _call(
        self, found: Found, args: list[tuple[Expr, str]], distinct: bool, where: Expr | None
    ) -> AggregateCall:
        function = AGGREGATES[found.call.name.lower()]
        if function == "count":
            return _count(args, distinct, where)
        ((argument, type_),) = args
        if function in NUMERIC and type_ == "string":
            node = self._arguments(found)[0][0]
            written = self._lowering.text.slice(span_of(node))
            raise self._fail(
                f"{found.call.name} of {written}, which is a text",
                node,
                f"where it holds numbers: {found.call.name}(CAST({written} AS DOUBLE))",
            )
        if function in ("min", "max", "first", "last"):
            distinct = distinct and function not in ("min", "max")
            if distinct:
                raise self._fail(f"{function} does not take DISTINCT", found.call)
            return AggregateCall(function, argument, type_, type_, False, where)
        return AggregateCall(function, argument, "", type_, distinct, where)

    def _typed(self, found: list[Found], calls: list[AggregateCall]) -> list[AggregateCall]:
        """Result types, from Spark."""
        asked = [i for i, c in enumerate(calls) if c.function in NUMERIC or c.function in ORDERED]
        texts = [f"{calls[i].function}({sql(calls[i].argument or NULL)})" for i in asked]
        try:
            types = self._analyzer.analyse(self._row, texts, aggregates=True)
        except AnalysisFailure as failure:
            at = found[asked[failure.index]].call
            raise self._lowering.text.error(failure.message, name_span(at), failure.hint) from None
        result = list(calls)
        for i, type_ in zip(asked, types, strict=True):
            c = calls[i]
            result[i] = AggregateCall(
                c.function, c.argument, type_, c.argument_type, c.distinct, c.condition
            )
        return result


def _count(args: list[tuple[Expr, str]], distinct: bool, where: Expr | None) -> AggregateCall:
    """count(*), count(x), count(x, y): rows in which every argument has a value."""
    if not args or (not distinct and all(isinstance(a, Literal) and t != "void" for a, t in args)):
        return AggregateCall("count", None, "bigint", None, False, where)
    if len(args) == 1:
        ((argument, type_),) = args
        return AggregateCall("count", argument, "bigint", type_, distinct, where)
    missing: Expr = Call("is_null", (args[0][0],))
    for arg, _ in args[1:]:
        missing = Call("or", (missing, Call("is_null", (arg,))))
    named = [part for i, (a, _) in enumerate(args) for part in (string(f"a{i}"), a)]
    row = Call("named_struct", tuple(named))
    fields = ",".join(f"a{i}:{t}" for i, (_, t) in enumerate(args))
    return AggregateCall(
        "count", Call("if", (missing, NULL, row)), "bigint", f"struct<{fields}>", distinct, where
    )
