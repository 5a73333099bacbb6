"""From a parsed query to a plan: names, types, windows, and the canonical form.

Decides from the statement, the catalog and Spark's word on types; never runs anything. Semantics
of every construct: docs/CQL.md.
"""

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.analyzer import AnalysisFailure, Analyzer
from millstream.language.cql.binding.aggregates import spell_out_all
from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.from_item import refuse_idle_slide
from millstream.language.cql.binding.joins.constants import ALONE_HINT, constants, refuse_alone
from millstream.language.cql.binding.ranking.clauses import ranks_rows
from millstream.language.cql.binding.relations import (
    SLIDE_DEFAULT_US,
    Bound,
    Lifetime,
    agreed_slide,
    as_stream,
    united,
    without_windows,
)
from millstream.language.cql.binding.rows.views import bound_views
from millstream.language.cql.binding.scope import Named
from millstream.language.cql.binding.select import SelectBinder, distinct_rows
from millstream.language.cql.binding.storing import refuse_incomparable
from millstream.language.cql.binding.tables.forgiving import forgiving
from millstream.language.cql.binding.tables.forms import as_table
from millstream.language.cql.binding.tables.sets import instant_set_rows, set_rows
from millstream.language.cql.catalog import Catalog, lookup
from millstream.language.cql.parsing.parser import SelectStatement, Text
from millstream.language.cql.parsing.syntax import EmitSyntax, RefinementSyntax, Span
from millstream.language.cql.times_of_text import TimeTextError, as_type
from millstream.language.cql.user_aggregates import mark_aggregates
from millstream.language.plan.expressions import Cast, Column
from millstream.language.plan.nodes import (
    Aggregate,
    Constants,
    Distinct,
    Emit,
    Filter,
    Node,
    Plan,
    Project,
    Union,
    is_relation,
)
from millstream.language.plan.rewrite import rewrite
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING, Change, Sliding, Snapshot

REFUSED = {
    "order": ("ORDER BY without LIMIT", "a stream has no end to sort; rows carry ts"),
    "limit": ("LIMIT without ORDER BY", "say which rows: ORDER BY n DESC LIMIT 3, in each window"),
    "offset": (
        "OFFSET",
        "a rank: FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM t) WHERE r > 2",
    ),
    "sort": ("SORT BY", "a stream has no end to sort; rows carry ts"),
    "cluster": ("CLUSTER BY", "placement is the system's task"),
    "distribute": ("DISTRIBUTE BY", "placement is the system's task"),
    "sample": ("TABLESAMPLE", "rows by their values: WHERE pmod(hash(k), 10) = 0"),
    "into": ("INTO", "CREATE QUERY name AS SELECT ... names a result"),
    "hint": ("a hint", "placement is the system's task"),
    "connect": ("CONNECT BY", ""),
    "locks": ("a lock", ""),
    "prewhere": ("PREWHERE", "use WHERE"),
    "pivots": ("PIVOT", "use CASE and an aggregate"),
}
SET_HINT = (
    "compare results of windows: SELECT k, window_end FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] "
    "GROUP BY k {} SELECT k, window_end FROM t [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k; or "
    "rows of one instant, with [NOW] on both sides"
)
NO_INSTANT = 0  # of a query that begins with history from an instant yet to be chosen
OP = "op"  # the column of a table's changes that says what happened to a row
OP_HINT = "every change has op, + or -; give this column another name: ... AS operation"
RANKING_PARTS = ("order", "limit")
SELECT_PARTS = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "distinct", "with_"}
    | {"windows", "qualify"}
)

PARTS_MAX = 1_000  # of a plan: views that read each other twice double it each time


