"""The oracle's hand-written cases: each spelling of one query is one plan."""

import pytest

from language.cql.binding import Binding
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import compile_plan, starting_at
from oracle.cases import SCENES, Scene
from oracle.cql_text import cql_text

pytestmark = pytest.mark.spark
START = 1_234_567


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
        given = [cql_text(case.query), case.cql, case.other_spelling or case.cql]
        # constants in FROM are computed row by row: the same rows, by a plan of their own
        spellings = [text for text in given if "VALUES" not in text]
        prints = {text: binding.fingerprint(text) for text in spellings}
        assert len(set(prints.values())) == 1, prints


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_ids_with_a_start_follow_from_those_without(scene: Scene, analyzer: Analyzer) -> None:
    """Else a query would have to be compiled again once its start is known."""
    binding = Binding(analyzer, catalog(scene))
    for case in scene.cases:
        whole = compile_plan(binding.plan(case.cql))
        later = compile_plan(binding.plan(case.cql, START))
        assert [(o.id, o.kind, o.inputs) for o in later] == [
            (starting_at(o.id, START), o.kind, tuple(starting_at(s, START) for s in o.inputs))
            for o in whole
        ]
        assert not {o.id for o in later} & {o.id for o in whole}, "the start is part of the id"
