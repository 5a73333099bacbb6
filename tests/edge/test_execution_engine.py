"""What a processor measures of its steps: a fixed and a marginal cost an operator."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.edge.processor.execution_engine import UNTYPICAL_STEPS, ExecutionEngine, _words
from millstream.engine.steps.reports import StepReport


def step(rows: int, seconds: float, operator: str = "o:1") -> StepReport:
    return StepReport(operator, rows, 0, 0, 0, seconds, 0.0, 0, 0.0, 0.0, True)


@pytest.fixture
def engine() -> ExecutionEngine:
    processor: Any = SimpleNamespace(engine=SimpleNamespace(on_step=[]), quiesce=None)
    return ExecutionEngine(cast(Any, processor), lambda _: None)


def count(engine: ExecutionEngine, *steps: StepReport) -> None:
    for one in steps:
        for listener in engine.processor.engine.on_step:
            listener(one)


def test_costs_come_from_steps_but_the_first(engine: ExecutionEngine) -> None:
    count(engine, *(step(10, 9.0) for _ in range(UNTYPICAL_STEPS)))
    assert engine.costs({"o:1"}) == {}
    count(engine, *(step(rows, 0.1 + rows * 1e-5) for rows in (1_000, 20_000, 5_000)))
    assert engine.costs({"o:1"})["o:1"] == pytest.approx((0.1, 1e-5))


def test_an_operator_that_is_gone_is_forgotten(engine: ExecutionEngine) -> None:
    count(engine, *(step(10, 0.1, name) for name in ("o:1", "o:2") for _ in range(5)))
    assert engine.costs({"o:2"}).keys() == {"o:2"}
    assert engine.costs({"o:1", "o:2"}).keys() == {"o:2"}


def test_an_error_without_words_is_told_too() -> None:
    """Whoever watches over the engine must not end with it."""

    class Speechless(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert _words(Speechless()) == "Speechless: Spark's Java process does not answer"
    assert _words(ValueError("no\nmore")) == "ValueError: no"
