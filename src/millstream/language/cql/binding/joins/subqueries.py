"""IN, NOT IN, EXISTS and NOT EXISTS in WHERE, as semijoins and antijoins.

A condition that asks about other rows stands among the conjuncts of WHERE. Its subquery may name
columns of the rows around it: the conjuncts that do become the semijoin's predicate, the others
filter the subquery's own rows. NOT IN is an antijoin that also counts what may be equal: with a
NULL among the values it is never true, and of nothing it always is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.binding.aggregates import find
from millstream.language.cql.binding.coercion import Typed, as_condition
from millstream.language.cql.binding.expressions import Lowering, span_of
from millstream.language.cql.binding.from_clause import From
from millstream.language.cql.binding.from_item import RELATION_HINT
from millstream.language.cql.binding.joins.conditions import Conditions, terms_of
from millstream.language.cql.binding.joins.constants import met
from millstream.language.cql.binding.joins.outer import refuse_undecided, semijoin
from millstream.language.cql.binding.relations import Bound, Lifetime, exposing_time, item_rows
from millstream.language.cql.binding.resolution import means_outside, resolve_parts
from millstream.language.cql.binding.scope import NameLookupError, Scope, is_time
from millstream.language.cql.binding.tables.forms import Beside
from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    Time,
    columns_of,
    conjunction,
    shift,
)
from millstream.language.plan.nodes import Constants, Filter, Node, Project, Semijoin, Windowed
from millstream.language.plan.schema import Schema
from millstream.language.plan.windows import Now
from millstream.language.share.dataflow import lasting

TWICE_HINT = (
    "put one of them into a subquery with a window of its own, or give the stream [NOW]: "
    "FROM (SELECT ... WHERE a IN (SELECT ...)) AS s [RANGE ...] WHERE b IN (SELECT ...)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Asking:
    """A condition on other rows: `values IN query`, or EXISTS without values."""

    node: exp.Expr
    query: exp.Expr
    values: tuple[exp.Expr, ...]
    negated: bool

    @property
    def word(self) -> str:
        return ("NOT " if self.negated else "") + ("IN" if self.values else "EXISTS")


def split_where(node: exp.Expr) -> tuple[list[exp.Expr], list[Asking]]:
    """The conjuncts of a condition: plain ones, and those that ask about other rows."""
    plain: list[exp.Expr] = []
    asking: list[Asking] = []
    for term in terms_of(node):
        found = _asking(term)
        if found is None:
            plain.append(term)
        else:
            asking.append(found)
    return plain, asking


def _asking(node: exp.Expr) -> Asking | None:
    bare, negated = node.unnest(), False
    while isinstance(bare, exp.Not):
        bare, negated = bare.this.unnest(), not negated
    if isinstance(bare, exp.Exists):
        return Asking(node, bare.this, (), negated)
    query = bare.args.get("query") if isinstance(bare, exp.In) else None
    for equal, every in ((True, exp.Any), (False, exp.All)):  # = ANY is IN, <> ALL is NOT IN
        kind = exp.EQ if equal else exp.NEQ
        compared = bare.expression if isinstance(bare, kind) else None
        if isinstance(compared, every) and isinstance(compared.this.unnest(), exp.Query):
            query, negated = compared.this, negated is equal
    if query is None:
        return None
    value = bare.this.unnest()
    values = tuple(value.expressions) if isinstance(value, exp.Tuple) else (value,)
    return Asking(node, query, values, negated)


class AskingBinder:
    """Binds the conditions on other rows of one select."""

    def __init__(
        self,
        conditions: Conditions,
        bind_from: Callable[[exp.Select], From],
        bind_query: Callable[[exp.Expr], Bound],
    ) -> None:
        self._conditions, self._text = conditions, conditions.text
        self._bind_from, self._bind_query = bind_from, bind_query
        self._beside = Beside(conditions.text)

    def bind(self, source: From, asked: list[Asking], *, gathered: bool = False) -> From:
        """The rows of FROM that meet, or do not meet, what is asked for.

        With `gathered` an aggregate stands right over them.
        """
        rows = source.rows
        if self._over_tables(source, asked, gathered=gathered):
            return self._of_tables(source, asked)
        instant = lasting(rows) == 0
        once = False
        for asking in asked:
            table = self._constants(asking)
            if table is not None:
                rows = self._met_constants(rows, source.scope, asking, table)
                continue
            if once and not instant:
                raise self._text.error(
                    f"a second {asking.word} in one WHERE", span_of(asking.node), TWICE_HINT
                )
            rows = Windowed(rows, Now()) if once else rows
            rows, once = self._met(rows, source.scope, asking), True
        if not once:
            return replace(source, rows=rows)
        return replace(
            source, rows=rows, lifetime=Lifetime.OPEN, momentary=False, item=None,
            outer=asked[0].word,
        )  # fmt: skip

    # -- tables that change ----------------------------------------------------------------------

    def _over_tables(self, source: From, asked: list[Asking], *, gathered: bool) -> bool:
        """Whether the result is a table: one stands on either side, and nobody looks it up.

        So it is where rows never leave, but for the first match of each, which is a stream.
        """
        if source.lifetime is Lifetime.CHANGES:
            return True
        lifetimes = [self._asked_lifetime(a) for a in asked if self._constants(a) is None]
        if source.momentary or not lifetimes:
            return False
        if Lifetime.CHANGES in lifetimes:
            return True
        undecided = gathered or len(lifetimes) > 1 or any(a.negated for a in asked)
        return undecided and {source.lifetime, *lifetimes} == {Lifetime.OPEN}

    def _asked_lifetime(self, asking: Asking) -> Lifetime:
        inner = asking.query.unnest() if isinstance(asking.query, exp.Subquery) else asking.query
        if _plain(inner):
            assert isinstance(inner, exp.Select)
            self._refuse_nested(inner)
            return self._bind_from(inner).lifetime
        bound = self._bind_query(asking.query)
        return Lifetime.OPEN if bound.streamed else bound.lifetime

    def _refuse_nested(self, inner: exp.Expr) -> None:
        where = inner.args.get("where")
        nested = split_where(where.this)[1] if where is not None else []
        if nested:
            raise self._fail("a subquery inside a subquery's WHERE", nested[0].node, TWICE_HINT)

    def _of_tables(self, source: From, asked: list[Asking]) -> From:
        place = source.item.node if source.item is not None else asked[0].node
        rows = self._beside.table(source.rows, source.lifetime, place)
        for asking in asked:
            table = self._constants(asking)
            if table is not None:
                rows = self._met_constants(rows, source.scope, asking, table)
            else:
                rows = self._met(rows, source.scope, asking, Lifetime.CHANGES)
        return replace(source, rows=rows, lifetime=Lifetime.CHANGES, item=None)

    def _theirs(self, rows: Node, lifetime: Lifetime, ours: Lifetime, asking: Asking) -> Node:
        """The rows that are asked for, in the form of those that ask."""
        if ours is Lifetime.CHANGES:
            return self._beside.table(rows, lifetime, asking.query)
        if lifetime is Lifetime.CHANGES:
            return self._beside.at_instant(rows, asking.query)
        return rows

    def _fail(self, message: str, node: exp.Expr, hint: str = RELATION_HINT) -> CqlError:
        return self._text.error(message, span_of(node), hint)

    def _constants(self, asking: Asking) -> Constants | None:
        """The table of constants that a condition asks, if it is one."""
        inner = asking.query.unnest()
        if isinstance(inner, exp.Select) and (_gathers(inner) or inner.args.get("joins")):
            return None
        if isinstance(inner, exp.Select):
            found = self._bind_from(inner).rows
            if isinstance(found, Constants) and inner.args.get("where") is None:
                bound = self._bind_query(inner)
                return bound.node if isinstance(bound.node, Constants) else None
            return None
        node = self._bind_query(inner).node if isinstance(inner, exp.Values) else None
        return node if isinstance(node, Constants) else None

    def _met_constants(self, rows: Node, outer: Scope, asking: Asking, table: Constants) -> Node:
        columns = [Column(len(rows.schema) + i) for i in range(len(table.schema))]
        both = _Both(outer, Scope((), ()), (*rows.schema, *table.schema))
        predicate = self._predicate(both, asking, [], columns)
        return met(rows, table, predicate, negated=asking.negated)

    def _met(
        self, rows: Node, outer: Scope, asking: Asking, ours: Lifetime = Lifetime.OPEN
    ) -> Node:
        inner = asking.query.unnest() if isinstance(asking.query, exp.Subquery) else asking.query
        plain = _plain(inner)
        if plain:
            self._refuse_nested(inner)
        timed = plain and any(_names_time(c) for c in inner.find_all(exp.Column))
        width = len(rows.schema)
        if timed:
            rows = exposing_time(rows)
            if len(outer.members) == 1:
                member = replace(outer.members[0], time=Column(width))
                outer = replace(outer, members=(member,), row=rows.schema)
        if plain:
            assert isinstance(inner, exp.Select)
            theirs, predicate = self._correlated(
                rows.schema, outer, inner, asking, ours, timed=timed
            )
        else:
            theirs, predicate = self._whole(rows.schema, outer, asking, ours)
        if ours is not Lifetime.CHANGES:
            place = (rows, asking.node)
            refuse_undecided(self._text, asking.word, place, theirs, anti=asking.negated)
            made: Node = Semijoin((rows, theirs), predicate, asking.negated)
        else:
            made = semijoin(rows, theirs, predicate, anti=asking.negated)
        if timed:
            made = Project(made, tuple(Column(i) for i in range(width)), rows.schema[:width])
        return made

    # -- a subquery as a whole -------------------------------------------------------------------

    def _whole(
        self, row: Schema, outer: Scope, asking: Asking, ours: Lifetime
    ) -> tuple[Node, Expr | None]:
        bound = self._bind_query(asking.query)
        lifetime = Lifetime.OPEN if bound.streamed else bound.lifetime
        theirs = self._theirs(item_rows(bound, None), lifetime, ours, asking)
        columns = [Column(len(row) + c.position) for c in bound.columns]
        both = _Both(outer, Scope((), ()), (*row, *theirs.schema))
        return theirs, self._predicate(both, asking, [], columns)

    # -- a plain select, whose conditions may name columns outside ---------------------------------

    def _correlated(
        self,
        row: Schema,
        outer: Scope,
        inner: exp.Select,
        asking: Asking,
        ours: Lifetime,
        *,
        timed: bool,
    ) -> tuple[Node, Expr | None]:
        source = self._bind_from(inner)
        theirs = self._theirs(source.rows, source.lifetime, ours, asking)
        theirs = exposing_time(theirs) if timed else theirs
        scope = _shifted(source.scope, len(row), len(source.rows.schema) if timed else None)
        both = _Both(outer, scope, (*row, *theirs.schema))
        where = inner.args.get("where")
        terms, _ = split_where(where.this) if where is not None else ([], [])
        conditions = [self._lowered(both, term) for term in terms]
        own = [c for c in conditions if columns_of(c) and min(columns_of(c)) >= len(row)]
        if own and own == conditions[: len(own)]:
            moved = tuple(shift(c, -len(row)) for c in own)
            kept = conjunction(moved)
            assert kept is not None
            theirs, conditions = Filter(theirs, kept), conditions[len(own) :]
        columns = self._selected(both, inner, asking)
        return theirs, self._predicate(both, asking, conditions, columns)

    def _lowered(self, both: "_Both", node: exp.Expr) -> Expr:
        if found := find(node):
            raise self._fail("an aggregate in WHERE", found[0].call, "use HAVING")
        lowering = both.lowering(self._conditions)
        made = lowering.lower(node)
        (typed,) = Typed(lowering, both.row, self._conditions.analyzer).check([(made, node)])
        return as_condition(lowering, "WHERE", typed, node)

    def _selected(
        self, both: "_Both", inner: exp.Select, asking: Asking
    ) -> Sequence[exp.Expr | Column]:
        if not asking.values:
            return []
        listed = [e.this if isinstance(e, exp.Alias) else e for e in inner.expressions]
        if len(listed) == 1 and isinstance(listed[0], exp.Star):
            return [Column(m.offset + c.position) for m in both.inner.members for c in m.columns]
        return listed

    def _predicate(
        self,
        both: "_Both",
        asking: Asking,
        conditions: list[Expr],
        columns: Sequence[exp.Expr | Column],
    ) -> Expr | None:
        """All that makes two rows meet: the conditions, and equal values for IN."""
        if not asking.values:
            return conjunction(tuple(conditions))
        if len(columns) != len(asking.values):
            raise self._fail(
                f"{asking.word} compares {len(asking.values)} values with {len(columns)} columns",
                asking.node, "select as many columns as values",
            )  # fmt: skip
        terms: list[Expr] = []
        for value, column in zip(asking.values, columns, strict=True):
            lowering = both.lowering(self._conditions, outside=True)
            ours = lowering.lower(value)
            if isinstance(column, Column):
                theirs: Expr = column
                lowering.trail.append((column, value))
            else:
                inside = both.lowering(self._conditions)
                theirs = inside.lower(column)
                lowering.trail += inside.trail
            equality = Call("=", (ours, theirs))
            lowering.trail.append((equality, asking.node))
            typed = Typed(lowering, both.row, self._conditions.analyzer)
            ((made, _),) = typed.check([(equality, asking.node)])
            assert isinstance(made, Call)
            unknown = tuple(Call("is_null", (arg,)) for arg in made.args)
            terms.append(Call("or", (made, *unknown)) if asking.negated else made)
        return conjunction((*conditions, *terms))


@dataclass(frozen=True, slots=True)
class _Both:
    """Names in a subquery: its own FROM first, then the one around it."""

    outer: Scope
    inner: Scope
    row: Schema

    def lowering(self, conditions: Conditions, *, outside: bool = False) -> Lowering:
        scopes = (self.outer,) if outside else (self.inner, self.outer)

        def resolve(node: exp.Expr) -> Expr | None:
            if not isinstance(node, exp.Column | exp.Identifier):
                return None
            parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else []
            first: NameLookupError | None = None
            for scope in scopes[means_outside(scopes[0], self.outer, parts) :]:
                try:
                    found = resolve_parts(scope, parts or [node.name], "WHERE")
                except NameLookupError as mistake:
                    first = first or mistake
                    if "ambiguous" in mistake.message:
                        break
                    continue
                if found == Time() and len(scope.members) == 1:
                    return scope.members[0].time
                return found
            assert first is not None
            raise conditions.text.error(first.message, span_of(node), first.hint)

        return Lowering(conditions.text, conditions.catalog, resolve)


def _plain(tree: exp.Expr) -> bool:
    """Whether a subquery gives rows of its FROM, each by itself."""
    return isinstance(tree, exp.Select) and not _gathers(tree) and "emit" not in tree.meta


def _gathers(select: exp.Select) -> bool:
    """Whether a select gives something else than rows of its FROM, each by itself."""
    parts = ("group", "having", "distinct", "with_", "order", "limit", "offset", "qualify")
    return any(select.args.get(part) for part in parts) or any(find(e) for e in select.expressions)


def _names_time(column: exp.Column) -> bool:
    return any(is_time(part.name) for part in column.parts[:2])


def _shifted(scope: Scope, by: int, time_at: int | None) -> Scope:
    """The scope behind the columns of another; `time_at` is where the row's own time was put."""
    members = tuple(
        replace(
            m,
            offset=m.offset + by,
            time=Column(by + time_at)
            if time_at is not None and m.time == Time()
            else shift(m.time, by),
        )
        for m in scope.members
    )
    merged = tuple(replace(c, position=c.position + by) for c in scope.merged)
    return Scope(members, scope.row, merged)
