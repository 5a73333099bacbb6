"""Fixtures of the data plane's tests."""

from typing import Any

import pytest
from engine_runner import EngineRunner


@pytest.fixture(scope="session")
def runner(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> EngineRunner:
    """Runs CQL over finite streams on the real engine and gives back all result rows."""
    return EngineRunner(spark, tmp_path_factory.mktemp("runs"))
