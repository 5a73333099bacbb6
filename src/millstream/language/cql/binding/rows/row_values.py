"""Rows and lists of values as standard SQL writes them, spelled out: `(a, b) = (1, 2)`, `ARRAY[1]`.

A row is compared value by value. What becomes of the values is the caller's.
"""

import re
from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from millstream.language.cql.parsing.syntax import span_of

ARRAY = re.compile(r"\bARRAY\s*\[\s*$", re.IGNORECASE)


def spelled_out(node: exp.Expr, source: str) -> exp.Expr | None:
    """The same without rows and brackets; None where there are none."""
    made: exp.Expr | None = None
    match node:
        case exp.In() if isinstance(node.this.unnest(), exp.Tuple):
            made = _among(node)
        case exp.EQ() | exp.NEQ():
            left, right = node.this.unnest(), node.expression.unnest()
            if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
                made = _equal(left, right)
                if made is not None and isinstance(node, exp.NEQ):
                    made = exp.Not(this=exp.Paren(this=made))
        case exp.Array() if ARRAY.search(source[: span_of(node).start]):
            made = exp.Anonymous(this="array", expressions=[e.copy() for e in node.expressions])
        case exp.Bracket() if len(node.expressions) > 1 and _is_map(node.this):
            made = exp.Anonymous(this="map", expressions=[e.copy() for e in node.expressions])
    if made is not None:
        span = span_of(node)
        for part in made.walk():
            part.meta.setdefault("start", span.start)
            part.meta.setdefault("end", span.end)
    return made


def _is_map(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table and node.name.upper() == "MAP"


def _among(node: exp.In) -> exp.Expr | None:
    """`(a, b) IN ((1, 2), (3, 4))`."""
    rows = [row.unnest() for row in node.expressions]
    terms = [_equal(node.this.unnest(), r) if isinstance(r, exp.Tuple) else None for r in rows]
    known = [exp.Paren(this=t) for t in terms if t is not None]
    if not known or len(known) < len(terms):
        return None
    return _all(exp.Or, known)


def _equal(left: exp.Expr, right: exp.Expr) -> exp.Expr | None:
    ours, theirs = left.expressions, right.expressions
    if len(ours) != len(theirs):
        return None
    pairs = zip(ours, theirs, strict=True)
    return _all(exp.And, [exp.EQ(this=a.copy(), expression=b.copy()) for a, b in pairs])


def _all(kind: type[exp.Connector], terms: Sequence[exp.Expr]) -> exp.Expr:
    return reduce(lambda a, b: kind(this=a, expression=b), terms)
