"""The scheduling benchmark: its arrivals, its order of contenders, and what it tells; no Spark."""

import numpy as np

from millstream.decide.schedule.algorithms import ALGORITHMS
from millstream_bench.throughput.scheduling import (
    EQUAL,
    EQUAL_RATE,
    FAVOURED,
    RATE,
    STREAMS,
    _Record,
    _settings,
    arrivals,
    burstiest,
    contenders,
    equal_queries,
    even_arrivals,
    peak_to_mean,
    told,
)


def test_arrivals_repeat_by_seed_and_burst() -> None:
    one, again, other = arrivals(4.0, 1), arrivals(4.0, 1), arrivals(4.0, 2)
    assert one == again
    assert one != other
    rows = sum(table.num_rows for tick in one for table in tick)
    assert abs(rows / (4.0 * RATE * len(STREAMS)) - 1) < 0.1
    assert peak_to_mean(arrivals(10.0, 1)) > 2
    for tables in zip(*one, strict=True):  # times never go back
        times = np.concatenate([table["_ts"].to_numpy() for table in tables])
        assert (np.diff(times) >= 0).all()


def test_the_burst_is_found() -> None:
    assert burstiest([1, 1, 1, 9, 1, 5, 5], 3) == 1
    assert burstiest([2.0] * 10, 4) == 0


def test_every_algorithm_and_both_selectors_contend() -> None:
    assert set(contenders()) == {*ALGORITHMS.names(), "roulette", "foresight"}


def test_figures_weigh_delays_by_rows() -> None:
    record = _Record(
        delays=[(1.0, 90), (5.0, 5), (9.0, 5)], queues=[10.0, 30.0], in_time=50, steps=3,
        step_s=2.0, choosing_s=0.01, results={"q": 100},
    )  # fmt: skip
    figures = record.figures(10.0)
    assert figures["delay_s_mean"] == 1.6
    assert figures["delay_s_p95"] == 5.0
    assert (figures["queue_rows_mean"], figures["queue_rows_peak"]) == (20, 30)
    assert figures["output_rows_per_s"] == 5.0
    assert figures["choosing_share"] == 0.005
    assert "choosing 0.50%" in told("fifo", figures)


def test_all_contenders_take_steps_of_one_size() -> None:
    settings = {name: _settings(name, 1) for name in contenders()}
    sizes = {
        (s.step_rows_max, s.schedule.ratio, s.schedule.threshold_rows, s.schedule.adapt_workload)
        for s in settings.values()
    }
    assert len(sizes) == 1


def test_the_runs_with_goals_have_ten_equal_queries_over_streams_of_their_own() -> None:
    queries = equal_queries()
    assert len(queries) == EQUAL
    assert FAVOURED in queries
    assert len({cql.replace(f"s{n}", "s") for n, cql in enumerate(queries.values())}) == 1
    batches = even_arrivals(4.0, 1)
    assert {len(tables) for tables in batches} == {EQUAL}
    each = np.array([[table.num_rows for table in tables] for tables in batches]).sum(axis=0)
    assert (abs(each / (4.0 * EQUAL_RATE) - 1) < 0.1).all()
