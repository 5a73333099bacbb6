"""Queries over queries and views: a text is made whole, a name means the query in its place."""

import pytest

from language.cql.binding import Binding
from millstream.control.manager.events import Submit
from millstream.control.manager.query_names import made_whole
from millstream.control.manager.state import ManagerState, Query
from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.views import whole_text

ERRORS = "CREATE QUERY errors FROM BEGINNING AS SELECT k, v FROM r WHERE v > 400 -- bad ones"
KNOWN = {
    "errors": ERRORS,
    "worst": "SELECT k, max(v) AS top FROM errors GROUP BY k;",
    "two words": "SELECT k FROM errors",
    "a": "SELECT v FROM b",
    "b": "SELECT v FROM a",
    "made": "SELECT v FROM own; CREATE VIEW own AS SELECT v FROM s",
}


def test_a_text_that_names_nothing_stays_as_it_is() -> None:
    for text in ("SELECT errors FROM r", "SELECT v FROM r", "SELECT FROM FROM errors", ""):
        assert whole_text(text, KNOWN.get) == text


def test_definitions_stand_behind_the_text_each_once() -> None:
    text = "SELECT w.k FROM worst AS w, errors [NOW] -- the end"
    whole = whole_text(text, KNOWN.get)
    assert whole.startswith(text + "\n;\n")
    assert whole.split("\n;\n")[1:] == [
        "CREATE VIEW `errors` AS SELECT k, v FROM r WHERE v > 400",
        "CREATE VIEW `worst` AS SELECT k, max(v) AS top FROM errors GROUP BY k",
    ]
    assert whole_text(whole, KNOWN.get) == whole
    assert "AS SELECT k FROM errors" in whole_text("SELECT k FROM `two words`", KNOWN.get)


def test_what_cannot_be_made_whole_says_why() -> None:
    with pytest.raises(UsageError, match="a reads b reads a"):
        whole_text("SELECT v FROM a", KNOWN.get)
    own = "SELECT m.v FROM made AS m, own; CREATE VIEW own AS SELECT w AS v FROM s"
    with pytest.raises(UsageError, match="view own means two things"):
        whole_text(own, KNOWN.get)


def test_a_manager_makes_texts_whole_and_forgets_what_is_dropped() -> None:
    state = ManagerState(queries={"errors": Query("errors", ERRORS, submitted_s=0.0)})
    asked = Submit("top", "SELECT max(v) AS top FROM errors")
    assert made_whole(state, asked).cql == whole_text(asked.cql, KNOWN.get)
    assert made_whole(state, Submit("errors", "SELECT v FROM errors")).cql.endswith("errors")
    gone = Query("errors", ERRORS, submitted_s=0.0, phase="dropping")
    assert made_whole(ManagerState(queries={"errors": gone}), asked) is asked


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "in_place"),
    [
        ("SELECT k FROM errors WHERE v < 500",
         "SELECT k FROM (SELECT k, v FROM r WHERE v > 400) WHERE v < 500"),
        ("SELECT top FROM worst", "SELECT top FROM (SELECT k, max(v) AS top FROM"
         " (SELECT k, v FROM r WHERE v > 400) GROUP BY k)"),
        ("SELECT e.k FROM errors AS e [RANGE 5 SECONDS], s [NOW] WHERE e.k = s.k",
         "SELECT e.k FROM (SELECT k, v FROM r WHERE v > 400) AS e [RANGE 5 SECONDS], s [NOW]"
         " WHERE e.k = s.k"),
        ("WITH errors AS (SELECT k FROM s) SELECT k FROM errors", "SELECT k FROM s"),
    ],
)  # fmt: skip
def test_a_name_is_the_query_in_its_place(analyzer: Analyzer, text: str, in_place: str) -> None:
    binding = Binding(analyzer)
    whole = whole_text(text, KNOWN.get)
    assert binding.fingerprint(whole) == binding.fingerprint(in_place)
    assert binding.fingerprint(whole, 5) == binding.fingerprint(in_place, 5)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT v FROM x; CREATE VIEW x AS SELECT v FROM y; CREATE VIEW y AS SELECT v FROM x",
         "x reads y reads x"),
        ("SELECT v FROM x; CREATE VIEW x AS SELECT v FROM r; CREATE VIEW x AS SELECT v FROM s",
         "view x is defined twice"),
        ("SELECT z FROM x; CREATE VIEW x AS SELECT v FROM r", "unknown column z"),
        ("SELECT v FROM x; CREATE VIEW x AS SELECT z FROM r", "unknown column z"),
    ],
)  # fmt: skip
def test_mistakes_stand_at_their_place(analyzer: Analyzer, text: str, message: str) -> None:
    with pytest.raises(CqlError, match=message) as caught:
        Binding(analyzer).plan(text)
    if "unknown" in message:
        assert text[caught.value.column - 1] == "z"
