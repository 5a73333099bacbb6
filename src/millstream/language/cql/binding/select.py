"""One SELECT: its clauses bound to nodes, from FROM upwards."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.aggregates import CallBinder, find
from millstream.language.cql.binding.coercion import Typed, as_condition
from millstream.language.cql.binding.double_quotes import refuse_named_columns
from millstream.language.cql.binding.expressions import Lowering, Resolve, span_of
from millstream.language.cql.binding.from_clause import From, FromBinder
from millstream.language.cql.binding.from_item import refuse_idle_slide
from millstream.language.cql.binding.grouping import Chosen, GroupResolver, choose_grouping
from millstream.language.cql.binding.joins.conditions import Conditions
from millstream.language.cql.binding.joins.constants import folded, refuse_alone
from millstream.language.cql.binding.joins.subqueries import AskingBinder, split_where
from millstream.language.cql.binding.over.clauses import (
    has_overs,
    overs,
    own_time,
    parts_of,
    spelled_out,
)
from millstream.language.cql.binding.over.near_rows import OverBinder
from millstream.language.cql.binding.ranking.clauses import ranking_of
from millstream.language.cql.binding.ranking.top_n import with_ranks
from millstream.language.cql.binding.relations import Bound, Lifetime, as_stream
from millstream.language.cql.binding.resolution import Positioned, resolver, with_positions
from millstream.language.cql.binding.rows.rules import AGGREGATE_HINT
from millstream.language.cql.binding.scope import Member, Named, is_time, spelt
from millstream.language.cql.binding.storing import refuse_incomparable, refuse_unwritable
from millstream.language.cql.binding.tables.scalars import HIDDEN, ScalarBinder, in_where
from millstream.language.cql.catalog import TIME, Catalog, lookup
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.unnesting import LISTED
from millstream.language.plan.expressions import Column, Expr, Time, conjunction, conjuncts
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    Join,
    Node,
    Project,
    Windowed,
)
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import BEGINNING, Running, Session

OUTER_HINT = (
    "its rows come when a match does, or when they leave: take them as a stream, "
    "SELECT count(*) ... FROM (SELECT ... LEFT JOIN ...) AS j [RANGE ...]"
)
ALIAS_HINT = "every result has the row's time as ts; give this column another name: ... AS time"


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """A column of the select list, before it is lowered."""

    name: str
    node: exp.Expr
    explicit: bool  # named by AS, or a plain column


class SelectBinder:
    """Binds one select."""

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
        self._from = FromBinder(text, catalog, analyzer, start, ctes, bind_query)
        self._conditions = Conditions(text, catalog, analyzer)
        self._ctes, self._bind_query = ctes, bind_query
        self._scalars = ScalarBinder(
            self._conditions, self._joined_on, lambda tree: bind_query(tree, ctes)
        )

    def bind(self, select: exp.Select) -> Bound:
        select = spelled_out(self._text, select, own_time(self._catalog, self._ctes, select))
        ranking = ranking_of(self._text, select)
        if ranking is None:
            return self._bind(select)
        return with_ranks(self._text, ranking, self._bind(ranking.select))

    def _bind(self, select: exp.Select) -> Bound:
        select = in_where(self._text, select)
        select, source = self._scalars.bind(select, self._joined_on(select))
        source = self._with_conditions(select, source)
        outputs = self._outputs(select, source)
        self._refuse_quoted(select, source, outputs)
        near = [part for o in outputs for w in overs(o.node) for part in parts_of(w)]
        found = [f for node in (*(o.node for o in outputs), *near) for f in find(node)]
        having = select.args.get("having")
        if "rules" in select.meta:
            if found or select.args.get("group") or having is not None:
                raise self._text.error(
                    "an aggregate with parameters", select.meta["rules"].span, AGGREGATE_HINT
                )
            outputs = [_rule_name(select, source), *outputs]
        if found or select.args.get("group") or (having is not None and find(having.this)):
            if source.outer:
                raise self._fail(
                    f"an aggregate right over {source.outer}", select.args["from_"], OUTER_HINT
                )
            bound = self._aggregate(select, source, outputs)
        else:
            if having is not None:
                raise self._fail("HAVING without GROUP BY", having, "use WHERE")
            bound = self._plain(select, source, outputs)
        if select.args.get("distinct"):
            places = [select.args["distinct"]] * len(bound.columns)
            refuse_incomparable(self._text, self._analyzer, "DISTINCT", bound.fields, places)
            bound = distinct_rows(bound, self._start)
        return bound

    def _refuse_quoted(self, select: exp.Select, source: From, outputs: list[Output]) -> None:
        """Words in double quotes that name a column; GROUP BY and HAVING see aliases as well."""
        refuse_named_columns(self._text, select, source.scope)
        aliases = [o.name for o in outputs if o.explicit]
        for clause in (select.args.get("group"), select.args.get("having")):
            if clause is not None:
                refuse_named_columns(self._text, clause, source.scope, aliases)

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)

    # -- WHERE and ON ------------------------------------------------------------------------

    def _joined_on(self, select: exp.Select) -> From:
        """FROM with the conditions of its joins."""
        source = self._from.bind(select)
        scope, lowered = source.scope, self._conditions
        terms: list[Expr] = [lowered.equality(scope, e, node) for e, node in source.equalities]
        for condition in source.conditions:
            terms += conjuncts(lowered.of(scope, condition, "ON"))
        if isinstance(source.rows, Join) and terms:
            return replace(source, rows=Join(source.rows.inputs, conjunction(tuple(terms))))
        return source

    def _with_conditions(self, select: exp.Select, source: From) -> From:
        where = select.args.get("where")
        if where is None:
            return source
        refuse_alone(self._text, source.rows, where)
        refuse_named_columns(self._text, where, source.scope)
        plain, asked = split_where(where.this)
        if not asked:
            condition = self._conditions.of(source.scope, where.this, "WHERE")
            return replace(source, rows=Filter(source.rows, condition))
        terms = tuple(self._conditions.of(source.scope, term, "WHERE") for term in plain)
        if (first := conjunction(terms)) is not None:
            source = replace(source, rows=Filter(source.rows, first))
        binder = AskingBinder(
            self._conditions, self._joined_on, lambda tree: self._bind_query(tree, self._ctes)
        )
        gathered = select.args.get("group") or any(find(e) for e in select.expressions)
        return binder.bind(source, asked, gathered=bool(gathered))

    # -- the select list ---------------------------------------------------------------------

    def _outputs(self, select: exp.Select, source: From) -> list[Output]:
        """The select list with stars spelled out; the row's own time adds no column."""
        outputs: list[Output] = []
        for node in select.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                outputs += self._star(node, source)
            else:
                outputs += self._output(node, source)
        return _renamed(outputs)

    def _star(self, node: exp.Expr, source: From) -> list[Output]:
        members = tuple(m for m in source.scope.members if not _unnamed(m) and not m.unnamed)
        if isinstance(node, exp.Column):
            parts = [part.name for part in node.parts[:-1]]
            member = source.scope.member(parts[-1])
            if member is None:
                names = [m.name for m in members if m.name]
                near = did_you_mean(parts[-1], names)
                hint = f"in FROM: {', '.join(map(spelt, names))}" if names else "write * alone"
                raise self._fail(f"unknown stream {parts[-1]}{near}", node, hint)
            members = (member,)
        merged = {c.name.lower(): c.position for c in source.scope.merged}
        outputs: list[Output] = []
        seen: set[str] = set()
        for member in members:
            for column in member.columns:
                if column.name.lower() in merged and column.name.lower() in seen:
                    continue
                seen.add(column.name.lower())
                position = member.offset + column.position
                if isinstance(node, exp.Star):
                    position = merged.get(column.name.lower(), position)
                chosen = Positioned(position, node)
                outputs.append(Output(column.name, chosen, True))
        return self._changed(node, outputs)

    def _changed(self, node: exp.Expr, outputs: list[Output]) -> list[Output]:
        """`*` without the columns of EXCEPT, and with other values for those of REPLACE."""
        star = node.this if isinstance(node, exp.Column) else node
        names = [o.name for o in outputs]
        gone: set[int] = set()
        for name in star.meta.get("except", ()):
            found = lookup(name.name, names)
            if not found:
                near = did_you_mean(name.name, names)
                raise self._fail(f"* has no column {name.name}{near}", name, ", ".join(names))
            gone.update(found)
        changed = list(outputs)
        for item in star.meta.get("replace", ()):
            found = lookup(item.alias, names) if isinstance(item, exp.Alias) else ()
            if not found:
                hint = "name a column of it: * REPLACE (a + 1 AS a)"
                raise self._fail("* REPLACE of no column", item, hint)
            changed[found[0]] = Output(names[found[0]], item.this, True)
        return [o for i, o in enumerate(changed) if i not in gone]

    def _output(self, node: exp.Expr, source: From) -> list[Output]:
        inner = node.this if isinstance(node, exp.Alias) else node
        if isinstance(node, exp.Aliases):
            raise self._fail(
                "a column has one name", node,
                "what gives several: FROM s, UNNEST(array) WITH ORDINALITY AS t(x, n)",
            )  # fmt: skip
        if isinstance(node, exp.Alias):
            name, explicit = node.alias, True
        else:
            name, explicit = self._natural_name(inner)
        own_time = _is_own_time(inner, source)
        if is_time(name) and explicit:
            if own_time:
                return []
            raise self._fail(
                "a selected column named ts that is not the row's time", node, ALIAS_HINT
            )
        return [Output(name, inner, explicit)]

    def _natural_name(self, node: exp.Expr) -> tuple[str, bool]:
        if isinstance(node, exp.Column | exp.Dot):
            return node.parts[-1].name, True
        span = span_of(node)
        return " ".join(self._text.slice(span).split()) or "value", False

    # -- without aggregates ------------------------------------------------------------------

    def _plain(self, select: exp.Select, source: From, outputs: list[Output]) -> Bound:
        resolve = with_positions(resolver(self._text, source.scope, "SELECT"))
        lowering = Lowering(self._text, self._catalog, resolve)
        if has_overs(select):
            refuse_idle_slide(self._text, source.slide)
            table = source.lifetime is Lifetime.CHANGES
            rows = source.rows if table else as_stream(source.rows)
            rows, outputs = self._with_overs(select, rows, resolve, outputs)
            node, columns = self._project(rows, rows.schema, outputs, lowering)
            return Bound(node, columns, Lifetime.CHANGES if table else Lifetime.OPEN)
        node, columns = self._project(source.rows, source.scope.row, outputs, lowering)
        node = folded(node)
        return Bound(
            node, columns, source.lifetime, source.slide,
            streamed=False, momentary=source.momentary,
        )  # fmt: skip

    def _with_overs(
        self, select: exp.Select, rows: Node, resolve: Resolve, outputs: list[Output]
    ) -> tuple[Node, list[Output]]:
        """The rows with what OVER gives, those that QUALIFY wants, and the outputs reading them."""
        qualify = select.args.get("qualify")
        roots = [o.node for o in outputs] + ([] if qualify is None else [qualify.this])
        binder = OverBinder(self._text, self._catalog, self._analyzer)
        node, roots = binder.bind(rows, resolve, roots)
        made = [replace(o, node=n) for o, n in zip(outputs, roots, strict=False)]
        if qualify is not None:
            named = {o.name.lower(): o.node for o in made if o.explicit}
            node = binder.qualified(node, resolve, roots[-1], named)
        return node, made

    def _project(
        self, rows: Node, row: Schema, outputs: list[Output], lowering: Lowering
    ) -> tuple[Node, tuple[Named, ...]]:
        made = [(lowering.lower(o.node), o.node) for o in outputs]
        typed = Typed(lowering, row, self._analyzer).check(made)
        fields = tuple(Field(o.name, t) for o, (_, t) in zip(outputs, typed, strict=True))
        for output, field in zip(outputs, fields, strict=True):
            refuse_unwritable(self._text, field.type, output.node)
        columns = tuple(Named(o.name, i) for i, o in enumerate(outputs))
        return Project(rows, tuple(e for e, _ in typed), fields), columns

    # -- with aggregates ---------------------------------------------------------------------

    def _aggregate(self, select: exp.Select, source: From, outputs: list[Output]) -> Bound:
        for output in outputs:
            if isinstance(output.node, Positioned):
                raise self._fail(
                    "* with aggregates", output.node, "name the columns of GROUP BY instead"
                )
        over = Lowering(self._text, self._catalog, resolver(self._text, source.scope, "GROUP BY"))
        chosen = choose_grouping(self._text, source)
        groups = GroupResolver(self._text, over, chosen, source.scope)
        raw_keys = [(key, node) for key, node in self._keys(select, source, outputs, over, groups)]
        keys = Typed(over, source.scope.row, self._analyzer).check(raw_keys)
        self._refuse_keys(raw_keys, keys)
        qualify = select.args.get("qualify")
        nodes = [o.node for o in outputs] + ([] if qualify is None else [qualify.this])
        near = [part for node in nodes for w in overs(node) for part in parts_of(w)]
        nodes += near
        having = select.args.get("having")
        if having is not None:
            nodes.append(having.this)
        self._scalars.refuse_inside(nodes)
        found = [f for node in nodes for f in find(node)]
        calls = CallBinder(over, source.scope.row, self._analyzer).bind(found)
        distinct_calls = list(dict.fromkeys(calls))
        places = {
            id(f.node): Column(len(keys) + distinct_calls.index(c))
            for f, c in zip(found, calls, strict=True)
        }
        groups.ready([key for key, _ in raw_keys], places)
        fields = _fields(raw_keys, keys, distinct_calls)
        node: Node = Aggregate(
            chosen.rows, tuple(k for k, _ in keys), tuple(distinct_calls), chosen.grouping, fields,
            self._start,
        )  # fmt: skip
        asking = [o.node for o in outputs] + ([] if having is None else [having.this])
        node, asking = self._scalars.beside_groups(node, source.scope, groups.resolve, asking)
        momentary = isinstance(node, Windowed)  # each with values of its instant
        outputs = [replace(o, node=n) for o, n in zip(outputs, asking, strict=False)]
        if having is not None:
            node = Filter(node, self._having(asking[-1], node.schema, groups, outputs))
        lowering = Lowering(self._text, self._catalog, with_positions(groups.resolve))
        if has_overs(select):
            for f in (f for part in near for f in find(part)):
                f.node.replace(Positioned(places[id(f.node)].index, f.node))
            node, outputs = self._with_overs(select, node, groups.resolve, outputs)
            projected, columns = self._project(node, node.schema, outputs, lowering)
            table = _lifetime(chosen) is Lifetime.CHANGES
            return Bound(projected, columns, Lifetime.CHANGES if table else Lifetime.OPEN)
        projected, columns = self._project(node, node.schema, outputs, lowering)
        lifetime = _lifetime(chosen)
        streamed = lifetime is not Lifetime.CHANGES
        return Bound(
            projected, columns, lifetime, chosen.slide, streamed=streamed, momentary=momentary
        )

    def _refuse_keys(self, raw: list[tuple[Expr, exp.Expr]], keys: list[tuple[Expr, str]]) -> None:
        nodes = [node for _, node in raw]
        for (_, type_), node in zip(keys, nodes, strict=True):
            refuse_unwritable(self._text, type_, node)
        refuse_incomparable(self._text, self._analyzer, "GROUP BY", _fields(raw, keys, []), nodes)

    def _having(
        self, node: exp.Expr, fields: Schema, groups: GroupResolver, outputs: list[Output]
    ) -> Expr:
        def resolve(part: exp.Expr) -> Expr | None:
            usable = groups.unknown(part) and not groups.names_window(part)
            aliased = _aliased(part, outputs) if usable and not inside else None
            if aliased is None:
                return groups.resolve(part)
            inside.append(part)  # an alias may repeat a name it is made of
            try:
                return lowering.lower(aliased)
            finally:
                inside.pop()

        inside: list[exp.Expr] = []
        lowering = Lowering(self._text, self._catalog, with_positions(resolve))
        made = lowering.lower(node)
        (found,) = Typed(lowering, fields, self._analyzer).check([(made, node)])
        return as_condition(lowering, "HAVING", found, node)

    def _keys(
        self,
        select: exp.Select,
        source: From,
        outputs: list[Output],
        over: Lowering,
        groups: GroupResolver,
    ) -> list[tuple[Expr, exp.Expr]]:
        clause = select.args.get("group")
        if clause is None:
            return []
        if not clause.expressions:
            raise self._fail("GROUP BY takes a list of columns", clause, "GROUP BY a, b")
        keys: dict[Expr, exp.Expr] = {}
        for node in clause.expressions:
            chosen = self._key(node, source, outputs)
            if groups.names_window(chosen) or (groups.instant and _is_own_time(chosen, source)):
                continue  # each window is a group of its own already
            if find(chosen):
                raise self._fail("an aggregate in GROUP BY", node, "group by a column")
            keys.setdefault(over.lower(chosen), chosen)
        return list(keys.items())

    def _key(self, node: exp.Expr, source: From, outputs: list[Output]) -> exp.Expr:
        """A position, an alias of the select list, or an expression."""
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
            position = int(node.this)
            if not 1 <= position <= len(outputs):
                raise self._fail(
                    f"GROUP BY {position}: the select list has {len(outputs)} columns", node
                )
            return outputs[position - 1].node
        single = isinstance(node, exp.Column) and len(node.parts) == 1
        if single and not source.scope.knows(node.name) and not is_time(node.name):
            return _aliased(node, outputs) or node
        return node


