"""Several groupings, `* EXCEPT` and parts of JSON: what they are, and how they are refused."""

import pytest

from language.cql.binding import Binding

pytestmark = pytest.mark.spark

WINDOW = "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"SELECT k, v, count(*) AS n {WINDOW} GROUP BY ROLLUP (k, v)",
         f"SELECT k, v, count(*) AS n {WINDOW} GROUP BY GROUPING SETS ((k, v), (k), ())"),
        (f"SELECT k, v, count(*) AS n {WINDOW} GROUP BY CUBE (k, v)",
         f"SELECT k, v, count(*) AS n {WINDOW} GROUP BY GROUPING SETS ((k, v), (k), (v), ())"),
        (f"SELECT k, count(*) AS n {WINDOW} GROUP BY ROLLUP (1)",
         f"SELECT k, count(*) AS n {WINDOW} GROUP BY k UNION ALL "
         f"SELECT NULL AS k, count(*) AS n {WINDOW}"),
        ("SELECT * EXCEPT (at, x) FROM s", "SELECT k, v, w FROM s"),
        ("SELECT s.* EXCLUDE (at), t.k AS tk FROM s, t",
         "SELECT s.k, s.v, s.w, s.x, t.k AS tk FROM s, t"),
        (f"SELECT k, v, count(*) AS n {WINDOW} GROUP BY k, v WITH CUBE",
         f"SELECT k, v, count(*) AS n {WINDOW} GROUP BY CUBE (k, v)"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k WITH ROLLUP",
         "SELECT k, count(*) AS n FROM s GROUP BY ROLLUP (k)"),
        ("SELECT upper(k) AS u, 1 AS one, v, sum(w) + v AS n FROM s GROUP BY ALL",
         "SELECT upper(k) AS u, 1 AS one, v, sum(w) + v AS n FROM s GROUP BY upper(k), v"),
        (f"SELECT k, window_end AS e, count(*) AS n {WINDOW} GROUP BY ALL ORDER BY n DESC LIMIT 2",
         f"SELECT k, window_end AS e, count(*) AS n {WINDOW} GROUP BY k ORDER BY n DESC LIMIT 2"),
        ("SELECT count(*) AS n FROM s GROUP BY ALL", "SELECT count(*) AS n FROM s"),
        ("SELECT * REPLACE (v + 1 AS v) FROM s", "SELECT k, v + 1 AS v, w, x, at FROM s"),
        ("SELECT k ->> 'a' AS a FROM s", "SELECT get_json_object(k, '$[''a'']') AS a FROM s"),
    ],
)  # fmt: skip
def test_both_are_one_query(one: str, other: str, binding: Binding) -> None:
    left, right = binding.plan(one), binding.plan(other)
    assert left.fingerprint == right.fingerprint
    assert left.columns == right.columns


@pytest.mark.parametrize(
    ("text", "message", "instead"),
    [
        (f"SELECT k, count(*) AS n {WINDOW} GROUP BY k WITH TOTALS", "WITH TOTALS is not supported",
         f"SELECT k, count(*) AS n {WINDOW} GROUP BY ROLLUP (k)"),
        ("SELECT *, count(*) AS n FROM s GROUP BY ALL", "* with GROUP BY ALL",
         "SELECT k, v, count(*) AS n FROM s GROUP BY ALL"),
        (f"SELECT k, count(*) AS n {WINDOW} GROUP BY ROLLUP (window_end, k)",
         "window_end in some of the groupings",
         f"SELECT k, count(*) AS n {WINDOW} GROUP BY window_end, ROLLUP (k)"),
        (f"SELECT k, count(*) AS n {WINDOW} GROUP BY ROLLUP (k) ORDER BY n LIMIT 1",
         "a rank or DISTINCT over GROUPING SETS",
         f"SELECT k, n FROM (SELECT k, count(*) AS n {WINDOW} GROUP BY ROLLUP (k)) [NOW] "
         "ORDER BY n LIMIT 1"),
        ("SELECT * EXCEPT (vv) FROM s", "* has no column vv; did you mean v?",
         "SELECT * EXCEPT (v) FROM s"),
        ("SELECT * REPLACE (1 AS b) FROM s", "* REPLACE of no column",
         "SELECT * REPLACE (1 AS v) FROM s"),
        ("SELECT k -> v AS a FROM s", "a part of JSON is chosen by a constant",
         "SELECT k -> 'v' AS a FROM s"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_to_write(
    text: str, message: str, instead: str, binding: Binding
) -> None:
    binding.refuses(text, message, instead)
