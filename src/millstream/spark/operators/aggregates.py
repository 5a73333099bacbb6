"""Aggregate functions in three parts: partial over rows, merge of partials, final value.

Everything is Spark SQL text. Partials of call i are columns a<i>_0, a<i>_1, ...; variances keep
count, mean and sum of squared deviations, which merge without cancellation; distinct aggregates
keep the set of values; first and last keep the place of their row. Aggregates over the values
themselves are in `collected.py`.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.core.errors import UsageError
from millstream.language.plan.expressions import total
from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.spark.operators.collected import COLLECTED, Part, collected_final, collected_part

VARIANCES = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
FUNCTIONS = ("count", "sum", "avg", "min", "max", "first", "last", *VARIANCES)
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_ZERO = "named_struct('n', 0D, 'mean', 0D, 'm2', 0D)"


def parts_of(call: AggregateCall, order: str) -> list[Part]:
    """The partial columns of a call; `order` is the rows' place as a comparable value."""
    if call.function in COLLECTED:
        return [collected_part(call, order)]
    condition = call.condition
    argument = call.argument
    only = f" FILTER (WHERE {predicate_sql(condition)})" if condition else ""
    value = "1" if argument is None else sql(argument)
    if condition and argument is not None and not total(argument):
        # Spark computes what two aggregates have in common before it looks at their filters
        value = f"CASE WHEN {predicate_sql(condition)} THEN {value} END"
    if call.distinct and call.function not in ("min", "max"):
        if call.argument_type in ("float", "double"):
            value = f"({value} + 0D)"  # -0.0 and 0.0 are one value
        merged = "collect_list({a})"
        return [Part(f"collect_set({value}){only}", merged, "array_distinct(flatten({a}))")]
    if "@" in call.function:
        return [Part(f"{user_function(call, 'rows')}(collect_list({value}){only})",
                     "collect_list({a})", f"{user_function(call, 'parts')}({{a}})")]  # fmt: skip
    match call.function:
        case "count":
            return [Part(f"count({value}){only}", "sum({a})")]
        case "sum":
            return [Part(f"sum({value}){only}", "sum({a})", f"CAST({{a}} AS {call.type})")]
        case "avg":
            summed = f"CAST({value} AS DOUBLE)" if call.argument_type in _NUMBERS else value
            return [
                Part(f"sum({summed}){only}", "sum({a})", _summed(call.argument_type)),
                Part(f"count({value}){only}", "sum({a})"),
            ]
        case "min" | "max":
            name = call.function
            return [Part(f"{name}({value}){only}", f"{name}({{a}})")]
        case "first" | "last":
            pick = "min" if call.function == "first" else "max"
            return [
                Part(f"{pick}_by(named_struct('v', {value}, 'at', {order}), {order}){only}",
                     f"{pick}_by({{a}}, {{a}}.at)"),
            ]  # fmt: skip
        case _ if call.function in VARIANCES:
            number = f"CAST({value} AS DOUBLE)"
            row = (
                f"named_struct('n', CAST(count({value}){only} AS DOUBLE), "
                f"'mean', coalesce(avg({number}){only}, 0D), "
                f"'m2', coalesce(var_pop({number}){only}, 0D) * count({value}){only})"
            )
            return [Part(row, "collect_list({a})", f"aggregate({{a}}, {_ZERO}, {_fold()})")]
        case _:
            raise UsageError(
                f"unknown aggregate {call.function}", hint=f"one of {', '.join(FUNCTIONS)}"
            )


def _summed(type_: str | None) -> str:
    """A merged sum in the type of its parts: of decimals each sum would be ten digits wider, and
    files of one stream have one type."""
    if type_ is None or not type_.startswith("decimal("):
        return "{a}"
    precision, _, scale = type_.removeprefix("decimal(").removesuffix(")").partition(",")
    return f"CAST({{a}} AS decimal({min(int(precision) + 10, 38)},{scale}))"


def user_function(call: AggregateCall, part: str) -> str:
    """The name under which Spark knows a part of a user's aggregate."""
    return f"{call.function.partition('@')[0]}__{part}"


