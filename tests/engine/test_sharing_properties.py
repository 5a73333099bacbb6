"""Queries that share work give what they give alone, and what DuckDB gives.

One example is one dataflow of many overlapping queries: a step on Spark costs more than any of
them. Sets built by hand to trick sharing stand beside made-up ones.
"""

import pytest
from engine_runner import EngineRunner
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from sharing_traps import JOINS, OTHERS, READINGS, SELECTIONS, SLIDING

from oracle.generate_overlapping import overlapping
from oracle.harness import Example, cut, judge
from oracle.model import Query

pytestmark = pytest.mark.spark

CHECKED = settings(
    max_examples=4,
    deadline=None,
    database=None,
    print_blob=True,
    phases=(Phase.generate,),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)


def agrees(example: Example, runner: EngineRunner) -> None:
    results = runner.run(example.streams, example.texts(), example.batches)
    problems = judge(example, results)
    assert not problems, "\n\n".join(problems)


def agrees_on_seed(number: int, runner: EngineRunner, examples: int = 4) -> None:
    @seed(number)
    @settings(CHECKED, max_examples=examples)
    @given(overlapping(fewest=8))
    def check(example: Example) -> None:
        note(f"batches {dict(example.batches)}")
        agrees(example, runner)

    check()


@pytest.mark.parametrize("number", range(1))
def test_overlapping_queries_agree_with_duckdb(number: int, runner: EngineRunner) -> None:
    agrees_on_seed(number, runner)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 61))
def test_overlapping_queries_agree_with_duckdb_for_long(number: int, runner: EngineRunner) -> None:
    agrees_on_seed(number, runner, 9)


@pytest.mark.parametrize("queries", [SELECTIONS, SLIDING, JOINS], ids=("maps", "panes", "joins"))
def test_sets_built_to_trick_sharing(queries: tuple[Query, ...], runner: EngineRunner) -> None:
    streams = (READINGS, OTHERS)
    agrees(Example(streams, cut(streams, 5), queries), runner)
