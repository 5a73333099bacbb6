"""Made-up expressions on which Spark (ANSI) and DuckDB agree and which cannot fail.

Kinds: integer, double, decimal, ascii, text, boolean, timestamp. No division but by a literal, no
overflow on the small values of `generate_streams`, no negative zero, upper and lower on ASCII only.
Timestamps are compared and counted, never computed with.
"""

from dataclasses import dataclass

from hypothesis import strategies as st

from oracle.model import Expr

KIND_OF_TYPE = {
    "int": "integer",
    "bigint": "integer",
    "double": "double",
    "string": "text",
    "boolean": "boolean",
    "timestamp": "timestamp",
}
COMPARISONS = ("=", "<", ">=", "<>", "<=", ">")
LITERALS: dict[str, tuple[str, ...]] = {
    "integer": ("1", "0", "5", "-2", "20"),
    "double": ("1.5", "0.25", "-2.25", "100.0"),
    "decimal": ("1.10", "0.00", "50.00"),
    "ascii": ("'a'", "'b'", "'Ab'", "''"),
    "text": ("'x'", "'Grüße'", "'日本'"),
    "boolean": ("true", "false"),
}
MOMENTS = (("1970-01-01 00:00:01", 1_000_000), ("2013-10-07 00:00:30", 1_381_104_030_000_000))


@dataclass(frozen=True, slots=True)
class Refs:
    """What an expression may refer to: columns by kind, plain and qualified as the query needs."""

    columns: tuple[Expr, ...]  # `type` holds the kind

    def of(self, *kinds: str) -> list[Expr]:
        return [column for column in self.columns if column.type in kinds]


def kind_of(column: str, type_name: str) -> str:
    """
    >>> kind_of("tag", "string"), kind_of("w", "string"), kind_of("d", "decimal(10,2)")
    ('ascii', 'text', 'decimal')
    """
    if column == "tag":
        return "ascii"
    return KIND_OF_TYPE.get(type_name, "decimal")


def made(kind: str, template: str, *parts: Expr) -> Expr:
    """One text for both languages, from the texts of the parts."""
    return Expr(
        template.format(*(part.cql for part in parts)),
        template.format(*(part.sql for part in parts)),
        kind,
        any(part.aggregate for part in parts),
    )


def literal(draw: st.DrawFn, kind: str) -> Expr:
    if kind == "timestamp":
        text, moment = draw(st.sampled_from(MOMENTS))
        return Expr(f"TIMESTAMP '{text}'", str(moment), kind)
    return made(kind, draw(st.sampled_from(LITERALS[kind])).replace("{", "{{"))


def operand(draw: st.DrawFn, refs: Refs, kind: str) -> Expr:
    """A column where there is one, else a literal."""
    columns = refs.of(kind)
    return draw(st.sampled_from(columns)) if columns else literal(draw, kind)


UNARY: dict[str, tuple[str, ...]] = {
    "integer": ("{0} + 1", "{0} * 3", "abs({0})", "{0} % 3", "coalesce({0}, -1)", "0 - {0}"),
    "double": ("{0} * 0.5", "abs({0})", "coalesce({0}, 0.25)", "{0} + 1.5"),
    "decimal": ("{0} + 1.25", "coalesce({0}, 0.00)", "{0} - 0.10"),
    "ascii": ("upper({0})", "lower({0})", "coalesce({0}, 'none')"),
    "text": ("coalesce({0}, 'ß')", "{0} || '…'"),
    "boolean": ("NOT {0}", "coalesce({0}, false)"),
    "timestamp": (),
}
BINARY: dict[str, tuple[str, ...]] = {
    "integer": ("{0} + {1}", "{0} - {1}", "coalesce({0}, {1})"),
    "double": ("{0} + {1}", "{0} - {1}"),
    "decimal": ("{0} + {1}",),
    "ascii": ("{0} || '-' || {1}",),
    "text": ("{0} || {1}",),
    "boolean": ("({0} AND {1})", "({0} OR {1})"),
    "timestamp": (),
}


def scalar(draw: st.DrawFn, refs: Refs, kind: str) -> Expr:
    """An expression of a kind, one or two operators deep."""
    choice = draw(st.integers(0, 7))
    plain = operand(draw, refs, kind)
    if choice <= 3:
        return plain
    if choice == 4 and UNARY[kind]:
        return made(kind, draw(st.sampled_from(UNARY[kind])), plain)
    if choice == 5 and BINARY[kind]:
        return made(kind, draw(st.sampled_from(BINARY[kind])), plain, operand(draw, refs, kind))
    if choice == 6 and kind == "double" and refs.of("integer"):
        return made(kind, "{0} / 4", operand(draw, refs, "integer"))
    if choice == 6 and kind == "integer" and refs.of("ascii"):
        return made(kind, "length({0})", operand(draw, refs, "ascii"))
    if choice == 7 and kind != "timestamp":
        other = literal(draw, kind)
        return made(
            kind, "CASE WHEN {0} THEN {1} ELSE {2} END", comparison(draw, refs), plain, other
        )
    return plain


