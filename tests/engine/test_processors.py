"""One query over several processors: copies under the same numbers, one answer."""

from pathlib import Path
from typing import Any

import pytest
from processors_together import ClusterRunner

from oracle.cases import SCENES, Scene
from oracle.cql_text import cql_text
from oracle.harness import cut, disagreement

pytestmark = pytest.mark.spark
SPREAD = [s for s in SCENES if s.name in ("joins", "times", "aggregates", "nested")]


@pytest.mark.parametrize("scene", SPREAD, ids=lambda scene: scene.name)
def test_rows_worked_out_by_hand_over_three_processors(
    scene: Scene, spark: Any, tmp_path: Path
) -> None:
    runner = ClusterRunner(spark, tmp_path, 3, seed=1)
    queries = {case.name: cql_text(case.query) for case in scene.cases}
    results = runner.run(scene.streams, queries, cut(scene.streams, 3))
    problems = [
        problem
        for case in scene.cases
        if (problem := disagreement(scene, case, results[case.name]))
    ]
    assert not problems, "\n\n".join(problems)
