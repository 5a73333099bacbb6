"""What Spark would refuse only when rows come is told at once, with its place and a hint."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.scope import spelt
from millstream.language.cql.binding.storing import unwritable
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.parsing.parser import parse
from millstream.language.plan.expressions import Cast
from millstream.language.plan.nodes import Aggregate, Filter, Node, inputs_of
from millstream.language.plan.schema import Field

KINDS = {"k": "string", "v": "int", "m": "map<string,int>", "two words": "int", "at": "timestamp"}
COLUMNS = tuple(Field(name, type_) for name, type_ in KINDS.items())
CATALOG = Catalog(tuple(StreamDefinition(name, COLUMNS, "at") for name in ("s", "t")))


@pytest.fixture
def binding(analyzer: Analyzer) -> Binding:
    return Binding(analyzer, CATALOG)


def spot(mistake: CqlError) -> str:
    start = mistake.column - 1
    return mistake.source[start : start + mistake.length]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        # values of keys are compared
        ("SELECT DISTINCT m FROM s [NOW]", "DISTINCT", "values of m (map<string,int>)", "to_json"),
        ("SELECT v FROM s [PARTITION BY k, m ROWS 1]", "m", "PARTITION BY: values", "to_json"),
        ("SELECT count(*) FROM s [ROWS 2] GROUP BY m", "m", "GROUP BY: values of m", "to_json"),
        ("SELECT m FROM s [NOW] UNION SELECT m FROM t [NOW]", "m FROM t", "UNION: values", ""),
        ("SELECT count(DISTINCT k, m) FROM s", "m", "DISTINCT: values of m", "to_json"),
        # results are written
        ("SELECT v, array() AS e FROM s", "array()", "array<void> cannot be stored", "cast it"),
        ("SELECT map() AS e FROM s", "map()", "map<void,void> cannot be stored", "cast it"),
        ("SELECT struct() AS e FROM s", "struct()", "it has no fields", "give it one"),
        ("SELECT named_struct('a', v, 'A', k) e FROM s", "named", "two fields named A", "rename"),
        ("SELECT make_ym_interval(1, 2) AS e FROM s", "make_ym", "interval of months", "length"),
        ("SELECT size(first(array())) AS e FROM s", "array()", "array<void> cannot be", "cast it"),
        ("SELECT count(*) FROM s GROUP BY array()", "array()", "array<void> cannot be", "cast it"),
        # texts without quotes
        ("SELECT v FROM s WHERE k = Ulm", "Ulm", "unknown column Ulm", "in single quotes: 'Ulm'"),
        ("SELECT v FROM s WHERE k = \u2018Ulm\u2019", "\u2018", "unknown column", "quotes: 'Ulm'"),
        # texts are no numbers
        ("SELECT sum(k) AS e FROM s", "k", "sum of k, which is a text", "CAST(k AS DOUBLE)"),
        # patterns are constants, mostly
        ("SELECT v FROM s WHERE k RLIKE '('", "k RLIKE", "'(' is not a regular expression", "[(]"),
        ("SELECT split(k, '[') AS e FROM s", "split", "'[' is not a regular", "brackets"),
        ("SELECT date_format(ts, 'YYYY') AS e FROM s", "date", "'YYYY' is not a pattern", "yyyy"),
        ("SELECT to_timestamp(k, 'zzzzzzz') AS e FROM s", "to_t", "is not a pattern", "yyyy"),
        ("SELECT to_char(ts, 'YYYY-MM-DD') e FROM s", "to_char", "'YYYY-MM-DD' is not a pattern",
         "write date_format(ts, 'yyyy-MM-dd')"),
        ("SELECT to_varchar(at, 'DD.MM.YYYY HH24:MI') e FROM s", "to_v", "is not a pattern",
         "write date_format(at, 'dd.MM.yyyy HH:mm')"),
        ("SELECT date_format(s.at, 'YYYY') AS e FROM s", "date", "'YYYY' is not a pattern",
         "write date_format(s.at, 'yyyy')"),
        ("SELECT to_date(k, 'YYYY-MM-DD') AS e FROM s", "to_date", "is not a pattern of times",
         "write to_date(k, 'yyyy-MM-dd')"),
        ("SELECT to_char(v, 'yyyy') AS e FROM s", "to_char", "format", ""),
        ("SELECT to_number(k, 'x') AS e FROM s", "to_number", "format", ""),
        ("SELECT from_utc_timestamp(ts, 'Paris') e FROM s", "from", "'Paris' is not a time zone",
         "'Europe/Berlin'"),
        ("SELECT date_trunc('fortnight', ts) e FROM s", "date", "'fortnight' is not a unit", "DAY"),
        ("SELECT trunc(CAST(ts AS date), 'foo') e FROM s", "trunc", "'foo' is not a unit", "WEEK"),
        ("SELECT encode(k, 'latin') AS e FROM s", "encode", "'latin' is not a character", "UTF-8"),
        # words in double quotes
        ('SELECT "v" FROM s', '"v"', '"v" could be the column or a text', "write `v` for the"),
        ('SELECT v FROM s WHERE k = "K"', '"K"', "could be the column", "'K' for the text"),
        ('SELECT v FROM s WHERE k = "two words"', '"two', "could be the column", "`two words`"),
        ('SELECT s.v FROM s [NOW] JOIN t [NOW] ON s.k = "v"', '"v"', "could be the column", "`v`"),
        ('SELECT k AS g, count(*) FROM s [NOW] GROUP BY "g"', '"g"', "could be", "`g`"),
        ('SELECT max(v) AS m2 FROM s [NOW] HAVING "m2" > 1', '"m2"', "could be", "`m2`"),
        ('SELECT "ts" AS x FROM s', '"ts"', "could be the column", "`ts`"),
        # names
        ("SELECT v AS op, count(*) FROM s GROUP BY v", "v AS op", "column named op", "AS op"),
        ("SELECT OP, count(*) FROM (SELECT v AS op FROM s) GROUP BY op", "OP", "named op", "+"),
        ("SELECT v, V FROM s", "v, V", "two columns named v", "alias"),
        ("SELECT v AS a, k AS A FROM s", "v AS a", "two columns named a", "alias"),
        ("SELECT `two words` FROM s [NOW] x, t [NOW] y", "`two", "ambiguous", "or y.`two words`"),
        ("SELECT s.* FROM s x", "s.*", "unknown stream s", "in FROM: x"),
        ("WITH q AS (SELECT v FROM s), Q AS (SELECT k FROM s) SELECT * FROM q", "Q", "twice", "re"),
    ],
)  # fmt: skip
def test_what_is_refused(binding: Binding, text: str, place: str, message: str, hint: str) -> None:
    with pytest.raises(CqlError) as caught:
        binding.plan(text)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert spot(caught.value).startswith(place)


@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        "SELECT size(array()) AS n, NULL AS nothing FROM s",
        "SELECT first(m) AS m, count(m) AS n FROM s",
        "SELECT k RLIKE k AS a, split(k, '[,;]') AS b, to_date(k, 'yyyy-MM') AS c FROM s",
        "SELECT ts + INTERVAL '1' MONTH AS a, ts - INTERVAL 2 YEARS AS b FROM s",
        "SELECT k FROM s WHERE ts BETWEEN at AND at + INTERVAL '1' QUARTER",
        "SELECT v AS op FROM s",
        "SELECT date_format(ts, 'yyyy-MM-dd') AS a, to_char(ts, 'yyyy') AS b FROM s",
        "SELECT to_char(v, '999D9') AS a, date_trunc('WEEK', ts) AS b, decode(v, 1, 'a') c FROM s",
        "SELECT from_utc_timestamp(ts, 'Europe/Berlin') AS a, encode(k, 'UTF-8') AS b FROM s",
        "ISTREAM(SELECT v AS op, count(*) AS n FROM s GROUP BY v)",
        "SELECT V + 1, v + 1 FROM s",
        "SELECT z.`two words` AS n FROM (SELECT named_struct('two words', v) AS z FROM s) "
        "WHERE z.`two words` > 1",
        "WITH q AS (SELECT v FROM s) SELECT v FROM (WITH q AS (SELECT v FROM t) SELECT v FROM q)",
    ],
)
def test_what_is_not(binding: Binding, text: str) -> None:
    assert binding.plan(text).fingerprint


@pytest.mark.spark
def test_words_in_double_quotes_that_can_only_be_names(binding: Binding) -> None:
    quoted = 'SELECT "a"."v" AS "Total", a."two words" FROM "s" AS "a" WHERE k = "x"'
    plain = "SELECT a.v AS Total, a.`two words` FROM s AS a WHERE k = 'x'"
    assert binding.fingerprint(quoted) == binding.fingerprint(plain)
    assert [f.name for f in binding.plan(quoted).columns] == ["Total", "two words"]
    inner = 'SELECT n FROM (SELECT v AS n FROM s WHERE k = "n") WHERE n > 1'
    assert binding.plan(inner).fingerprint  # n is no column where "n" stands


def conditions(node: Node) -> list[object]:
    own: list[object] = []
    if isinstance(node, Filter):
        own = [node.predicate]
    elif isinstance(node, Aggregate):
        own = [call.condition for call in node.calls]
    return [*own, *(c for child in inputs_of(node) for c in conditions(child))]


@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s WHERE NULL",
        "SELECT k, max(v) AS n FROM s GROUP BY k HAVING NULL",
        "SELECT count(*) FILTER (WHERE NULL) AS n FROM s",
    ],
)
def test_null_is_a_condition(binding: Binding, text: str) -> None:
    found = [c for c in conditions(binding.plan(text).root) if c is not None]
    assert [c.type for c in found if isinstance(c, Cast)] == ["boolean"]


@pytest.mark.parametrize("count", ["0", "2147483648", "99999999999999999999"])
def test_rows_of_a_window_are_counted_in_32_bits(count: str) -> None:
    with pytest.raises(CqlError) as caught:
        parse(f"SELECT v FROM s [ROWS {count}]")
    assert spot(caught.value) == count
    assert "from 1 to 2147483647" in caught.value.hint
    assert parse("SELECT v FROM s [ROWS 2147483647]")


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("SELECT v /* of s FROM s", "the comment is not closed", 10, "add */"),
        ("/* a */ SELECT '/*' /* b /* c */", "the comment is not closed", 21, "add */"),
        ("SELECT v FROM s WHERE k = 'a", "' is not closed", 27, "add '"),
        ("SELECT 'it''s' -- it's\n, '", "' is not closed", 3, "add '"),
    ],
)
def test_what_is_not_closed(text: str, message: str, column: int, hint: str) -> None:
    with pytest.raises(CqlError) as caught:
        parse(text)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.column == column


def test_types_that_files_hold() -> None:
    for type_ in ("void", "interval day to second", "array<struct<void:int,b:map<string,date>>>"):
        assert unwritable(type_) is None
    for type_ in ("interval", "array<interval year>", "map<int,interval>", "array<struct<>>"):
        assert unwritable(type_) is not None
    assert spelt("a`b") == "`a``b`"