def bind(
    select: SelectStatement, catalog: Catalog, analyzer: Analyzer, *, start: int = BEGINNING
) -> Plan:
    """The canonical plan of a query over rows with ts >= start."""
    try:
        if select.history is not None:
            until = select.history.until_us
            catalog = replace(catalog, history_until=NO_INSTANT if until is None else until)
        binder = QueryBinder(select.text, catalog, analyzer, start)
        bound = binder.bind(select.tree, bound_views(select.text, select.views, binder.bind))
    except RecursionError:
        raise select.text.error(
            "the query is nested too deeply", Span(0, 0), "split it with WITH"
        ) from None
    refuse_idle_slide(select.text, bound.slide)
    refuse_alone(select.text, bound.node, select.tree)
    names = [c.name.lower() for c in bound.columns]
    for column in bound.columns:
        if names.count(column.name.lower()) > 1:
            raise select.text.error(
                f"the result has two columns named {column.name}",
                span_of(select.tree),
                "alias one of them",
            )
    # ISTREAM is what a query means by default: windows of time alone change nothing
    root = without_windows(bound.node) or bound.node
    picked = tuple(Column(c.position) for c in bound.columns)
    root = rewrite(forgiving(Project(root, picked, bound.fields)))
    if OP in names and is_relation(root):
        raise select.text.error(
            "a table that changes with a column named op", span_of(_named(select.tree, OP)), OP_HINT
        )
    return Plan(root, bound.fields, is_relation(root))


def _named(tree: exp.Expr, name: str) -> exp.Expr:
    """The item of the select list that gives a column of the result; all of it for one of `*`."""
    items = (i for s in tree.find_all(exp.Select) for i in s.expressions)
    return next((i for i in items if i.alias_or_name.lower() == name), tree)