def _fold() -> str:
    """Merges two (count, mean, M2) by the parallel formula of Chan, Golub and LeVeque (1983)."""
    n = "(s.n + x.n)"
    gap = "(x.mean - s.mean)"
    return (
        "(s, x) -> CASE WHEN x.n = 0D THEN s WHEN s.n = 0D THEN x ELSE named_struct("
        f"'n', {n}, 'mean', s.mean + {gap} * x.n / {n}, "
        f"'m2', s.m2 + x.m2 + {gap} * {gap} * s.n * x.n / {n}) END"
    )


def final_of(call: AggregateCall, index: int) -> str:
    """The call's value from its merged partials."""
    a, b = f"a{index}_0", f"a{index}_1"
    if call.function in COLLECTED:
        return collected_final(call, a)
    if call.distinct and call.function not in ("min", "max"):
        return _final_of_set(call, a)
    if "@" in call.function:
        return f"{user_function(call, 'end')}({a})"
    match call.function:
        case "count":
            return a
        case "avg":
            return f"CAST(try_divide({a}, {b}) AS {call.type})"
        case "first" | "last":
            return f"{a}.v"
        case _ if call.function in VARIANCES:
            return _spread(call.function, a)
        case _:
            return f"CAST({a} AS {call.type})"


def _spread(function: str, moments: str) -> str:
    least, divisor = (1, f"{moments}.n") if function.endswith("_pop") else (2, f"({moments}.n - 1)")
    variance = f"({moments}.m2 / {divisor})"
    value = f"sqrt{variance}" if function.startswith("stddev") else variance
    return f"CASE WHEN {moments}.n >= {least} THEN {value} END"


def _final_of_set(call: AggregateCall, a: str) -> str:
    total = f"aggregate({a}, CAST(0 AS {call.type}), (s, x) -> CAST(s + x AS {call.type}))"
    match call.function:
        case "count":
            return f"CAST(size({a}) AS BIGINT)"
        case "sum":
            return f"CASE WHEN size({a}) > 0 THEN {total} END"
        case "avg":
            return f"CAST(try_divide({total}, size({a})) AS {call.type})"
        case _ if call.function in VARIANCES:
            each = (
                f"transform({a}, x -> named_struct('n', 1D, 'mean', CAST(x AS DOUBLE), 'm2', 0D))"
            )
            return _spread(call.function, f"aggregate({each}, {_ZERO}, {_fold()})")
        case _:
            raise UsageError(f"DISTINCT in {call.function} has no meaning", hint="leave it out")


def names_of(calls: Sequence[AggregateCall]) -> list[str]:
    return [f"a{i}_{j}" for i, call in enumerate(calls) for j in range(len(parts_of(call, "_ts")))]


def partial(
    data: DataFrame, keys: Sequence[tuple[str, str]], calls: Sequence[AggregateCall], order: str
) -> DataFrame:
    """Partials of rows, grouped by keys given as (name, SQL text)."""
    columns = [
        F.expr(part.of_rows).alias(f"a{i}_{j}")
        for i, call in enumerate(calls)
        for j, part in enumerate(parts_of(call, order))
    ]
    columns.append(F.expr("max(_ts)").alias("_latest"))
    grouped = data.groupBy(*[F.expr(text).alias(name) for name, text in keys]).agg(*columns)
    return grouped if keys else grouped.where("_latest IS NOT NULL")  # no rows, no group


def merge(data: DataFrame, keys: Sequence[str], calls: Sequence[AggregateCall]) -> DataFrame:
    """Partials of partials, grouped by columns."""
    aggregates = []
    shapes = [f"`{key}`" for key in keys]
    for i, call in enumerate(calls):
        for j, part in enumerate(parts_of(call, "_ts")):
            name = f"a{i}_{j}"
            aggregates.append(F.expr(part.of_parts.format(a=name)).alias(name))
            shapes.append(f"{part.shape.format(a=name)} AS {name}")
    aggregates.append(F.expr("max(_latest)").alias("_latest"))
    merged = data.groupBy(*keys).agg(*aggregates).selectExpr(*shapes, "_latest")
    return merged if keys else merged.where("_latest IS NOT NULL")


def finals(keys: Sequence[str], calls: Sequence[AggregateCall]) -> list[str]:
    """The texts of an aggregate's columns: keys, then values."""
    return [*keys, *(final_of(call, i) for i, call in enumerate(calls))]