def comparison(draw: st.DrawFn, refs: Refs) -> Expr:
    """One condition that looks at a column."""
    kinds = sorted({column.type for column in refs.columns})
    kind = draw(st.sampled_from(kinds))
    column = draw(st.sampled_from(refs.of(kind)))
    choice = draw(st.integers(0, 6))
    if kind == "boolean":
        template = ("{0}", "NOT {0}", "{0} IS NULL", "{0} IS NOT NULL")[choice % 4]
        return made("boolean", template, column)
    if choice == 1:
        return made("boolean", "{0} IS NULL", column)
    if choice == 2:
        return made("boolean", "{0} IS NOT NULL", column)
    if choice == 3 and kind in ("integer", "double", "decimal"):
        low, high = {"integer": ("-1", "10"), "double": ("-2.25", "1.5")}.get(kind, ("0", "2.5"))
        return made("boolean", f"{{0}} BETWEEN {low} AND {high}", column)
    if choice == 4 and kind in ("integer", "ascii", "text"):
        first, second = LITERALS[kind][:2]
        return made("boolean", f"{{0}} IN ({first}, {second})", column)
    if choice == 5 and kind == "ascii":
        pattern = draw(st.sampled_from(("a%", "%b", "_", "A_", "%")))
        return made("boolean", f"{{0}} LIKE '{pattern}'", column)
    if choice == 5 and kind == "text":
        return made("boolean", "{0} LIKE 'Gr%'", column)
    operator = draw(st.sampled_from(COMPARISONS))
    others = refs.of(kind)
    other = draw(st.sampled_from(others)) if choice == 6 else literal(draw, kind)
    return made("boolean", f"{{0}} {operator} {{1}}", column, other)


def condition(draw: st.DrawFn, refs: Refs) -> Expr:
    """A condition of one to three comparisons."""
    first = comparison(draw, refs)
    choice = draw(st.integers(0, 5))
    if choice <= 2:
        return first
    second = comparison(draw, refs)
    if choice == 3:
        return made("boolean", "{0} AND {1}", first, second)
    if choice == 4:
        return made("boolean", "({0} OR {1})", first, second)
    return made("boolean", "NOT ({0} AND {1})", first, second)


def any_scalar(draw: st.DrawFn, refs: Refs) -> Expr:
    kinds = sorted({column.type for column in refs.columns})
    return scalar(draw, refs, draw(st.sampled_from(kinds)))


def aggregate(draw: st.DrawFn, refs: Refs, *, exact: bool, ordered: bool) -> Expr:
    """An aggregate; `exact` leaves out those whose last digits depend on the order of rows.

    `ordered` allows first and last, which need an order of the rows that everybody agrees on.
    """
    functions = ["count(*)", "count", "sum", "min", "max", "count distinct"]
    functions += ["first", "last"] if ordered else []
    functions += [] if exact else ["avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp"]
    function = draw(st.sampled_from(functions))
    if function == "count(*)":
        call = Expr("count(*)", "count(*)", "integer", aggregate=True)
    elif function in ("first", "last"):
        argument = any_scalar(draw, refs)
        call = Expr(
            f"{function}({argument.cql})",
            f"{function}({argument.sql} ORDER BY $order)",
            argument.type,
            aggregate=True,
        )
    else:
        call = _call(draw, refs, function)
    if draw(st.integers(0, 3)) < 3:
        return call
    where = condition(draw, refs)
    return Expr(
        f"{call.cql} FILTER (WHERE {where.cql})",
        f"{call.sql} FILTER (WHERE {where.sql})",
        call.type,
        aggregate=True,
    )


def _call(draw: st.DrawFn, refs: Refs, function: str) -> Expr:
    if function in ("count", "count distinct", "min", "max"):
        argument = any_scalar(draw, refs)
        kind = argument.type if function in ("min", "max") else "integer"
        template = "count(DISTINCT {0})" if function == "count distinct" else f"{function}({{0}})"
    else:
        # of a single NaN, DuckDB's variances are 0 and Spark's NaN
        kinds = ["integer"] if function.startswith(("var_", "stddev_")) else ["integer", "double"]
        kinds += ["decimal"] if function == "sum" else []
        known = [kind for kind in kinds if refs.of(kind)] or ["integer"]
        argument = scalar(draw, refs, draw(st.sampled_from(known)))
        kind = argument.type if function == "sum" else "double"
        template = f"{function}({{0}})"
    call = made(kind, template, argument)
    return Expr(call.cql, call.sql, kind, aggregate=True)


def having(draw: st.DrawFn, refs: Refs) -> Expr:
    """A condition on an exact aggregate."""
    choices = [Expr("count(*)", "count(*)", "integer", aggregate=True)]
    choices += [
        made(column.type, f"{function}({{0}})", column)
        for column in refs.of("integer", "double")
        for function in ("sum", "max")
    ]
    left = draw(st.sampled_from(choices))
    operator = draw(st.sampled_from((">", "<=", ">=")))
    text = draw(st.sampled_from(LITERALS[left.type]))
    return Expr(
        f"{left.cql} {operator} {text}", f"{left.sql} {operator} {text}", "boolean", aggregate=True
    )
