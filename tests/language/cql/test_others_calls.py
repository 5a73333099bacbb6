"""Calls as standard SQL and others write them, and what is refused with a hint."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError
from millstream.language.cql.parsing.parser import parse

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
        ("ARRAY[v, 2]", "array(v, 2)"),
        ("MAP['a', v]", "map('a', v)"),
        ("(k, v) = ('a', 1)", "k = 'a' AND v = 1"),
        ("(k, v) <> ('a', 1)", "NOT (k = 'a' AND v = 1)"),
        ("(k, v) IN (('a', 1), ('b', 2))", "(k = 'a' AND v = 1) OR (k = 'b' AND v = 2)"),
        ("struct(k, v)", "named_struct('k', k, 'v', v)"),
        ("EXTRACTJSONFIELD(k, '$.a')", "get_json_object(k, '$.a')"),
        ("SPLIT_INDEX(k, '/', v)", r"get(split(k, '\\Q/\\E'), v)"),
        ("JSON_VALUE(k, '$.a' RETURNING INT)", "TRY_CAST(JSON_VALUE(k, '$.a') AS INT)"),
        ("JSON_VALUE(k, '$.a' NULL ON EMPTY NULL ON ERROR)", "JSON_VALUE(k, '$.a')"),
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
        ("SELECT EXTRACT(EPOCH FROM at) AS c FROM s", "EPOCH is not supported", "unix_seconds(ts)",
         "SELECT unix_seconds(ts) AS c, timestampdiff(SECOND, at, ts) AS d FROM s"),
        ("SELECT at AT TIME ZONE 'UTC' AS c FROM s", "AT TIME ZONE is not supported",
         "from_utc_timestamp(ts, 'Europe/Berlin')",
         "SELECT from_utc_timestamp(ts, 'Europe/Berlin') AS c FROM s"),
        ("SELECT k FROM s WHERE k ~* 'a'", "~* is not supported", "k RLIKE '(?i)pattern'",
         "SELECT k FROM s WHERE k RLIKE '(?i)pattern'"),
        ("SELECT k IS JSON AS c FROM s", "IS takes NULL", "get_json_object(j, '$') IS NOT NULL",
         "SELECT get_json_object(k, '$') IS NOT NULL AS c FROM s"),
        ("SELECT k FROM s WHERE k = ANY(split(k, ','))", "an aggregate in WHERE",
         "array_contains(a, x)", "SELECT k FROM s WHERE array_contains(split(k, ','), k)"),
        ("SELECT posexplode(array(v)) AS (i, e) FROM s", "a column has one name",
         "UNNEST(array) WITH ORDINALITY AS t(x, n)",
         "SELECT t.n, t.x FROM s, UNNEST(array(v)) WITH ORDINALITY AS t(x, n)"),
        ("SELECT v + 1 AS w2, w2 * 2 AS w3 FROM s", "unknown column w2", "repeat its expression",
         "SELECT v + 1 AS w2, (v + 1) * 2 AS w3 FROM s"),
        ("SELECT window_time(window), count(*) AS n FROM s GROUP BY window(ts, '1 minute')",
         "unknown function window_time", "window_end - INTERVAL '1' MICROSECOND",
         "SELECT window_end - INTERVAL '1' MICROSECOND AS t, count(*) AS n FROM s "
         "GROUP BY window(ts, '1 minute')"),
        ("SELECT percentile(v, array(0.5, 0.9)) AS c FROM s", "takes one share",
         "array(percentile(x, 0.5), percentile(x, 0.9))",
         "SELECT array(percentile(x, 0.5), percentile(x, 0.9)) AS c FROM s"),
        ("SELECT v FROM s TABLESAMPLE (10 PERCENT)", "TABLESAMPLE", "pmod(hash(k), 10) = 0",
         "SELECT v FROM s WHERE pmod(hash(k), 10) = 0"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k ORDER BY n DESC LIMIT 5 OFFSET 2",
         "OFFSET is not supported", "ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM t) WHERE r > 2",
         "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM (SELECT k, "
         "count(*) AS n FROM s GROUP BY k)) WHERE r > 2 AND r <= 7"),
        ("SELECT time_bucket('15 minutes', ts) AS b FROM s", 'cannot resolve "time_bucket',
         "[RANGE 10 SECONDS SLIDE 10 SECONDS]",
         "SELECT count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"),
        ("SELECT now() AS n FROM s", "now is not deterministic", "s [RANGE 1 HOUR]",
         "SELECT count(*) AS n FROM s [RANGE 1 HOUR]"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '10' SECOND))",
         "TUMBLE has no effect here", "floor(unix_seconds(ts) / 10) * 10) AS begun FROM s",
         "SELECT a.v, b.v AS u FROM (SELECT *, timestamp_seconds(floor(unix_seconds(ts) / 10) * 10)"
         " AS begun FROM s) AS a [RANGE 10 SECONDS] LEFT JOIN (SELECT *, timestamp_seconds(floor("
         "unix_seconds(ts) / 10) * 10) AS begun FROM t) AS b [RANGE 10 SECONDS] "
         "ON a.k = b.k AND a.begun = b.begun"),
        ("SELECT row(k, v) AS c FROM s", "unknown function row", "struct(a, b)",
         "SELECT struct(k, v) AS c FROM s"),
        ("SELECT jsonb_agg(v) AS c FROM s", "jsonb_agg is not supported", "to_json(array_agg(x))",
         "SELECT to_json(array_agg(x)) AS c FROM s"),
        ("SELECT collect(v) AS c FROM s", "collect is not supported", "array_agg(x)",
         "SELECT array_agg(x) AS c, histogram(x) AS h FROM s"),
        ("SELECT CEIL(at TO HOUR) AS c FROM s", "found TO", "date_trunc('HOUR', ts) + INTERVAL '1'",
         "SELECT date_trunc('HOUR', ts) + INTERVAL '1' HOUR AS c FROM s"),
        ("SELECT JSON_VALUE(k, '$.a' DEFAULT 0 ON EMPTY) AS c FROM s", "DEFAULT in JSON_VALUE",
         "coalesce(JSON_VALUE(j, '$.a'), '0')",
         "SELECT coalesce(JSON_VALUE(k, '$.a'), '0') AS c FROM s"),
        ("SELECT * FROM VALUES (1), (2) AS t(a)", "found VALUES", "FROM s JOIN (VALUES (1, 'a'))",
         "SELECT s.k, t.n FROM s JOIN (VALUES (1, 'a')) AS t (k, n) ON s.v = t.k"),
        ("SELECT * FROM range(3)", "unexpected (", "UNNEST(sequence(1, 3))",
         "SELECT t.x FROM s, UNNEST(sequence(1, 3)) AS t(x)"),
        ("SELECT k FROM public.s", "unexpected .", "without public: FROM s", "SELECT k FROM s"),
        ("SELECT * FROM s PARTITION BY k EMIT CHANGES", "unexpected PARTITION BY", "leave it out",
         "SELECT k, v FROM s [PARTITION BY k ROWS 1]"),
        ("SELECT k FROM s EMIT CHANGES LIMIT 10", "unexpected LIMIT", "ORDER BY ts LIMIT 10",
         "SELECT k FROM s ORDER BY ts LIMIT 10 EMIT CHANGES"),
        ("SELECT v FROM s WHERE v > 1 && v < 3", "unexpected &&", "AND",
         "SELECT v FROM s WHERE v > 1 AND v < 3"),
        ("SELECT v ?? 0 AS c FROM s", "unexpected ??", "coalesce(a, b)",
         "SELECT coalesce(v, 0) AS c FROM s"),
        ("SELECT k FROM s WHERE k !~ 'a'", "unexpected !", "NOT k RLIKE 'pattern'",
         "SELECT k FROM s WHERE NOT k RLIKE 'pattern'"),
        ("SELECT k, sum(v) AS v FROM s SAMPLE BY 1h", "unexpected BY", "SLIDE 1 HOUR]",
         "SELECT k, sum(v) AS v FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k"),
        ("SELECT max(v) KEEP (DENSE_RANK FIRST ORDER BY x) AS m FROM s", "unexpected (",
         "max_by(x, y)", "SELECT max_by(v, x) AS m FROM s"),
        ("SELECT v FROM s GROUP v", "unexpected v", "GROUP BY", "SELECT v FROM s GROUP BY v"),
        ("SELECT v FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'",
         "a time that is not a row's", "FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k",
         "SELECT s.v FROM s JOIN (SELECT k, count(*) AS n FROM t GROUP BY k) FOR SYSTEM_TIME AS OF "
         "s.ts AS t ON s.k = t.k"),
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


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("INSERT INTO t SELECT k FROM s", "found INSERT", "CREATE QUERY name AS SELECT"),
        ("UPDATE s SET v = 1", "found UPDATE", "op = 'what'"),
        ("DELETE FROM s", "found DELETE", "key = 'id'"),
        ("DESCRIBE s", "found DESCRIBE", "millstream shell"),
        ("SET 'auto.offset.reset' = 'earliest'", "found SET", "FROM BEGINNING"),
        ("CREATE MATERIALIZED VIEW m AS SELECT k FROM s", "create MATERIALIZED", "CREATE QUERY"),
        ("CREATE TABLE t AS SELECT k FROM s", "create TABLE", "CREATE QUERY name AS"),
        ("CREATE STREAM t AS SELECT k FROM s", "made by a query", "CREATE QUERY t AS SELECT"),
        ("CREATE STREAM t WITH (a = 'b') AS SELECT k FROM s", "made by a query", "CREATE QUERY t"),
        ("CREATE SINK t FROM s", "create SINK", "[queries.name.sink]"),
        ("CREATE TEMPORARY VIEW t AS SELECT k FROM s", "create TEMPORARY", "CREATE VIEW name AS"),
        ("CREATE OR REPLACE VIEW t AS SELECT k FROM s", "replace VIEW", "CREATE OR REPLACE QUERY"),
        ("CREATE FUNCTION f AS 'x'", "create FUNCTION", "register_function"),
    ],
)
def test_statements_of_others_have_a_hint(text: str, message: str, hint: str) -> None:
    with pytest.raises(CqlError) as refused:
        parse(text)
    assert message in refused.value.message
    assert hint in refused.value.hint
