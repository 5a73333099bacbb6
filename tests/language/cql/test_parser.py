"""Text to statements; no Spark."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.parsing.parser import (
    CreateQuery,
    CreateStream,
    SelectStatement,
    parse,
    parse_expression,
    parse_query,
    split,
)
from millstream.language.plan.schema import Field


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("a ';' ;\n-- x;y\nb;;", ["a ';'", "-- x;y\nb"]),
        (r"SELECT 'it\'s; so' FROM s; b", [r"SELECT 'it\'s; so' FROM s", "b"]),
        ("SELECT `a;b` FROM s; /* c;d */", ["SELECT `a;b` FROM s"]),
        ("SELECT a FROM s; -- it's done", ["SELECT a FROM s"]),
        ("-- nothing;", []),
        (" ; ;", []),
    ],
)
def test_a_script_is_split_where_statements_end(script: str, statements: list[str]) -> None:
    assert split(script) == statements


def test_a_script_with_an_open_quote_is_told_where() -> None:
    with pytest.raises(CqlError, match="' is not closed") as caught:
        split("SELECT a FROM s;\nSELECT b FROM s WHERE c = 'x")
    assert (caught.value.line, caught.value.column) == (2, 27)


def test_a_script_of_statements() -> None:
    script = """
        CREATE STREAM s (a INT, at TIMESTAMP) WITH (time = 'at');  -- first
        CREATE QUERY q AS SELECT a FROM s;
        CREATE QUERY `select` FROM BEGINNING AS ISTREAM(SELECT a FROM s);
        SELECT a FROM s
    """
    stream, query, quoted, select = parse(script)
    assert isinstance(stream, CreateStream)
    assert isinstance(query, CreateQuery)
    assert (query.name, query.from_beginning) == ("q", False)
    assert isinstance(quoted, CreateQuery)
    assert (quoted.name, quoted.from_beginning) == ("select", True)
    assert isinstance(select, SelectStatement)


def test_create_stream() -> None:
    (statement,) = parse(
        r"""CREATE STREAM readings (
            at LONG, `order` ARRAY<STRUCT<a: INT, b: DECIMAL(10, 2)>>, name STRING
        ) WITH (
            path = 'data/x.tsv', format = 'csv', options = (sep = '\t', header = true),
            option.nullValue = '-', time = 'timestamp_seconds(at)', lateness = '5 seconds',
            idle = '1 minute', max_ahead = '1h', rate = 1000
        )"""
    )
    assert isinstance(statement, CreateStream)
    assert statement.definition == StreamDefinition(
        "readings",
        (
            Field("at", "bigint"),
            Field("order", "array<struct<a:int,b:decimal(10,2)>>"),
            Field("name", "string"),
        ),
        "timestamp_seconds(at)",
        lateness_us=5_000_000,
        idle_us=60_000_000,
        max_ahead_us=3_600_000_000,
        source={
            "path": "data/x.tsv",
            "format": "csv",
            "options": {"sep": "\t", "header": True, "nullValue": "-"},
            "rate": 1000,
        },
    )


def test_one_query() -> None:
    assert isinstance(parse_query("CREATE QUERY q AS SELECT a FROM s"), SelectStatement)
    with pytest.raises(UsageError, match="found 2 statements"):
        parse_query("SELECT a FROM s; SELECT b FROM s")
    with pytest.raises(UsageError, match="found CREATE STREAM"):
        parse_query("CREATE STREAM s (a INT) WITH (time = 'a')")


def test_an_error_points_into_its_own_line() -> None:
    with pytest.raises(CqlError) as caught:
        parse("SELECT a FROM s;\n\nSELECT b,\n  FROM t")
    assert (caught.value.line, caught.value.column) == (3, 9)
    assert "3 | SELECT b,\n" in str(caught.value)


def test_positions_count_characters_not_bytes() -> None:
    with pytest.raises(CqlError) as caught:
        parse("SELECT '東京🚦', `größe`, FROM s")
    assert caught.value.column == 22


def test_an_expression_knows_where_it_stands() -> None:
    text, tree = parse_expression("timestamp_seconds(at)")
    assert text.source == "timestamp_seconds(at)"
    assert tree.meta["start"] == 0
    with pytest.raises(CqlError):
        parse_expression("f(")


@pytest.mark.parametrize("depth", [50, 100_000])
def test_deep_nesting_is_refused_not_a_crash(depth: int) -> None:
    text = "SELECT " + "(" * depth + "a" + ")" * depth + " FROM s"
    if depth == 50:
        parse(text)
        return
    with pytest.raises(CqlError, match="nested too deeply"):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    _parsed_or_refused(text)


WORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "JOIN", "ON", "USING", "AS", "UNION ALL"),
    *("WITH", "ISTREAM", "(", ")", "[", "]", ",", ";", ".", "RANGE", "ROWS", "SLIDE", "NOW"),
    *("UNBOUNDED", "PARTITION BY", "10", "SECONDS", "s", "a", "b", "*", "=", "<", "+", "-", "/"),
    *("'x'", '"y"', "`z`", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "INTERVAL", "NOT", "IN"),
    *("LIKE", "BETWEEN", "AND", "OR", "IS", "NULL", "DISTINCT", "CREATE", "STREAM", "QUERY"),
    *("count", "ORDER BY", "LIMIT", "OVER", "FILTER", "->", "::", "5L", "1e3", "$", "?", "{", "}"),
)


@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_words_are_parsed_or_refused(words: list[str]) -> None:
    _parsed_or_refused(" ".join(words))
    _parsed_or_refused("SELECT a FROM s [RANGE 10 SECONDS] " + " ".join(words))


def _parsed_or_refused(text: str) -> None:
    with suppress(UsageError):
        parse(text)


def test_a_long_line_is_shown_around_the_mistake() -> None:
    text = "SELECT " + ", ".join(f"column_{i}" for i in range(500)) + ",, last FROM s"
    with pytest.raises(CqlError) as caught:
        parse(text)
    _, shown, marks = caught.value.detail.split("\n")
    assert len(shown) < 180
    spot = marks.index("^")
    assert shown[spot - 10 : spot + 2] == "column_499,,"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT count(*) FROM s RANGE 5 MINUTES GROUP BY city", "its stream: [RANGE 5 MINUTES]"),
        ("SELECT c FROM s (RANGE 5 MINUTES) WHERE c > 1", "its stream: [RANGE 5 MINUTES]"),
        ("SELECT c FROM s RANGE 5 MINUTES]", "its stream: [RANGE 5 MINUTES]"),
        ("SELECT c FROM s [RANGE 5 MINUTES EVERY 1 MINUTE]", "SLIDE in the place of EVERY"),
        ("SELECT c FROM s WHERE at > 5 MINUTES", "INTERVAL 5 MINUTES"),
        ("SELECT c FROM s WHERE c => 1", "write >="),
        ("SELECT c FROM s WHERE city LIKE U%", "in single quotes"),
        ("SELECT c FROM s WHERE name = 'O'Brien'", "doubled: 'O''Brien'"),
        ("SELECT TOP 5 c FROM s", "LIMIT 5"),
    ],
)
def test_what_is_written_otherwise_elsewhere_is_told(text: str, hint: str) -> None:
    with pytest.raises(CqlError) as error:
        parse(text)
    assert hint in error.value.hint


@pytest.mark.parametrize("word", ["from", "case", "when"])
def test_a_word_of_sql_as_a_column_is_told(word: str) -> None:
    with pytest.raises(CqlError) as error:
        parse(f"SELECT {word} FROM s")
    assert error.value.hint == f"a column of that name goes in backquotes: `{word}`"
    parse(f"SELECT `{word}` FROM s")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELEC a FROM s", "did you mean SELECT instead of SELEC?"),
        ("SELECT a AS FROM s", "a name is missing between AS and FROM"),
        ("SELECT a AS b c FROM s", ""),
        ("SELECT a FROM s WHERE a BETWEEN 1 TO 5", "BETWEEN 1 AND ..."),
        ("SELECT floor(ts TO HOUR) AS t FROM s", "date_trunc('HOUR', ts); rounded up: "
         "date_trunc('HOUR', ts) + INTERVAL '1' HOUR"),
    ],
)  # fmt: skip
def test_a_slip_has_the_edit_as_its_hint(text: str, hint: str) -> None:
    with pytest.raises(CqlError) as refused:
        parse(text)
    assert refused.value.hint == hint
