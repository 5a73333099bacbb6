"""Subqueries for a value: each row with the one value that a subquery gives, or NULL.

A subquery that aggregates gives one row, for all rows or for those that its equalities with the
rows around it choose: it is grouped by their sides of the equalities, and joined by them (LEFT
JOIN). Where it gives no row, a count is 0 and any other value NULL. Values in HAVING, and beside
aggregates, stand beside the groups rather than beside the rows that these are made of.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.binding.aggregates import find
from millstream.language.cql.binding.expressions import Resolve, span_of
from millstream.language.cql.binding.from_clause import From
from millstream.language.cql.binding.joins.conditions import Conditions, terms_of
from millstream.language.cql.binding.joins.outer import Kind, outer_rows, refuse_undecided
from millstream.language.cql.binding.over.clauses import replaced
from millstream.language.cql.binding.relations import Bound, Lifetime, as_stream
from millstream.language.cql.binding.resolution import (
    Positioned,
    means_outside,
    resolve_parts,
    with_positions,
)
from millstream.language.cql.binding.scope import Member, Named, NameLookupError, Scope, is_time
from millstream.language.cql.binding.tables.empty_values import or_nothing
from millstream.language.cql.binding.tables.forms import Beside
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import (
    Column,
    Expr,
    conjunction,
    shift,
)
from millstream.language.plan.nodes import Aggregate, Node, Project, Windowed, is_relation
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import Instant, Now, Range, Sliding, Snapshot

HIDDEN = "__scalar"  # begins the names of items that no text can name
ONE_ROW_HINT = "take one value: (SELECT max(x) FROM ...), or (SELECT x FROM ... ORDER BY y LIMIT 1)"
EQUAL_HINT = "name rows around it in equalities: (SELECT max(x) FROM t WHERE t.k = s.k)"
INSIDE_HINT = "take the value in a subquery in FROM, and aggregate that"
OUTER_HINT = (
    "take the value in a subquery in FROM: a LEFT JOIN (SELECT *, (SELECT max(x) FROM t) AS most "
    "FROM b) AS b ON a.k = b.k AND b.v < b.most"
)
TIME_HINT = "give it a name in a subquery in FROM: FROM (SELECT *, ts AS seen FROM s) AS s"
FORM_HINT = (
    "give the stream [NOW]: each row then sees the value at its own instant; or leave out the "
    "windows of both, for a table"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """A bound subquery: its rows, the value, and the equalities that choose a row."""

    rows: Node
    value: Expr
    type: str
    keys: tuple[Expr, ...]
    outside: tuple[exp.Expr, ...]  # what each key equals
    lifetime: Lifetime


class ScalarBinder:
    """Binds the subqueries for a value of one select."""

    def __init__(
        self,
        conditions: Conditions,
        bind_from: Callable[[exp.Select], From],
        bind_query: Callable[[exp.Expr], Bound],
    ) -> None:
        self._conditions, self._text = conditions, conditions.text
        self._bind_from, self._bind_query = bind_from, bind_query
        self._beside = Beside(conditions.text)

    def bind(self, select: exp.Select, source: From) -> tuple[exp.Select, From]:
        """The select with columns in the place of subqueries, and rows that have these."""
        if not any(True for _ in _scalars(select)):
            return select, source
        select = select.copy()
        beside_rows = list(_scalars(select, grouped=_is_grouped(select)))
        if beside_rows and not source.momentary and len(source.scope.members) == 1:
            self._refuse_time(_parts(select))
        for number, node in enumerate(beside_rows):
            name = f"{HIDDEN}{number}"
            value = self._value(node, source.scope)
            source = self._joined(source, value, node, name)
            place = exp.column(name, table=name)
            span = span_of(node)
            for part in (place, *place.parts):
                part.meta.update(start=span.start, end=span.end)
            node.replace(place)
        return select, source

    def _fail(self, message: str, node: exp.Expr, hint: str) -> CqlError:
        return self._text.error(message, span_of(node), hint)

    def _refuse_time(self, parts: Sequence[exp.Expr]) -> None:
        """The time of a row beside a value is that of the later of both."""
        for part in parts:
            for node in part.walk(prune=lambda n: isinstance(n, exp.Subquery | exp.Exists)):
                if isinstance(node, exp.Column) and is_time(node.name):
                    raise self._fail("ts beside a subquery for a value", node, TIME_HINT)

    # -- the subquery ----------------------------------------------------------------------------

    def _value(self, node: exp.Expr, outer: Scope) -> _Value:
        inner = node.unnest()
        if not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
            raise self._fail("a subquery for a value gives one column", node, ONE_ROW_HINT)
        one = bool(find(inner.expressions[0])) and not inner.args.get("group")
        first = _takes_first(inner)
        if not (one or first) or inner.args.get("having"):
            raise self._fail(
                "a subquery for a value that may give several rows", node, ONE_ROW_HINT
            )
        inner, outside = self._decorrelated(inner, outer)
        if outside and not one:
            raise self._fail("LIMIT in a subquery that names rows around it", node, ONE_ROW_HINT)
        return self._chosen(self._bind_query(inner), outside)

    def _chosen(self, bound: Bound, outside: tuple[exp.Expr, ...]) -> _Value:
        node, type_ = bound.node, bound.fields[0].type
        columns: tuple[Expr, ...] = tuple(Column(c.position) for c in bound.columns)
        if isinstance(node, Project) and isinstance(node.input, Aggregate):
            columns, node = tuple(node.columns[c.position] for c in bound.columns), node.input
        value = columns[0]
        if isinstance(node, Aggregate):
            value = or_nothing(value, node, type_)
        return _Value(node, value, type_, columns[1:], outside, bound.lifetime)

    def _decorrelated(
        self, inner: exp.Select, outer: Scope
    ) -> tuple[exp.Select, tuple[exp.Expr, ...]]:
        """The subquery for all rows around it at once, grouped by what it equates with them."""
        where = inner.args.get("where")
        if where is None:
            return inner, ()
        scope = self._bind_from(inner).scope
        kept: list[exp.Expr] = []
        keys: list[exp.Expr] = []
        outside: list[exp.Expr] = []
        for term in terms_of(where.this):
            bare = term.unnest()
            if _resolves(scope, term, outer):
                kept.append(term)
                continue
            sides = [bare.this, bare.expression] if isinstance(bare, exp.EQ) else []
            own = [s for s in sides if _resolves(scope, s, outer)]
            others = [s for s in sides if s not in own and _resolves(outer, s)]
            if len(own) != 1 or len(others) != 1:
                raise self._fail("a subquery that compares with rows around it", term, EQUAL_HINT)
            keys.append(own[0])
            outside.append(others[0])
        if not keys:
            return inner, ()
        made = inner.copy()
        made.set("where", exp.Where(this=exp.and_(*kept, copy=True)) if kept else None)
        made.set("group", exp.Group(expressions=[k.copy() for k in keys]))
        for number, key in enumerate(keys):
            alias = exp.Alias(this=key.copy(), alias=exp.to_identifier(f"__key{number}"))
            made.append("expressions", alias)
        return made, tuple(outside)

    # -- beside the rows -------------------------------------------------------------------------

    def _joined(self, source: From, value: _Value, place: exp.Expr, name: str) -> From:
        rows, theirs, table = self._forms(source, value, place)
        width = len(rows.schema)
        fields = tuple(Field(f"__key{i}", f.type) for i, f in enumerate(theirs.schema))
        member = Member(name, tuple(Named(f.name, i) for i, f in enumerate(fields)), width)
        both = replace(
            source.scope, members=(*source.scope.members, member), row=(*rows.schema, *fields)
        )
        terms = [
            self._conditions.of(both, self._equality(key, other, name), "WHERE")
            for key, other in zip(value.keys, value.outside, strict=True)
        ]
        predicate = conjunction(tuple(terms))
        if not table:
            refuse_undecided(self._text, "a subquery", (rows, place), theirs, anti=True)
        made = _with_value(rows, replace(value, rows=theirs), predicate, name)
        hidden = Member(name, (Named(name, 0),), width, lateral=True)
        scope = replace(source.scope, members=(*source.scope.members, hidden), row=made.schema)
        if table:
            return replace(source, rows=made, scope=scope, lifetime=Lifetime.CHANGES, item=None)
        return replace(
            source, rows=Windowed(made, Now()), scope=scope, lifetime=Lifetime.BOUNDED,
            momentary=True, item=None,
        )  # fmt: skip

    # -- beside groups ---------------------------------------------------------------------------

    def beside_groups(
        self, groups: Node, scope: Scope, resolve: Resolve, parts: Sequence[exp.Expr]
    ) -> tuple[Node, list[exp.Expr]]:
        """Groups with the values that expressions over them ask for, and these reading them.

        `scope` is that of the rows below: names mean what they mean in the rest of the select.
        """
        wanted = [node for part in parts for node in _within(part)]
        made = list(parts)
        if not wanted:
            return groups, made
        table = is_relation(groups)
        if table:
            self._refuse_time(parts)
        for number, node in enumerate(wanted):
            value = self._value(node, scope)
            if table and value.lifetime is not Lifetime.CHANGES:
                raise self._fail("a subquery for a value over windows", node, FORM_HINT)
            if not table:  # a window's results see the value at its end
                groups = Windowed(as_stream(groups), Now())
                value = replace(value, rows=self._at_instant(value, node))
                refuse_undecided(self._text, "a subquery", (groups, node), value.rows, anti=True)
            width = len(groups.schema)
            terms = [
                self._group_equality(groups, value, pair, resolve)
                for pair in zip(value.keys, value.outside, strict=True)
            ]
            groups = _with_value(groups, value, conjunction(tuple(terms)), f"{HIDDEN}{number}")
            made = replaced(made, node, Positioned(width, node))
        return groups if table else Windowed(groups, Now()), made

    def refuse_inside(self, parts: Sequence[exp.Expr]) -> None:
        """Values inside aggregates would stand beside rows, those around them beside groups."""
        inside = {id(n) for part in parts for f in find(part) for n in f.node.walk()}
        for node in (node for part in parts for node in _within(part)):
            if id(node) in inside or node.find_ancestor(exp.Window) is not None:
                raise self._fail("a subquery for a value inside an aggregate", node, INSIDE_HINT)

    def _group_equality(
        self, groups: Node, value: _Value, pair: tuple[Expr, exp.Expr], resolve: Resolve
    ) -> Expr:
        key, other = pair
        assert isinstance(key, Column)
        width = len(groups.schema)
        made = exp.EQ(this=other.copy(), expression=Positioned(width + key.index, other))
        span = span_of(other)
        made.meta.update(start=span.start, end=span.end)
        row = (*groups.schema, *value.rows.schema)
        return self._conditions.lowered(with_positions(resolve), row, made, "HAVING")

    def _equality(self, key: Expr, other: exp.Expr, name: str) -> exp.Expr:
        assert isinstance(key, Column)
        column = exp.column(f"__key{key.index}", table=name)
        made = exp.EQ(this=other.copy(), expression=column)
        span = span_of(other)
        for part in (made, column, *column.parts):
            part.meta.update(start=span.start, end=span.end)
        return made

    def _forms(self, source: From, value: _Value, place: exp.Expr) -> tuple[Node, Node, bool]:
        """Both sides in one form, and whether that is a table."""
        changes = value.lifetime is Lifetime.CHANGES
        if source.momentary:
            return source.rows, self._at_instant(value, place), False
        if not changes:
            raise self._fail("a subquery for a value over windows", place, FORM_HINT)
        return self._beside.table(source.rows, source.lifetime, place), value.rows, True

    def _at_instant(self, value: _Value, place: exp.Expr) -> Node:
        """The rows of a subquery with the intervals in which each is its value."""
        if value.lifetime is Lifetime.CHANGES:
            return self._beside.at_instant(value.rows, place)
        held = _held(value.rows)
        if held is None:
            raise self._fail("a subquery for a value over this window", place, FORM_HINT)
        return held


def _with_value(rows: Node, value: _Value, predicate: Expr | None, name: str) -> Node:
    """Each row with its value as a last column."""
    width = len(rows.schema)
    made = outer_rows(rows, value.rows, predicate, Kind("a subquery for a value", left=True))
    columns = (*(Column(i) for i in range(width)), shift(value.value, width))
    return Project(made, columns, (*rows.schema, Field(name, value.type)))


def _held(rows: Node) -> Node | None:
    """Results of windows, each until the next window's take their place."""
    match rows:
        case Aggregate(grouping=Sliding() | Snapshot() as windows):
            return Windowed(as_stream(rows), Range(windows.slide, half_open=True))
        case Aggregate(grouping=Instant()):
            return Windowed(as_stream(rows), Now())
        case _:
            return None


