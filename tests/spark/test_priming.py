"""An idle processor makes itself ready, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from millstream.engine.engine import Engine
from millstream.engine.steps import priming
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark


def test_made_up_work_ends_by_itself_or_for_real_work(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    opened: list[Engine] = []

    class Watched(Engine):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            opened.append(self)
            self.on_step.append(lambda report: steps.append(report.operator))

    monkeypatch.setattr(priming, "Engine", Watched)
    monkeypatch.setattr(priming, "ROUNDS", 2)
    (tmp_path / "priming").mkdir()
    (tmp_path / "priming" / "left").touch()  # by a process that was killed
    assert priming.prime(SparkPlane(spark), tmp_path / "priming", lambda: False) == 2
    assert set(steps) == set(opened[0].operators), "every operator has run"
    assert priming.prime(SparkPlane(spark), tmp_path / "priming", lambda: True) == 0
    assert not list(tmp_path.iterdir())
