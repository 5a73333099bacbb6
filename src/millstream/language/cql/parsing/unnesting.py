"""UNNEST, explode and LATERAL VIEW: rows for the elements of an array, as one list of a select.

`FROM s, UNNEST(a) AS t(x)`, `CROSS JOIN UNNEST(a) AS t(x)`, `LATERAL VIEW explode(a) t AS x` and
`SELECT explode(a) AS x` mean the same. The tree is changed in place: what unnests leaves FROM and
the select list, and the select remembers it under `unnests`.
"""

from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.language.cql.parsing.syntax import CqlSyntaxError, Span, span_of

FUNCTIONS = ("unnest", "explode", "explode_outer")
OTHERS = ("posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple")
LISTED = "__element"  # what the select list calls by another name, or not at all
HINT = "FROM s, UNNEST(array) AS t(x), with its place: UNNEST(array) WITH ORDINALITY AS t(x, n)"


@dataclass(frozen=True, slots=True, eq=False)
class UnnestSyntax:
    """One of them, as written."""

    array: exp.Expr
    span: Span
    name: str | None = None  # of its columns' table
    columns: tuple[str, ...] = ()
    ordinality: bool = False
    outer: bool = False  # a row without elements stays, with NULL


def settle_unnests(tree: exp.Expr) -> None:
    """Collects what unnests, select by select."""
    for select in list(tree.find_all(exp.Select)):
        found = [*_joined(select), *_views(select), *_listed(select)]
        if found:
            select.meta["unnests"] = found


def _joined(select: exp.Select) -> list[UnnestSyntax]:
    """Those among the items of FROM."""
    clause = select.args.get("from_")
    if clause is None:
        return []
    if "unnest" in clause.this.meta:
        raise CqlSyntaxError("UNNEST without a stream", span_of(clause.this), HINT)
    found = []
    for owner in (clause.this, select):
        joins = list(owner.args.get("joins") or ())
        for join in joins:
            if "unnest" not in join.this.meta:
                continue
            made: UnnestSyntax = join.this.meta["unnest"]
            on, side = join.args.get("on"), join.args.get("side") or ""
            if (on is not None and not _is_true(on)) or join.args.get("using"):
                raise CqlSyntaxError(
                    "UNNEST with a condition", made.span, "CROSS JOIN it, and filter in WHERE"
                )
            if side not in ("", "LEFT"):
                raise CqlSyntaxError(f"{side} JOIN UNNEST is not supported", made.span, HINT)
            found.append(replace(made, outer=made.outer or side == "LEFT"))
        owner.set("joins", [j for j in joins if "unnest" not in j.this.meta])
    return found


def _is_true(node: exp.Expr) -> bool:
    return isinstance(node, exp.Boolean) and bool(node.this)


def _views(select: exp.Select) -> list[UnnestSyntax]:
    """`LATERAL VIEW [OUTER] explode(a) t AS x`."""
    found = []
    for view in select.args.get("laterals") or ():
        alias = view.args.get("alias")
        columns = () if alias is None else tuple(c.name for c in alias.args.get("columns") or ())
        name = alias.name if alias is not None else None
        outer = bool(view.args.get("outer"))
        if "unnest" in view.this.meta:  # after OUTER the function is parsed as an item of FROM
            made: UnnestSyntax = view.this.meta["unnest"]
            found.append(replace(made, columns=columns or made.columns, outer=outer))
            continue
        found.append(_called(view.this, name, columns, outer=outer))
    select.set("laterals", None)
    return found


def _listed(select: exp.Select) -> list[UnnestSyntax]:
    """`SELECT explode(a) AS x`: in its place stands the column."""
    found = []
    for item in list(select.expressions):
        call = item.unalias()
        if not isinstance(call, exp.Anonymous) or call.name.lower() not in (*FUNCTIONS, *OTHERS):
            continue
        name = item.alias if isinstance(item, exp.Alias) else "col"
        found.append(_called(call, LISTED, (LISTED,), outer=False))
        span = span_of(item)
        column = exp.Column(this=exp.to_identifier(LISTED))
        made = exp.Alias(this=column, alias=exp.to_identifier(name))
        for node in made.walk():
            node.meta.update(start=span.start, end=span.end)
        item.replace(made)
    if len(found) > 1:
        raise CqlSyntaxError("two functions that give many rows", found[1].span, HINT)
    return found


def _called(
    call: exp.Expr, name: str | None, columns: tuple[str, ...], *, outer: bool
) -> UnnestSyntax:
    word = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if word not in FUNCTIONS or len(call.expressions) != 1:
        raise CqlSyntaxError(
            f"{call.name if word else 'this function'} is not supported", span_of(call), HINT
        )
    return UnnestSyntax(
        call.expressions[0], span_of(call), name, columns, outer=outer or word == "explode_outer"
    )
