"""Random queries come out as asked."""

import numpy as np
import pytest

from millstream.core.errors import UsageError
from millstream.sim.workloads import Workload, random_queries

STREAMS = [f"s{n}" for n in range(96)]


@pytest.mark.parametrize("choice", ["uniform", "zipf", "dealt"])
def test_the_seeds_totals_and_ranges(choice: str) -> None:
    queries = random_queries(Workload(choice=choice), STREAMS, np.random.default_rng(1))
    operators = [operator for query in queries for operator in query.operators]
    assert (len(queries), len(operators)) == (500, 5750)
    assert all(0.5 <= operator.selectivity <= 0.8 for operator in operators)
    assert {round(operator.cost_s * 1e6) for operator in operators} == {20, 80}
    windows = [operator.window_s for operator in operators if not operator.unary]
    assert 5 <= min(windows) < max(windows) <= 20
    assert {len(query.streams) for query in queries} == {1, 2, 3}


def uses(choice: str) -> list[int]:
    queries = random_queries(Workload(choice=choice), STREAMS, np.random.default_rng(1))
    counts = dict.fromkeys(STREAMS, 0)
    for query in queries:
        for stream in query.streams:
            counts[stream] += 1
    return sorted(counts.values())


def test_choices_of_streams() -> None:
    dealt, uniform, zipf = uses("dealt"), uses("uniform"), uses("zipf")
    assert dealt[-1] - dealt[0] <= 2
    assert uniform[-1] - uniform[0] > 5
    assert zipf[-1] > 5 * zipf[len(zipf) // 2]


def test_shared_filters_have_one_physical_name_for_one_predicate() -> None:
    workload = Workload(shared_filters=0.5)
    queries = random_queries(workload, STREAMS, np.random.default_rng(1))
    shared = [o for q in queries for o in q.operators if o.physical]
    assert 300 < len(shared) < 700
    by_name: dict[str, set[float]] = {}
    for operator in shared:
        by_name.setdefault(operator.physical, set()).add(operator.selectivity)
    assert all(len(found) == 1 for found in by_name.values())


def test_mistakes_are_told() -> None:
    random = np.random.default_rng(1)
    with pytest.raises(UsageError, match="too few"):
        random_queries(Workload(operators=600), STREAMS, random)
    with pytest.raises(UsageError, match="over 2 streams"):
        random_queries(Workload(), ["a", "b"], random)
    with pytest.raises(UsageError, match="unknown choice"):
        Workload(choice="best")
    with pytest.raises(UsageError, match="cannot read"):
        Workload(streams_a_query=(3, 2))
