"""Aggregates over all rows up to each one, as Spark SQL: the part of a row, and how parts merge.

What came before a step is one part for each partition, the operator's state; with the parts of new
rows behind it in order, a running merge gives each row's value, and the last one the new state.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.spark.operators.collected import BITS

DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class RunningPart:
    """One column of an aggregate's state."""

    of_row: str
    merged: str  # an aggregate over the column, named {a}
    type: str = ""  # to which a merged one is cast

    def over(self, name: str, over: str) -> str:
        text = f"{self.merged.format(a=name)} {over}".strip()
        return f"CAST({text} AS {self.type})" if self.type else text


def running_parts(call: AggregateCall, order: str) -> list[RunningPart]:
    """The parts of a call; `order` is the row's place as a comparable value."""
    value = "1" if call.argument is None else sql(call.argument)
    if call.condition is not None:
        value = f"IF({predicate_sql(call.condition)}, {value}, NULL)"
    count = RunningPart(f"IF({value} IS NULL, 0L, 1L)", "sum({a})")
    match call.function:
        case "count":
            return [count]
        case "sum":
            return [RunningPart(f"CAST({value} AS {call.type})", "sum({a})", call.type)]
        case "avg":
            wide = _summed(call.argument_type or "")
            return [RunningPart(f"CAST({value} AS {wide})", "sum({a})", wide), count]
        case "first" | "last":
            pick = "min" if call.function == "first" else "max"
            row = (
                f"named_struct('v', {sql(call.argument) if call.argument else '1'}, 'at', {order})"
            )
            if call.condition is not None:
                row = f"IF({predicate_sql(call.condition)}, {row}, NULL)"
            return [RunningPart(row, f"{pick}_by({{a}}, {{a}}.at)")]
        case name if name in ("min", "max", *BITS):
            return [RunningPart(value, f"{name}({{a}})")]
        case _:
            raise TypeError(f"not a running aggregate: {call.function}")


def _summed(argument_type: str) -> str:
    """The type in which an average is summed: exact where its numbers are."""
    decimal = DECIMAL.fullmatch(argument_type)
    if decimal is None:
        return "decimal(38,0)" if argument_type.endswith("int") else "double"
    return f"decimal({min(38, int(decimal[1]) + 10)},{decimal[2]})"


def running_value(call: AggregateCall, names: Sequence[str]) -> str:
    """A call's value from its merged parts."""
    match call.function:
        case "avg":
            total = names[0]
            if (call.argument_type or "").endswith("int"):
                total = f"CAST({total} AS DOUBLE)"
            return f"CAST(try_divide({total}, {names[1]}) AS {call.type})"
        case "first" | "last":
            return f"{names[0]}.v"
        case "count":
            return names[0]
        case _:
            return f"CAST({names[0]} AS {call.type})"
