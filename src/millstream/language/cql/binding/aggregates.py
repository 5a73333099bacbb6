"""Aggregates of a select: calls over the rows of FROM, and names over the groups they give."""

from dataclasses import dataclass

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.aggregate_calls import (
    ARGUMENTS,
    MAY_ORDER,
    Asked,
    CallError,
    Ordering,
    meaning,
)
from millstream.language.cql.analyzer import AnalysisFailure, Analyzer
from millstream.language.cql.binding.coercion import Typed, as_condition
from millstream.language.cql.binding.expressions import NULL, Lowering, name_span, span_of
from millstream.language.cql.binding.storing import refuse_incomparable, refuse_unwritable
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.user_aggregates import MARK, function_of, user_call
from millstream.language.plan.expressions import Expr
from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.sql_text import sql

NUMERIC = frozenset({"sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"})
# need values with an order
COMPARING = frozenset({"collect_set", "histogram", "mode", "percentile_disc"})
ORDERED = frozenset({"min", "max"})
MANY = frozenset({"count"})  # takes more than one argument


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """An aggregate in the text; `node` includes what stands around the call."""

    node: exp.Expr
    call: exp.Anonymous
    condition: exp.Expr | None  # of FILTER
    order: tuple[exp.Ordered, ...] = ()  # of WITHIN GROUP
    skips_nulls: bool = False  # IGNORE NULLS


def find(node: exp.Expr) -> list[Found]:
    """The aggregates of an expression, outermost ones only."""
    found: list[Found] = []
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, exp.Subquery | exp.Select):
            continue
        made = _found(here)
        if made is not None:
            found.append(made)
        elif not isinstance(here, exp.Window):
            waiting += reversed(list(here.iter_expressions()))
    return found


def _found(node: exp.Expr) -> Found | None:
    """The aggregate that a node is, with what is written around the call."""
    condition, order, skips = None, (), False
    here = node
    while not isinstance(here, exp.Anonymous):
        match here:
            case exp.Filter():
                condition = here.expression.this
            case exp.WithinGroup():
                order = tuple(here.expression.expressions)
            case exp.IgnoreNulls():
                skips = True
            case exp.RespectNulls():
                pass
            case _:
                return None
        here = here.this
    if not function_of(here):
        return None
    return Found(node, here, condition, order, skips)


