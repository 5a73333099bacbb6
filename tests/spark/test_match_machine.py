"""The machine that finds matches, step by step, agrees with brute force over whole partitions."""

import random
from typing import Any

import pyarrow as pa
import pytest

from millstream.language.cql.parsing.match_parser import PatternReader
from millstream.language.cql.parsing.syntax import CqlSyntaxError, Span
from millstream.language.plan.row_patterns import (
    least_rows,
    program,
    variables_of,
    written,
)
from millstream.spark.operators.matching.machine import Orders
from millstream.spark.operators.matching.machine import Search as Machine
from millstream.spark.operators.matching.terms import compared, evaluated, fitted, reckoned
from oracle.row_patterns import Search, less, matches, random_pattern, spelled, total

END = 2**63 - 1


def read(text: str) -> Any:
    return PatternReader(text, Span(0, len(text) - 1)).read()


def orders(pattern: Any, *, after: int, within: int | None, skip: tuple[str, str]) -> Orders:
    names = tuple(dict.fromkeys(variables_of(pattern)))
    # B is taken while the values of rows that are A add up to less than 5
    owner = names.index("A") if "A" in names else -2
    others = tuple((("<", "boolean", (0, 1)),) if name == "B" else () for name in names)
    return Orders(
        program(pattern), names, (True,) * len(names), others,
        (("sum", owner, 0, "bigint"), ("current", -1, 0, "int")), within,
        skip[0].lower(), names.index(skip[1]) if skip[1] in names else -1, 0, after, after == END,
        ("_ts", "row"),
    )  # fmt: skip


def table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> pa.Table:
    may_be = {"A": lambda r: r["v"] != 2, "B": lambda r: r["v"] > 1, "C": lambda r: r["v"] < 3}
    columns = {
        "_ts": [r["ts"] for r in rows],
        "row": [r["row"] for r in rows],
        "_first": [i == 0 for i in range(len(rows))],
        "_decided": [False] * len(rows),
        "_count": [0] * len(rows),
        "l0": [r["v"] for r in rows],
        "l1": [5] * len(rows),
    }
    columns |= {f"b{i}": [may_be[n](r) for r in rows] for i, n in enumerate(names)}
    return pa.table(columns)


def found_in_steps(
    pattern: Any, rows: list[dict[str, Any]], within: int | None, skip: tuple[str, str],
    marks: list[int],
) -> tuple[list[list[int]], int]:  # fmt: skip
    """The rows of each match, found at one watermark after the other; and rows ever read."""
    names = tuple(dict.fromkeys(variables_of(pattern)))
    kept: list[dict[str, Any]] = []
    made, seen, work = [], 0, 0
    for mark in marks:
        fresh = [r for r in rows[seen:] if r["ts"] < mark]
        seen += len(fresh)
        here = [*kept, *fresh]
        work += len(here)
        machine = Machine(orders(pattern, after=mark, within=within, skip=skip), table(here, names))
        out = machine.matches()
        numbers = [] if out is None else list(dict.fromkeys(out["_match"].to_pylist()))
        pairs = [] if out is None else list(zip(*(out[c].to_pylist() for c in ("_match", "row")),
                                                strict=True))  # fmt: skip
        made += [[r for n, r in pairs if n == number] for number in numbers]
        state = machine.state()
        left = set() if state is None else set(state["row"].to_pylist())
        kept = [r for r in here if r["row"] in left]
    return made, work


