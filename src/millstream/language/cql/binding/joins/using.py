"""JOIN ... USING: columns that both sides have, by one name."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.joins.outer import Kind
from millstream.language.cql.binding.scope import Member, Named, NameLookupError, Scope
from millstream.language.cql.catalog import lookup
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import Call, Column, Expr
from millstream.language.plan.nodes import Node, Project
from millstream.language.plan.schema import Field


@dataclass(frozen=True, slots=True)
class Using:
    """Resolves the columns of USING in one query's text."""

    text: Text
    analyzer: Analyzer

    def of(
        self, members: Sequence[Member], joins: Sequence[exp.Join], known: Sequence[Named] = ()
    ) -> tuple[tuple[Named, ...], tuple[tuple[Call, exp.Expr], ...]]:
        """The columns that USING merges, and the equalities that it stands for."""
        merged: list[Named] = list(known)
        equalities: list[tuple[Call, exp.Expr]] = []
        for position, join in enumerate(joins, start=len(members) - len(joins)):
            left = Scope(tuple(members[:position]), (), tuple(merged))
            right = Scope((members[position],), ())
            for name in join.args.get("using") or ():
                try:
                    here, there = left.unqualified(name.name), right.unqualified(name.name)
                except NameLookupError as mistake:
                    raise self.text.error(mistake.message, span_of(name), mistake.hint) from None
                equalities.append((Call("=", (here, there)), name))
                if isinstance(here, Column) and not lookup(name.name, [m.name for m in merged]):
                    merged.append(Named(name.name, here.index))
        return tuple(merged), tuple(equalities)

    def merged(
        self, rows: Node, scope: Scope, equalities: list[Call], kind: Kind
    ) -> tuple[Node, tuple[Named, ...]]:
        """Columns of USING where the left side may be missing: the right one's, or either."""
        merged: list[Named] = []
        columns: list[Expr] = [Column(i) for i in range(len(rows.schema))]
        fields = list(rows.schema)
        by_left = {e.args[0]: e.args[1] for e in equalities}
        for named in scope.merged:
            here = Column(named.position)
            there = by_left.get(here)
            if not isinstance(there, Column):
                merged.append(named)
            elif not kind.left:
                merged.append(Named(named.name, there.index))
            else:
                both = (fields[here.index], fields[there.index])
                (type_,) = self.analyzer.analyse(both, ["coalesce(c0, c1)"])
                merged.append(Named(named.name, len(columns)))
                columns.append(Call("coalesce", (here, there)))
                fields.append(Field(named.name, type_))
        if len(columns) == len(rows.schema):
            return rows, tuple(merged)
        return Project(rows, tuple(columns), tuple(fields)), tuple(merged)
