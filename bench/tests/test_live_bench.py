"""The benchmark of live rows: when a side keeps up, what repeats give, the search; no Spark."""

import time
from dataclasses import replace

import pytest

from millstream.core.errors import UsageError
from millstream_bench.live.bench import LAST_RATE, highest, run, sides_of, together
from millstream_bench.live.flink import Printed
from millstream_bench.live.sides import Load, Results, Trial

STEADY = Trial(
    sent_rows=1_000, wanted_rows=1_000, delay={"median_s": 0.1, "p95_s": 0.2, "p99_s": 0.3},
    first_p95_s=0.2, last_p95_s=0.2, cpu_s=2.0, push_ms=1.0, compared_rows=10, different_rows=0,
)  # fmt: skip


def test_a_side_keeps_up_where_rows_go_out_and_delay_does_not_grow() -> None:
    assert STEADY.kept_up
    assert not replace(STEADY, sent_rows=900).kept_up
    assert not replace(STEADY, last_p95_s=1.2).kept_up
    assert not replace(STEADY, first_p95_s=None).kept_up, "no result at all"


def test_repeats_give_median_and_range() -> None:
    slow = replace(STEADY, delay={"median_s": 0.5, "p95_s": None, "p99_s": 0.9}, sent_rows=500)
    found = together([STEADY, slow, STEADY])
    assert found["median_s"] == {"median": 0.1, "least": 0.1, "most": 0.5}
    assert found["p95_s"] == {"median": 0.2, "least": 0.2, "most": 0.2}
    assert found["cpu_s_a_million_rows"]["most"] == 4_000
    assert (found["kept_up"], found["trials"], found["compared_rows"]) == (2, 3, 30)


@pytest.mark.parametrize(
    ("limit", "found"), [(499, 0), (500, 500), (999, 875), (3_600, 3_500), (10**9, LAST_RATE)]
)
def test_the_highest_rate_that_is_kept_up(limit: int, found: int) -> None:
    assert highest(lambda rate: rate <= limit) == found


def test_some_queries_of_each_kind_are_compared() -> None:
    for count in (1, 3, 27, 30, 1_000):
        chosen = Load(count, 1, 1, 1, 1).compared()
        assert 1 <= len(chosen) <= 9
        assert {n % 3 for n in chosen} == set(range(min(count, 3)))
    assert list(sides_of(1_000)) == ["ours"]


def test_what_flink_prints_becomes_rows_and_delays() -> None:
    printed = Printed(
        [
            (100.5, b"ready\nq0> +I[7, 55.5, 100.0, 99000000]\nq0> +I[8, 6"),
            (100.7, b"0.0, 100.0, 99000001]\nq1:1> +I[3, 0.25, 100000000]\n"),
            (101.0, b"q2> +I[7, 55.5, 44.0, 100.0, 99000000]\nnot a row\n"),
        ]
    )
    results = Results()
    printed.into(results, Load(3, 1, 1, 1, 1))
    delays = [round(delay, 3) for _, delay in results.delays.seen]
    assert delays == [0.5, 0.7, 0.7, 1.0]
    assert results.tables[0][0].to_pylist()[0] | {"at": 0} == {
        "k": 7, "v": 55.5, "sent": 100.0, "at": 0,
    }  # fmt: skip
    assert results.tables[1][0].column_names == ["g", "mean", "at"]
    assert results.tables[2][0]["w"].to_pylist() == [44.0]


def test_a_side_that_has_printed_all_is_not_waited_for_longer() -> None:
    Printed([(time.time() - 9.0, b"done")]).wait_for_quiet(0.01, 3_600.0)


def test_an_unknown_peer_is_told() -> None:
    with pytest.raises(UsageError, match="unknown peer 'storm'"):
        run(peer="storm")


def test_numbers_that_are_none_are_told() -> None:
    for wrong in ("fast", "0", "", "1,-3"):
        with pytest.raises(UsageError, match="takes numbers"):
            run(quick=True, rates=wrong)
