"""Joins of tables that change: inner and outer ones, semijoins and antijoins, one after another.

At each watermark the result is the SQL join of the tables. An outer join is the inner one and,
beside it, the rows of an antijoin padded with NULL; both are tables, and so is their union.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.language.cql.binding.joins.conditions import Conditions
from millstream.language.cql.binding.joins.outer import Kind, outer_rows, semijoin
from millstream.language.cql.binding.joins.using import Using
from millstream.language.cql.binding.scope import Member, Scope
from millstream.language.plan.expressions import Expr, conjunction, shift
from millstream.language.plan.nodes import Join, Node


def joined_tables(
    conditions: Conditions,
    using: Using,
    inputs: Sequence[Node],
    members: Sequence[Member],
    joins: Sequence[tuple[exp.Join, Kind | None]],
) -> tuple[Node, Scope]:
    """Tables joined from left to right, and what names mean over the result."""
    rows = inputs[0]
    scope = Scope((members[0],), rows.schema)
    for right, member, (join, kind) in zip(inputs[1:], members[1:], joins, strict=True):
        added = replace(member, offset=len(rows.schema), time=_moved(member, len(rows.schema)))
        both = (*scope.members, added)
        merged, equalities = using.of(both, [join], scope.merged)
        whole = Scope(both, (*rows.schema, *right.schema), merged)
        terms = [conditions.equality(whole, e, node) for e, node in equalities]
        if join.args.get("on") is not None:
            terms.append(conditions.of(whole, join.args["on"], "ON"))
        predicate = conjunction(tuple(terms))
        if kind is None:
            rows, scope = Join((rows, right), predicate), whole
            continue
        if kind.semi:
            rows = semijoin(rows, right, predicate, anti=kind.left)
            continue
        rows = outer_rows(rows, right, predicate, kind)
        scope = whole
        if kind.right:
            rows, merged = using.merged(rows, whole, [e for e, _ in equalities], kind)
            scope = replace(whole, row=rows.schema, merged=merged)
    return rows, scope


def _moved(member: Member, offset: int) -> Expr:
    """How the time of an item is read behind the columns of those before it."""
    return shift(member.time, offset - member.offset)
