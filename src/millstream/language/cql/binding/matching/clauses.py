"""MATCH_RECOGNIZE over a bound stream: partitions, conditions and measures, typed."""

from dataclasses import replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.coercion import Typed, as_condition
from millstream.language.cql.binding.expressions import Lowering, span_of
from millstream.language.cql.binding.matching.measured import Measured
from millstream.language.cql.binding.matching.navigation import Navigator
from millstream.language.cql.binding.matching.terms import TermMaker
from millstream.language.cql.binding.relations import Bound, Lifetime
from millstream.language.cql.binding.resolution import resolver
from millstream.language.cql.binding.scope import Member, Named, Scope, is_time
from millstream.language.cql.binding.storing import refuse_incomparable
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.literals import string
from millstream.language.cql.parsing.match_parser import MatchSyntax
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.user_aggregates import mark_aggregates
from millstream.language.plan.calls import packed
from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    shift,
    transform,
)
from millstream.language.plan.nodes import AggregateCall, Matched, Project
from millstream.language.plan.row_patterns import (
    CARRIED,
    Condition,
    Leaf,
    Look,
    RowPattern,
    variables_of,
)
from millstream.language.plan.schema import Field

ORDER_HINT = "ORDER BY ts: rows of a stream have one order, that of time"


class MatchBinder:
    """Binds the clauses of one MATCH_RECOGNIZE."""

    def __init__(
        self, text: Text, catalog: Catalog, analyzer: Analyzer, own_time: str | None = None
    ) -> None:
        self._text, self._catalog, self._analyzer = text, catalog, analyzer
        self._own_time = own_time  # by which name a stream knows its time

    def bind(self, syntax: MatchSyntax, source: Bound) -> Bound:
        self._refuse_source(syntax, source)
        for clause in (*syntax.measures, *(d.condition for d in syntax.definitions)):
            mark_aggregates(self._text, clause, self._catalog)
        scope = Scope((Member(None, source.columns),), source.node.schema)
        names = tuple(dict.fromkeys(variables_of(syntax.pattern)))
        self._refuse_names(syntax, names)
        keys = self._partition(syntax, scope)
        look = Navigator(self._text, self._catalog, self._analyzer, scope, names)
        conditions = [self._condition(syntax, look, name) for name in names]
        measures = [self._measure(look, m, all_rows=syntax.all_rows) for m in syntax.measures]
        spec, move = self._pattern(syntax, look, conditions)
        width = len(source.node.schema) + len(spec.looks)
        running = [syntax.all_rows and not m.final for m in look.measured]
        calls = tuple(
            _over_rows(m, width, move, running=r)
            for m, r in zip(look.measured, running, strict=True)
        )
        fields = tuple(source.node.schema[k.index] for k in keys)
        if syntax.all_rows:
            fields = source.node.schema
        call_fields = tuple(Field(f"m{i}", c.type) for i, c in enumerate(calls))
        told = tuple(not r for r in running) if syntax.all_rows else None
        node = Matched(
            source.node, keys, spec, calls, (*fields, *call_fields), told, syntax.unmatched
        )
        return self._told(syntax, source, node, keys, measures)

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)

    # -- what it stands on -------------------------------------------------------------------

    def _refuse_source(self, syntax: MatchSyntax, source: Bound) -> None:
        if source.lifetime is Lifetime.CHANGES:
            raise self._text.error(
                "MATCH_RECOGNIZE over a table that changes", syntax.span,
                "make it a stream first: FROM (ISTREAM(SELECT ...)) MATCH_RECOGNIZE (...)",
            )  # fmt: skip
        if source.lifetime is not Lifetime.OPEN:
            raise self._text.error(
                "MATCH_RECOGNIZE over a window", syntax.span,
                "leave the window out and write WITHIN INTERVAL '1' MINUTE after PATTERN",
            )  # fmt: skip
        for key in syntax.order[1:]:
            raise self._fail("ORDER BY more than the time", key, ORDER_HINT)
        (first,) = syntax.order[:1]
        time = first.this if isinstance(first, exp.Ordered) else first
        timely = isinstance(time, exp.Column) and (
            is_time(time.name) or time.name.lower() == self._own_time
        )
        if not timely or first.args.get("desc"):
            raise self._fail("ORDER BY something else than the time", first, ORDER_HINT)

    def _refuse_names(self, syntax: MatchSyntax, names: tuple[str, ...]) -> None:
        defined: set[str] = set()
        for definition in syntax.definitions:
            if definition.name not in names:
                near = did_you_mean(definition.name, names)
                raise self._text.error(
                    f"{definition.name} is not in the pattern{near}", definition.span,
                    f"variables of the pattern: {', '.join(names)}",
                )  # fmt: skip
            if definition.name in defined:
                raise self._text.error(
                    f"{definition.name} is defined twice", definition.span, "join them by AND"
                )
            defined.add(definition.name)
        if syntax.skip.variable and syntax.skip.variable not in names:
            raise self._text.error(
                f"{syntax.skip.variable} is not in the pattern",
                syntax.skip_span or syntax.span, f"variables: {', '.join(names)}",
            )  # fmt: skip

    def _partition(self, syntax: MatchSyntax, scope: Scope) -> tuple[Column, ...]:
        lowering = Lowering(self._text, self._catalog, resolver(self._text, scope, "PARTITION BY"))
        keys: list[Column] = []
        for node in syntax.partition:
            key = lowering.lower(node)
            if not isinstance(key, Column):
                raise self._fail(
                    "PARTITION BY takes columns", node, "compute it in a subquery in FROM"
                )
            keys.append(key)
        fields = tuple(scope.row[k.index] for k in keys)
        refuse_incomparable(
            self._text, self._analyzer, "PARTITION BY", fields, list(syntax.partition)
        )
        return tuple(keys)

    # -- DEFINE --------------------------------------------------------------------------------

    def _condition(
        self, syntax: MatchSyntax, look: Navigator, name: str
    ) -> tuple[str, Expr | None]:
        """The condition over columns and slots; a variable without one is any row."""
        node = next((d.condition for d in syntax.definitions if d.name == name), None)
        if node is None:
            return name, None
        lowering = Lowering(self._text, self._catalog, look.of_definition(name))
        made = lowering.lower(node)
        (typed,) = Typed(lowering, look.schema, self._analyzer).check([(made, node)])
        return name, as_condition(lowering, "DEFINE", typed, node)

    def _pattern(
        self, syntax: MatchSyntax, look: Navigator, conditions: list[tuple[str, Expr | None]]
    ) -> tuple[RowPattern, dict[int, Expr]]:
        """All that decides about matches, and where the values of PREV lie in a matched row."""
        looks = [s for s in look.slots if isinstance(s, Look)]
        move: dict[int, Expr] = {look.place(s): Column(look.width + i) for i, s in enumerate(looks)}
        leaves = [
            replace(s, value=_moved(s.value, move)) for s in look.slots if isinstance(s, Leaf)
        ]
        numbers = {look.place(s): i for i, s in enumerate(
            [s for s in look.slots if isinstance(s, Leaf)])}  # fmt: skip
        maker = TermMaker(self._text, self._analyzer, look.schema, numbers, leaves, move)
        made = []
        for name, whole in conditions:
            terms = conjuncts(whole)
            own = [t for t in terms if not maker.hangs_on_others(t)]
            at = next((d.condition for d in syntax.definitions if d.name == name), None)
            others = [maker.term(t, at or syntax.measures[0]) for t in terms if t not in own]
            alone = conjunction(tuple(own))
            made.append(Condition(name, _moved(alone, move), tuple(others)))
        spec = RowPattern(
            syntax.pattern, tuple(made), tuple(looks), tuple(maker.leaves), syntax.within_us,
            syntax.skip, look.numbered,
        )  # fmt: skip
        return spec, move

    # -- MEASURES ------------------------------------------------------------------------------

    def _measure(
        self, look: Navigator, alias: exp.Expr, *, all_rows: bool
    ) -> tuple[str, Expr, str, exp.Expr]:
        """A name and an expression over the calls of all measures."""
        look.final = all_rows and alias.meta.get("final", False)
        name, node = alias.alias, alias.this
        if is_time(name):
            raise self._fail(
                "a measure named ts", alias,
                "ts is the time of the last row matched; give it another name",
            )  # fmt: skip
        lowering = Lowering(self._text, self._catalog, look.of_measure(node))
        made = lowering.lower(node)
        (typed,) = Typed(lowering, look.measured_schema, self._analyzer).check([(made, node)])
        if look.final and len(columns_of(made)) > 1:
            raise self._fail(
                "FINAL before several calls", alias, "a measure for each: FINAL LAST(x) AS end_x"
            )
        return name, *typed, node

    def _told(
        self,
        syntax: MatchSyntax,
        source: Bound,
        node: Matched,
        keys: tuple[Column, ...],
        measures: list[tuple[str, Expr, str, exp.Expr]],
    ) -> Bound:
        visible = {c.position: c.name for c in source.columns}
        schema = source.node.schema
        columns: list[Expr] = [Column(i) for i in range(len(keys))]
        columns = list(keys) if syntax.all_rows else columns
        fields = [Field(visible[k.index], schema[k.index].type) for k in keys]
        taken = {name.lower() for name in visible.values()} if syntax.all_rows else set()
        first = len(schema) if syntax.all_rows else len(keys)
        for name, made, type_, at in measures:
            if name.lower() in taken | {f.name.lower() for f in fields}:
                raise self._fail(f"two columns named {name}", at, "give the measure another name")
            columns.append(shift(made, first))
            fields.append(Field(name, type_))
        if syntax.all_rows:
            others = [c for c in source.columns if Column(c.position) not in keys]
            columns += [Column(c.position) for c in others if not is_time(c.name)]
            fields += [
                Field(c.name, schema[c.position].type) for c in others if not is_time(c.name)
            ]
        project = Project(node, tuple(columns), tuple(fields))
        named = tuple(Named(f.name, i) for i, f in enumerate(fields))
        return Bound(project, named, Lifetime.OPEN)


