"""Two managers over the same processors, parted from them and with clocks that are wrong: one owner
of everything, nothing lost, and in the end one manager leads and knows all."""

import pytest
from two_managers import judged, random_run


@pytest.mark.parametrize("seed", [2, 8, 67, 74, 118])
def test_two_managers_and_one_truth(seed: int) -> None:
    first, rival = random_run(seed)
    assert judged(first, rival) == [], f"two_managers.random_run({seed})"
