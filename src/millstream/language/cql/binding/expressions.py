"""Expressions of the text as expressions of the algebra.

`Lowering` turns sqlglot's nodes into positions, constants and calls and remembers which piece of
the text each came from; `coercion.py` has them typed by Spark. Names are resolved by the
`resolve` function it is given, so that the same walk serves the rows of FROM and the rows of an
aggregate.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

from millstream.core.durations import CALENDAR_UNITS, microseconds
from millstream.core.errors import CqlError, UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.binding.rows.row_values import spelled_out
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.functions import (
    AGGREGATES,
    INSTEAD,
    OPTIONS_AT,
    OTHER_AGGREGATES,
    REACHING,
    SCHEMA_AT,
    STRUCTS_ONLY,
    WHY_REACHING,
    WHY_UNREPEATABLE,
    plain_schema,
    unknown_option,
    unrepeatable,
)
from millstream.language.cql.literals import (
    ConstantError,
    cast,
    interval,
    negated,
    number,
    plain_text,
    string,
)
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.rules import HINT as RULES_HINT
from millstream.language.cql.parsing.syntax import UNIT_CALLS, Span, span_of
from millstream.language.cql.spark_functions import CALLABLE
from millstream.language.cql.types import canonical
from millstream.language.plan.expressions import TRUE, Call, Expr, Lambda, Literal, Parameter
from millstream.language.plan.sql_text import quoted

__all__ = [
    "FALSE",
    "NULL",
    "Lowering",
    "Resolve",
    "json_path",
    "name_span",
    "refuse_other_aggregate",
    "span_of",
    "with_fields",
]

NULL = Literal("NULL", "void")
FALSE = Literal("FALSE", "boolean")
BINARY: dict[type[exp.Expr], str] = {
    exp.And: "and", exp.Or: "or", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=",
    exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>", exp.Add: "+", exp.Sub: "-", exp.Mul: "*",
    exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div", exp.DPipe: "||", exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|", exp.BitwiseXor: "^", exp.Like: "like", exp.ILike: "ilike",
    exp.RegexpLike: "rlike",
}  # fmt: skip
# Names by which other systems call what Spark has; the first take a part of a JSON text by path.
SPARKS_NAMES = dict.fromkeys(
    ("json_value", "json_query", "json_extract", "json_extract_scalar"), "get_json_object"
) | {"iff": "if", "strpos": "instr", "to_hex": "hex", "extractjsonfield": "get_json_object"}
SUBQUERY_HINT = (
    "IN and EXISTS with a subquery stand among the conditions of WHERE that AND connects; "
    "for a value, join the subquery in FROM"
)
Resolve = Callable[[exp.Expr], Expr | None]


def name_span(node: exp.Expr) -> Span:
    """Where a function's name or an identifier stands."""
    known: Span | None = node.meta.get("name")
    return known or span_of(node)


