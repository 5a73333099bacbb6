"""GROUPING SETS, ROLLUP and CUBE: the union of one select for each set.

The selects differ in GROUP BY alone; keys that a set leaves out are NULL in its rows, and GROUPING
tells such a NULL from one of the data. Each grouping is an operator like any other, shared where
another query has it.
"""

from itertools import chain, combinations, product
from math import prod

from sqlglot import exp

from millstream.language.cql.functions import AGGREGATES
from millstream.language.cql.parsing.syntax import CqlSyntaxError, Span, span_of

SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
SETS_MAX = 64
BOUNDS = ("window_start", "window_end")
Keys = tuple[exp.Expr, ...]


def expanded(tree: exp.Expr) -> exp.Expr:
    """The tree with unions in the place of selects over several groupings."""
    for select in list(tree.find_all(exp.Select)):
        group = select.args.get("group")
        _settle_behind(group)
        if group is None or not any(isinstance(key, SETS) for key in group.expressions):
            continue
        made = _united(select, group)
        if select is tree:
            tree = made
        else:
            select.replace(made)
    return tree


def _settle_behind(group: exp.Expr | None) -> None:
    """`GROUP BY a, b WITH CUBE` is `GROUP BY CUBE (a, b)`; GROUP BY ALL is the binder's."""
    for name, value in list(group.args.items()) if group is not None else ():
        if group is None or name in ("expressions", "all") or not value:
            continue
        if name not in ("rollup", "cube") or any(part.expressions for part in value):
            raise CqlSyntaxError(
                f"WITH {name.upper()} is not supported", span_of(group),
                "GROUP BY ROLLUP (a, b), GROUP BY CUBE (a, b), or name the keys",
            )  # fmt: skip
        kind = exp.Rollup if name == "rollup" else exp.Cube
        group.set("expressions", [kind(expressions=list(group.expressions))])
        group.set(name, None)


def _united(select: exp.Select, group: exp.Expr) -> exp.Expr:
    for clause_name in ("order", "limit", "qualify", "distinct"):
        if select.args.get(clause_name):
            raise CqlSyntaxError(
                "a rank or DISTINCT over GROUPING SETS", span_of(group),
                "take the groups in a subquery: FROM (SELECT ... GROUP BY ROLLUP (a)) [NOW]",
            )  # fmt: skip
    number = prod(_count(item) for item in group.expressions)
    if number > SETS_MAX:
        raise CqlSyntaxError(f"{number} groupings", span_of(group), f"at most {SETS_MAX}")
    sets = sorted(_sets(select, group), key=len, reverse=True)
    every = tuple(dict.fromkeys(key for keys in sets for key in keys))
    clause, meta = select.args.get("with_"), dict(select.meta)
    select.set("with_", None)
    selects = [_part(select, keys, [k for k in every if k not in keys]) for keys in sets]
    whole: exp.Expr = selects[0]
    for part in selects[1:]:
        whole = exp.Union(this=whole, expression=part, distinct=False)
    whole.meta.update(meta)
    if clause is not None:
        whole.set("with_", clause)
    return whole


def _sets(select: exp.Select, group: exp.Expr) -> list[Keys]:
    """Every combination of one set of each item of GROUP BY."""
    choices = [_choices(item, select) for item in group.expressions]
    return [tuple(dict.fromkeys(chain(*chosen))) for chosen in product(*choices)]


def _count(item: exp.Expr) -> int:
    """How many choices there are, before any is made: a CUBE of 30 keys has a thousand million."""
    match item:
        case exp.Rollup():
            return len(item.expressions) + 1
        case exp.Cube():
            return 1 << len(item.expressions)
        case exp.GroupingSets():
            return sum(_count(part) for part in item.expressions)
        case _:
            return 1


def _choices(item: exp.Expr, select: exp.Select) -> list[Keys]:
    match item:
        case exp.Rollup():
            keys = [_keys(e, select) for e in item.expressions]
            return [tuple(chain(*keys[:n])) for n in range(len(keys), -1, -1)]
        case exp.Cube():
            keys = [_keys(e, select) for e in item.expressions]
            sizes = range(len(keys), -1, -1)
            return [tuple(chain(*some)) for n in sizes for some in combinations(keys, n)]
        case exp.GroupingSets():
            return [keys for part in item.expressions for keys in _choices(part, select)]
        case _:
            return [_keys(item, select)]


def _keys(item: exp.Expr, select: exp.Select) -> Keys:
    """What one entry groups by: a key, or several in parentheses."""
    if isinstance(item, exp.Tuple):
        return tuple(_key(e, select) for e in item.expressions)
    return (_key(item.this if isinstance(item, exp.Paren) else item, select),)


def _key(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """The key itself, where its place in the select list is given."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        place = int(node.this) - 1
        if 0 <= place < len(select.expressions):
            chosen: exp.Expr = select.expressions[place].unalias()
            return chosen
    return node


def _part(select: exp.Select, keys: Keys, absent: list[exp.Expr]) -> exp.Select:
    """The select of one set."""
    for key in absent:
        if key.name.lower() in BOUNDS:
            raise CqlSyntaxError(
                f"{key.name} in some of the groupings", span_of(key),
                "each window is a group by itself: name it in all of them, or nowhere",
            )  # fmt: skip
    made = select.copy()
    made.meta.pop("emit", None)
    made.meta.pop("refinement", None)
    made.meta["of_sets"] = True
    for item in list(made.expressions):
        _without(item, absent)
    if made.args.get("having") is not None:
        _without(made.args["having"], absent)
    # without keys a select groups by its windows alone
    chosen = [key.copy() for key in keys] or [exp.column("window_end")]
    made.args["group"].set("expressions", chosen)
    return made


def _without(clause: exp.Expr, absent: list[exp.Expr]) -> None:
    """Keys that are not grouped by become NULL, GROUPING a number."""
    if isinstance(clause, exp.Alias) and any(
        isinstance(key, exp.Column) and key.name.lower() == clause.alias.lower()
        and len(key.parts) == 1 for key in absent
    ):  # fmt: skip
        clause.set("this", _placed(exp.Null(), clause.this))
        return
    for node in list(clause.walk(prune=_aggregates)):
        made = _grouping(node, absent) if isinstance(node, exp.Anonymous) else None
        if made is None and node in absent:
            made = exp.Null()
        if made is None:
            continue
        made = _placed(made, node)
        if isinstance(node.parent, exp.Select) and isinstance(node, exp.Column):
            made = _placed(exp.Alias(this=made, alias=exp.to_identifier(node.name)), node)
        node.replace(made)


def _aggregates(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def _grouping(node: exp.Anonymous, absent: list[exp.Expr]) -> exp.Expr | None:
    """GROUPING(a): 1 where a is left out; GROUPING_ID(a, b) has a bit for each."""
    if node.name.lower() not in ("grouping", "grouping_id"):
        return None
    if not node.expressions:
        span = span_of(node)
        raise CqlSyntaxError(
            f"{node.name} without keys", Span(span.start, span.end), "name them: GROUPING_ID(a, b)"
        )
    bits = 0
    for key in node.expressions:
        bits = 2 * bits + (key in absent)
    return exp.Literal.number(bits)


def _placed(made: exp.Expr, node: exp.Expr) -> exp.Expr:
    span = span_of(node)
    made.meta.update(start=span.start, end=span.end)
    return made