class QueryBinder:
    """Binds queries and their subqueries."""

    def __init__(self, text: Text, catalog: Catalog, analyzer: Analyzer, start: int) -> None:
        self._text, self._catalog, self._analyzer, self._start = text, catalog, analyzer, start

    def bind(self, tree: exp.Expr, ctes: dict[str, Bound]) -> Bound:
        mark_aggregates(self._text, tree, self._catalog)
        spell_out_all(self._text, tree)
        ctes = self._with(tree, ctes)
        self._refuse_parts(tree)
        if isinstance(tree, exp.Subquery):
            bound = self.bind(tree.this, ctes)
        elif isinstance(tree, exp.Union):
            emitted = self._union_of_emitted(tree, ctes)
            if emitted is not None:
                return emitted
            bound = self._union(tree, ctes)
        elif isinstance(tree, exp.Values):
            bound = constants(self._text, self._catalog, self._analyzer, tree)
        elif isinstance(tree, exp.Select):
            bound = SelectBinder(
                self._text, self._catalog, self._analyzer, self._start, ctes, self.bind
            ).bind(tree)
        elif isinstance(tree, exp.Intersect | exp.Except):
            bound = self._set(tree, [self._side(part, ctes) for part in _sides(tree)])
        else:
            kind = type(tree).__name__.upper()
            raise self._fail(f"{kind} is not supported", tree, "UNION, INTERSECT and EXCEPT are")
        if bound.node.parts > PARTS_MAX:  # before anything walks over all of them
            text = f"the query has more than {PARTS_MAX} parts with its views spelled out"
            raise self._fail(text, tree, "make queries of its views: they are computed once")
        emit: EmitSyntax | None = tree.meta.get("emit")
        bound = bound if emit is None else self._emitted(bound, emit)
        self._refuse_refinement(tree, bound)
        return bound

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)

    def _with(self, tree: exp.Expr, ctes: dict[str, Bound]) -> dict[str, Bound]:
        clause = tree.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise self._fail(
                "WITH RECURSIVE is not supported", clause,
                "join the stream with itself once for each level",
            )  # fmt: skip
        known, own = dict(ctes), list[str]()
        for cte in clause.expressions:
            alias = cte.args["alias"]
            if alias.args.get("columns"):
                raise self._fail("columns are named in the select", alias, "SELECT a AS b")
            if lookup(alias.name, own):
                raise self._fail(f"WITH names {alias.name} twice", alias, "rename one of them")
            own.append(alias.name)
            known[alias.name] = self.bind(cte.this, known)
        return known

    def _refuse_parts(self, tree: exp.Expr) -> None:
        for key, value in tree.args.items():
            if not value or key in SELECT_PARTS or key in ("this", "expression", "alias"):
                continue
            if key in RANKING_PARTS and ranks_rows(tree):
                continue
            name, hint = REFUSED.get(key, (key.strip("_").upper(), ""))
            if key in REFUSED or isinstance(tree, exp.Select):
                node = value[0] if isinstance(value, list) else value
                at = node if isinstance(node, exp.Expr) else tree
                name = name if isinstance(tree, exp.Select) else name.partition(" without ")[0]
                raise self._fail(f"{name} is not supported", at, hint)

    def _refuse_refinement(self, tree: exp.Expr, bound: Bound) -> None:
        """EMIT CHANGES is what a table does, EMIT FINAL what a window does: never the other."""
        asked: RefinementSyntax | None = tree.meta.get("refinement")
        if asked is None:
            return
        if asked.kind == "final" and bound.lifetime is Lifetime.CHANGES:
            raise self._text.error(
                "EMIT FINAL over a table that changes", asked.span,
                "leave it out: a table is given by its changes; a window has an end: "
                "[RANGE 10 SECONDS SLIDE 10 SECONDS]",
            )  # fmt: skip
        aggregate = _aggregate_below(bound.node)
        if asked.kind == "changes" and bound.streamed and aggregate is not None:
            raise self._text.error(
                "EMIT CHANGES over windows", asked.span,
                "leave it out, or write EMIT FINAL: each window's result comes once, when the "
                "watermark reaches its end",
            )  # fmt: skip

    def _set(self, tree: exp.SetOperation, sides: list[Bound]) -> Bound:
        """INTERSECT and EXCEPT: of tables, or of all rows so far."""
        kind = "INTERSECT" if isinstance(tree, exp.Intersect) else "EXCEPT"
        self._refuse_other_widths(tree, sides)
        left, right = self._widened_sides(tree, sides)
        first, second = sides
        instants = first.momentary and second.momentary
        if not instants:
            if any(s.lifetime not in (Lifetime.OPEN, Lifetime.CHANGES) for s in sides):
                raise self._fail(f"{kind} over windows of plain rows", tree, SET_HINT.format(kind))
            for side in sides:
                refuse_idle_slide(self._text, side.slide)
        columns = tuple(Named(c.name, i) for i, c in enumerate(first.columns))
        places = [tree.expression] * len(columns)
        refuse_incomparable(self._text, self._analyzer, kind, first.fields, places)
        every, common = not tree.args.get("distinct"), kind == "INTERSECT"
        if instants:
            both = (as_stream(left), as_stream(right))
            node = instant_set_rows(*both, self._start, common=common, every=every)
            return Bound(node, columns, Lifetime.OPEN)
        ours = without_windows(left) or left
        theirs = without_windows(right) or right if every else as_table(right, second.lifetime)
        assert theirs is not None
        node = set_rows(ours, theirs, self._start, common=common, every=every)
        return Bound(node, columns, Lifetime.CHANGES)

    def _refuse_other_widths(self, tree: exp.SetOperation, sides: list[Bound]) -> None:
        left, right = sides
        if len(left.columns) != len(right.columns):
            raise self._fail(
                f"the sides of a union have {len(left.columns)} and {len(right.columns)} columns",
                tree.expression,
            )

    def _widened_sides(self, tree: exp.SetOperation, sides: list[Bound]) -> list[Node]:
        types = self._common_types(tree, *sides)
        try:
            return [_widened(side, types) for side in sides]
        except TimeTextError as mistake:
            raise self._fail(mistake.message, tree.expression, mistake.hint) from None

    # -- union -------------------------------------------------------------------------------

    def _union(self, tree: exp.Union, ctes: dict[str, Bound]) -> Bound:
        if tree.args.get("by_name"):
            raise self._fail("UNION BY NAME is not supported", tree, "order the columns alike")
        return self._united(tree, [self._side(part, ctes) for part in _sides(tree)])

    def _united(self, tree: exp.Union, sides: list[Bound]) -> Bound:
        left, right = sides
        self._refuse_other_widths(tree, sides)
        lifetime = united({left.lifetime, right.lifetime})
        if lifetime is Lifetime.MIXED and Lifetime.CHANGES in (left.lifetime, right.lifetime):
            raise self._fail(
                "a union of a table that changes and a stream", tree.expression,
                "make the table a stream first: ISTREAM(SELECT ...)",
            )  # fmt: skip
        inputs: list[Node] = []
        for node in self._widened_sides(tree, sides):
            inputs += node.inputs if isinstance(node, Union) else (node,)
        slide = agreed_slide(self._text, [left.slide, right.slide], "union")
        columns = tuple(Named(c.name, i) for i, c in enumerate(left.columns))
        momentary = left.momentary and right.momentary
        bound = Bound(Union(tuple(inputs)), columns, lifetime, slide, momentary=momentary)
        if not tree.args.get("distinct"):
            return bound
        places = [tree.expression] * len(columns)
        refuse_incomparable(self._text, self._analyzer, "UNION", bound.fields, places)
        return distinct_rows(bound, self._start)

    def _union_of_emitted(self, tree: exp.Union, ctes: dict[str, Bound]) -> Bound | None:
        """DSTREAM and RSTREAM over a union of window aggregates: the union of theirs.

        In a union an aggregate is the stream of its results, whose rows never leave; but what an
        operator over intervals gives for all rows is what it gives for each side's.
        """
        emit: EmitSyntax | None = tree.meta.get("emit")
        if emit is None or emit.kind == "istream":
            return None
        parts = list(_united_parts(tree))
        sides = [self.bind(part, ctes) for part in parts]
        if not any(s.streamed and s.lifetime is Lifetime.BOUNDED for s in sides):
            return None
        if _distinct_union(tree):
            raise self._text.error(
                f"{emit.kind.upper()} over a UNION of window aggregates", emit.span,
                "UNION ALL is possible",
            )  # fmt: skip
        if emit.kind == "rstream" and len({(_slide_us(s), _offset_us(s)) for s in sides}) > 1:
            raise self._text.error(
                "RSTREAM over a union of aggregates that slide differently", emit.span,
                "give all windows the same SLIDE and ALIGN",
            )  # fmt: skip
        united = self._emitted_side(sides[0], emit, parts[0])
        for side, part in zip(sides[1:], parts[1:], strict=True):
            united = self._united(tree, [united, self._emitted_side(side, emit, part)])
        return replace(united, streamed=True)

    def _emitted_side(self, side: Bound, emit: EmitSyntax, part: exp.Expr) -> Bound:
        if side.lifetime is Lifetime.OPEN:
            raise self._fail(
                f"{emit.kind.upper()} over rows that never leave", part,
                "give the stream a window: FROM s [RANGE 10 SECONDS]",
            )  # fmt: skip
        return self._as_side(self._emitted(side, emit))

    def _side(self, tree: exp.Expr, ctes: dict[str, Bound]) -> Bound:
        return self._as_side(self.bind(tree, ctes))

    def _as_side(self, bound: Bound) -> Bound:
        """What a union takes of a query: of an aggregate the stream of its results."""
        if isinstance(bound.node, Constants):
            raise self._text.error("a union with constants alone", Span(0, 0), ALONE_HINT)
        if not bound.streamed:
            return bound
        refuse_idle_slide(self._text, bound.slide)
        return replace(bound, node=as_stream(bound.node), lifetime=Lifetime.OPEN, streamed=False)

    def _common_types(self, tree: exp.SetOperation, left: Bound, right: Bound) -> list[str]:
        types = []
        for a, b in zip(left.fields, right.fields, strict=True):
            if a.type == b.type:
                types.append(a.type)
                continue
            try:
                (type_,) = self._analyzer.analyse((a, b), ["coalesce(c0, c1)"])
            except AnalysisFailure:
                raise self._fail(
                    f"column {a.name} of a union is {a.type} on one side, {b.type} on the other",
                    tree.expression, "cast one of them",
                ) from None  # fmt: skip
            types.append(type_)
        return types

    # -- ISTREAM, DSTREAM, RSTREAM -----------------------------------------------------------

    def _emitted(self, bound: Bound, emit: EmitSyntax) -> Bound:
        if bound.lifetime is Lifetime.CHANGES:
            return self._as_emit(bound, emit.kind, _slide_us(bound))
        if emit.kind == "dstream":
            if bound.lifetime is Lifetime.OPEN:
                raise self._text.error(
                    "DSTREAM over rows that never leave", emit.span,
                    "give the stream a window: DSTREAM(SELECT ... FROM s [RANGE 10 SECONDS])",
                )  # fmt: skip
            refuse_idle_slide(self._text, bound.slide)
            return self._as_emit(bound, "dstream", SLIDE_DEFAULT_US)
        if emit.kind == "rstream" and bound.slide is not None and bound.slide.offset_us:
            raise self._text.error(
                "OFFSET does not go with RSTREAM", bound.slide.span,
                "RSTREAM looks at multiples of SLIDE; OFFSET belongs to aggregates",
            )  # fmt: skip
        if emit.kind == "rstream" and bound.slide is not None and bound.slide.start_span:
            raise self._text.error(
                "ALIGN START does not go with RSTREAM", bound.slide.start_span,
                "RSTREAM looks at multiples of SLIDE; ALIGN belongs to aggregates",
            )  # fmt: skip
        if emit.kind == "rstream" and isinstance(bound.node, Distinct) and _offset_us(bound):
            raise self._text.error(
                "RSTREAM over DISTINCT results of windows with ALIGN START", emit.span,
                "leave out DISTINCT: each window's results come with ts = window_end",
            )  # fmt: skip
        aggregate = _aggregate_below(bound.node)
        by_change = aggregate is None or isinstance(aggregate.grouping, Change)
        if emit.kind == "rstream" and not bound.momentary and by_change:
            return self._as_emit(bound, "rstream", _slide_us(bound))
        if emit.kind == "rstream":
            return replace(bound, streamed=True, slide=None)
        return replace(bound, streamed=True)

    def _as_emit(self, bound: Bound, kind: str, slide_us: int) -> Bound:
        node = Emit(bound.node, kind, slide_us)  # type: ignore[arg-type]
        return Bound(node, bound.columns, Lifetime.OPEN, streamed=True)


