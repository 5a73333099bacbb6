"""Outer joins, IN and EXISTS agree with DuckDB on made-up queries, data, disorder and batches."""

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

from oracle.generate_partners import partner_examples
from oracle.harness import Example, Runner, judge

pytestmark = pytest.mark.spark

CHECKED = settings(
    max_examples=3,
    deadline=None,
    database=None,
    print_blob=True,
    phases=(Phase.generate,),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)


def agrees_on_seed(number: int, runner: Runner) -> None:
    @seed(number)
    @CHECKED
    @given(partner_examples())
    def check(made_up: Example) -> None:
        note(f"batches {dict(made_up.batches)}")
        results = runner.run(made_up.streams, made_up.texts(), made_up.batches)
        problems = judge(made_up, results)
        assert not problems, "\n\n".join(problems)

    check()


@pytest.mark.parametrize("number", range(1))
def test_agrees_with_duckdb(number: int, runner: Runner) -> None:
    agrees_on_seed(number, runner)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 41))
def test_agrees_with_duckdb_for_long(number: int, runner: Runner) -> None:
    agrees_on_seed(number, runner)
