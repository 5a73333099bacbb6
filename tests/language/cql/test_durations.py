"""Lengths of time as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.durations import LONGEST_US, UNITS_US, microseconds
from millstream.core.errors import UsageError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2min", 120 * SECOND),
        ("2 min", 120 * SECOND),
        ("2 MINUTES", 120 * SECOND),
        ("500ms", SECOND // 2),
        ("1h", 3600 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("1 hour, 30 minutes", 5400 * SECOND),
        ("'10' second", 10 * SECOND),
        ("'10 seconds'", 10 * SECOND),
        ('"2 min"', 120 * SECOND),
        ("INTERVAL '1' MINUTE", 60 * SECOND),
        ("interval 1 day", 86_400 * SECOND),
        ("1.5 s", 1_500_000),
        (".5 s", 500_000),
        ("1 us", 1),
        ("1 week", 604_800 * SECOND),
        ("0", 0),
        ("-5 seconds", -5 * SECOND),
    ],
)
def test_spellings(text: str, expected: int) -> None:
    assert microseconds(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing is not a length of time"),
        ("10", "10 is not a length of time"),
        ("ten seconds", "ten seconds is not a length of time"),
        ("10 seconds or so", "10 seconds or so is not a length of time"),
        ("1 month", "a length of time in month is not supported"),
        ("2 years", "a length of time in years is not supported"),
        ("3 parsecs", "unknown unit of time parsecs"),
        ("3 minuts", "unknown unit of time minuts; did you mean minutes?"),
        ("0.1 us", "0.1 us is finer than a microsecond"),
        ("99999999999 weeks", "99999999999 weeks is too long"),
        ("9" * 5000 + " s", "9" * 50 + "... is not a length of time"),
    ],
)
def test_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        microseconds(text)
    assert caught.value.message == message
    assert caught.value.hint


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(UNITS_US))), min_size=1, max_size=8
    ),
    st.sampled_from(("", " ")),
)
def test_parts_add_up(parts: list[tuple[int, str]], gap: str) -> None:
    total = sum(count * UNITS_US[unit] for count, unit in parts)
    text = " ".join(f"{count}{gap}{unit}" for count, unit in parts)
    if total <= LONGEST_US:
        assert microseconds(text) == total
        assert microseconds(text.upper()) == total