def _lifetime(chosen: Chosen) -> Lifetime:
    """A result holds until the next one takes its place, that of a session for ever."""
    return {Running: Lifetime.CHANGES, Session: Lifetime.OPEN}.get(
        type(chosen.grouping), Lifetime.BOUNDED
    )


def _unnamed(member: Member) -> bool:
    """An item that the text does not name, so that `*` has nothing of it."""
    return member.name == LISTED or (member.name or "").startswith(HIDDEN)


def _rule_name(select: exp.Select, source: From) -> Output:
    """The first column of a rule set's result: which rule a row is for."""
    member = source.scope.members[-1]
    first, span = member.columns[0], select.meta["rules"].span
    node = exp.Column(
        this=exp.to_identifier(first.name), table=exp.to_identifier(member.name, quoted=True)
    )
    for part in node.walk():
        part.meta.update(start=span.start, end=span.end)
    return Output(first.name, node, True)


def _is_own_time(node: exp.Expr, source: From) -> bool:
    """Whether the node is the result row's own time: `ts`, or `s.ts` of the only item."""
    if not isinstance(node, exp.Column):
        return False
    parts = [part.name for part in node.parts]
    if len(parts) == 1:
        return is_time(parts[0])
    member = source.scope.member(parts[0]) if len(parts) == 2 else None
    return member is not None and is_time(parts[1]) and member.time == Time()


