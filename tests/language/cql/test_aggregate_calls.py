"""What calls of aggregates mean: names of one, types, and refusals whose hints lead somewhere."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError
from millstream.language.cql.functions import OTHER_AGGREGATES
from millstream.language.plan.explain import explain

pytestmark = pytest.mark.spark

WINDOW = "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("collect_list(v)", "array_agg(v)"),
        ("every(v > 1)", "bool_and(v > 1)"),
        ("any(v > 1)", "bool_or(v > 1)"),
        ("count_if(v > 1)", "count(*) FILTER (WHERE v > 1)"),
        ("count_if(v > 1) FILTER (WHERE w > 2)", "count(*) FILTER (WHERE w > 2 AND v > 1)"),
        ("median(x)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)"),
        ("percentile(x, 0.5)", "median(x)"),
        ("percentile_approx(v, 0.9, 100)", "percentile_disc(0.9) WITHIN GROUP (ORDER BY v)"),
        ("string_agg(k, '+' ORDER BY v)", "listagg(k, '+') WITHIN GROUP (ORDER BY v)"),
        ("first(v, TRUE)", "first(v) IGNORE NULLS"),
        ("any_value(v)", "first_value(v) IGNORE NULLS"),
        ("max_by(k, v)", "arg_max(k, v)"),
        ("mode(v)", "mode() WITHIN GROUP (ORDER BY v)"),
        ("bit_or(DISTINCT v)", "bit_or(v)"),
    ],
)
def test_names_of_one_aggregate(one: str, other: str, binding: Binding) -> None:
    left, right = (binding.fingerprint(f"SELECT {a} AS a {WINDOW}") for a in (one, other))
    assert left == right


def test_what_makes_a_difference(binding: Binding) -> None:
    texts = (
        "array_agg(k)", "array_agg(k ORDER BY v)", "array_agg(k ORDER BY v DESC)",
        "array_agg(DISTINCT k)", "string_agg(k, ',')", "string_agg(k, ';')", "percentile(x, 0.5)",
        "percentile(x, 0.6)", "max_by(k, v)", "max_by(k, w)", "corr(v, x)", "corr(x, v)",
        "approx_count_distinct(v)", "approx_count_distinct(v, 0.01)",
    )  # fmt: skip
    made = [binding.fingerprint(f"SELECT {text} AS a {WINDOW}") for text in texts]
    assert len(set(made)) == len(texts)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("array_agg(v)", "array<int>"),
        ("collect_set(k)", "array<string>"),
        ("string_agg(v, ',')", "string"),
        ("max_by(at, v)", "timestamp"),
        ("percentile_disc(0.5) WITHIN GROUP (ORDER BY at)", "timestamp"),
        ("median(w)", "double"),
        ("mode(k)", "string"),
        ("bit_xor(w)", "bigint"),
        ("approx_count_distinct(x)", "bigint"),
        ("regr_slope(v, x)", "double"),
        ("bool_or(v > 1)", "boolean"),
    ],
)
def test_types_of_results(text: str, type_: str, binding: Binding) -> None:
    assert binding.plan(f"SELECT {text} AS a {WINDOW}").columns[0].type == type_


def test_explain_shows_the_call(binding: Binding) -> None:
    text = explain(
        binding.plan(f"SELECT string_agg(DISTINCT k, ',') AS a, max_by(k, v) AS b {WINDOW}")
    )
    assert "string_agg(DISTINCT k, ',')" in text
    assert "max_by(k, v)" in text


@pytest.mark.parametrize(
    ("text", "message", "instead"),
    [
        ("percentile(x, 2)", "percentile takes one share", "percentile(x, 0.9)"),
        ("percentile(x, v)", "percentile takes one share", "percentile(x, 0.9)"),
        ("percentile_cont(0.9)", "percentile_cont needs WITHIN GROUP",
         "percentile_cont(0.9) WITHIN GROUP (ORDER BY x)"),
        ("median(k > 'a')", "median takes numbers, got boolean",
         "percentile_disc(0.5) WITHIN GROUP (ORDER BY k > 'a')"),
        ("bit_and(x)", "bit_and takes whole numbers", "bit_and(CAST(x AS bigint))"),
        ("every(v)", "every takes a condition, got int", "every(v > 0)"),
        ("max_by(k)", "max_by takes two arguments, got 1", "max_by(k, v)"),
        ("max_by(DISTINCT k, v)", "max_by does not take DISTINCT", "max_by(k, v)"),
        ("max_by(k, v) IGNORE NULLS", "does not take IGNORE NULLS", "max_by(k, v)"),
        ("sum(v ORDER BY x)", "sum does not take ORDER BY", "sum(v)"),
        ("string_agg(k, k)", "the separator of string_agg is a constant", "string_agg(k, ', ')"),
        ("array_agg(DISTINCT k ORDER BY v)", "in the order of something else",
         "array_agg(DISTINCT k ORDER BY k)"),
        ("corr(v, k > 'a')", "corr takes two numbers, got boolean", "corr(v, x)"),
        ("first(v, 2)", "is TRUE or FALSE", "first(v, TRUE)"),
    ],
)  # fmt: skip
def test_what_a_call_may_not_say(text: str, message: str, instead: str, binding: Binding) -> None:
    with pytest.raises(CqlError) as refused:
        binding.plan(f"SELECT {text} AS a {WINDOW}")
    assert message in str(refused.value)
    binding.plan(f"SELECT {instead} AS a {WINDOW}")


@pytest.mark.parametrize("name", sorted(OTHER_AGGREGATES))
def test_other_aggregates_are_refused_by_name_and_the_hint_can_be_written(
    name: str, binding: Binding
) -> None:
    for grouped in ("", " GROUP BY k"):
        with pytest.raises(CqlError, match=f"aggregate {name} is not supported") as refused:
            binding.plan(f"SELECT {name}(v) AS a, count(*) AS n {WINDOW}{grouped}")
    for hint in refused.value.hint.removeprefix("write ").split(" for ")[0].split(", or "):
        written = hint.partition(" and ")[0].partition(" with ")[0]
        binding.plan(f"SELECT {written} AS a FROM (SELECT v AS x, k, v FROM s) AS t [NOW]")
