"""Columns that a join's predicate makes equal: `a = b AND b = c` means `a = c AND c = b`.

Joins that equate the same columns by way of others are one stream, and a join of some inputs can be
told from the predicate over all of them.
"""

from itertools import pairwise

from millstream.language.plan.expressions import Call, Column, Expr, conjunction, conjuncts, total
from millstream.language.plan.keys import predicate_key
from millstream.language.plan.nodes import Join, Node


def equal_columns(join: Join) -> tuple[tuple[tuple[int, ...], ...], tuple[Expr, ...]]:
    """Sets of columns that are equal, each ascending, and the conjuncts that say something else."""
    alike: list[set[int]] = []
    others: list[Expr] = []
    for term in conjuncts(join.predicate):
        both = _columns(term, join)
        if both is None:
            others.append(term)
            continue
        touched = [known for known in alike if known & both]
        alike = [known for known in alike if known not in touched]
        alike.append(both.union(*touched))
    return tuple(sorted(tuple(sorted(known)) for known in alike)), tuple(others)


def _columns(term: Expr, join: Join) -> set[int] | None:
    """Two columns of one type that a conjunct makes equal."""
    match term:
        case Call("=", (Column(a), Column(b))) if join.schema[a].type == join.schema[b].type:
            return {a, b}
        case _:
            return None


def chain(columns: tuple[int, ...]) -> tuple[Expr, ...]:
    """Conjuncts that make columns equal, each with the next.

    >>> [tuple(side.index for side in term.args) for term in chain((0, 2, 5))]
    [(0, 2), (2, 5)]
    """
    return tuple(Call("=", (Column(a), Column(b))) for a, b in pairwise(columns))


def chain_equalities(node: Node) -> Node:
    """Three or more equal columns are told in their order, whoever was compared with whom.

    Not where an input stands twice: its places are settled by the text of the predicate.
    """
    if not isinstance(node, Join) or len({child.shape for child in node.inputs}) < len(node.inputs):
        return node
    terms = conjuncts(node.predicate)
    alike, others = equal_columns(node)
    if not all(map(total, terms)) or all(len(known) < 3 for known in alike):
        return node
    chained = tuple(term for known in alike for term in chain(known))
    predicate = conjunction((*chained, *others))
    same = predicate_key(predicate) == predicate_key(node.predicate)
    return node if same else Join(node.inputs, predicate)
