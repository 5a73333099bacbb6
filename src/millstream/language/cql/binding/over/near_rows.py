"""Calls with OVER as columns beside the rows, and QUALIFY over them.

Each call becomes one or two aggregates over a frame: LAG is the first row of a frame of one row,
ROW_NUMBER a count from the first row on. Calls of one partition and one kind of frame are one node;
nodes stand on top of each other in an order of their own, so that how a query lists its calls makes
no difference. Rows of a stream stand in the order of time; those of a table in any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.aggregates import CallBinder, find
from millstream.language.cql.binding.coercion import Typed, as_condition
from millstream.language.cql.binding.expressions import Lowering, Resolve, name_span, span_of
from millstream.language.cql.binding.over.clauses import (
    FRAME_HINT,
    ORDER_HINT,
    TABLE_HINT,
    constant,
    frame_of,
    overs,
    parts_of,
    refuse_disorder,
    replaced,
    table_frame_of,
    way,
)
from millstream.language.cql.binding.over.value_frames import has_lengths, value_frame
from millstream.language.cql.binding.resolution import Positioned, with_positions
from millstream.language.cql.binding.storing import refuse_incomparable, refuse_unwritable
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.calls import packed
from millstream.language.plan.expressions import Column, Expr, Literal, Time, walk
from millstream.language.plan.keys import expression_key, predicate_key
from millstream.language.plan.nodes import (
    AggregateCall,
    Emit,
    Filter,
    Node,
    Over,
    Project,
    is_relation,
)
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING, OverFrame

# Aggregates whose value so far can be kept in a few numbers for each partition.
RUNNING = frozenset({"count", "sum", "avg", "min", "max", "first", "last"}) | {
    "bit_and",
    "bit_or",
    "bit_xor",
}
PAIRED = ("corr", "covar_", "regr_")
KNOWN_HINT = "LAG, LEAD, FIRST_VALUE, LAST_VALUE, NTH_VALUE, ROW_NUMBER and aggregates take OVER"
COUNTED = AggregateCall("count", None, "bigint")
Near = tuple[AggregateCall, OverFrame]


@dataclass(frozen=True, slots=True)
class _Standing:
    """A call with OVER, and how the rows under it stand."""

    window: exp.Window
    partition: tuple[Expr, ...]
    order: tuple[tuple[Expr, str], ...] | None = None  # of a table; rows of streams go by time
    types: tuple[str, ...] = ()  # of what a table is ordered by


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call with OVER, and the aggregates that make it up."""

    at: _Standing
    near: tuple[Near, ...]
    default: exp.Expr | None = None  # of LAG and LEAD, where there is no such row

    def group(self, frame: OverFrame) -> tuple[str, ...]:
        keys = sorted({expression_key(key) for key in self.at.partition})
        if self.at.order is not None:
            ways = (f"{expression_key(key)} {way}" for key, way in self.at.order)
            return ("table", *ways, "by", *keys)
        return ("all" if frame.unbounded else frame.by, *keys)


