"""Aggregates over the values themselves: lists, extremes by another column, quantiles, pairs.

Like `aggregates.py` in three parts, as Spark SQL text. Lists keep each value with its row's place,
so that the order in which batches came never shows; quantiles and modes keep all values; pairs keep
counts, means and co-moments, merged without cancellation; approximate distinct counts keep a
HyperLogLog sketch.
"""

from dataclasses import dataclass

from millstream.language.plan.calls import unpacked
from millstream.language.plan.expressions import Expr, Literal, total
from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.sql_text import predicate_sql, sql

PAIRS = frozenset(
    {"corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy"}
    | {"regr_sxy", "regr_slope", "regr_intercept", "regr_r2"}
)
QUANTILES = frozenset({"percentile_cont", "percentile_disc"})
LISTS = frozenset({"array_agg", "string_agg"})
BITS = frozenset({"bit_and", "bit_or", "bit_xor"})
COLLECTED = LISTS | PAIRS | QUANTILES | BITS | {"collect_set", "max_by", "min_by", "mode"} | {
    "approx_count_distinct", "histogram"
}  # fmt: skip
SKETCHED = ("int", "bigint", "string", "binary")  # types that Spark's sketches take
_NO_PAIR = "named_struct('n', 0D, 'ma', 0D, 'mb', 0D, 'sa', 0D, 'sb', 0D, 'sab', 0D)"


@dataclass(frozen=True, slots=True)
class Part:
    """One partial column: how it comes from rows, from partials, and back into shape."""

    of_rows: str  # aggregate over rows
    of_parts: str  # aggregate over the partial column, named {a}
    shape: str = "{a}"  # turns what `of_parts` gave into a partial again


FLAT = ("collect_list({a})", "flatten({a})")
DISTINCT = ("collect_list({a})", "array_distinct(flatten({a}))")


def collected_part(call: AggregateCall, order: str) -> Part:
    """The partial column of a call; `order` is the rows' place as a comparable value."""
    only = f" FILTER (WHERE {predicate_sql(call.condition)})" if call.condition else ""
    parts = {name: _text(part, call.condition) for name, part in unpacked(call.argument).items()}
    value = parts["v"] if parts else _text(call.argument or Literal("1", "int"), call.condition)
    if call.function == "collect_set" or call.distinct:
        if call.argument_type in ("float", "double"):
            value = f"({value} + 0D)"  # -0.0 and 0.0 are one value
        return Part(f"collect_set({value}){only}", *DISTINCT)
    match call.function:
        case "array_agg" | "string_agg":
            keys = "".join(f", '{k}', {t}" for k, t in parts.items() if _is_key(k))
            row = f"named_struct('v', {value}{keys}, 'at', {order})"
            return Part(f"collect_list(IF({value} IS NULL, NULL, {row})){only}", *FLAT)
        case "max_by" | "min_by":
            by, name = parts["by"], call.function
            row = f"named_struct('v', {value}, 'o', struct({by} AS k, {order} AS at))"
            place = f"IF({by} IS NULL, NULL, struct({by} AS k, {order} AS at))"
            return Part(f"{name}({row}, {place}){only}", f"{name}({{a}}, {{a}}.o)")
        case "percentile_cont":
            return Part(f"collect_list(CAST({value} AS DOUBLE)){only}", *FLAT)
        case "percentile_disc" | "mode" | "histogram":
            return Part(f"collect_list({value}){only}", *FLAT)
        case "approx_count_distinct":
            plain = value if call.argument_type in SKETCHED else f"CAST({value} AS STRING)"
            sketch = f"hll_sketch_agg({plain}, {parts['size']}){only}"
            return Part(sketch, "hll_union_agg({a})")
        case name if name in BITS:
            return Part(f"{name}({value}){only}", f"{name}({{a}})")
        case _:
            return _pair_part(parts["v"], parts["w"], only)


def _text(part: Expr, condition: Expr | None) -> str:
    """Spark computes what two aggregates have in common before it looks at their filters."""
    if condition is None or total(part):
        return sql(part)
    return f"CASE WHEN {predicate_sql(condition)} THEN {sql(part)} END"


def _is_key(name: str) -> bool:
    return name[0] == "k" and name[1:].isdigit()


def _pair_part(v: str, w: str, only: str) -> Part:
    """Count, means, squared deviations and their product, of rows that have both values."""
    a = f"IF({w} IS NULL, NULL, CAST({v} AS DOUBLE))"
    b = f"IF({v} IS NULL, NULL, CAST({w} AS DOUBLE))"
    count = f"count({a}){only}"
    row = (
        f"named_struct('n', CAST({count} AS DOUBLE), "
        f"'ma', coalesce(avg({a}){only}, 0D), 'mb', coalesce(avg({b}){only}, 0D), "
        f"'sa', coalesce(var_pop({a}){only}, 0D) * {count}, "
        f"'sb', coalesce(var_pop({b}){only}, 0D) * {count}, "
        f"'sab', coalesce(covar_pop({a}, {b}){only}, 0D) * {count})"
    )
    return Part(row, "collect_list({a})", f"aggregate({{a}}, {_NO_PAIR}, {_pair_fold()})")


