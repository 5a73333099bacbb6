"""ASOF JOIN: another spelling of a lookup.

`a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts` pairs each row of a with the latest row of b for its
key at its own instant: `a [NOW] JOIN b [PARTITION BY k ROWS 1] ON a.k = b.k`. The tree is rewritten
to that, so that both spellings are one operator.
"""

from collections.abc import Iterator, Mapping

from sqlglot import exp

from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.scope import is_time
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import WindowSyntax

HINT = "a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts, without windows; a may have [NOW]"


def as_lookup(text: Text, first: exp.Expr, join: exp.Join, times: Mapping[str, str]) -> None:
    """Gives both items the windows of a lookup, and takes the comparison of times out of ON.

    `times` are the columns of items that are their rows' times.
    """
    own: WindowSyntax | None = first.meta.get("window")
    if (own is not None and own.kind != "now") or join.this.meta.get("window") is not None:
        raise text.error("windows on an ASOF JOIN", span_of(join), HINT)
    names = [_name(first), _name(join.this)]
    keys: list[exp.Expr] = []
    equalities: list[exp.Expr] = []
    timed = 0
    for term in _terms(join.args.get("on")):
        sides = [s.unnest() for s in (term.this, term.args.get("expression")) if s is not None]
        owners = [_owner(side, names) for side in sides]
        if isinstance(term, exp.GTE | exp.LTE) and all(is_row_time(s, times) for s in sides):
            if owners != ([0, 1] if isinstance(term, exp.GTE) else [1, 0]):
                raise text.error("an ASOF JOIN looks back in time", span_of(term), HINT)
            timed += 1
        elif isinstance(term, exp.EQ) and sorted(owners) == [0, 1]:
            keys.append(sides[owners.index(1)].copy())
            equalities.append(term)
        else:
            raise text.error(
                "ASOF JOIN takes equal columns and one comparison of times", span_of(term), HINT
            )
    if timed != 1 or not equalities:
        raise text.error("ASOF JOIN without a.ts >= b.ts, or without a key", span_of(join), HINT)
    span = span_of(join)
    first.meta["window"] = WindowSyntax("now", span)
    join.this.meta["window"] = WindowSyntax("rows", span, count=1, partition=tuple(keys))
    condition = equalities[0]
    for other in equalities[1:]:
        condition = exp.And(this=condition, expression=other)
    join.set("on", condition)
    join.set("method", None)


def _name(item: exp.Expr) -> str:
    return item.alias_or_name.lower()


def _terms(node: exp.Expr | None) -> Iterator[exp.Expr]:
    bare = node.unnest() if node is not None else None
    if isinstance(bare, exp.And):
        yield from _terms(bare.this)
        yield from _terms(bare.expression)
    elif bare is not None:
        yield bare


def _owner(node: exp.Expr, names: list[str]) -> int:
    """Which of both items a column names; -1 where it is no qualified column."""
    if not isinstance(node, exp.Column) or node.table.lower() not in names:
        return -1
    return names.index(node.table.lower())


def is_row_time(node: exp.Expr, times: Mapping[str, str]) -> bool:
    """Whether a column is `a.ts`, or the column of a stream that is its time."""
    if not isinstance(node, exp.Column):
        return False
    return is_time(node.name) or times.get(node.table.lower()) == node.name.lower()
