"""A move led by its old owner: what it says next, and what it makes of every answer."""

import random

import pytest

from millstream.control.moves.handover import (
    Disengage,
    Engage,
    Handover,
    noted,
    resumed,
    said,
)
from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.commands import Complete, Host, Prepare, Progress, Seal, Undo
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Done, Progressed, Refusal, Sealed, SealedStream
from millstream.core.codec import from_json, to_json
from millstream.core.errors import UsageError

HOST = Host("q", "SELECT 1", 0, ("o:a",), True)
BUSY = Refusal("busy", "not now")
SEALED = Story().through(Phase.SEALED, "p0", 0.0)
FAILED = Progressed(Phase.PREPARING, reason="no such stream")


def begun() -> Handover:
    prepare = Prepare("b-p0-1-1", (HOST,), {}, Peer("p0", "http://p0"))
    return Handover(prepare, "p0", Peer("p1", "http://p1"), ("p0", "p1", "p2"), 0.2, 0.5)


def sealed() -> Sealed:
    return Sealed({"o:a": SealedStream(5, 2, {})})


def answered(move: Handover, *replies: object) -> tuple[Handover, list[tuple[str, str]]]:
    """Feeds answers; gives the move and what was said to whom."""
    story = []
    for reply in replies:
        now = said(move)
        assert now is not None
        story.append((now.to, now.command.do))
        move = noted(move, now.command, reply, 1.0)  # type: ignore[arg-type]
    return move, story


def test_those_who_take_part_hear_what_will_come_to_the_target() -> None:
    first = said(begun())
    assert first is not None
    assert first.command == Engage("b-p0-1-1", 0.5)


def test_a_move_from_beginning_to_end() -> None:
    move, story = answered(
        begun(), Done(), Done(), Done(), Done(), Progressed(Phase.PREPARING),
        Progressed(Phase.READY), sealed(), Progressed(Phase.SEALED), Progressed(Phase.OWNED),
        Done(), Done(), Done(), Done(), Done(),
    )  # fmt: skip
    assert story == [
        ("p0", "engage"), ("p1", "engage"), ("p2", "engage"), ("p1", "prepare"),
        ("p1", "progress"), ("p1", "progress"), ("p0", "seal"), ("p1", "progress"),
        ("p1", "progress"), ("p0", "complete"), ("p1", "complete"), ("p0", "disengage"),
        ("p1", "disengage"), ("p2", "disengage"),
    ]  # fmt: skip
    assert move.over
    assert move.moved
    assert move.sealed == {"o:a": 2}
    assert said(move) is None


def test_somebody_busy_ends_it_before_it_began() -> None:
    move, story = answered(begun(), Done(), Refusal("engaged", "it takes part in another"), Done())
    assert story[-1] == ("p0", "disengage")
    assert move.over
    assert not move.moved
    assert "p1 takes no part" in move.outcome


@pytest.mark.parametrize("reply", [Refusal("mistake", "no such stream"), FAILED])
def test_a_target_that_cannot_take_it_undoes_the_move(reply: object) -> None:
    before = [Done()] * (4 if isinstance(reply, Progressed) else 3)
    move, _ = answered(begun(), *before, reply)
    move, story = answered(move, Done(), None, Done(), None, Done())
    assert story[:2] == [("p0", "undo"), ("p1", "undo")], "first nobody can seal any more"
    assert move.over
    assert not move.moved


def test_what_was_sealed_after_all_goes_on() -> None:
    move, _ = answered(begun(), Done(), Done(), Done(), Refusal("mistake", "no"))
    move, _ = answered(move, Refusal("sealed", "it is sealed"))
    assert move.phase == "sealed"
    assert move.outcome == ""


def test_a_target_that_is_never_ready_is_not_waited_for() -> None:
    move, _ = answered(begun(), Done(), Done(), Done(), Done())
    assert noted(move, Progress(move.id), None, 119.0).outcome == ""
    assert noted(move, Progress(move.id), None, 121.0).outcome == "not ready after 120 s"


def test_after_the_seal_there_is_only_forward() -> None:
    move, _ = answered(begun(), Done(), Done(), Done(), Done(), Progressed(Phase.READY), sealed())
    for reply in (None, BUSY, Progressed(Phase.REQUESTED), FAILED, Progressed(Phase.READY)):
        move = noted(move, Progress(move.id), reply, 1e9)
        assert move.phase == "sealed"


def test_a_restarted_leader_takes_up_what_is_sealed() -> None:
    move = resumed("b-p0-1-1", ("o:a",), "p0", Peer("p1", "http://p1"), SEALED)
    move, story = answered(move, None, Progressed(Phase.OWNED), Done(), Done())
    assert story == [
        ("p1", "progress"), ("p1", "progress"), ("p0", "complete"), ("p1", "complete"),
    ]  # fmt: skip
    assert move.over


def test_whatever_is_answered_nothing_unsealed_is_completed_nor_sealed_undone() -> None:
    replies = [None, BUSY, Done(), Refusal("unknown", "?"), sealed()]
    replies += [FAILED, *(Progressed(phase) for phase in Phase)]
    for seed in range(2000):
        chance, move, was_sealed = random.Random(seed), begun(), False
        for _ in range(60):
            now = said(move)
            if now is None:
                break
            assert not (isinstance(now.command, Undo) and was_sealed)
            assert not (isinstance(now.command, Complete) and not was_sealed)
            reply = chance.choice(replies)
            was_sealed = was_sealed or (isinstance(now.command, Seal) and reply == sealed())
            move = noted(move, now.command, reply, chance.random() * 200)
        if move.over:
            assert move.moved == was_sealed
            assert not move.engaged, "everybody is free again"


def test_a_processor_hands_nothing_over_to_itself() -> None:
    with pytest.raises(UsageError):
        Handover(begun().prepare, "p0", Peer("p0", "http://p0"), ("p0",))


def test_messages_between_peers_survive_json() -> None:
    commands = (Engage("m", 0.5), begun().prepare, Progress("m"), Undo("m"), Disengage("m"))
    envelope = Envelope(3, 0, "p1", commands, "p0", "processor")
    assert from_json(Envelope, to_json(envelope)) == envelope
    seal = to_json(Seal("m", ("o:1",), Peer("p1", "http://p1")))
    with pytest.raises(UsageError, match="does not say seal"):
        from_json(Envelope, {**to_json(envelope), "messages": [seal]})
