"""The engine agrees with DuckDB on made-up queries, data, disorder and batch boundaries.

One example is one dataflow of many queries, because a step on Spark costs more than any of them.
"""

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings

from oracle.cases import SCENES
from oracle.generate import examples
from oracle.harness import Example, Runner, cut, judge

pytestmark = pytest.mark.spark

CHECKED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=(
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ),
)
BY_HAND = next(scene for scene in SCENES if scene.name == "joins")
START = Example(
    BY_HAND.streams, cut(BY_HAND.streams, 1), tuple(case.query for case in BY_HAND.cases)
)


def agrees(made_up: Example, runner: Runner) -> None:
    texts = made_up.texts()
    note(f"batches {dict(made_up.batches)}")
    results = runner.run(made_up.streams, texts, made_up.batches)
    assert results.keys() == texts.keys()
    problems = judge(made_up, results)
    assert not problems, "\n\n".join(problems)


@settings(CHECKED, max_examples=8)
@example(START)
@given(examples())
def test_agrees_with_duckdb(runner: Runner, made_up: Example) -> None:
    agrees(made_up, runner)


@pytest.mark.soak
@settings(CHECKED, max_examples=300, derandomize=False)
@given(examples())
def test_agrees_with_duckdb_for_long(runner: Runner, made_up: Example) -> None:
    agrees(made_up, runner)
