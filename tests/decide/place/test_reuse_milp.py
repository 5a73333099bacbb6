"""The mixed-integer planner against exhaustive search, and against the default."""

import pytest
from reuse_problems import best_value, tiny_problem, value

from millstream.decide.place.planners import plan_all

INSTANCES = 200


@pytest.mark.parametrize("block", range(10))
def test_it_equals_exhaustive_search(block: int) -> None:
    per_block = INSTANCES // 10
    for seed in range(block * per_block, (block + 1) * per_block):
        problem = tiny_problem(seed)
        whole = plan_all(problem, "sqpr_milp", batch=len(problem.queries)).solution
        assert value(problem, whole) == pytest.approx(best_value(problem), abs=1e-6), seed


def test_it_is_never_worse_than_the_default_when_solved_whole() -> None:
    for seed in range(60):
        problem = tiny_problem(1000 + seed)
        whole = plan_all(problem, "sqpr_milp", batch=len(problem.queries)).solution
        quick = plan_all(problem, "sqpr").solution
        assert value(problem, whole) >= value(problem, quick) - 1e-6, seed
