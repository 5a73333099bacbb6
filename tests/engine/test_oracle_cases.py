"""The engine gives the rows worked out by hand, scene by scene: one dataflow each."""

import pytest

from oracle.cases import SCENES, Scene
from oracle.cql_text import cql_text
from oracle.harness import Runner, cut, disagreement, whole

pytestmark = pytest.mark.spark

# As one file, and cut so small that windows, ties and late rows fall apart.
CUTS = {"whole": None, "by_two": 2}


def queries_of(scene: Scene) -> dict[str, str]:
    """Every case, and a second time where a user may spell it otherwise."""
    texts = {case.name: cql_text(case.query) for case in scene.cases}
    spelled = {f"{c.name}_spelled": c.other_spelling for c in scene.cases if c.other_spelling}
    return texts | spelled


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
@pytest.mark.parametrize("files", CUTS)
def test_rows_worked_out_by_hand(scene: Scene, files: str, runner: Runner) -> None:
    size = CUTS[files]
    if size is not None and max(len(stream.rows) for stream in scene.streams) > 20:
        size = 12
    batches = whole(scene.streams) if size is None else cut(scene.streams, size)
    queries = queries_of(scene)
    results = runner.run(scene.streams, queries, batches)
    assert results.keys() == queries.keys()
    problems = [
        problem
        for case in scene.cases
        for name in (case.name, f"{case.name}_spelled")
        if name in results and (problem := disagreement(scene, case, results[name]))
    ]
    assert not problems, "\n\n".join(problems)