class OverBinder:
    """Binds the calls with OVER of one select over its rows."""

    def __init__(self, text: Text, catalog: Catalog, analyzer: Analyzer) -> None:
        self._text, self._catalog, self._analyzer = text, catalog, analyzer

    def bind(
        self, rows: Node, resolve: Resolve, roots: Sequence[exp.Expr]
    ) -> tuple[Node, list[exp.Expr]]:
        """The rows with columns for the calls in some expressions, and these reading them."""
        lowering = Lowering(self._text, self._catalog, with_positions(resolve))
        windows = [w for root in roots for w in overs(root)]
        asked = [self._asked(window, lowering, rows) for window in windows]
        groups: dict[tuple[str, ...], dict[str, Near]] = {}
        asking: dict[tuple[str, ...], _Asked] = {}
        for one in asked:
            for near in one.near:
                group = one.group(near[1])
                groups.setdefault(group, {})[_key(near)] = near
                asking[group] = one
        places: dict[tuple[tuple[str, ...], str], int] = {}
        node = rows
        for group in sorted(groups):
            members = dict(sorted(groups[group].items()))
            for number, key in enumerate(members):
                places[group, key] = len(node.schema) + number
            calls, frames = zip(*members.values(), strict=True)
            at = asking[group].at
            node = Over(node, at.partition, calls, frames, at.order or ())
        made = list(roots)
        for one in asked:
            found = [places[one.group(near[1]), _key(near)] for near in one.near]
            made = replaced(made, one.at.window, _column(one, found))
        return node, made

    def qualified(
        self, rows: Node, resolve: Resolve, condition: exp.Expr, named: Mapping[str, exp.Expr]
    ) -> Node:
        """The rows for which a condition of QUALIFY is true; it may use names of the select list,
        where no column has them."""
        inside: list[exp.Expr] = []

        def resolved(node: exp.Expr) -> Expr | None:
            single = isinstance(node, exp.Column) and len(node.parts) == 1
            aliased = named.get(node.name.lower()) if single and not inside else None
            if aliased is None:
                return resolve(node)
            inside.append(node)
            try:
                return lowering.lower(aliased)
            finally:
                inside.pop()

        lowering = Lowering(self._text, self._catalog, with_positions(resolved))
        made = lowering.lower(condition)
        (typed,) = Typed(lowering, rows.schema, self._analyzer).check([(made, condition)])
        return Filter(rows, as_condition(lowering, "QUALIFY", typed, condition))

    # -- one call --------------------------------------------------------------------------------

    def _asked(self, window: exp.Window, lowering: Lowering, rows: Node) -> _Asked:
        for part in parts_of(window):
            if any(True for _ in overs(part)):
                raise self._fail("OVER inside OVER", window, "take the inner one in a subquery")
        at = self._standing(window, lowering, rows)
        found = find(window.this)
        if found and found[0].node is window.this:
            (call,) = CallBinder(lowering, rows.schema, self._analyzer).bind(found)
            if at.order is not None and has_lengths(window):
                return self._near_in_value(at, call)
            frame = self._frame(at)
            self._refuse_call(call, frame, at)
            return _Asked(at, ((call, frame),))
        call_node = window.this
        name = call_node.name.lower() if isinstance(call_node, exp.Anonymous) else ""
        match name:
            case "row_number":
                self._refuse_frame(window, name)
                return _Asked(at, ((COUNTED, OverFrame("rows", BEGINNING)),))
            case "lag" | "lead":
                self._refuse_frame(window, name)
                return self._offset(at, lowering, rows)
            case "nth_value":
                return self._nth(at, lowering, rows)
            case _:
                raise self._unknown(window)

    def _standing(self, window: exp.Window, lowering: Lowering, rows: Node) -> _Standing:
        if is_relation(rows):
            order, types = self._order(window, lowering, rows)
            return _Standing(window, self._partition(window, lowering, rows), order, types)
        refuse_disorder(self._text, window)
        (key,) = window.args["order"].expressions
        if not _is_time(rows, lowering.lower(key.this)):
            raise self._fail("OVER in the order of another time than the row's", key, ORDER_HINT)
        return _Standing(window, self._partition(window, lowering, rows))

    def _order(
        self, window: exp.Window, lowering: Lowering, rows: Node
    ) -> tuple[tuple[tuple[Expr, str], ...], tuple[str, ...]]:
        """How the rows of a table stand, equals by time and columns; and the types of its keys."""
        clause = window.args.get("order")
        keys = [] if clause is None else clause.expressions
        typed = self._compared("ORDER BY", [key.this for key in keys], lowering, rows)
        ways = tuple((made, way(key)) for (made, _), key in zip(typed, keys, strict=True))
        return ways, tuple(type_ for _, type_ in typed)

    def _frame(self, at: _Standing) -> OverFrame:
        if at.order is None:
            return frame_of(self._text, at.window)
        return table_frame_of(self._text, at.window)

    def _near_in_value(self, at: _Standing, call: AggregateCall) -> _Asked:
        """An aggregate over rows of a table whose value of ORDER BY is near the row's own."""
        if at.order is None or len(at.order) != 1:
            raise self._fail(
                "RANGE with a length in an order of several values, or of none", at.window,
                "order by the one value that the length is of",
            )  # fmt: skip
        ((key, direction),) = at.order
        if any(isinstance(part, Time) for part in walk(key)):
            raise self._fail("this RANGE over a table that changes", at.window, TABLE_HINT)
        if call.function in ("first", "last"):
            raise self._fail(
                f"{call.function} over RANGE with a length", at.window,
                "min_by(x, v) and max_by(x, v) say it by value; or count rows: ROWS BETWEEN ...",
            )  # fmt: skip
        made = value_frame(self._text, at.window, key, at.types[0])
        self._refuse_call(call, made.frame, at)
        return _Asked(replace(at, order=((made.key, direction),)), ((call, made.frame),))

    def _partition(self, window: exp.Window, lowering: Lowering, rows: Node) -> tuple[Expr, ...]:
        nodes = window.args.get("partition_by") or []
        typed = self._compared("PARTITION BY", nodes, lowering, rows)
        return tuple(dict.fromkeys(key for key, _ in typed))

    def _compared(
        self, clause: str, nodes: Sequence[exp.Expr], lowering: Lowering, rows: Node
    ) -> list[tuple[Expr, str]]:
        """Expressions, with their types, whose values are compared with each other."""
        made = [(lowering.lower(node), node) for node in nodes]
        typed = Typed(lowering, rows.schema, self._analyzer).check(made)
        fields = tuple(
            Field(self._text.slice(span_of(node)), type_)
            for (_, type_), node in zip(typed, nodes, strict=True)
        )
        for field, node in zip(fields, nodes, strict=True):
            refuse_unwritable(self._text, field.type, node)
        refuse_incomparable(self._text, self._analyzer, clause, fields, nodes)
        return list(typed)

    def _offset(self, at: _Standing, lowering: Lowering, rows: Node) -> _Asked:
        """LAG and LEAD: the row so many places away."""
        window = at.window
        name, args = window.this.name.upper(), window.this.expressions
        count = constant(args[1]) if len(args) > 1 else 1
        if not 1 <= len(args) <= 3 or count is None:
            raise self._fail(
                f"{name} takes a value, a whole number of rows, and a default", window,
                f"{name}(v), {name}(v, 2), {name}(v, 1, 0)",
            )  # fmt: skip
        if at.order == ():
            raise self._fail(f"{name} without ORDER BY", window, f"{name}(v) OVER (ORDER BY k)")
        value = self._value(args[0], lowering, rows)
        away = -count if name == "LAG" else count
        frame = OverFrame("rows", away, away)
        if len(args) < 3:
            return _Asked(at, ((value, frame),))
        return _Asked(at, ((value, frame), (COUNTED, frame)), args[2])

    def _nth(self, at: _Standing, lowering: Lowering, rows: Node) -> _Asked:
        window = at.window
        args = window.this.expressions
        count = constant(args[1]) if len(args) == 2 else None
        if not count:
            raise self._fail(
                "NTH_VALUE takes a value and a whole number from 1 on", window, "NTH_VALUE(v, 2)"
            )
        frame = self._frame(at)
        if frame.unbounded and at.order is None:
            raise self._fail("NTH_VALUE of all rows so far", window, f"give a frame: {FRAME_HINT}")
        value = self._value(args[0], lowering, rows)
        assert value.argument is not None
        parts = packed(v=value.argument, n=Literal(str(count), "int"))
        call = AggregateCall("nth_value", parts, value.type, value.type)
        return _Asked(at, ((call, frame),))

    def _value(self, node: exp.Expr, lowering: Lowering, rows: Node) -> AggregateCall:
        made = [(lowering.lower(node), node)]
        ((value, type_),) = Typed(lowering, rows.schema, self._analyzer).check(made)
        refuse_unwritable(self._text, type_, node)
        return AggregateCall("first", value, type_, type_)

    # -- refusals --------------------------------------------------------------------------------

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)

    def _refuse_frame(self, window: exp.Window, name: str) -> None:
        if window.args.get("spec") is not None:
            raise self._fail(f"{name.upper()} takes no frame", window, "leave it out")

    def _refuse_call(self, call: AggregateCall, frame: OverFrame, at: _Standing) -> None:
        name, window = call.function, at.window
        if name.startswith(PAIRED):
            raise self._fail(
                f"{name} with OVER is not supported", window,
                f"aggregate over a window: SELECT {name}(a, b) FROM s [RANGE ... SLIDE ...]",
            )  # fmt: skip
        if not frame.unbounded or at.order is not None:
            return
        if name not in RUNNING or (call.distinct and name not in ("min", "max")):
            written = f"{name}(DISTINCT ...)" if call.distinct else name
            raise self._fail(
                f"{written} of all rows so far", window,
                f"all their values would have to be kept; give a frame: {FRAME_HINT}",
            )  # fmt: skip

    def _unknown(self, window: exp.Window) -> CqlError:
        call = window.this
        while not isinstance(call, exp.Anonymous) and call.this is not None:
            call = call.this
        name = call.name.upper()
        hint = KNOWN_HINT
        if name in ("LAG", "LEAD"):
            hint = (
                "last(v) IGNORE NULLS OVER (... ROWS BETWEEN 100 PRECEDING AND 1 PRECEDING) passes "
                "over NULL"
            )
            name = f"{name} with IGNORE NULLS"
        return self._text.error(f"{name} with OVER is not supported", name_span(call), hint)


