"""Texts that would take for ever to read: a client may send them to a process that has work."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError
from millstream.language.cql.parsing.completion import Known, candidates
from millstream.language.cql.parsing.parser import SELECTS_MAX, TEXT_MAX, parse_query
from millstream.language.plan.schema import Schema

KNOWN = Known({f"stream{n}": ("host", "status") for n in range(100)}, ("errors",))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sign", ["9", "a.", ".", "é", "[", ",", "FROM "])
def test_a_text_without_end_is_answered(sign: str) -> None:
    for before in (sign * 200_000, "SELECT " + sign * 200_000 + " x.y", sign * 200_000 + " ho"):
        candidates(before, KNOWN)
    assert candidates(f"{sign * 200_000};SELECT host FROM err", KNOWN) == ("err", ["errors"])


class Numbers:
    """An analyser to whom every expression is a number or a condition."""

    def analyse(
        self, columns: Schema, expressions: Sequence[str], *, aggregates: bool = False
    ) -> tuple[str, ...]:
        del columns, aggregates
        return tuple("boolean" if " = " in e or " AND " in e else "int" for e in expressions)

    def read_as_times(self, columns: Schema, expression: str) -> frozenset[int]:
        del columns, expression
        return frozenset()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: False


def doubled(join: str) -> str:
    """Views that each read the one before twice: thirty of them stand for a thousand million."""
    views = [f"CREATE VIEW v{n + 1} AS {join.format(n)}" for n in range(30)]
    return ";".join(["SELECT v FROM v30", "CREATE VIEW v0 AS SELECT v FROM r", *views])


def joined(count: int) -> str:
    """A stream joined with itself over and over."""
    names = [f"a{n}" for n in range(count)]
    where = " AND ".join(f"{a}.v = {b}.v" for a, b in pairwise(names))
    return f"SELECT a0.v FROM {', '.join(f'r [NOW] {n}' for n in names)} WHERE {where}"


KEYS = ", ".join(f"v + {n}" for n in range(30))
ROLLUPS = ", ".join(f"ROLLUP(v + {n}, w + {n})" for n in range(20))
REFUSED = {
    "joined views": (doubled("SELECT a.v FROM v{0} [NOW] a, v{0} [NOW] b WHERE a.v = b.v"),
                     "parts with its views spelled out"),
    "united views": (doubled("SELECT v FROM v{0} UNION ALL SELECT v FROM v{0}"),
                     "parts with its views spelled out"),
    "cube": (f"SELECT count(*) AS n FROM r [RANGE 1 MINUTE] GROUP BY CUBE({KEYS})", "groupings"),
    "rollups": (f"SELECT count(*) AS n FROM r [RANGE 1 MINUTE] GROUP BY {ROLLUPS}", "groupings"),
    "unions": (" UNION ALL ".join(["SELECT v FROM r"] * 5000), f"more than {SELECTS_MAX} SELECTs"),
    "number": (f"SELECT v FROM r WHERE v > {'9' * 5000}", "at most 1000 digits"),
    "length": (f"SELECT v FROM r WHERE v = {' ' * TEXT_MAX}1", "characters"),
}  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", REFUSED)
def test_a_text_that_stands_for_too_much_is_refused_at_once(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(CqlError, match=words):
        Binding(Numbers()).plan(text)


@pytest.mark.timeout(60)
def test_a_stream_joined_with_itself_many_times_is_read() -> None:
    assert Binding(Numbers()).plan(joined(30)).columns
    a, b = (joined(6).replace("a0.v = a1.v", one) for one in ("a0.v = a1.v", "a1.v = a0.v"))
    assert Binding(Numbers()).fingerprint(a) == Binding(Numbers()).fingerprint(b)


@pytest.mark.timeout(60)
def test_many_constants_are_read() -> None:
    rows = ", ".join(f"({n})" for n in range(5000))
    text = f"SELECT r.v FROM r [NOW], (VALUES {rows}) AS t(a) WHERE r.v = t.a"
    with pytest.raises(CqlError, match="5000 rows of constants"):
        Binding(Numbers()).plan(text)
    listed = ", ".join(str(n) for n in range(20_000))
    assert parse_query(f"SELECT v FROM r WHERE v IN ({listed})")
    turned = "SELECT * FROM (SELECT k, v FROM r [UNBOUNDED]) PIVOT (sum(v) FOR v IN ({}))"
    assert Binding(Numbers()).plan(turned.format(", ".join(map(str, range(500))))).columns