class Lowering:
    """One walk over the expressions of one clause.

    `trail` lists every expression made, children first, with the node it came from.
    """

    def __init__(self, text: Text, catalog: Catalog, resolve: Resolve) -> None:
        self.text, self._catalog, self._resolve = text, catalog, resolve
        self.trail: list[tuple[Expr, exp.Expr]] = []
        self._parameters: dict[str, str] = {}

    def fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self.text.error(message, span_of(node), hint)

    def lower(self, node: exp.Expr) -> Expr:
        try:
            made = self._lower(node)
        except ConstantError as mistake:
            raise self.fail(str(mistake), node, mistake.hint) from None
        if not self._parameters and not isinstance(made, Lambda):
            self.trail.append((made, node))
        return made

    def _lower(self, node: exp.Expr) -> Expr:
        if isinstance(node, exp.Paren):
            return self.lower(node.this)
        parameter = self._parameter(node)
        if parameter is not None:
            return parameter
        resolved = self._resolve(node)
        if resolved is not None:
            return resolved
        spelled = spelled_out(node, self.text.source)
        if spelled is not None:
            return self.lower(spelled)
        if isinstance(node, exp.And | exp.Or):
            return self._connected(node)
        if type(node) in BINARY:
            return self._binary(node)
        method: Any = getattr(self, f"_lower_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.fail(f"{_kind(node)} is not supported here", node, _hint(node))
        result: Expr = method(node)
        return result

    def _parameter(self, node: exp.Expr) -> Expr | None:
        """A lambda's parameter, or a field of one."""
        if not self._parameters:
            return None
        if isinstance(node, exp.Identifier) and node.name in self._parameters:
            return Parameter(self._parameters[node.name])
        if isinstance(node, exp.Column | exp.Dot):
            parts = [part.name for part in node.parts]
            if parts[0] in self._parameters:
                return with_fields(Parameter(self._parameters[parts[0]]), parts[1:])
        return None

    def _connected(self, node: exp.And | exp.Or) -> Expr:
        """`a AND b AND c` as one call: long conditions must not nest deeply."""
        kind, left, operands = type(node), node, []
        while isinstance(left, kind):
            operands.append(left.expression)
            left = left.this
        return Call(BINARY[kind], tuple(self.lower(n) for n in (left, *reversed(operands))))

    def _binary(self, node: exp.Expr) -> Expr:
        if isinstance(node.expression, exp.Any | exp.All) and isinstance(
            node, exp.Like | exp.ILike
        ):
            return self._patterns(node)
        made = Call(BINARY[type(node)], (self.lower(node.this), self.lower(node.expression)))
        return Call("not", (made,)) if node.args.get("negate") else made

    def _patterns(self, node: exp.Binary) -> Expr:
        """`t LIKE ANY ('a%', 'b%')`: one condition for each pattern."""
        listed = node.expression.this.unnest()
        texts = listed.expressions if isinstance(listed, exp.Tuple) else [listed]
        text = self.lower(node.this)
        made = [Call(BINARY[type(node)], (text, self.lower(pattern))) for pattern in texts]
        self.trail += [(part, node) for part in made] if not self._parameters else []
        parts = [Call("not", (part,)) for part in made] if node.args.get("negate") else made
        word = "or" if isinstance(node.expression, exp.Any) else "and"
        return Call(word, tuple(parts)) if len(parts) > 1 else parts[0]

    def _lower_var(self, node: exp.Var) -> Expr:
        return Literal(node.name.upper(), "unit")  # of TIMESTAMPDIFF and its kin

    def _lower_literal(self, node: exp.Literal) -> Expr:
        return string(node.this) if node.is_string else number(node.this)

    def _lower_rawstring(self, node: exp.RawString) -> Expr:
        return string(node.this)

    def _lower_hexstring(self, node: exp.HexString) -> Expr:
        return Literal(f"X'{node.this}'", "binary")

    def _lower_null(self, _: exp.Null) -> Expr:
        return NULL

    def _lower_boolean(self, node: exp.Boolean) -> Expr:
        return TRUE if node.this else FALSE

    def _lower_concat(self, node: exp.Concat) -> Expr:
        return string("".join(part.this for part in node.expressions))  # 'a' 'b'

    def _lower_neg(self, node: exp.Neg) -> Expr:
        arg = self.lower(node.this)
        constant = negated(arg) if isinstance(arg, Literal) else None
        return constant or Call("-", (arg,))

    def _lower_not(self, node: exp.Not) -> Expr:
        arg = self.lower(node.this)
        if isinstance(arg, Call) and arg.name == "is_null":
            return Call("is_not_null", arg.args)
        return Call("not", (arg,))

    def _lower_bitwisenot(self, node: exp.BitwiseNot) -> Expr:
        return Call("~", (self.lower(node.this),))

    def _lower_nullsafeneq(self, node: exp.NullSafeNEQ) -> Expr:
        equal = Call("<=>", (self.lower(node.this), self.lower(node.expression)))
        return Call("not", (equal,))

    def _lower_is(self, node: exp.Is) -> Expr:
        arg = self.lower(node.this)
        if isinstance(node.expression, exp.Null):
            return Call("is_not_null" if node.args.get("negate") else "is_null", (arg,))
        if isinstance(node.expression, exp.Boolean):
            return Call("<=>", (arg, self._lower_boolean(node.expression)))
        raise self.fail(
            "IS takes NULL, TRUE, FALSE or DISTINCT FROM", node,
            "whether a text is JSON: get_json_object(j, '$') IS NOT NULL",
        )  # fmt: skip

    def _lower_in(self, node: exp.In) -> Expr:
        if node.args.get("query") or node.args.get("unnest") or not node.expressions:
            raise self.fail("IN takes a list of values", node, SUBQUERY_HINT)
        return Call("in", tuple(self.lower(n) for n in (node.this, *_listed(node))))

    def _lower_between(self, node: exp.Between) -> Expr:
        if node.args.get("symmetric"):
            raise self.fail("BETWEEN SYMMETRIC is not supported", node, "order the bounds")
        if node.args.get("high") is None or node.args.get("low") is None:
            raise self.fail("BETWEEN needs two bounds", node, "write a BETWEEN 1 AND 2")
        this = self.lower(node.this)
        low = Call(">=", (this, self.lower(node.args["low"])))
        high = Call("<=", (this, self.lower(node.args["high"])))
        self.trail += [(low, node), (high, node)] if not self._parameters else []
        return Call("and", (low, high))

    def _lower_escape(self, node: exp.Escape) -> Expr:
        match = node.this
        if not isinstance(match, exp.Like):
            raise self.fail("ESCAPE belongs to LIKE", node)
        args = (match.this, match.expression, node.expression)
        made = Call("like_escape", tuple(self.lower(n) for n in args))
        return Call("not", (made,)) if match.args.get("negate") else made

    def _lower_case(self, node: exp.Case) -> Expr:
        operand = self.lower(node.this) if node.this is not None else None
        args: list[Expr] = []
        for arm in node.args["ifs"]:
            condition = self.lower(arm.this)
            if operand is not None:
                condition = Call("=", (operand, condition))
                self.trail += [(condition, arm)] if not self._parameters else []
            args += [condition, self.lower(arm.args["true"])]
        if not args:
            raise self.fail("CASE needs a WHEN", node)
        default = node.args.get("default")
        return Call("case", (*args, self.lower(default) if default is not None else NULL))

    def _lower_cast(self, node: exp.Cast, lenient: bool = False) -> Expr:
        return cast(self.lower(node.this), self._type(node), lenient=lenient)

    def _lower_trycast(self, node: exp.TryCast) -> Expr:
        return self._lower_cast(node, lenient=True)

    def _type(self, node: exp.Cast) -> str:
        try:
            return canonical(node.to.sql(dialect="spark"))
        except UsageError as mistake:
            raise self.fail(mistake.message, node, mistake.hint) from None

    def _lower_interval(self, node: exp.Interval) -> Expr:
        amount, unit = node.this, node.args.get("unit")
        if not isinstance(amount, exp.Literal) or isinstance(unit, exp.IntervalSpan):
            raise self.fail(
                "INTERVAL takes a constant and a unit", node,
                "e.g. INTERVAL '90' SECOND; for computed ones make_dt_interval(days, hours, ...)",
            )  # fmt: skip
        word = unit.name if unit is not None else ""
        if word.lower() in CALENDAR_UNITS:
            return self._months(amount, word.lower(), node)
        try:
            return interval(microseconds(f"{amount.this} {word}"))
        except UsageError as mistake:
            raise self.fail(mistake.message, node, mistake.hint) from None

    def _months(self, amount: exp.Literal, unit: str, node: exp.Interval) -> Expr:
        """Months and years are added by the calendar, in UTC; they have no length of their own."""
        if not re.fullmatch(r"\s*[-+]?\d+\s*", amount.this):
            raise self.fail(f"INTERVAL takes whole {unit}", node, "e.g. INTERVAL '1' MONTH")
        months = int(amount.this) * {"y": 12, "q": 3}.get(unit[0], 1)
        return Call("make_ym_interval", (number("0"), number(str(months))))

    def _lower_extract(self, node: exp.Extract) -> Expr:
        if node.this.name.upper() == "EPOCH":
            raise self.fail(
                "EPOCH is not supported in EXTRACT", node,
                "unix_seconds(ts); between two times: timestampdiff(SECOND, a, b)",
            )  # fmt: skip
        unit = Literal(node.this.name.upper(), "unit")
        return Call("extract", (unit, self.lower(node.expression)))

    def _lower_bracket(self, node: exp.Bracket) -> Expr:
        if len(node.expressions) != 1:
            raise self.fail("an element is chosen by one index", node)
        return Call("element", (self.lower(node.this), self.lower(node.expressions[0])))

    def _lower_dot(self, node: exp.Dot) -> Expr:
        if not isinstance(node.expression, exp.Identifier):
            raise self.fail("a function has no qualifier", node, "write its name alone")
        return with_fields(self.lower(node.this), [node.expression.name])

    def _lower_jsonextract(self, node: exp.JSONExtract | exp.JSONExtractScalar) -> Expr:
        """`json -> 'k'` and `json ->> 'k'`: a part of a text that is JSON, as text."""
        path = json_path(node.expression)
        if path is None:
            raise self.fail(
                "a part of JSON is chosen by a constant", node, "e.g. j ->> 'k', or j -> 0"
            )
        return Call("get_json_object", (self.lower(node.this), string(path)))

    def _lower_jsonextractscalar(self, node: exp.JSONExtractScalar) -> Expr:
        return self._lower_jsonextract(node)

    def _lower_lambda(self, node: exp.Lambda) -> Expr:
        """Parameters are numbered: `x -> x + 1` and `y -> y + 1` mean the same."""
        outer = self._parameters
        names = {n.name: f"p{len(outer) + i}" for i, n in enumerate(node.expressions)}
        self._parameters = {**outer, **names}
        try:
            return Lambda(tuple(names.values()), self.lower(node.this))
        finally:
            self._parameters = outer

    def _lower_anonymous(self, node: exp.Anonymous) -> Expr:
        name = node.name
        lower = name.lower()
        known = self._catalog.function(name)
        if lower in AGGREGATES or (known is not None and known.aggregate):
            raise self.text.error(f"aggregate {name} is not allowed here", name_span(node))
        refuse_other_aggregate(self.text, node)
        if unrepeatable(name, len(node.expressions)):
            raise self.text.error(f"{name} is not deterministic", name_span(node), WHY_UNREPEATABLE)
        if lower == "struct" and node.expressions:
            return self._named_struct(node)
        if lower == "arrays_zip" and node.expressions:
            return self._zipped(node)
        for arg in node.expressions:
            if isinstance(arg, exp.Star | exp.Distinct | exp.Alias | exp.Query):
                near = did_you_mean(name, AGGREGATES)
                raise self.fail(f"{name} does not take {_kind(arg)}{near}", arg)
        lower = SPARKS_NAMES.get(lower, lower)
        if known is None and lower == "split_index":
            return self._split_index(node)
        if known is None:
            self._refuse_unknown(node, lower)
        call = lower if known is None else known.call_name
        args = tuple(self.lower(arg) for arg in node.expressions)
        if known is None and len(args) > OPTIONS_AT.get(lower, len(args)):
            option = unknown_option(args[OPTIONS_AT[lower]])
            if option is not None:
                hint = f"{WHY_REACHING}; options are constants: map('mode', 'FAILFAST')"
                raise self.fail(f"{name} has no option {option}".rstrip(), node, hint)
        place = SCHEMA_AT.get(lower, len(args))
        if known is None and len(args) > place and not plain_schema(args[place]):
            hint = f"{WHY_REACHING}; a type is a text: 'a INT, b ARRAY<STRING>'"
            raise self.fail(f"{name} takes no such type", node, hint)
        return Call(call, args)

    def _split_index(self, node: exp.Anonymous) -> Expr:
        """Flink's `SPLIT_INDEX(t, '/', 3)`: a part by its number from 0 on, NULL past the last."""
        args = [self.lower(arg) for arg in node.expressions]
        by = args[1] if len(args) == 3 else None
        sign = plain_text(by) if isinstance(by, Literal) and by.type == "string" else ""
        if not sign or "\\E" in sign:
            raise self.fail(
                "SPLIT_INDEX takes a text, a constant and a number", node,
                "split_part(t, '/', 4), which counts from 1",
            )  # fmt: skip
        return Call("get", (Call("split", (args[0], string(f"\\Q{sign}\\E"))), args[2]))

    def _named_struct(self, node: exp.Anonymous) -> Expr:
        """`struct(v AS a, w)`: what has no name is called as Spark calls it."""
        parts: list[Expr] = []
        for place, arg in enumerate(node.expressions, 1):
            name = arg.alias_or_name if isinstance(arg, exp.Alias | exp.Column) else f"col{place}"
            parts += [string(name), self.lower(arg.unalias())]
        return Call("named_struct", tuple(parts))

    def _zipped(self, node: exp.Anonymous) -> Expr:
        """`arrays_zip(a, b)`, whose fields have the names of the columns, and numbers else.

        Spark would take the names that columns have inside. What is shorter is filled with NULL.
        """
        names = [
            arg.name if isinstance(arg, exp.Column) else str(place)
            for place, arg in enumerate(node.expressions)
        ]
        arrays = [self.lower(arg) for arg in node.expressions]
        depth = len(self._parameters)
        left, right = Parameter(f"p{depth}"), Parameter(f"p{depth + 1}")
        first = Call("named_struct", (string(names[0]), left))
        made: Expr = Call("transform", (arrays[0], Lambda((left.name,), first)))
        for place, array in enumerate(arrays[1:], 1):
            before = [p for n in names[:place] for p in (string(n), with_fields(left, [n]))]
            both = Call("named_struct", (*before, string(names[place]), right))
            made = Call("zip_with", (made, array, Lambda((left.name, right.name), both)))
        return made

    def _refuse_unknown(self, node: exp.Anonymous, lower: str) -> None:
        """What is not known to be harmless is not called, whatever else Spark may know."""
        if lower in REACHING:
            raise self.text.error(f"{node.name} may not be called", name_span(node), WHY_REACHING)
        if lower in STRUCTS_ONLY or (lower not in CALLABLE and lower not in UNIT_CALLS):
            near = did_you_mean(lower, [*CALLABLE, *(f.name for f in self._catalog.functions)])
            hint = INSTEAD.get(lower, "")
            near = "" if hint else near
            raise self.text.error(f"unknown function {node.name}{near}", name_span(node), hint)


def json_path(node: exp.Expr) -> str | None:
    """A path as Spark writes it: `$.a[0]`; None for one that is not constant."""
    if not isinstance(node, exp.JSONPath):
        return None
    made = "$"
    for part in node.expressions[1:]:
        if isinstance(part, exp.JSONPathKey) and isinstance(part.this, str):
            made += f"['{part.this}']"
        elif isinstance(part, exp.JSONPathSubscript) and isinstance(part.this, int):
            made += f"[{part.this}]"
        else:
            return None
    return made


def refuse_other_aggregate(text: Text, node: exp.Expr) -> None:
    """Aggregates of other systems, by their name, with what to write instead."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in OTHER_AGGREGATES:
        raise text.error(
            f"aggregate {node.name} is not supported", name_span(node),
            f"write {OTHER_AGGREGATES[node.name.lower()]}",
        )  # fmt: skip


def with_fields(base: Expr, names: list[str]) -> Expr:
    """Fields of a struct, one inside the other."""
    for name in names:
        base = Call("field", (base, Literal(quoted(name), "name")))
    return base


def _listed(node: exp.In) -> Iterator[exp.Expr]:
    """The values of IN, also those that stand after VALUES."""
    for value in node.expressions:
        if isinstance(value, exp.Values):
            for row in value.expressions:
                yield from row.expressions if isinstance(row, exp.Tuple) else (row,)
        else:
            yield value


def _kind(node: exp.Expr) -> str:
    words: dict[type[exp.Expr], str] = {
        exp.Window: "a window function (OVER)", exp.Subquery: "a subquery", exp.Star: "*",
        exp.Select: "a subquery", exp.Exists: "EXISTS", exp.Distinct: "DISTINCT",
        exp.Filter: "FILTER", exp.IgnoreNulls: "IGNORE NULLS", exp.RespectNulls: "RESPECT NULLS",
        exp.Tuple: "a list of values", exp.Alias: "an alias", exp.Placeholder: "a parameter",
        exp.SimilarTo: "SIMILAR TO", exp.JSONBExtractScalar: "#>>", exp.Array: "a list in brackets",
        exp.WithinGroup: "WITHIN GROUP", exp.Order: "ORDER BY", exp.Any: "ANY", exp.All: "ALL",
        exp.RegexpILike: "~*", exp.AtTimeZone: "AT TIME ZONE",
    }  # fmt: skip
    return words.get(type(node), type(node).__name__.upper())


def _hint(node: exp.Expr) -> str:
    if isinstance(node, exp.Any | exp.All):
        return (
            "= ANY and <> ALL stand among the conditions of WHERE that AND connects; else compare "
            "with one value: v > (SELECT max(x) FROM t) for > ALL, min(x) for > ANY"
        )
    if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
        return SUBQUERY_HINT
    if isinstance(node, exp.SimilarTo | exp.Glob):
        return "k RLIKE 'pattern', with a pattern of Java"
    if isinstance(node, exp.RegexpILike):
        return "k RLIKE '(?i)pattern', in any case of its letters"
    if isinstance(node, exp.AtTimeZone):
        return "the clock's time in a zone: from_utc_timestamp(ts, 'Europe/Berlin')"
    if isinstance(node, exp.JSONBExtractScalar):
        return "j -> 'b' ->> 'c', or JSON_VALUE(j, '$.b.c')"
    if isinstance(node, exp.Array):
        return "array(1, 2) makes one; put a name with blanks in backticks"
    if isinstance(node, exp.Tuple):
        return "compare values one by one: a = 1 AND b = 2; or (a, b) IN (SELECT ...)"
    if isinstance(node, exp.Placeholder):
        return f"a parameter belongs to a table of rules: {RULES_HINT}"
    if isinstance(node, exp.Window):
        return "OVER is allowed in SELECT and QUALIFY: QUALIFY v > LAG(v) OVER (ORDER BY ts)"
    return ""
