"""Both owners of a move, in every phase: what each message makes of it, and what they say.

Operators in plain Python; the table of phases is `control/moves/table.py`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from processors_together import LocalPeer
from test_moves_interrupted import FIRST, MOVE, SECOND, begun
from test_moves_without_spark import PureCluster

from millstream.control.moves.table import Phase
from millstream.control.protocol.commands import Prepare
from millstream.engine.processor import Processor
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import RefusedError

NAMES, P1 = (FIRST, SECOND), Place("p1")
# by phase: the phase after a message, or the code with which it is refused
OLD = {
    "requested": {"needs": "preparing", "ready": "unknown", "seal": "unknown", "taken": "requested",
                  "complete": "requested", "undo": "undone"},
    "preparing": {"needs": "preparing", "ready": "ready", "seal": "busy", "taken": "busy",
                  "complete": "busy", "undo": "undone"},
    "ready": {"needs": "ready", "ready": "ready", "seal": "sealed", "taken": "busy",
              "complete": "busy", "undo": "undone"},
    "sealed": {"needs": "sealed", "ready": "sealed", "seal": "sealed", "taken": "owned",
               "complete": "done", "undo": "sealed"},
    "owned": {"needs": "owned", "ready": "owned", "seal": "owned", "taken": "owned",
              "complete": "done", "undo": "sealed"},
    "done": {"needs": "done", "ready": "unknown", "seal": "busy", "taken": "done",
             "complete": "done", "undo": "sealed"},
    "undone": {"needs": "undone", "ready": "unknown", "seal": "busy", "taken": "undone",
               "complete": "undone", "undo": "undone"},
}  # fmt: skip
REFUSED_OLD = {
    ("sealed", "needs"), ("sealed", "undo"), ("owned", "needs"), ("done", "needs"),
    ("undone", "needs"),
}  # fmt: skip
NEW = {
    "requested": {"prepare": "preparing", "complete": "requested", "undo": "undone"},
    "preparing": {"prepare": "preparing", "complete": "busy", "undo": "undone"},
    "ready": {"prepare": "ready", "complete": "busy", "undo": "undone"},
    "sealed": {"prepare": "sealed", "complete": "busy", "undo": "sealed"},
    "owned": {"prepare": "owned", "complete": "done", "undo": "sealed"},
    "done": {"prepare": "unknown", "complete": "done", "undo": "done"},
    "undone": {"prepare": "unknown", "complete": "undone", "undo": "undone"},
}
WAY = ("needs", "ready", "seal", "taken", "complete")


@pytest.fixture
def cluster(tmp_path: Path) -> PureCluster:
    return PureCluster(tmp_path, 3)


def phase_at(processor: Processor) -> str:
    known = processor.ownership.move(MOVE)
    return str(known.phase) if known is not None else Phase.REQUESTED


def outcome(processor: Processor, message: Callable[[], object]) -> tuple[str, bool]:
    """The phase after a message; or the code of a refusal, which changes nothing."""
    before = processor.ownership.move(MOVE)
    try:
        message()
    except RefusedError as refusal:
        assert processor.ownership.move(MOVE) == before
        return refusal.code, True
    return phase_at(processor), False


def at_old(old: Processor) -> dict[str, Callable[[], object]]:
    owner = old.old_owner
    return {
        "needs": lambda: owner.needs(MOVE, NAMES, P1),
        "ready": lambda: owner.ready(MOVE),
        "seal": lambda: owner.seal(MOVE, NAMES, P1),
        "taken": lambda: owner.taken(MOVE),
        "complete": lambda: owner.complete(MOVE),
        "undo": lambda: owner.undo(MOVE),
    }


@pytest.mark.parametrize("message", OLD["requested"])
@pytest.mark.parametrize("phase", OLD)
def test_the_old_owner_in_every_phase(phase: str, message: str, cluster: PureCluster) -> None:
    cluster.deploy("sums", "sums", lambda _: "p0")
    cluster.feed([(10, 1)])
    old = cluster.alive["p0"]
    messages = at_old(old)
    for step in () if phase == "requested" else ("undo",) if phase == "undone" else WAY:
        messages[step]()
        if phase_at(old) == phase:
            break
    assert phase_at(old) == phase
    found, refused = outcome(old, messages[message])
    assert found == OLD[phase][message]
    codes = ("unknown", "busy")
    assert refused == (found in codes or (phase, message) in REFUSED_OLD or
                       (message == "undo" and phase in ("owned", "done")))  # fmt: skip
    running = phase_at(old) in ("requested", "preparing", "ready", "undone")
    assert all((old.ownership.owned(name) is not None) == running for name in NAMES)
    assert all((name in old.engine.operators) == running for name in NAMES)


def prepared(cluster: PureCluster, phase: str) -> tuple[Processor, Prepare]:
    """The new owner in a phase, and what it was told."""
    if phase == "requested":
        cluster.deploy("sums", "sums", lambda _: "p0")
        return cluster.alive["p1"], cluster.request(NAMES, "p1")
    old, new = begun(cluster)
    known = new.ownership.move(MOVE)
    assert known is not None
    assert known.request is not None
    if phase == "undone":
        new.new_owner.undo(MOVE)
    for _ in range(20):
        if phase_at(new) == phase:
            break
        if phase_at(new) == "ready" and phase_at(old) == "ready":
            old.old_owner.seal(MOVE, NAMES, P1)
        if phase_at(new) == "owned":
            new.new_owner.complete(MOVE)
        new.new_owner.advance(MOVE)
    assert phase_at(new) == phase
    return new, known.request


@pytest.mark.parametrize("message", NEW["requested"])
@pytest.mark.parametrize("phase", NEW)
def test_the_new_owner_in_every_phase(phase: str, message: str, cluster: PureCluster) -> None:
    new, request = prepared(cluster, phase)
    messages: dict[str, Callable[[], object]] = {
        "prepare": lambda: new.new_owner.prepare(request),
        "complete": lambda: new.new_owner.complete(MOVE),
        "undo": lambda: new.new_owner.undo(MOVE),
    }
    found, refused = outcome(new, messages[message])
    assert found == NEW[phase][message]
    assert refused == (found in ("unknown", "busy") or (message == "undo" and found == "sealed"))
    owner = phase_at(new) in ("owned", "done")
    assert all((new.ownership.owned(name) is not None) == owner for name in NAMES)


def test_what_the_new_owner_says_to_the_old_one(
    cluster: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for word in ("needs", "ready", "sealed", "taken", "undo"):
        plain = getattr(LocalPeer, word)

        def told(self: LocalPeer, *args: object, plain=plain, word=word) -> object:  # type: ignore[no-untyped-def]
            said.append(word)
            return plain(self, *args)

        monkeypatch.setattr(LocalPeer, word, told)
    new, _ = prepared(cluster, "preparing")
    while phase_at(new) == "preparing":
        new.new_owner.advance(MOVE)
    # how far is it; after the sources keep what follows; after it has warmed up
    assert said == ["needs", "needs", "needs", "ready"]
    assert not new.new_owner.advance(MOVE)
    cluster.alive["p0"].old_owner.seal(MOVE, NAMES, P1)
    while phase_at(new) != "owned":
        new.new_owner.advance(MOVE)
    assert said[4:] == ["sealed", "sealed", "taken"]
    assert phase_at(cluster.alive["p0"]) == "owned"
    story = [new.ownership.move(MOVE), cluster.alive["p0"].ownership.move(MOVE)]
    assert [[(e.phase, e.by) for e in m.story.events] for m in story if m is not None] == [
        [("preparing", "p1"), ("ready", "p1"), ("sealed", "p0"), ("owned", "p1")],
        [("preparing", "p0"), ("ready", "p1"), ("sealed", "p0"), ("owned", "p1")],
    ]


@pytest.mark.parametrize("ended_before", [False, True])
def test_rows_that_were_copied_go_with_an_undone_move(
    ended_before: bool, cluster: PureCluster
) -> None:
    """Else an operator that begins here later would hand on rows of both lives."""
    new, _ = prepared(cluster, "ready")
    assert new.engine.ledger.segments("s:a")
    if ended_before:
        new.receiver.disconnect("s:a")
        new.hosting.tidy("s:a")
    new.new_owner.undo(MOVE, lost=True)
    assert not new.engine.ledger.segments("s:a")
    assert new.ownership.copy("s:a") is None
