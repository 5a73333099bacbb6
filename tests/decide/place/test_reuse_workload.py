"""The paper's workload: its shape, and the same for the same seed."""

from collections import Counter
from itertools import pairwise

from millstream.decide.place.problem import check_problem
from millstream.decide.place.reuse.demand import common_sizes, grain_of
from millstream.decide.place.workload import CLUSTER, LITERAL, TIGHT, generate, scaled


def test_it_has_the_paper_s_shape() -> None:
    problem = check_problem(generate(TIGHT, 1))
    base = [stream for stream in problem.streams if stream.host is not None]
    assert (len(problem.hosts), len(base), len(problem.queries)) == (50, 500, 1000)
    assert set(Counter(stream.host for stream in base).values()) == {10}
    arities = Counter(query.stream.count("*") + 1 for query in problem.queries)
    assert set(arities) == {2, 3, 4}
    assert max(arities.values()) - min(arities.values()) <= 1


def test_rates_and_costs_follow_the_settings() -> None:
    problem = generate(scaled(TIGHT, 5), 1)
    rate = {stream.id: stream.rate for stream in problem.streams}
    for stream in problem.streams:
        if stream.host is None:
            members = stream.id.count("*") + 1
            assert 0.001 * 10 * members <= stream.rate <= 0.005 * 10 * members
    for operator in problem.operators:
        assert abs(operator.cpu - sum(rate[name] for name in operator.inputs) / 20) < 1e-12


def test_every_split_of_a_join_is_there_once() -> None:
    problem = generate(scaled(TIGHT, 5), 1)
    ways = Counter(operator.output for operator in problem.operators)
    for stream, count in ways.items():
        members = stream.count("*") + 1
        assert count == 2 ** (members - 1) - 1


def test_the_seed_decides() -> None:
    assert generate(scaled(TIGHT, 3), 7) == generate(scaled(TIGHT, 3), 7)
    assert generate(scaled(TIGHT, 3), 7) != generate(scaled(TIGHT, 3), 8)
    small = scaled(LITERAL, 10)
    assert (small.hosts, small.base_streams, small.queries) == (10, 100, 200)


def test_popular_streams_are_popular() -> None:
    counts = Counter(
        member for query in generate(TIGHT, 3).queries for member in query.stream.split("*")
    )
    assert counts["b0"] > counts["b20"] > counts["b400"]


def test_a_cluster_host_takes_fifteen_joins() -> None:
    problem = generate(CLUSTER, 1)
    dearest = max(operator.cpu for operator in problem.operators)
    assert 14 * dearest <= problem.hosts[0].cpu <= 15.01 * dearest


def test_the_grain_follows_the_common_sizes() -> None:
    grain = grain_of({1.0: 60, 0.503: 40, 0.006: 50}, 14.0)
    assert grain.useful(14.0) == 14.0
    assert grain.useful(13.497) == 13.078  # 26 of the smaller: a first of them spoils a host
    assert grain.useful(0.4) == 0.0
    assert all(low < high for low, high in pairwise(grain.sums))


def test_there_is_no_grain_without_common_sizes_or_on_large_hosts() -> None:
    assert not grain_of({}, 14.0)
    assert not grain_of({1.0: 5}, 1000.0)
    assert not grain_of({1.0: 5}, float("inf"))
    assert common_sizes({0.0: 5}) == ()
