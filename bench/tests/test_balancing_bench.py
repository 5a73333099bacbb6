"""Three real processors without a manager: the load evens out and every result stays right."""

import pytest

from millstream_bench.cluster import balancing


def test_results_are_told_from_wrong_ones() -> None:
    wanted = [{"k": k} for k in range(4_000) if k % 97 > k % 89 + 10]
    assert balancing._right("join1", wanted, 4_000)
    assert not balancing._right("join1", wanted[:-1], 4_000)
    assert not balancing._right("join1", [*wanted, wanted[0]], 4_000)
    # 4,000 rows are two seconds: of `count0` the windows that end at one and at two seconds, of
    # which the second is still open (no row has reached its end)
    keys = range(2_000)
    counts = [
        {"g": g, "c": len(mine), "s": sum(k % 97 for k in mine)}
        for g in range(3)
        if (mine := [k for k in keys if k % 3 == g])
    ]
    assert balancing._right("count0", counts, 4_000)
    assert not balancing._right("count0", counts[1:], 4_000)


def test_queries_share_nothing_but_their_streams() -> None:
    texts = balancing.queries()
    assert len(set(texts.values())) == len(texts) == balancing.JOINS + balancing.COUNTS


@pytest.mark.soak
@pytest.mark.process
def test_three_processors_even_out_a_skewed_load() -> None:
    found = balancing.run()
    assert found["wrong"] == []
    assert found["moves"] > 0
    assert found["deviation_after"] <= found["deviation_before"] / 2
