"""The FROM part of a select: its items with their windows, joined, and what names mean there."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.coercion import Typed
from millstream.language.cql.binding.expressions import Lowering, span_of
from millstream.language.cql.binding.relations import (
    Bound,
    Lifetime,
    Slide,
    agreed_slide,
    exposing_time,
    item_rows,
    join_input,
)
from millstream.language.cql.binding.resolution import resolver
from millstream.language.cql.binding.rows.unnest import unnested
from millstream.language.cql.binding.scope import Member, Named, NameLookupError, Scope, is_time
from millstream.language.cql.binding.storing import refuse_incomparable
from millstream.language.cql.catalog import Catalog, lookup
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import WindowSyntax
from millstream.language.cql.parsing.unnesting import UnnestSyntax
from millstream.language.cql.parsing.window_parser import ALIGN_HINT
from millstream.language.plan.expressions import Call, Column, Expr
from millstream.language.plan.nodes import Join, Node, Source, Windowed
from millstream.language.plan.windows import Now, Range, Rows, Session, Unbounded, Window

UNNEST_HINT = "unnest in a subquery first: FROM (SELECT k, x FROM s, UNNEST(a) AS t(x)) [ROWS 3]"
OUTER_HINT = "only inner joins exist: a missing match may still arrive"
SESSION_HINT = (
    "aggregate them in a subquery first: "
    "FROM (SELECT k, count(*) AS n FROM s [SESSION 10 MINUTES] GROUP BY k) [RANGE 1 HOUR]"
)
RELATION_HINT = "make it a stream first: FROM (ISTREAM(SELECT ...)) [RANGE ...]"


@dataclass(frozen=True, slots=True)
class Item:
    """One item of FROM, bound, with its window not yet applied."""

    name: str | None
    node: exp.Expr
    rows: Node
    columns: tuple[Named, ...]
    window: Window | Session | None
    lifetime: Lifetime  # with its window
    slide: Slide | None
    momentary: bool


@dataclass(frozen=True, slots=True)
class From:
    """A bound FROM. `rows` has the windows applied; `item` is set where there is only one."""

    rows: Node
    scope: Scope
    lifetime: Lifetime
    slide: Slide | None
    momentary: bool
    item: Item | None
    conditions: tuple[exp.Expr, ...] = ()  # of ON, not yet lowered
    equalities: tuple[tuple[Call, exp.Expr], ...] = ()  # of USING, not yet typed


class FromBinder:
    """Binds the FROM part of one select."""

    def __init__(
        self,
        text: Text,
        catalog: Catalog,
        analyzer: Analyzer,
        start: int,
        ctes: dict[str, Bound],
        bind_query: Callable[[exp.Expr, dict[str, Bound]], Bound],
    ) -> None:
        self._text, self._catalog, self._analyzer, self._start = text, catalog, analyzer, start
        self._ctes, self._bind_query = ctes, bind_query

    def bind(self, select: exp.Select) -> From:
        clause = select.args.get("from_")
        if clause is None:
            raise self._fail("a query needs FROM", select, "name a stream: SELECT ... FROM stream")
        joins = [*(clause.this.args.get("joins") or ()), *(select.args.get("joins") or ())]
        for join in joins:
            self._refuse_outer(join)
        items = [self._item(clause.this), *(self._item(join.this) for join in joins)]
        self._refuse_equal_names(items)
        unnests: list[UnnestSyntax] = select.meta.get("unnests", [])
        if unnests:
            return self._with_elements(items, unnests)
        if not joins:
            return self._single(items[0])
        return self._joined(select, items, joins)

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)

    def _refuse_outer(self, join: exp.Join) -> None:
        side, kind, method = (join.args.get(k) for k in ("side", "kind", "method"))
        if side or kind == "OUTER":
            raise self._fail(f"{side or kind} JOIN is not supported", join, OUTER_HINT)
        if method or kind not in (None, "", "INNER", "CROSS"):
            raise self._fail(f"{method or kind} JOIN is not supported", join, "use JOIN ... ON")
        if join.this.args.get("joins"):
            raise self._fail(
                "ON belongs right after its JOIN", join, "a JOIN b ON ... JOIN c ON ..."
            )

    def _refuse_equal_names(self, items: list[Item]) -> None:
        seen: set[str] = set()
        for item in items:
            if item.name is not None and item.name in seen:
                raise self._fail(
                    f"{item.name} stands twice in FROM",
                    item.node,
                    "give them names: s AS a, s AS b",
                )
            seen.add(item.name or "")

    # -- items -------------------------------------------------------------------------------

    def _item(self, node: exp.Expr) -> Item:
        alias = node.args.get("alias")
        bound, own_name = self._rows(node)
        refuse_other_time(self._text, self._catalog, self._ctes, node)
        name = alias.name if alias is not None else own_name
        syntax: WindowSyntax | None = node.meta.get("window")
        window = None if syntax is None else self._window(syntax, bound, node)
        if syntax is not None and bound.lifetime is Lifetime.CHANGES:
            raise self._text.error("a window over a table that changes", syntax.span, RELATION_HINT)
        slide = bound.slide
        if syntax is not None or bound.streamed:
            refuse_idle_slide(self._text, bound.slide)
            slide = None
        if syntax is not None and syntax.slide_us is not None and syntax.slide_span is not None:
            start_span = syntax.align_span if syntax.align == "start" else None
            word = syntax.spelled or "SLIDE"
            slide = Slide(syntax.slide_us, syntax.slide_span, start_span, syntax.offset_us, word)
        if syntax is not None and isinstance(window, Session):
            slide = Slide(window.gap, syntax.span, word=syntax.spelled or "SESSION")
        rows = item_rows(bound, window)
        momentary = (bound.momentary and window is None) or isinstance(window, Now)
        lifetime = _lifetime(bound, window)
        return Item(name, node, rows, bound.columns, window, lifetime, slide, momentary)

    def _rows(self, node: exp.Expr) -> tuple[Bound, str | None]:
        if isinstance(node, exp.Subquery):
            return self._bind_query(node.this, self._ctes), None
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self._fail("expected a stream or a subquery", node)
        name = node.this.name
        found = lookup(name, self._ctes)
        if found:
            chosen = list(self._ctes)[found[0]]
            return self._ctes[chosen], chosen
        try:
            stream = self._catalog.stream(name)
        except UsageError as mistake:
            raise self._fail(mistake.message, node.this, mistake.hint) from None
        columns = tuple(
            Named(f.name, i) for i, f in enumerate(stream.columns) if not is_time(f.name)
        )
        source = Source(stream.name, stream.columns, self._start)
        return Bound(source, columns, Lifetime.OPEN), stream.name

    def _window(self, syntax: WindowSyntax, bound: Bound, node: exp.Expr) -> Window | Session:
        if syntax.slide_span is not None and syntax.kind not in ("range", "unbounded"):
            raise self._text.error(
                f"SLIDE does not go with {syntax.kind.upper()}", syntax.slide_span,
                "SLIDE belongs to RANGE: [RANGE 1 MINUTE SLIDE 5 SECONDS]",
            )  # fmt: skip
        if syntax.align_span is not None and (syntax.kind != "range" or syntax.slide_us is None):
            raise self._text.error(
                f"{'OFFSET' if syntax.offset_us else 'ALIGN'} does not go without RANGE and SLIDE",
                syntax.align_span,
                ALIGN_HINT,
            )
        match syntax.kind:
            case "range":
                return Range(syntax.length_us)
            case "now":
                return Now()
            case "unbounded":
                return Unbounded()
            case "session":
                return Session(syntax.length_us)
            case _:
                return Rows(syntax.count, self._partition(syntax, bound, node))

    def _partition(self, syntax: WindowSyntax, bound: Bound, node: exp.Expr) -> tuple[Expr, ...]:
        alias = node.args.get("alias")
        name = alias.name if alias is not None else getattr(node.this, "name", None)
        scope = Scope((Member(name, bound.columns),), bound.node.schema)
        lowering = Lowering(self._text, self._catalog, resolver(self._text, scope, "PARTITION BY"))
        made = [lowering.lower(key) for key in syntax.partition]
        for key, key_node in zip(made, syntax.partition, strict=True):
            if not isinstance(key, Column):
                raise self._fail(
                    "PARTITION BY takes columns", key_node,
                    "compute it in a subquery: FROM (SELECT ..., expression AS k FROM s) "
                    "[PARTITION BY k ROWS n]",
                )  # fmt: skip
        keys = tuple(bound.node.schema[k.index] for k in made if isinstance(k, Column))
        refuse_incomparable(self._text, self._analyzer, "PARTITION BY", keys, syntax.partition)
        return tuple(made)

    # -- one item, or a join -----------------------------------------------------------------

    def _single(self, item: Item) -> From:
        rows = item.rows
        if item.window is not None and not isinstance(item.window, Session):
            rows = Windowed(item.rows, item.window)
        scope = Scope((Member(item.name, item.columns),), rows.schema)
        return From(rows, scope, item.lifetime, item.slide, item.momentary, item)

    def _with_elements(self, items: list[Item], unnests: list[UnnestSyntax]) -> From:
        """One item, and the elements of arrays of its rows."""
        item, span = items[0], unnests[0].span
        if len(items) > 1:
            raise self._text.error("UNNEST beside a join", span, UNNEST_HINT)
        if isinstance(item.window, Rows):
            raise self._text.error("UNNEST over a window of rows", span, UNNEST_HINT)
        if item.lifetime is Lifetime.CHANGES or (
            item.window is None and item.lifetime is not Lifetime.OPEN
        ):
            raise self._text.error("UNNEST over a table, or a subquery with windows", span,
                                   UNNEST_HINT)  # fmt: skip

        def typed(node: exp.Expr, scope: Scope) -> tuple[Expr, str]:
            lowering = Lowering(self._text, self._catalog, resolver(self._text, scope, "UNNEST"))
            made = [(lowering.lower(node), node)]
            return Typed(lowering, scope.row, self._analyzer).check(made)[0]

        member = Member(item.name, item.columns)
        rows, members = unnested(self._text, item.rows, (member,), unnests, typed)
        found = self._single(replace(item, rows=rows))
        return replace(found, scope=Scope(members, found.rows.schema))

    def _joined(self, select: exp.Select, items: list[Item], joins: list[exp.Join]) -> From:
        for item in items:
            if item.lifetime is Lifetime.CHANGES:
                raise self._fail("a join with a table that changes", item.node, RELATION_HINT)
        inputs: list[Node] = []
        members: list[Member] = []
        offset = 0
        for item in items:
            if isinstance(item.window, Session):
                raise self._fail("a join over sessions", item.node, SESSION_HINT)
            made = join_input(item.rows, item.window, item.lifetime)
            member = Member(item.name, item.columns, offset)
            if _mentions_time(select, item.name, only=len(items) == 1):
                made = exposing_time(made)
                member = replace(member, time=Column(offset + len(made.schema) - 1))
            inputs.append(made)
            members.append(member)
            offset += len(made.schema)
        node = Join(tuple(inputs), None)
        merged, equalities = self._using(members, joins)
        open_ = all(i.lifetime is Lifetime.OPEN for i in items)
        return From(
            node,
            Scope(tuple(members), node.schema, merged),
            Lifetime.OPEN if open_ else Lifetime.BOUNDED,
            agreed_slide(self._text, [item.slide for item in items], "join"),
            any(i.momentary for i in items),
            None,
            tuple(j.args["on"] for j in joins if j.args.get("on") is not None),
            equalities,
        )

    def _using(
        self, members: list[Member], joins: list[exp.Join]
    ) -> tuple[tuple[Named, ...], tuple[tuple[Call, exp.Expr], ...]]:
        merged: list[Named] = []
        equalities: list[tuple[Call, exp.Expr]] = []
        for position, join in enumerate(joins, start=1):
            left = Scope(tuple(members[:position]), (), tuple(merged))
            right = Scope((members[position],), ())
            for name in join.args.get("using") or ():
                try:
                    here, there = left.unqualified(name.name), right.unqualified(name.name)
                except NameLookupError as mistake:
                    raise self._fail(mistake.message, name, mistake.hint) from None
                equalities.append((Call("=", (here, there)), name))
                if isinstance(here, Column) and not lookup(name.name, [m.name for m in merged]):
                    merged.append(Named(name.name, here.index))
        return tuple(merged), tuple(equalities)


def refuse_other_time(text: Text, catalog: Catalog, ctes: dict[str, Bound], node: exp.Expr) -> None:
    """A window of another system names its time: only the row's own time will do."""
    time: exp.Expr | None = node.meta.get("window_time")
    if time is None or (isinstance(time, exp.Column) and is_time(time.name)):
        return
    stream = node.this.name if isinstance(node, exp.Table) else ""
    if stream and not lookup(stream, ctes):
        definition = catalog.stream(stream)
        at = definition.time_column
        if at is not None and definition.columns[at].name.lower() == time.name.lower():
            return
    raise text.error(
        "a window over a time that is not the row's own", span_of(time),
        "windows go by ts, the time of each row",
    )  # fmt: skip


def _lifetime(bound: Bound, window: Window | Session | None) -> Lifetime:
    match window:
        case None:
            return Lifetime.OPEN if bound.streamed else bound.lifetime
        case Unbounded() | Session():
            return Lifetime.OPEN
        case _:
            return Lifetime.BOUNDED


def _mentions_time(select: exp.Select, name: str | None, *, only: bool) -> bool:
    """Whether the select uses `name.ts`, in any clause but its subqueries."""
    if name is None or only:
        return False
    for node in select.walk(prune=lambda n: isinstance(n, exp.Subquery)):
        if isinstance(node, exp.Column):
            parts = [part.name for part in node.parts]
            if len(parts) >= 2 and parts[0].lower() == name.lower() and is_time(parts[1]):
                return True
    return False


def refuse_idle_slide(text: Text, slide: Slide | None) -> None:
    """SLIDE says when to look at a relation; without an aggregate or RSTREAM nobody looks."""
    if slide is not None:
        raise text.error(
            f"{slide.word} has no effect here", slide.span,
            "it belongs to an aggregate over [RANGE ... SLIDE ...], or to RSTREAM(SELECT ...)",
        )  # fmt: skip
