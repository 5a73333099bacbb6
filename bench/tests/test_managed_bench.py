"""The manager against `plan`: the manager's own placer loses little to the planner."""

import doctest

from millstream.decide.place.planners import plan_all
from millstream.decide.place.workload import TIGHT, generate, scaled
from millstream_bench.planning import managed


def test_the_manager_admits_nearly_what_plan_admits() -> None:
    problem = generate(scaled(TIGHT, 4), 3)
    ways = managed.left_to_right(problem)
    taken = managed.managed(problem, ways)
    best = [d.admitted for d in plan_all(problem).decisions]
    assert len(taken) == len(best) == 80
    assert sum(taken) >= 0.85 * sum(best)  # plan chooses among orders of joins, too
    assert managed.curve(taken)["area"] >= 0.9 * managed.curve(best)["area"]


def test_examples_in_the_text() -> None:
    found = doctest.testmod(managed)
    assert found.attempted
    assert not found.failed