def _takes_first(select: exp.Select) -> bool:
    limit = select.args.get("limit")
    return limit is not None and limit.expression.name == "1" and bool(select.args.get("order"))


def _resolves(scope: Scope, node: exp.Expr, outer: Scope | None = None) -> bool:
    """Whether all columns of an expression are those of one FROM."""
    for column in node.find_all(exp.Column):
        parts = [part.name for part in column.parts]
        if outer is not None and means_outside(scope, outer, parts):
            return False
        try:
            resolve_parts(scope, parts, "SELECT")
        except NameLookupError:
            return False
    return True


def _is_grouped(select: exp.Select) -> bool:
    having = select.args.get("having")
    listed = any(find(e) for e in select.expressions)
    return bool(select.args.get("group")) or listed or having is not None


def _parts(select: exp.Select, *, grouped: bool = False) -> list[exp.Expr]:
    """What may hold values that stand beside the rows of FROM: of groups, their WHERE alone."""
    where = select.args.get("where")
    listed = [] if grouped else select.expressions
    return [*listed, *((where.this,) if where is not None else ())]


def _scalars(select: exp.Select, *, grouped: bool = False) -> Iterator[exp.Expr]:
    """The subqueries for a value in the select list, WHERE and HAVING, those inside others not."""
    having = select.args.get("having")
    beside = [having.this] if having is not None and not grouped else []
    for part in (*_parts(select, grouped=grouped), *beside):
        yield from _within(part)


