"""Rates, last rows and decisions: right, and bounded."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from millstream.edge.run import dashboard as run_dashboard
from millstream.edge.views import decision_log, engine_parts, recent
from millstream.edge.views.decision_log import DecisionLog
from millstream.edge.views.recent import ROWS_KEPT, LatestRows, Rates


def test_a_rate_forgets_what_is_long_ago() -> None:
    rates = Rates(seconds=10.0)
    for second in range(100):
        rates.note(float(second), {"x": 5.0 * second if second < 50 else 250.0})
    assert rates.of("x") == 0.0
    assert len(rates._seen) <= 12


def test_a_counter_that_appears_counts_from_nought() -> None:
    rates = Rates()
    rates.note(0.0, {})
    rates.note(2.0, {"x": 8.0})
    assert rates.of("x") == 4.0
    rates.note(4.0, {})
    assert rates.of("x") == 0.0


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), max_size=20), st.integers(0, 9))
def test_every_row_is_given_once_or_counted_as_lost(
    batches: list[tuple[int, int]], look_every: int
) -> None:
    latest = LatestRows()
    number, asked, got, lost = 0, 0, [], 0
    for index, (rows, passed) in enumerate(batches):
        numbers = range(number + passed + 1, number + passed + rows + 1)
        latest.add("q", ["n"], [(n,) for n in numbers], passed)
        number += passed + rows
        if look_every and index % look_every == 0:
            seen = latest.after("q", asked)
            got, lost, asked = got + [r[0] for r in seen.rows], lost + seen.lost, seen.last
    seen = latest.after("q", asked)
    got, lost = got + [r[0] for r in seen.rows], lost + seen.lost
    assert len(got) + lost == number
    assert got == sorted(set(got))
    assert len(latest.after("q", 0).rows) <= ROWS_KEPT


def test_decisions_are_numbered_and_bounded() -> None:
    log = DecisionLog(kept=3)
    for n in range(5):
        log.add("notice", str(n))
    assert [(d.number, d.sentence) for d in log.latest()] == [(3, "2"), (4, "3"), (5, "4")]


def test_examples_in_the_text() -> None:
    for module in (recent, decision_log, engine_parts, run_dashboard):
        assert doctest.testmod(module).failed == 0
