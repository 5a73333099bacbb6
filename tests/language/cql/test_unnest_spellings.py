"""UNNEST in all its spellings is one plan; what it cannot be over says what to write instead."""

import pytest

from language.cql.binding import Binding
from millstream.language.plan.explain import explain

pytestmark = pytest.mark.spark

PLAIN = "SELECT k, e FROM s, UNNEST(split(k, ',')) AS t(e)"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, t.e FROM s CROSS JOIN UNNEST(split(s.k, ',')) AS t(e)",
        "SELECT k, e FROM s CROSS JOIN UNNEST(split(k, ',')) AS e",
        "SELECT k, e FROM s JOIN LATERAL explode(split(k, ',')) AS t(e) ON TRUE",
        "SELECT k, e FROM s LATERAL VIEW explode(split(k, ',')) t AS e",
        "SELECT k, explode(split(k, ',')) AS e FROM s",
    ],
)
def test_all_spellings_are_one_query(text: str, binding: Binding) -> None:
    made, plain = binding.plan(text), binding.plan(PLAIN)
    assert made.fingerprint == plain.fingerprint
    assert [f.name for f in made.columns] == ["k", "e"]


def test_a_function_in_the_select_list_hides_no_column(binding: Binding) -> None:
    plan = binding.plan("SELECT *, explode(split(k, ',')) AS e FROM s")
    assert [f.name for f in plan.columns] == ["k", "v", "w", "x", "at", "e"]
    assert binding.plan("SELECT v, explode(array(w)) AS x FROM s").columns[1].type == "bigint"
    starred = binding.plan("SELECT * FROM s, UNNEST(split(k, ',')) AS t(e)")
    assert starred.fingerprint == plan.fingerprint


def test_outer_and_places_make_a_difference(binding: Binding) -> None:
    outer = "SELECT k, e FROM s LATERAL VIEW OUTER explode(split(k, ',')) t AS e"
    placed = "SELECT k, e, n FROM s, UNNEST(split(k, ',')) WITH ORDINALITY AS t(e, n)"
    left = "SELECT k, e FROM s LEFT JOIN UNNEST(split(k, ',')) AS t(e) ON TRUE"
    plans = [binding.plan(text) for text in (PLAIN, outer, placed)]
    assert len({p.fingerprint for p in plans}) == 3
    assert binding.fingerprint(left) == plans[1].fingerprint
    assert [f.type for f in plans[2].columns] == ["string", "string", "int"]
    assert "unnest split(k, ',') as e, outer" in explain(plans[1])
    chained = "SELECT y FROM s, UNNEST(array(array(v))) AS t(e), UNNEST(t.e) AS u(y)"
    assert binding.plan(chained).columns[0].type == "int"


@pytest.mark.parametrize(
    ("text", "message", "instead"),
    [
        ("SELECT e FROM UNNEST(array(1)) AS t(e)", "UNNEST without a stream", PLAIN),
        ("SELECT e FROM s, UNNEST(k) AS t(e)", "UNNEST takes an array, got string", PLAIN),
        ("SELECT e FROM s, UNNEST(map(1, 2)) AS t(e)", "UNNEST takes an array, got map<int,int>",
         "SELECT e FROM s, UNNEST(map_entries(map(1, 2))) AS t(e)"),
        ("SELECT e FROM s, UNNEST(split(k, ',')) AS t(e, y)", "UNNEST gives 1 columns, and 2",
         PLAIN),
        ("SELECT e FROM s, t, UNNEST(split(s.k, ',')) AS u(e)", "UNNEST beside a join",
         f"SELECT u.e FROM ({PLAIN}) AS u, t"),
        ("SELECT e FROM s [ROWS 3], UNNEST(split(k, ',')) AS u(e)", "UNNEST over a window of rows",
         f"SELECT e FROM ({PLAIN}) [ROWS 3]"),
        ("SELECT e FROM s JOIN UNNEST(split(k, ',')) AS u(e) ON u.e = 'a'",
         "UNNEST with a condition", f"{PLAIN} WHERE e = 'a'"),
        ("SELECT e FROM (SELECT k, count(*) AS n FROM s GROUP BY k) q, UNNEST(split(k, ',')) u(e)",
         "UNNEST over a table", PLAIN),
        ("SELECT posexplode(split(k, ',')) FROM s", "posexplode is not supported",
         "SELECT e, n FROM s, UNNEST(split(k, ',')) WITH ORDINALITY AS t(e, n)"),
        ("SELECT explode(split(k, ',')) AS e, explode(split(k, ';')) AS y FROM s",
         "two functions that give many rows", PLAIN),
        ("SELECT upper(explode(split(k, ','))) AS e FROM s", "must stand alone", PLAIN),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_to_write(
    text: str, message: str, instead: str, binding: Binding
) -> None:
    binding.refuses(text, message, instead)