def _sides(tree: exp.SetOperation) -> tuple[exp.Expr, exp.Expr]:
    return tree.this, tree.expression


def _nested_union(tree: exp.Expr) -> exp.Union | None:
    """A union inside a union that has nothing of its own around it."""
    while isinstance(tree, exp.Subquery) and not tree.meta.get("emit"):
        tree = tree.this
    plain = isinstance(tree, exp.Union) and not tree.meta.get("emit")
    return tree if plain and not tree.args.get("with_") else None  # type: ignore[return-value]


def _united_parts(tree: exp.Union) -> Iterator[exp.Expr]:
    for part in _sides(tree):
        nested = _nested_union(part)
        if nested is None:
            yield part
        else:
            yield from _united_parts(nested)


def _distinct_union(tree: exp.Union) -> bool:
    nested = [found for part in _sides(tree) if (found := _nested_union(part)) is not None]
    return bool(tree.args.get("distinct")) or any(_distinct_union(u) for u in nested)


def _slide_us(bound: Bound) -> int:
    """How often RSTREAM looks: the query's SLIDE, also where an aggregate has used it."""
    if bound.slide is not None:
        return bound.slide.length_us
    windows = _aggregate_windows(bound)
    return SLIDE_DEFAULT_US if windows is None else windows.slide