def _is_time(node: Node, expr: Expr) -> bool:
    """Whether an expression is the time of the rows, also as a column of a subquery."""
    match expr, node:
        case Time(), _:
            return True
        case Column(index), Project():
            return _is_time(node.input, node.columns[index])
        case Column(index), Over():
            return index < len(node.input.schema) and _is_time(node.input, expr)
        case Column(), Filter() | Emit(kind="istream"):
            return _is_time(node.input, expr)
        case _:
            return False


def _key(near: Near) -> str:
    call, frame = near
    argument = "" if call.argument is None else expression_key(call.argument)
    asked = f"{call.function}|{call.distinct}|{argument}|{predicate_key(call.condition)}"
    return f"{frame.by}|{frame.first}|{frame.last}|{asked}"


def _column(asked: _Asked, places: Sequence[int]) -> exp.Expr:
    """What stands in the place of a call: a column, or the default where there is no such row."""
    window = asked.at.window
    value = Positioned(places[0], window)
    if asked.default is None:
        return value
    missing = exp.EQ(this=Positioned(places[1], window), expression=exp.Literal.number(0))
    made = exp.Case(ifs=[exp.If(this=missing, true=asked.default)], default=value)
    span = span_of(window)
    made.meta.update(start=span.start, end=span.end)
    return made