@pytest.mark.parametrize("seed", range(300))
def test_steps_do_not_show(seed: int) -> None:
    dice = random.Random(seed)
    shape = random_pattern(dice)
    pattern = read(spelled(shape))
    now, rows = 0, []
    for row in range(25):
        now += dice.choice((0, 1, 1, 2))
        rows.append({"ts": now, "row": row, "v": dice.choice((1, 2, 3))})
    within = dice.choice((None, 3, 6))
    skip = dice.choice((("PAST LAST ROW", ""), ("TO NEXT ROW", ""), ("TO LAST", "A"),
                        ("TO FIRST", "B")))  # fmt: skip
    judged = {
        "A": ("", lambda s: s.last(None, "v") != 2),
        "B": ("", lambda s: s.last(None, "v") > 1 and less(total(s.of("A", "v")), 5)),
        "C": ("", lambda s: s.last(None, "v") < 3),
    }
    search = Search((), shape, judged, {}, within, skip)
    wanted = [[rows[i]["row"] for _, i in taken] for _, taken in matches(search, rows)]
    marks = [*sorted(dice.sample(range(1, now + 3), min(6, now))), END]
    assert found_in_steps(pattern, rows, within, skip, marks)[0] == wanted
    assert found_in_steps(pattern, rows, within, skip, [END])[0] == wanted


def test_within_bounds_what_is_kept() -> None:
    """Rows that can be in no match any more are read no more."""
    rows = [{"ts": t, "row": t, "v": 1} for t in range(400)]
    marks = [*range(20, 400, 20), END]
    _, work = found_in_steps(read("A+ B"), rows, 10, ("PAST LAST ROW", ""), marks)
    assert work < 400 + 11 * len(marks)


def test_conditions_on_rows_alone_take_no_exponential_time() -> None:
    rows = [{"ts": t, "row": t, "v": 1} for t in range(400)]
    found, _ = found_in_steps(read("(A | C | A A)+ (A | C)+ (A C | C A)+ A{40}"), rows, None,
                              ("PAST LAST ROW", ""), [END])  # fmt: skip
    assert len(found) == 1


def test_many_rows_that_lead_to_nothing_are_tried_once() -> None:
    rows = [{"ts": t, "row": t, "v": 3} for t in range(20_000)]  # all of them A, none C
    found, _ = found_in_steps(read("A+ C"), rows, None, ("PAST LAST ROW", ""), [END])
    assert found == []


@pytest.mark.parametrize(
    "text", ["A", "A B", "A | B", "(A | B)+ C", "A{2}", "A{2,}", "A{2,3}?", "A?? B*? C+?",
             "A (B C)* D"]
)  # fmt: skip
def test_patterns_are_written_as_read(text: str) -> None:
    assert written(read(text)) == text


def test_lengths_of_patterns() -> None:
    assert [least_rows(read(text)) for text in ("A{2,3} B?", "A | B C", "A+ (B | C D)")] == [
        2,
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A*", "matches no row at all"),
        ("(A?)+ B", "may have no rows is repeated"),
        ("A{3,2}", "not a number of rows"),
        ("A{0}", "not a number of rows"),
        ("^ A", "is not supported in a pattern"),
        ("A $", "is not supported in a pattern"),
        ("PERMUTE(A, B)", "PERMUTE is not supported"),
        ("A |", "ends too early"),
        ("A ) B", "unexpected )"),
        ("A{2000}", "longer than"),
    ],
)
def test_patterns_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(CqlSyntaxError) as mistake:
        read(text)
    assert message in mistake.value.message


def test_terms_follow_sparks_rules() -> None:
    nan = float("nan")
    assert compared(nan, nan) == 0
    assert compared(nan, 1e300) == 1
    assert compared(fitted("1.1", "decimal(2,1)"), 1.1) == 0
    values = {0: None, 1: True, 2: False}
    assert evaluated(("and", "boolean", (0, 2)), values.get) is False
    assert evaluated(("and", "boolean", (0, 1)), values.get) is None
    assert evaluated(("or", "boolean", (0, 1)), values.get) is True
    assert evaluated(("in", "boolean", (1, 0, 2)), values.get) is None
    assert evaluated(("<=>", "boolean", (0, 0)), values.get) is True
    assert reckoned("%", "int", [-7, 3]) == -1
    assert str(reckoned("/", "decimal(8,6)", [1, 3])) == "0.333333"
    with pytest.raises(OverflowError):
        reckoned("+", "int", [2**31 - 1, 1])
    with pytest.raises(ZeroDivisionError):
        reckoned("/", "double", [1.0, 0.0])
