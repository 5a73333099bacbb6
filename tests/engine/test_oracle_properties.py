"""The engine agrees with DuckDB on made-up queries, data, disorder and batch boundaries.

One example is one dataflow of many queries, because a step on Spark costs more than any of them.
A seed gives a handful of unlike dataflows: after about ten examples Hypothesis mostly varies those
it had, so that more dataflows come from more seeds.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

from oracle.cases import SCENES
from oracle.generate import examples
from oracle.harness import Example, Runner, cut, judge

pytestmark = pytest.mark.spark

EXAMPLES = 9  # of a seed; the first is always the smallest there is
CHECKED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    print_blob=True,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)


def agrees(made_up: Example, runner: Runner) -> None:
    texts = made_up.texts()
    results = runner.run(made_up.streams, texts, made_up.batches)
    assert results.keys() == texts.keys()
    problems = judge(made_up, results)
    assert not problems, "\n\n".join(problems)


def agrees_on_seed(number: int, runner: Runner) -> None:
    @seed(number)
    @CHECKED
    @given(examples())
    def check(made_up: Example) -> None:
        note(f"batches {dict(made_up.batches)}")
        agrees(made_up, runner)

    check()


def test_agrees_with_duckdb_row_by_row(runner: Runner) -> None:
    """Every row a file of its own: the worst batches there are."""
    scene = next(scene for scene in SCENES if scene.name == "joins")
    queries = tuple(case.query for case in scene.cases)
    agrees(Example(scene.streams, cut(scene.streams, 1), queries), runner)


@pytest.mark.parametrize("number", range(1))
def test_agrees_with_duckdb(number: int, runner: Runner) -> None:
    agrees_on_seed(number, runner)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 41))
def test_agrees_with_duckdb_for_long(number: int, runner: Runner) -> None:
    agrees_on_seed(number, runner)
