"""Ranks over everything so far that a condition bounds: those beyond need not be kept."""

from dataclasses import replace

from millstream.language.plan.expressions import MIRRORED, Call, Column, Expr, Literal, conjuncts
from millstream.language.plan.nodes import Filter, Node, Ranked


def limit_ranks(node: Node) -> Node:
    """A filter that bounds a rank of all rows so far stays, and the rank knows its bound."""
    if not (isinstance(node, Filter) and isinstance(node.input, Ranked)):
        return node
    ranked = node.input
    if not ranked.running or ranked.limit is not None:
        return node
    at = Column(len(ranked.schema) - 1)
    limits = [m for t in conjuncts(node.predicate) if (m := _most(t, at)) is not None]
    return replace(node, input=replace(ranked, limit=min(limits))) if limits else node


def _most(term: Expr, rank: Column) -> int | None:
    """The greatest rank for which a condition can be true."""
    match term:
        case Call(name, (Literal() as limit, column)) if column == rank:
            return _most(Call(MIRRORED.get(name, name), (column, limit)), rank)
        case Call("<=" | "=" | "<=>", (column, Literal(text))) if column == rank:
            return int(text) if text.isdigit() else None
        case Call("<", (column, Literal(text))) if column == rank:
            return int(text) - 1 if text.isdigit() else None
        case _:
            return None
