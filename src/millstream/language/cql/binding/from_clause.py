"""The FROM part of a select: its items with their windows, joined, and what names mean there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.coercion import Typed
from millstream.language.cql.binding.expressions import Lowering, span_of
from millstream.language.cql.binding.from_item import Item, ItemBinder, refuse_idle_slide
from millstream.language.cql.binding.joins.asof import as_lookup
from millstream.language.cql.binding.joins.conditions import Conditions
from millstream.language.cql.binding.joins.constants import ALONE_HINT
from millstream.language.cql.binding.joins.constants import joined as constants_joined
from millstream.language.cql.binding.joins.outer import (
    CHAIN_HINT,
    Kind,
    kind_of,
    outer_rows,
    refuse_undecided,
)
from millstream.language.cql.binding.joins.using import Using
from millstream.language.cql.binding.relations import (
    Bound,
    Lifetime,
    Slide,
    agreed_slide,
    exposing_time,
    join_input,
)
from millstream.language.cql.binding.resolution import resolver
from millstream.language.cql.binding.rows.rules import ITEM_HINT, ruled
from millstream.language.cql.binding.rows.unnest import unnested
from millstream.language.cql.binding.scope import Member, Scope, is_time
from millstream.language.cql.binding.tables.forms import Beside
from millstream.language.cql.binding.tables.joins import joined_tables
from millstream.language.cql.binding.tables.system_time import as_instants, refuse_without_version
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import RulesSyntax
from millstream.language.cql.parsing.unnesting import UnnestSyntax
from millstream.language.plan.expressions import Call, Column, Expr, conjunction
from millstream.language.plan.nodes import (
    Constants,
    Filter,
    Join,
    Node,
    Union,
    Windowed,
)
from millstream.language.plan.windows import Grouped, Rows, Session

CONSTANTS_HINT = (
    "let the stream stand first: FROM s LEFT JOIN (VALUES ...) AS t (a, b) ON s.k = t.a"
)
KEY_HINT = "join it ON s.k = t.a, where the values of a are whole numbers or texts and differ"
UNNEST_HINT = "unnest in a subquery first: FROM (SELECT k, x FROM s, UNNEST(a) AS t(x)) [ROWS 3]"
SESSION_HINT = (
    "aggregate them in a subquery first: "
    "FROM (SELECT k, count(*) AS n FROM s [SESSION 10 MINUTES] GROUP BY k) [RANGE 1 HOUR]"
)


@dataclass(frozen=True, slots=True)
class From:
    """A bound FROM. `rows` has the windows applied; `item` is set where there is only one."""

    rows: Node
    scope: Scope
    lifetime: Lifetime
    slide: Slide | None
    momentary: bool
    item: Item | None
    outer: str = ""  # LEFT JOIN and the like: its results are a stream
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
        self._text, self._catalog, self._analyzer = text, catalog, analyzer
        self._items = ItemBinder(text, catalog, analyzer, start, ctes, bind_query)
        self._conditions = Conditions(text, catalog, analyzer)
        self._using = Using(text, analyzer)

    def bind(self, select: exp.Select) -> From:
        clause = select.args.get("from_")
        if clause is None:
            raise self._fail("a query needs FROM", select, "name a stream: SELECT ... FROM stream")
        joins = [*(clause.this.args.get("joins") or ()), *(select.args.get("joins") or ())]
        nodes = [clause.this, *(join.this for join in joins)]
        times = self._items.own_times(nodes)
        if len(joins) == 1 and joins[0].args.get("method") == "ASOF":
            as_lookup(self._text, clause.this, joins[0], times)
        as_instants(self._text, nodes, times)
        kinds = [self._kind(join) for join in joins]
        items = [self._items.bind(clause.this), *(self._items.bind(join.this) for join in joins)]
        self._refuse_equal_names(items)
        refuse_without_version(self._text, items)
        unnests: list[UnnestSyntax] = select.meta.get("unnests", [])
        rules: RulesSyntax | None = select.meta.get("rules")
        if rules is not None:
            return self._with_rules(items, unnests, rules)
        if unnests:
            return self._with_elements(items, unnests)
        if any(isinstance(item.rows, Constants) for item in items) and len(items) > 1:
            return self._with_constants(select, items, joins, kinds)
        return self._of_streams(select, items, joins, kinds)

    def _of_streams(
        self,
        select: exp.Select,
        items: list[Item],
        joins: list[exp.Join],
        kinds: Sequence[Kind | None],
    ) -> From:
        if not joins:
            return self._single(items[0])
        undecided = any(kind is not None and (kind.left or kind.right) for kind in kinds)
        items = Beside(self._text).items(items, whole=undecided)
        if any(item.lifetime is Lifetime.CHANGES for item in items):
            return self._of_tables(select, items, joins, kinds)
        if any(kind is not None for kind in kinds[:-1]):
            place = next(j for j, kind in zip(joins[1:], kinds, strict=False) if kind is not None)
            raise self._fail("a join after an outer join", place, CHAIN_HINT)
        if kinds[-1] is not None:
            return self._outer(select, items, joins, kinds[-1])
        return self._joined(select, items, joins)

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)

    def _kind(self, join: exp.Join) -> Kind | None:
        kind = kind_of(self._text, join)
        if join.this.args.get("joins"):
            raise self._fail(
                "ON belongs right after its JOIN", join, "a JOIN b ON ... JOIN c ON ..."
            )
        return kind

    def _refuse_equal_names(self, items: list[Item]) -> None:
        seen: set[str] = set()
        for item in items:
            if item.name is not None and item.name in seen:
                raise self._fail(
                    f"{item.name} appears twice in FROM",
                    item.node,
                    "give them names: s AS a, s AS b",
                )
            seen.add(item.name or "")

    # -- one item, or a join -----------------------------------------------------------------

    def _single(self, item: Item) -> From:
        rows = item.rows
        if item.window is not None and not isinstance(item.window, Grouped):
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

    def _with_rules(
        self, items: list[Item], unnests: list[UnnestSyntax], rules: RulesSyntax
    ) -> From:
        """One item, and the rules that hold for its rows."""
        item = items[0]
        plain = item.window is None and item.lifetime is Lifetime.OPEN
        if len(items) > 1 or unnests or not plain or isinstance(item.rows, Constants):
            raise self._text.error("FOR EACH over more than the rows of a stream", rules.span,
                                   ITEM_HINT)  # fmt: skip
        rows, member = ruled(self._text, self._catalog, item.rows, rules)
        found = self._single(replace(item, rows=rows))
        return replace(found, scope=Scope((*found.scope.members, member), rows.schema))

    def _inputs(
        self, select: exp.Select, items: list[Item]
    ) -> tuple[tuple[Node, ...], tuple[Member, ...]]:
        """The items as inputs of a join, with their windows, and what names mean over them."""
        inputs: list[Node] = []
        members: list[Member] = []
        offset = 0
        for item in items:
            if isinstance(item.window, Grouped):
                kind = "sessions" if isinstance(item.window, Session) else "windows of results"
                raise self._fail(f"a join over {kind}", item.node, SESSION_HINT)
            made = join_input(item.rows, item.window, item.lifetime)
            member = Member(item.name, item.columns, offset)
            if _mentions_time(select, item.name, only=len(items) == 1):
                made = exposing_time(made)
                member = replace(member, time=Column(offset + len(made.schema) - 1))
            inputs.append(made)
            members.append(member)
            offset += len(made.schema)
        return tuple(inputs), tuple(members)

    def _joined(self, select: exp.Select, items: list[Item], joins: list[exp.Join]) -> From:
        inputs, members = self._inputs(select, items)
        node = Join(inputs, None)
        merged, equalities = self._using.of(members, joins)
        open_ = all(i.lifetime is Lifetime.OPEN for i in items)
        return From(
            node,
            Scope(members, node.schema, merged),
            Lifetime.OPEN if open_ else Lifetime.BOUNDED,
            agreed_slide(self._text, [item.slide for item in items], "join"),
            any(i.momentary for i in items),
            None,
            "",
            tuple(j.args["on"] for j in joins if j.args.get("on") is not None),
            equalities,
        )

    def _outer(
        self, select: exp.Select, items: list[Item], joins: list[exp.Join], kind: Kind
    ) -> From:
        """The last join is not an inner one; those before it are, and make its left side."""
        inputs, members = self._inputs(select, items)
        for item in items:
            refuse_idle_slide(self._text, item.slide)
        left = self._left(inputs[:-1], members[:-1], joins[:-1])
        right = inputs[-1]
        schema = (*left.schema, *right.schema)
        whole, equalities = self._using.of(members, joins)
        before = len(self._using.of(members[:-1], joins[:-1])[1])
        scope = Scope(members, schema, whole)
        terms = [self._conditions.equality(scope, e, n) for e, n in equalities[before:]]
        on = joins[-1].args.get("on")
        if on is not None:
            terms.append(self._conditions.of(scope, on, "ON"))
        sides = ((left, items[0].node), (right, items[-1].node))
        if kind.left or kind.semi:
            refuse_undecided(self._text, kind.word, sides[0], right, anti=kind.left)
        if kind.right:
            refuse_undecided(self._text, kind.word, sides[1], left, anti=True)
        rows = outer_rows(left, right, conjunction(tuple(terms)), kind)
        if kind.semi:
            scope = Scope(members[:-1], rows.schema, self._using.of(members[:-1], joins[:-1])[0])
        elif kind.right:
            rows, merged = self._using.merged(
                rows, scope, [e for e, _ in equalities[before:]], kind
            )
            scope = replace(scope, row=rows.schema, merged=merged)
        return From(rows, scope, Lifetime.OPEN, None, False, None, kind.word)

    def _of_tables(
        self,
        select: exp.Select,
        items: list[Item],
        joins: list[exp.Join],
        kinds: Sequence[Kind | None],
    ) -> From:
        inputs, members = self._inputs(select, items)
        slide = agreed_slide(self._text, [item.slide for item in items], "join")
        steps = list(zip(joins, kinds, strict=True))
        rows, scope = joined_tables(self._conditions, self._using, inputs, members, steps)
        return From(rows, scope, Lifetime.CHANGES, slide, False, None)

    def _left(
        self, inputs: tuple[Node, ...], members: tuple[Member, ...], joins: list[exp.Join]
    ) -> Node:
        if len(inputs) == 1:
            return inputs[0]
        joined = Join(inputs, None)
        merged, equalities = self._using.of(members, joins)
        scope = Scope(members, joined.schema, merged)
        terms = [self._conditions.equality(scope, e, n) for e, n in equalities]
        conditions = [j.args["on"] for j in joins if j.args.get("on") is not None]
        terms += [self._conditions.of(scope, on, "ON") for on in conditions]
        return Join(inputs, conjunction(tuple(terms)))

    # -- tables of constants ---------------------------------------------------------------------

    def _with_constants(
        self,
        select: exp.Select,
        items: list[Item],
        joins: list[exp.Join],
        kinds: Sequence[Kind | None],
    ) -> From:
        """The streams joined with each other, then each row with the tables beside them."""
        fixed = [isinstance(item.rows, Constants) for item in items]
        how: list[tuple[exp.Join | None, Kind | None]] = [(None, None)]
        how += list(zip(joins, kinds, strict=True))
        for item, constant, (_, kind) in zip(items, fixed, how, strict=True):
            wrong = kind is not None and constant and (kind.right or kind.semi)
            if wrong or (fixed[0] and kind is not None):
                word = "an outer join" if kind is None else kind.word
                raise self._fail(f"{word} with constants on that side", item.node, CONSTANTS_HINT)
        streams = [i for i, constant in enumerate(fixed) if not constant]
        if not streams:
            raise self._fail("a query over constants alone", items[0].node, ALONE_HINT)
        chosen = [how[i] for i in streams[1:]]
        source = self._settled(
            self._of_streams(
                select,
                [items[i] for i in streams],
                [j for j, _ in chosen if j is not None],
                [k for _, k in chosen],
            )
        )
        waiting = [how[streams[0]][0]] if fixed[0] else []
        for i, constant in enumerate(fixed):
            if constant:
                source = self._beside(source, items[i], *how[i])
        for join in waiting:
            condition = None if join is None else join.args.get("on")
            if condition is not None:
                made = self._conditions.of(source.scope, condition, "ON")
                source = replace(source, rows=Filter(source.rows, made))
            elif join is not None and join.args.get("using"):
                raise self._fail("USING after constants", join, CONSTANTS_HINT)
        return source

    def _settled(self, source: From) -> From:
        """The same with its conditions of ON and USING in the join."""
        terms = [self._conditions.equality(source.scope, e, n) for e, n in source.equalities]
        terms += [self._conditions.of(source.scope, on, "ON") for on in source.conditions]
        rows = source.rows
        if isinstance(rows, Join) and terms:
            rows = Join(rows.inputs, conjunction(tuple(terms)))
        return replace(source, rows=rows, conditions=(), equalities=())

    def _beside(self, source: From, item: Item, join: exp.Join | None, kind: Kind | None) -> From:
        table = item.rows
        assert isinstance(table, Constants)
        width = len(source.rows.schema)
        members = (*source.scope.members, Member(item.name, item.columns, width))
        scope = Scope(members, (*source.rows.schema, *table.schema), source.scope.merged)
        terms: list[Expr] = []
        if join is not None:
            merged, equalities = self._using.of(members, [join], scope.merged)
            terms = [self._conditions.equality(scope, e, n) for e, n in equalities]
            scope = replace(scope, merged=merged)
            if join.args.get("on") is not None:
                terms.append(self._conditions.of(scope, join.args["on"], "ON"))
        outer = kind is not None
        rows = constants_joined(source.rows, table, conjunction(tuple(terms)), outer=outer)
        if rows is None:
            raise self._fail(
                f"a join with {len(table.rows)} rows of constants by no key", item.node, KEY_HINT
            )
        whole = source.item if not isinstance(rows, Union) else None
        return replace(source, rows=rows, scope=replace(scope, row=rows.schema), item=whole)


def _mentions_time(select: exp.Select, name: str | None, *, only: bool) -> bool:
    """Whether the select uses `name.ts`, in any clause but its subqueries."""
    if name is None or only:
        return False
    for node in select.walk(prune=_in_from):
        if isinstance(node, exp.Column):
            parts = [part.name for part in node.parts]
            if len(parts) >= 2 and parts[0].lower() == name.lower() and is_time(parts[1]):
                return True
    return False


def _in_from(node: exp.Expr) -> bool:
    """Whether it is a subquery that cannot name what stands around it."""
    return isinstance(node, exp.Subquery) and not isinstance(node.parent, exp.In)