def spell_out_all(text: Text, tree: exp.Expr) -> None:
    """`GROUP BY ALL`: everything in the select list that is no aggregate, nor a constant."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if group is None or not group.args.get("all"):
            continue
        keys = []
        for item in select.expressions:
            if item.is_star:
                raise text.error("* with GROUP BY ALL", span_of(item), "name the columns")
            node = item.unalias()
            names = {column.name.lower() for column in node.find_all(exp.Column)}
            bounds = names <= {"window_start", "window_end"} and not isinstance(node, exp.Column)
            if names and not (find(node) or node.find(exp.Window) or bounds):
                keys.append(node.copy())
        group.set("all", None)
        if keys:
            group.set("expressions", keys)
        else:
            select.set("group", None)


class CallBinder:
    """Binds the aggregates of one select over the rows of its FROM."""

    def __init__(self, lowering: Lowering, row: Schema, analyzer: Analyzer) -> None:
        self._lowering, self._row, self._analyzer = lowering, row, analyzer

    def bind(self, found: list[Found]) -> list[AggregateCall]:
        """One call for each, in order."""
        arguments = [self._arguments(f) for f in found]
        lowered = [[self._lowering.lower(a) for a in args] for args, _, _ in arguments]
        ordered = [[self._lowering.lower(o.this) for o in order] for _, _, order in arguments]
        conditions = [
            None if f.condition is None else self._lowering.lower(f.condition) for f in found
        ]
        typed = Typed(self._lowering, self._row, self._analyzer)
        typed.check([])
        calls = []
        for f, made, keys, nodes, condition in zip(
            found, lowered, ordered, arguments, conditions, strict=True
        ):
            args = typed.check(list(zip(made, nodes[0], strict=True)))
            order = self._ordering(typed, keys, nodes[2])
            where = None
            if condition is not None and f.condition is not None:
                (found_type,) = typed.check([(condition, f.condition)])
                where = as_condition(self._lowering, "FILTER", found_type, f.condition)
            self._refuse_unstorable(f, args, nodes[0], nodes[1])
            calls.append(self._call(f, args, nodes[1], order, where))
        return self._typed(found, calls)

    def _ordering(
        self, typed: Typed, keys: list[Expr], nodes: tuple[exp.Ordered, ...]
    ) -> tuple[Ordering, ...]:
        """Keys of ORDER BY, typed; their values are compared."""
        made = typed.check([(k, n.this) for k, n in zip(keys, nodes, strict=True)])
        text = self._lowering.text
        fields = tuple(
            Field(text.slice(span_of(n.this)), t) for (_, t), n in zip(made, nodes, strict=True)
        )
        refuse_incomparable(text, self._analyzer, "ORDER BY", fields, [n.this for n in nodes])
        return tuple(
            Ordering(key, type_, _way(node)) for (key, type_), node in zip(made, nodes, strict=True)
        )

    def _refuse_unstorable(
        self,
        found: Found,
        args: list[tuple[Expr, str]],
        arguments: list[exp.Expr],
        distinct: bool,
    ) -> None:
        """Values are kept until their group is complete, except by a plain count."""
        text = self._lowering.text
        distinct = distinct or function_of(found.call) in COMPARING
        if function_of(found.call) == "count" and not distinct:
            return
        for (_, type_), node in zip(args, arguments, strict=True):
            refuse_unwritable(text, type_, node)
        if distinct:
            keys = tuple(
                Field(text.slice(span_of(node)), type_)
                for (_, type_), node in zip(args, arguments, strict=True)
            )
            refuse_incomparable(text, self._analyzer, "DISTINCT", keys, arguments)

    def _arguments(self, found: Found) -> tuple[list[exp.Expr], bool, tuple[exp.Ordered, ...]]:
        """The arguments, whether DISTINCT stands before them, and what they are ordered by."""
        call, name = found.call, found.call.name
        args: list[exp.Expr] = list(call.expressions)
        order = found.order
        distinct = False
        for _ in range(2):  # each may stand around the other
            if args and isinstance(args[-1], exp.Order):
                order, args = tuple(args[-1].expressions), [*args[:-1], args[-1].this]
            if len(args) == 1 and isinstance(args[0], exp.Distinct):
                distinct, args = True, list(args[0].expressions)
        for arg in (*args, *order):
            if find(arg):
                raise self._fail("an aggregate inside an aggregate", arg, "use a subquery in FROM")
        self._refuse_count(found, len(args), order)
        if not args and not order:
            raise self._fail(f"{name} needs an argument", call, f"write {name}(*)")
        if len(args) == 1 and isinstance(args[0], exp.Star):
            if function_of(call) != "count" or distinct:
                raise self._fail(f"{name} does not take *", args[0], "name a column")
            args = []
        return args, distinct, order

    def _refuse_count(self, found: Found, count: int, order: tuple[exp.Ordered, ...]) -> None:
        name = found.call.name
        if function_of(found.call) in MANY or MARK in found.call.meta:
            return
        least, most = ARGUMENTS.get(name.lower(), (1, 1))
        if name.lower() == "mode" and order:
            least, most = 0, 0
        if name.lower() in MAY_ORDER and order:
            least, most = 1, 2
        if not least <= count <= most:
            wanted = {0: "no argument", 1: "one argument", 2: "two arguments"}[least]
            wanted += f" to {most}" if most != least else ""
            raise self._fail(f"{name} takes {wanted}, got {count}", found.call)

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._lowering.text.error(message, span_of(node), hint)

    def _call(
        self,
        found: Found,
        args: list[tuple[Expr, str]],
        distinct: bool,
        order: tuple[Ordering, ...],
        where: Expr | None,
    ) -> AggregateCall:
        name = found.call.name.lower()
        self._refuse_text(found, args)
        function = function_of(found.call)
        asked = Asked(name, function, tuple(args), distinct, order, found.skips_nulls, where)
        try:
            own = found.call.meta.get(MARK)
            return meaning(asked) if own is None else user_call(own, asked)
        except CallError as mistake:
            raise self._lowering.text.error(
                mistake.message, name_span(found.call), mistake.hint
            ) from None

    def _refuse_text(self, found: Found, args: list[tuple[Expr, str]]) -> None:
        """A text is no number, and is not taken for one without a word."""
        if function_of(found.call) not in NUMERIC or args[0][1] != "string":
            return
        node = self._arguments(found)[0][0]
        written = self._lowering.text.slice(span_of(node))
        raise self._fail(
            f"{found.call.name} of {written}, which is a text",
            node,
            f"where it holds numbers: {found.call.name}(CAST({written} AS DOUBLE))",
        )

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


def _way(node: exp.Ordered) -> str:
    """The direction of a key, as Spark has it: NULL first where values ascend."""
    descends = bool(node.args.get("desc"))
    first = node.args.get("nulls_first", not descends)
    return f"{'DESC' if descends else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
