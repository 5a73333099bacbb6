"""The table of a move: every edge that it has, every one that it has not, and the story."""

from itertools import product

import pytest

from millstream.control.moves.table import (
    ARRIVING,
    BEFORE_SEAL,
    COMMITTED,
    ENDED,
    RUNNING,
    TABLE,
    UNDER_WAY,
    IllegalPhaseError,
    MoveEvent,
    Phase,
    Story,
)
from millstream.core.codec import from_json, to_json

LEGAL = {
    ("requested", "preparing"), ("requested", "undone"),
    ("preparing", "ready"), ("preparing", "undone"),
    ("ready", "sealed"), ("ready", "undone"),
    ("sealed", "owned"),
    ("owned", "done"),
}  # fmt: skip


def reached(phase: Phase) -> Story:
    return Story().through(phase, "p1", 100.0)


@pytest.mark.parametrize(("before", "after"), list(product(Phase, Phase)))
def test_a_phase_follows_another_if_and_only_if_the_table_says_so(
    before: Phase, after: Phase
) -> None:
    story = reached(before)
    if (before, after) in LEGAL:
        went_on = story.then(after, "p2", 200.0, "because")
        assert went_on.phase is after
        assert went_on.events == (*story.events, MoveEvent(after, "p2", 200.0, "because"))
    else:
        with pytest.raises(IllegalPhaseError) as told:
            story.then(after, "p2", 200.0, "because")
        assert told.value.message == f"a move that is {before} cannot become {after}"
        for event in story.events:
            assert str(event) in told.value.detail, "the whole story is told"
        assert "p2 at 200.000 s: because" in told.value.detail


def test_the_story_says_who_and_when_and_why() -> None:
    story = Story().then(Phase.PREPARING, "manager", 0.0).then(Phase.UNDONE, "p2", 61.5, "too late")
    with pytest.raises(IllegalPhaseError) as told:
        story.then(Phase.SEALED, "p1", 62.0)
    assert told.value.detail == (
        "p1 at 62.000 s; so far: 1970-01-01T00:00:00.000+00:00 manager: preparing; "
        "1970-01-01T00:01:01.500+00:00 p2: undone, too late"
    )


def test_who_was_away_goes_through_what_it_has_missed() -> None:
    seen = Story().then(Phase.PREPARING, "manager", 1.0).through(Phase.OWNED, "p2", 9.0)
    assert [(e.phase, e.at_s) for e in seen.events] == [
        ("preparing", 1.0), ("ready", 9.0), ("sealed", 9.0), ("owned", 9.0),
    ]  # fmt: skip
    assert seen.through(Phase.OWNED, "p2", 10.0) == seen
    assert Story().through(Phase.UNDONE, "p1", 1.0).phase is Phase.UNDONE


@pytest.mark.parametrize(
    ("before", "after"), [("sealed", "ready"), ("sealed", "undone"), ("undone", "sealed")]
)
def test_nobody_goes_back_nor_undoes_what_is_sealed(before: str, after: str) -> None:
    with pytest.raises(IllegalPhaseError):
        reached(Phase(before)).through(Phase(after), "p1", 1.0)


def test_every_phase_is_somewhere() -> None:
    assert set(TABLE) == set(Phase)
    assert {*BEFORE_SEAL, *COMMITTED, *ENDED} == set(Phase)
    assert {*UNDER_WAY, *ENDED, Phase.REQUESTED} == set(Phase)
    assert set(RUNNING) < set(ARRIVING) < set(UNDER_WAY)
    assert all(not TABLE[phase].may_go_to for phase in ENDED)
    for phase in Phase:
        undone = Phase.UNDONE in TABLE[phase].may_go_to
        assert undone == (phase in BEFORE_SEAL), "before the seal, and only then, it can be undone"


def test_a_story_survives_json() -> None:
    story = Story().then(Phase.PREPARING, "manager", 1.5).then(Phase.UNDONE, "p2", 2.5, "why")
    assert from_json(Story, to_json(story)) == story
