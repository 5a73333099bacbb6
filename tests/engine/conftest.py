"""Fixtures of the data plane's tests."""

from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction


@pytest.fixture(scope="session")
def runner(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> EngineRunner:
    """Runs CQL over finite streams on the real engine and gives back all result rows.

    Segments are merged between any two steps, by chance: no answer may hang on when.
    """
    folder = tmp_path_factory.mktemp("runs")
    return EngineRunner(spark, folder, between_steps=ForcedCompaction(share=0.3))