def _offset_us(bound: Bound) -> int:
    """How far the ends of an aggregate's windows lie behind the multiples of SLIDE."""
    windows = _aggregate_windows(bound)
    return 0 if windows is None else windows.offset


def _aggregate_windows(bound: Bound) -> Sliding | Snapshot | None:
    """The windows of the aggregate whose results a query hands on, or makes distinct."""
    aggregate = _aggregate_below(
        bound.node.input if isinstance(bound.node, Distinct) else bound.node
    )
    if aggregate is None or not isinstance(aggregate.grouping, Sliding | Snapshot):
        return None
    return aggregate.grouping


def _aggregate_below(node: Node) -> Aggregate | None:
    """The aggregate whose results a select hands on."""
    while isinstance(node, Project | Filter):
        node = node.input
    return node if isinstance(node, Aggregate) else None


def _widened(side: Bound, types: list[str]) -> Node:
    """The side with its visible columns alone, in the common types."""
    fields = side.fields
    columns = tuple(
        Column(c.position) if f.type == t else Cast(as_type(Column(c.position), f.type, t), t)
        for c, f, t in zip(side.columns, fields, types, strict=True)
    )
    same = tuple(Column(i) for i in range(len(side.node.schema)))
    if columns == same:
        return side.node
    named = tuple(Field(f.name, t) for f, t in zip(fields, types, strict=True))
    return Project(side.node, columns, named)