def _moved(expr: Expr | None, move: dict[int, Expr]) -> Expr | None:
    if expr is None:
        return None
    return transform(expr, lambda e: move.get(e.index) if isinstance(e, Column) else None)


def _over_rows(
    measured: Measured, width: int, move: dict[int, Expr], *, running: bool
) -> AggregateCall:
    """The call over rows of a match: those of its variable, and of these perhaps one.

    What is counted from the last row is another row for each row of the match that it is told for.
    """
    carried = {name: Column(width + i) for i, name in enumerate(CARRIED)}
    call = measured.call
    terms = list(conjuncts(_moved(call.condition, move)))
    if measured.variable is not None:
        terms.append(Call("=", (carried["classifier"], string(measured.variable))))
    argument = _moved(call.argument, move)
    if measured.nth is not None and measured.back and running:
        assert argument is not None
        argument = packed(v=argument, n=Literal(str(measured.nth), "int"))
        call = replace(call, function="nth_back")
    elif measured.nth is not None:
        end = ("back" if measured.back else "nth") if measured.variable is not None else (
            "place_back" if measured.back else "place")  # fmt: skip
        terms.append(Call("=", (carried[end], Literal(str(measured.nth), "int"))))
    if isinstance(argument, Literal) and argument.type == "carried":
        argument = carried[argument.text]
    return replace(call, argument=argument, condition=conjunction(tuple(terms)))
