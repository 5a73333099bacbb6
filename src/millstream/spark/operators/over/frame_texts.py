"""Aggregates over the frame of a row, as Spark SQL: window columns first, values from them.

Spark takes no FILTER in a window, so that a condition becomes part of the argument. Counts and sums
of exact numbers over a frame of time are the difference of two running ones: their cost does not
grow with the frame.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from millstream.language.plan.calls import unpacked
from millstream.language.plan.expressions import Call, Expr, Literal
from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.language.plan.windows import BEGINNING, FOREVER, OverFrame
from millstream.spark.frames import Frame, order_struct, order_text
from millstream.spark.operators.aggregates import VARIANCES, final_of, parts_of

NULL = Literal("NULL", "void")
ONE = Literal("1", "int")
WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class Valued:
    """A call's window columns, and its value as SQL over them."""

    columns: Sequence[tuple[str, str]]  # name and text
    value: str


def over_clause(partition: Sequence[str], order: str, bounds: str) -> str:
    by = f"PARTITION BY {', '.join(partition)} " if partition else ""
    return f"OVER ({by}ORDER BY {order} {bounds})"


def valued(
    call: AggregateCall,
    frame: OverFrame,
    number: int,
    rows: Frame,
    partition: Sequence[str],
    order: str = "",
) -> Valued:
    """What a call is over a frame; its columns have its number in their names.

    Frames over a table are in the order that is given, others in that of time and position.
    """
    if frame.by == "time" and _exact(call):
        return _difference(call, frame, number, partition)
    order = order or (order_text(rows) if frame.by == "rows" else "_ts")
    kind = "ROWS" if frame.by == "rows" else "RANGE"
    bounds = f"{kind} BETWEEN {_edge(frame, frame.first)} AND {_edge(frame, frame.last)}"
    over = over_clause(partition, order, bounds)
    name = f"a{number}_0"
    match call.function:
        case "nth_value":
            return _nth(call, frame, name, rows, over)
        case "nth_back":
            return _nth_back(call, name, over)
        case "first" | "last":
            return _edge_value(call, frame, name, rows, over)
        case function if function in VARIANCES and not call.distinct:
            text = f"{function}(CAST({sql(_argument(call))} AS DOUBLE)) {over}"
            return Valued([(name, text)], name)
        case _:
            plain = replace(call, argument=_argument(call), condition=None)
            parts = enumerate(parts_of(plain, order_struct(rows)))
            columns = [(f"a{number}_{i}", f"{part.of_rows} {over}") for i, part in parts]
            return Valued(columns, final_of(plain, number))


def _edge(frame: OverFrame, at: int) -> str:
    if at in (BEGINNING, FOREVER):
        return f"UNBOUNDED {'PRECEDING' if at == BEGINNING else 'FOLLOWING'}"
    if at == 0:
        return "CURRENT ROW"
    if frame.by == "doubles":
        size = f"{Decimal(abs(at)).scaleb(-6):f}D"
    else:
        size = f"{abs(at)}" if frame.by == "rows" else f"{abs(at)}L"
    return f"{size} {'PRECEDING' if at < 0 else 'FOLLOWING'}"


def _argument(call: AggregateCall) -> Expr:
    """The argument, NULL where the call's condition is not true."""
    argument = ONE if call.argument is None else call.argument
    return argument if call.condition is None else Call("if", (call.condition, argument, NULL))


def _edge_value(call: AggregateCall, frame: OverFrame, name: str, rows: Frame, over: str) -> Valued:
    """first and last by time and position; a frame of rows has that order by itself."""
    value = sql(call.argument or NULL)
    if frame.by == "rows" and call.condition is None:
        return Valued([(name, f"{call.function}_value({value}) {over}")], name)
    if frame.by == "rows":
        chosen = f"IF({predicate_sql(call.condition)}, struct({value} AS v), NULL)"
        return Valued([(name, f"{call.function}_value({chosen}, TRUE) {over}")], f"{name}.v")
    place = order_struct(rows)
    if call.condition is not None:
        place = f"IF({predicate_sql(call.condition)}, {place}, NULL)"
    pick = "min_by" if call.function == "first" else "max_by"
    return Valued([(name, f"{pick}(struct({value} AS v), {place}) {over}")], f"{name}.v")


def _nth(call: AggregateCall, frame: OverFrame, name: str, rows: Frame, over: str) -> Valued:
    parts = {key: sql(part) for key, part in unpacked(call.argument).items()}
    if frame.by == "rows":
        return Valued([(name, f"nth_value({parts['v']}, {parts['n']}) {over}")], name)
    listed = f"collect_list(struct({parts['v']} AS v, {order_struct(rows)} AS at)) {over}"
    before = "(l, r) -> CASE WHEN l.at < r.at THEN -1 WHEN l.at > r.at THEN 1 ELSE 0 END"
    return Valued([(name, listed)], f"get(array_sort({name}, {before}), {parts['n']} - 1).v")


def _nth_back(call: AggregateCall, name: str, over: str) -> Valued:
    """Of the rows of a frame that meet the condition, the one so many places before the last."""
    parts = {key: sql(part) for key, part in unpacked(call.argument).items()}
    value = f"struct({parts['v']} AS v)"
    if call.condition is not None:
        value = f"IF({predicate_sql(call.condition)}, {value}, NULL)"
    listed = f"collect_list({value}) {over}"
    return Valued([(name, listed)], f"get({name}, size({name}) - 1 - {parts['n']}).v")


def _exact(call: AggregateCall) -> bool:
    """Whether sums of the values do not depend on the order in which they are taken."""
    if call.distinct or call.function not in ("count", "sum", "avg"):
        return False
    return call.function == "count" or call.argument_type in WHOLE


def _difference(
    call: AggregateCall, frame: OverFrame, number: int, partition: Sequence[str]
) -> Valued:
    """Rows up to the frame's end without those before its start."""
    argument = sql(_argument(call))
    columns: list[tuple[str, str]] = []

    def within(text: str, least: str) -> str:
        names = []
        for edge in (frame.last, frame.first - 1):
            bounds = f"RANGE BETWEEN UNBOUNDED PRECEDING AND {_edge(frame, edge)}"
            names.append(f"a{number}_{len(columns)}")
            columns.append((names[-1], f"{text} {over_clause(partition, '_ts', bounds)}"))
        return f"({names[0]} - coalesce({names[1]}, {least}))"

    count = within(f"count({argument})", "0L")
    if call.function == "count":
        return Valued(columns, count)
    total = within(f"sum(CAST({argument} AS DECIMAL(38,0)))", "0BD")
    if call.function == "sum":
        return Valued(columns, f"CAST(IF({count} = 0L, NULL, {total}) AS {call.type})")
    mean = f"try_divide(CAST({total} AS DOUBLE), {count})"
    return Valued(columns, f"CAST({mean} AS {call.type})")