def in_where(text: Text, select: exp.Select) -> exp.Select:
    """The select with conditions of ON that ask for a value in its WHERE.

    For inner joins that is the same; an outer join decides by ON which rows have met nobody.
    """
    joins = select.args.get("joins") or []
    asking = [j for j in joins if (on := j.args.get("on")) is not None and any(_within(on))]
    if not asking:
        return select
    plain = ("", "INNER", "CROSS")
    if any(j.side or j.method or j.kind not in plain for j in joins):
        place = next(_within(asking[0].args["on"]))
        raise text.error(
            "a value from a subquery in ON of a join that is not an inner join",
            span_of(place),
            OUTER_HINT,
        )
    made = select.copy()
    moved: list[exp.Expr] = []
    for join in made.args["joins"]:
        terms = [] if join.args.get("on") is None else list(terms_of(join.args["on"]))
        asked = [t for t in terms if any(_within(t))]
        if asked:
            kept = [t for t in terms if t not in asked]
            moved += asked
            join.set("on", exp.and_(*kept, copy=True) if kept else exp.true())
    where = made.args.get("where")
    terms = [*moved] if where is None else [where.this, *moved]
    made.set("where", exp.Where(this=exp.and_(*terms, copy=True)))
    return made


def _within(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Exists):
        return
    if isinstance(node, exp.Subquery):
        yield node
        return
    for key, child in node.args.items():
        if isinstance(node, exp.In) and key == "query":
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, exp.Expr):
                yield from _within(each)
