"""The oracle's hand-written cases: each spelling of one query is one plan."""

import pytest

from cql.binding import Binding
from millstream.cql.analyzer import Analyzer
from millstream.cql.catalog import Catalog, StreamDefinition
from millstream.plan.schema import Field
from oracle.cases import SCENES, Scene
from oracle.cql_text import cql_text

pytestmark = pytest.mark.spark


def catalog(scene: Scene) -> Catalog:
    return Catalog(
        tuple(
            StreamDefinition(
                s.name,
                (Field("at", "timestamp"), *(Field(c.name, c.type) for c in s.columns)),
                "at",
            )
            for s in scene.streams
            if all(c.name != "at" for c in s.columns)
        )
    )


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_each_spelling_of_a_case_is_one_plan(scene: Scene, analyzer: Analyzer) -> None:
    binding = Binding(analyzer, catalog(scene))
    for case in scene.cases:
        spellings = [cql_text(case.query), case.cql, case.other_spelling or case.cql]
        prints = {text: binding.fingerprint(text) for text in spellings}
        assert len(set(prints.values())) == 1, prints
