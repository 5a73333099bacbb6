"""Made-up streams: small, with ties, clusters, gaps, disorder, late rows, nulls and odd values.

A row is three draws: the time since the row before, how far it lies behind, and one number that
stands for all its values. So a failing example shrinks to few rows quickly.
"""

from collections.abc import Sequence
from decimal import Decimal
from math import nan
from typing import Any

from hypothesis import strategies as st

from oracle.model import MILLISECOND, MINUTE, SECOND, Column, Row, Stream

# `tag` is plain ASCII, so that upper and lower mean the same to every engine; `w` is not. Doubles
# are multiples of a quarter: their sums are exact in any order.
PALETTES: dict[str, tuple[Any, ...]] = {
    "k": (1, 2, 3, 0, None),
    "tag": ("a", "b", "Ab", "", None),
    "v": (0, 1, -1, 5, 10, -7, 20, 3, None, 42, -50, 100),
    "x": (0.0, 1.5, -2.25, nan, None, 0.25, 100.0, -8.0),
    "d": (Decimal("0.00"), Decimal("1.10"), Decimal("-3.25"), None, Decimal("99.99")),
    "ok": (True, False, None),
    "w": ("x", "Grüße", "日本", None, "🙂z"),
    "seen": (0, -1, 1_500_000, None, 1_381_104_000_000_000),
}
COLUMNS = (
    Column("k", "int"),
    Column("tag", "string"),
    Column("v", "bigint"),
    Column("x", "double"),
    Column("d", "decimal(10,2)"),
    Column("ok", "boolean"),
    Column("w", "string"),
    Column("seen", "timestamp"),
)
COMBINATIONS = 1
for _palette in PALETTES.values():
    COMBINATIONS *= len(_palette)
SCATTER = 7_919  # prime: neighbouring numbers give unlike rows

STARTS = (0, 10 * SECOND, -75 * SECOND, 1_381_104_000 * SECOND)
GAPS = (
    SECOND,
    0,
    500 * MILLISECOND,
    1,
    0,
    2 * SECOND,
    SECOND - 1,
    250 * MILLISECOND,
    3 * SECOND,
    12_500 * MILLISECOND,
    MINUTE,
)
BEHIND = (0, 0, 0, 0, 0, 500 * MILLISECOND, SECOND, 2 * SECOND, 6 * SECOND, None)
LATENESS = (0, SECOND, 5 * SECOND, 30 * SECOND)
NAMES = ("s", "t", "u")


def values_of(number: int) -> tuple[Any, ...]:
    """The values that a number stands for.

    >>> values_of(0)[:4]
    (1, 'a', 0, 0.0)
    """
    rest = number * SCATTER % COMBINATIONS
    values = []
    for palette in PALETTES.values():
        rest, digit = divmod(rest, len(palette))
        values.append(palette[digit])
    return tuple(values)


_ROW = st.tuples(st.sampled_from(GAPS), st.sampled_from(BEHIND), st.integers(0, COMBINATIONS - 1))
# The short list stands first: shrinking goes there.
_ROWS = st.one_of(
    st.lists(_ROW, max_size=12),
    st.lists(_ROW, min_size=10, max_size=60),
    st.lists(_ROW, min_size=20, max_size=60),
)


def arrivals(start: int, drawn: Sequence[tuple[int, int | None, int]]) -> tuple[Row, ...]:
    """Rows in order of arrival: a clock advances by gaps, each row lies somewhat behind it."""
    rows = []
    clock = start
    for gap, behind, number in drawn:
        clock += gap
        rows.append(Row(None if behind is None else clock - behind, values_of(number)))
    return tuple(rows)


@st.composite
def stream_sets(draw: st.DrawFn) -> tuple[Stream, ...]:
    """One to three streams that live in the same minutes."""
    start = draw(st.sampled_from(STARTS))
    count = draw(st.integers(1, 3))
    return tuple(
        Stream(name, COLUMNS, arrivals(start, draw(_ROWS)), draw(st.sampled_from(LATENESS)))
        for name in NAMES[:count]
    )


@st.composite
def batch_sizes(draw: st.DrawFn, rows: int) -> tuple[int, ...]:
    """Sizes of the files a stream is cut into; a file may be empty."""
    size = draw(st.sampled_from((1_000, 30, 13, 5)))
    sizes = [min(size, rows - start) for start in range(0, rows, size)]
    if draw(st.integers(0, 4)) == 4:
        sizes.insert(draw(st.integers(0, len(sizes))), 0)
    return tuple(sizes)