def _pair_fold() -> str:
    """Merges co-moments by the parallel formula of Chan, Golub and LeVeque (1983)."""
    n = "(s.n + x.n)"
    da, db = "(x.ma - s.ma)", "(x.mb - s.mb)"
    both = f"s.n * x.n / {n}"
    return (
        "(s, x) -> CASE WHEN x.n = 0D THEN s WHEN s.n = 0D THEN x ELSE named_struct("
        f"'n', {n}, 'ma', s.ma + {da} * x.n / {n}, 'mb', s.mb + {db} * x.n / {n}, "
        f"'sa', s.sa + x.sa + {da} * {da} * {both}, 'sb', s.sb + x.sb + {db} * {db} * {both}, "
        f"'sab', s.sab + x.sab + {da} * {db} * {both}) END"
    )


def collected_final(call: AggregateCall, a: str) -> str:
    """The call's value from its merged partial."""
    parts = {name: sql(part) for name, part in unpacked(call.argument).items()}
    match call.function:
        case "array_agg":
            return _sorted_values(call, parts, a)
        case "string_agg":
            values = _sorted_values(call, parts, a)
            return f"CASE WHEN size({a}) > 0 THEN array_join({values}, {parts['separator']}) END"
        case "collect_set":
            return f"array_sort({a})"
        case "max_by" | "min_by":
            return f"{a}.v"
        case "percentile_cont" | "percentile_disc":
            return _quantile(call.function, parts, a)
        case "mode":
            return _mode(call.type, a)
        case "histogram":
            times = f"CAST(size(filter({a}, y -> y <=> x)) AS BIGINT)"
            pair = f"named_struct('value', x, 'count', {times})"
            return f"transform(array_sort(array_distinct({a})), x -> {pair})"
        case "approx_count_distinct":
            # a merged sketch is estimated by another formula than one that never was: all are
            return f"hll_sketch_estimate(hll_union({a}, {a}))"
        case name if name in BITS:
            return f"CAST({a} AS {call.type})"
        case _:
            return _pair_final(call.function, a)


def _sorted_values(call: AggregateCall, parts: dict[str, str], a: str) -> str:
    if call.distinct:
        descending = parts.get("d0", "").startswith("DESC")
        return f"sort_array({a}, {'FALSE' if descending else 'TRUE'})"
    verdict = "CASE WHEN l.at < r.at THEN -1 WHEN l.at > r.at THEN 1 ELSE 0 END"
    for key in reversed([k for k in parts if _is_key(k)]):
        way = parts[f"d{key[1:]}"]
        low, high = (1, -1) if way.startswith("DESC") else (-1, 1)
        null = -1 if way.endswith("FIRST") else 1
        verdict = (
            f"CASE WHEN l.{key} <=> r.{key} THEN {verdict} "
            f"WHEN l.{key} IS NULL THEN {null} WHEN r.{key} IS NULL THEN {-null} "
            f"WHEN l.{key} < r.{key} THEN {low} ELSE {high} END"
        )
    return f"transform(array_sort({a}, (l, r) -> {verdict}), x -> x.v)"


def _quantile(function: str, parts: dict[str, str], a: str) -> str:
    """The value at a share of the sorted ones: between two of them, or the one that reaches it."""
    share, way = parts["p"], parts.get("d0", "ASC")
    values = f"sort_array({a}, {'FALSE' if way.startswith('DESC') else 'TRUE'})"
    if function == "percentile_disc":
        place = f"greatest(CAST(ceil({share} * size(s)) AS INT), 1) - 1"
        found = f"s[{place}]"
    else:
        place = f"CAST({share} * (size(s) - 1) AS DOUBLE)"
        low, high = f"CAST(floor({place}) AS INT)", f"CAST(ceil({place}) AS INT)"
        between = f"({high} - {place}) * s[{low}] + ({place} - {low}) * s[{high}]"
        found = f"IF({low} = {high}, s[{low}], {between})"
    return f"CASE WHEN size({a}) > 0 THEN transform(array({values}), s -> {found})[0] END"


def _mode(type_: str, a: str) -> str:
    """The value that comes most often; of several the least."""
    zero = f"named_struct('b', CAST(NULL AS {type_}), 'n', 0, 'c', CAST(NULL AS {type_}), 'm', 0)"
    times = "IF(x <=> s.c, s.m + 1, 1)"
    fold = (
        f"(s, x) -> IF({times} > s.n, named_struct('b', x, 'n', {times}, 'c', x, 'm', {times}), "
        f"named_struct('b', s.b, 'n', s.n, 'c', x, 'm', {times}))"
    )
    return f"aggregate(array_sort({a}), {zero}, {fold}, s -> s.b)"


def _pair_final(function: str, m: str) -> str:
    """v is the first argument, w the second: of regr_slope(y, x) they are y and x."""
    slope = f"try_divide({m}.sab, {m}.sb)"
    match function:
        case "covar_pop":
            value = f"try_divide({m}.sab, {m}.n)"
        case "covar_samp":
            value = f"try_divide({m}.sab, {m}.n - 1)"
        case "corr":
            value = f"try_divide({m}.sab, sqrt({m}.sa * {m}.sb))"
        case "regr_avgx":
            value = f"{m}.mb"
        case "regr_avgy":
            value = f"{m}.ma"
        case "regr_sxx":
            value = f"{m}.sb"
        case "regr_syy":
            value = f"{m}.sa"
        case "regr_sxy":
            value = f"{m}.sab"
        case "regr_slope":
            value = slope
        case "regr_intercept":
            value = f"({m}.ma - {slope} * {m}.mb)"
        case _:  # regr_r2: 1 where y never changes
            value = (
                f"IF({m}.sb = 0D, NULL, IF({m}.sa = 0D, 1D, {m}.sab * {m}.sab / {m}.sa / {m}.sb))"
            )
    return f"CASE WHEN {m}.n > 0D THEN {value} END"