def _aliased(node: exp.Expr, outputs: list[Output]) -> exp.Expr | None:
    """What the select list calls by this name."""
    for output in outputs:
        if output.explicit and output.name.lower() == node.name.lower():
            return output.node
    return None


def _renamed(outputs: list[Output]) -> list[Output]:
    """Names made up for expressions get a number where they repeat."""
    seen: dict[str, int] = {}
    result = []
    for output in outputs:
        count = seen.get(output.name.lower(), 0) + 1
        seen[output.name.lower()] = count
        fresh = output.name if output.explicit or count == 1 else f"{output.name}_{count}"
        result.append(replace(output, name=fresh))
    return result


def _fields(
    raw: list[tuple[Expr, exp.Expr]],
    keys: list[tuple[Expr, str]],
    calls: list[AggregateCall],
) -> Schema:
    named = []
    for (_, node), (_, type_) in zip(raw, keys, strict=True):
        name = node.name if isinstance(node, exp.Column) else "key"
        named.append(Field(name, type_))
    return (*named, *(Field(c.function, c.type) for c in calls))


def distinct_rows(bound: Bound, start: int = BEGINNING) -> Bound:
    """SELECT DISTINCT; over a table that changes, each group of equal rows is one."""
    rows = bound.node
    picked = tuple(Column(c.position) for c in bound.columns)
    if picked != tuple(Column(i) for i in range(len(rows.schema))):
        rows = Project(rows, picked, bound.fields)
    columns = tuple(Named(c.name, i) for i, c in enumerate(bound.columns))
    if bound.lifetime is Lifetime.CHANGES:
        node: Node = Aggregate(
            rows, tuple(Column(i) for i in range(len(columns))), (), Running(), bound.fields, start
        )
        return replace(bound, node=node, columns=columns)
    return replace(bound, node=Distinct(rows), columns=columns, streamed=True)


__all__ = ["TIME", "SelectBinder", "distinct_rows", "refuse_idle_slide"]
