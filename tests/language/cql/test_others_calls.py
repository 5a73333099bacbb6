"""Calls as standard SQL and others write them, and what is refused with a hint."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("worded", "plain"),
    [
        ("TRIM(BOTH 'x' FROM k)", "btrim(k, 'x')"),
        ("TRIM('x' FROM k)", "btrim(k, 'x')"),
        ("trim(LEADING FROM k)", "ltrim(k)"),
        ("TRIM(k)", "trim(k)"),
        ("SUBSTRING(k FROM 2 FOR v)", "substring(k, 2, v)"),
        ("substr(k FROM v)", "substr(k, v)"),
        ("OVERLAY(k PLACING 'x' FROM 1 FOR 2)", "overlay(k, 'x', 1, 2)"),
        ("POSITION('a' IN k)", "position('a', k)"),
        ("position('a', k, 2)", "position('a', k, 2)"),
        ("struct(v AS a, k, v + 1)", "named_struct('a', v, 'k', k, 'col3', v + 1)"),
        ("k LIKE ANY ('a%', 'b%')", "(k LIKE 'a%' OR k LIKE 'b%')"),
        ("k NOT LIKE ALL ('a%', 'b%')", "(k NOT LIKE 'a%' AND k NOT LIKE 'b%')"),
        ("IFF(v > 1, 'a', 'b')", "if(v > 1, 'a', 'b')"),
        ("upper(k -> 'a')", "upper(get_json_object(k, '$[''a'']'))"),
        ("GROUP_CONCAT(DISTINCT k SEPARATOR ';')", "string_agg(DISTINCT k, ';')"),
        ("GROUP_CONCAT(k ORDER BY v DESC SEPARATOR ';')", "string_agg(k, ';' ORDER BY v DESC)"),
    ],
)
def test_both_are_one_query(worded: str, plain: str, binding: Binding) -> None:
    one, other = (binding.plan(f"SELECT {call} AS c FROM s [NOW]") for call in (worded, plain))
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("text", "message", "hint", "instead"),
    [
        ("SELECT TOP 5 k FROM s", "unexpected 5", "DESC LIMIT 5",
         "SELECT k FROM s ORDER BY x DESC LIMIT 5"),
        ("SELECT v ** 2 AS p FROM s", "unexpected 2", "power(a, b)", "SELECT power(v, 2) p FROM s"),
        ("SELECT k FROM s WHERE k ~ 'a'", "unexpected ~", "k RLIKE 'pattern'",
         "SELECT k FROM s WHERE k RLIKE 'pattern'"),
        ("SELECT k:b.c AS c FROM s", "unexpected .", "JSON_VALUE(j, '$.b.c')",
         "SELECT k -> 'b' ->> 'c' AS c FROM s"),
        ("SELECT JSON_OBJECT('k' VALUE k) AS c FROM s", "found VALUE", "to_json(named_struct(",
         "SELECT to_json(named_struct('k', k)) AS c FROM s"),
        ("SELECT g FROM s, generate_series(1, 3) AS t(g)", "unexpected (", "sequence(1, 3)",
         "SELECT t.x FROM s, UNNEST(sequence(1, 3)) AS t(x)"),
        ("SELECT e FROM s, LATERAL json_each(k) e", "found LATERAL", "array<int>",
         "SELECT t.x FROM s, UNNEST(from_json(k, 'array<int>')) AS t(x)"),
        ("SELECT * FROM s UNPIVOT (a FOR b IN (v, w))", "found FOR", "then u.name",
         "SELECT u.name, u.value FROM s, "
         "UNNEST(array(struct('v' AS name, v AS value), struct('w' AS name, w AS value))) AS t(u)"),
        ("SELECT k FROM s EMIT AFTER WATERMARK", "unexpected AFTER", "leave it out",
         "SELECT k FROM s"),
    ],
)  # fmt: skip
def test_what_others_write_has_a_hint(
    text: str, message: str, hint: str, instead: str, binding: Binding
) -> None:
    with pytest.raises(CqlError) as refused:
        binding.plan(text)
    assert message in refused.value.message
    assert hint in refused.value.hint
    binding.plan(instead)
