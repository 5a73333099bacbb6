"""Names and calls inside MATCH_RECOGNIZE: which row of a match a value is taken from.

`B.x` is x of the last row that is B, `x` of the row at hand, in a measure of the last row. FIRST
and LAST count from the ends, PREV looks at earlier rows of the partition, whatever they matched,
aggregates are over a variable's rows. What is not of the row at hand becomes a slot: a further
column, after those of the row.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.aggregates import CallBinder, find
from millstream.language.cql.binding.coercion import Typed
from millstream.language.cql.binding.expressions import Lowering, span_of
from millstream.language.cql.binding.matching.measured import Measured
from millstream.language.cql.binding.resolution import resolve_parts, resolver
from millstream.language.cql.binding.scope import NameLookupError, Scope
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.user_aggregates import function_of
from millstream.language.plan.expressions import Column, Expr, Literal
from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.row_patterns import Leaf, Look
from millstream.language.plan.schema import Field, Schema

ENDS = ("first", "last")
CARRIED_CALLS = {"classifier": ("classifier", "string"), "match_number": ("match_number", "bigint")}
RUNNING = ("count", "sum", "avg", "min", "max")  # aggregates that a condition may use
MIXED_HINT = "each FIRST, LAST, PREV and aggregate is over the rows of one variable"
BACK_MAX = 1_000


class Navigator:
    """Collects the slots of conditions and the calls of measures, each once."""

    def __init__(
        self,
        text: Text,
        catalog: Catalog,
        analyzer: Analyzer,
        scope: Scope,
        names: tuple[str, ...],
    ) -> None:
        self._text, self._catalog, self._analyzer = text, catalog, analyzer
        self._scope, self._names = scope, names
        self.width = len(scope.row)
        self.slots: list[Look | Leaf] = []
        self.measured: list[Measured] = []
        self.numbered = False
        self.final = False  # of the measure at hand

    @property
    def schema(self) -> Schema:
        """The columns of the row, then the slots."""
        return (*self._scope.row, *(Field(f"slot{i}", s.type) for i, s in enumerate(self.slots)))

    @property
    def measured_schema(self) -> Schema:
        return tuple(Field(f"m{i}", m.call.type) for i, m in enumerate(self.measured))

    def place(self, slot: Look | Leaf) -> int:
        """The column of a slot, which is added if it is new."""
        if slot not in self.slots:
            self.slots.append(slot)
        return self.width + self.slots.index(slot)

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)

    # -- one row -------------------------------------------------------------------------------

    def _variable(self, node: exp.Expr) -> str | None:
        """The variable by which a column is qualified."""
        if isinstance(node, exp.Column) and len(node.parts) > 1:
            name = node.parts[0].name.upper()
            return name if name in self._names else None
        return None

    def owner(self, node: exp.Expr) -> str | None:
        """The one variable whose rows an expression is over; None where it names none."""
        columns = list(node.find_all(exp.Column))
        named = {self._variable(c) for c in columns}
        if len(named) > 1:
            raise self._fail("values of several variables in one call", node, MIXED_HINT)
        return named.pop() if named else None

    def _of_row(self, node: exp.Expr) -> Expr | None:
        """Resolves names to columns of the row itself, whichever variable it is."""
        if self._variable(node) is not None and isinstance(node, exp.Column):
            try:
                parts = [part.name for part in node.parts][1:]
                return resolve_parts(self._scope, parts, "MATCH_RECOGNIZE")
            except NameLookupError as mistake:
                raise self._fail(mistake.message, node, mistake.hint) from None
        if isinstance(node, exp.Anonymous) and node.name.lower() == "prev":
            return Column(self._look(node))
        if isinstance(node, exp.Anonymous) and node.name.lower() in (*ENDS, "next"):
            if node.name.lower() == "next":
                self._refuse_next(node)
            raise self._fail(f"{node.name} inside another call", node, MIXED_HINT)
        return resolver(self._text, self._scope, "MATCH_RECOGNIZE")(node)

    def _refuse_next(self, node: exp.Expr) -> None:
        raise self._fail(
            "NEXT is not supported", node, "let the following variable look back: B AS x < PREV(x)"
        )

    def row_value(self, node: exp.Expr) -> tuple[Expr, str]:
        """An expression over one row, typed."""
        lowering = Lowering(self._text, self._catalog, self._of_row)
        made = lowering.lower(node)
        return Typed(lowering, self.schema, self._analyzer).check([(made, node)])[0]

    def _look(self, node: exp.Anonymous) -> int:
        inner, back = self._counted(node, 1)
        value, type_ = self.row_value(inner)
        if any(isinstance(s, Look) and Column(self.place(s)) == value for s in self.slots):
            raise self._fail("PREV of PREV", node, "count further back: PREV(x, 2)")
        if back == 0:
            raise self._fail("PREV of no row back", node, "PREV(x) is one row back")
        return self.place(Look(value, back, type_))

    def _counted(self, node: exp.Anonymous, usual: int) -> tuple[exp.Expr, int]:
        """`PREV(value, 2)`: the value, and how many rows."""
        args = node.expressions
        if not 1 <= len(args) <= 2:
            raise self._fail(f"{node.name} takes a value and a number of rows", node)
        if len(args) == 1:
            return args[0], usual
        count = args[1]
        if not (isinstance(count, exp.Literal) and not count.is_string and count.this.isdigit()):
            raise self._fail(f"{node.name} takes a constant number of rows", count, "PREV(x, 2)")
        if int(count.this) > BACK_MAX:
            raise self._fail(f"{node.name} over more than {BACK_MAX} rows", count)
        return args[0], int(count.this)

    # -- conditions ----------------------------------------------------------------------------

    def of_definition(self, name: str) -> Callable[[exp.Expr], Expr | None]:
        """Resolves what stands in the condition of a variable."""

        def resolve(node: exp.Expr) -> Expr | None:
            owner = self._variable(node)
            if owner is not None and owner != name:
                value, type_ = self.row_value(node)
                return Column(self.place(Leaf("last", owner, value, type_)))
            word = node.name.lower() if isinstance(node, exp.Anonymous) else ""
            if word in CARRIED_CALLS:
                raise self._fail(f"{node.name} in DEFINE", node, "it belongs to MEASURES")
            if word in (*ENDS, "prev"):
                assert isinstance(node, exp.Anonymous)
                return self._navigated(node, name)
            if isinstance(node, exp.Anonymous) and function_of(node):
                return Column(self.place(self._running(node)))
            return self._of_row(node)

        return resolve

    def _navigated(self, node: exp.Anonymous, name: str) -> Expr:
        """FIRST, LAST, PREV, and PREV of either."""
        end = self._end(node)
        kind, offset, value = end.call.function, end.nth or 0, end.call.argument
        assert value is not None
        if kind == "last" and offset == 0 and end.variable in (None, name):
            return value
        leaf = Leaf(
            "first" if kind == "first" else "last", end.variable, value, end.call.type, offset
        )
        return Column(self.place(leaf))

    def _ended(self, node: exp.Anonymous) -> tuple[str, int, exp.Anonymous, str | None]:
        """`PREV(FIRST(A.x, 1), 2)`: from which end, how far, and PREV over the row alone."""
        inner, back = self._counted(node, 1)
        if not (isinstance(inner, exp.Anonymous) and inner.name.lower() in ENDS):
            return "last", 0, node, self.owner(inner)
        value, offset = self._counted(inner, 0)
        plain = exp.Anonymous(this=node.name, expressions=[value.copy(), exp.Literal.number(back)])
        plain.meta.update(node.meta)
        return inner.name.lower(), offset, plain, self.owner(value)

    def _running(self, node: exp.Anonymous) -> Leaf:
        """An aggregate of the rows matched so far."""
        word = function_of(node)
        measured = self._aggregate(node)
        call = measured.call
        if word not in RUNNING or call.distinct or call.condition is not None:
            raise self._fail(
                f"{node.name} in DEFINE", node, f"a condition may use {', '.join(RUNNING)}"
            )
        kind: Any = call.function
        return Leaf(kind, measured.variable, call.argument, call.type)

    # -- measures ------------------------------------------------------------------------------

    def of_measure(self, whole: exp.Expr) -> Callable[[exp.Expr], Expr | None]:
        """Resolves what stands in a measure: everything is of a row, or of several."""
        aggregates = {id(f.node) for f in find(whole)}

        def resolve(node: exp.Expr) -> Expr | None:
            word = node.name.lower() if isinstance(node, exp.Anonymous) else ""
            if word in CARRIED_CALLS:
                column, type_ = CARRIED_CALLS[word]
                self.numbered = self.numbered or word == "match_number"
                return self._told(
                    Measured(AggregateCall("last", Literal(column, "carried"), type_, type_), None)
                )
            if word in (*ENDS, "prev"):
                assert isinstance(node, exp.Anonymous)
                return self._told(self._end(node))
            if id(node) in aggregates:
                return self._told(self._aggregate(node))
            if isinstance(node, exp.Column):
                value, type_ = self.row_value(node)
                owner = self._variable(node)
                return self._told(Measured(AggregateCall("last", value, type_, type_), owner))
            return None

        return resolve

    def _told(self, measured: Measured) -> Column:
        measured = replace(measured, final=self.final)
        if measured not in self.measured:
            self.measured.append(measured)
        return Column(self.measured.index(measured))

    def _end(self, node: exp.Anonymous) -> Measured:
        """FIRST, LAST, PREV, and PREV of either: from which end, how far, and what of that row."""
        if node.name.lower() == "prev":
            kind, offset, row, owner = self._ended(node)
            place = self._look(row)
            value, type_ = Column(place), self.schema[place].type
            call = AggregateCall(kind, value, type_, type_)
        else:
            inner, offset = self._counted(node, 0)
            kind, owner = node.name.lower(), self.owner(inner)
            made, type_ = self.row_value(inner)
            call = AggregateCall(kind, made, type_, type_)
        return Measured(call, owner, offset or None, back=kind == "last")

    def _aggregate(self, node: exp.Expr) -> Measured:
        """An aggregate over the rows of one variable, or of all; `count(A.*)` counts A's."""
        (found,) = find(node)
        stars = [
            c for c in found.call.expressions
            if isinstance(c, exp.Column) and isinstance(c.this, exp.Star)
        ]  # fmt: skip
        owner = self._variable(stars[0]) if stars else self.owner(node)
        if stars:
            found.call.set("expressions", [exp.Star()])
        probe = Lowering(self._text, self._catalog, self._of_row)
        for column in node.find_all(exp.Anonymous):
            if column.name.lower() == "prev":
                probe.lower(column)  # its slot is there before the row's columns are counted
        lowering = Lowering(self._text, self._catalog, self._of_row)
        (call,) = CallBinder(lowering, self.schema, self._analyzer).bind([found])
        if stars:
            found.call.set("expressions", stars)
        return Measured(call, owner)
