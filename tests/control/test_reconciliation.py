"""A manager learns of moves that processors made without it, whomever it asks first."""

from itertools import permutations

import pytest

from millstream.control.manager.connections import blueprint, increments
from millstream.control.manager.reconciliation import reconcile
from millstream.control.manager.state import (
    Live,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
)
from millstream.control.manager.turn import Turn
from millstream.control.protocol.commands import Host
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import HostedQuery, Inventory

CQL = "SELECT 1"


def remembered(epoch: int = 1, phase: str = "running") -> ManagerState:
    """What a manager knew before processors went on without it: `o:a` on p1."""
    return ManagerState(
        processors={p: Processor(p, f"http://{p}", 1) for p in ("p1", "p2", "p3")},
        queries={"q": Query("q", CQL, phase=phase, start=0, operators=("o:a",), result="o:a")},
        operators={"o:a": OperatorRecord("o:a", "map", "a", ("s:x",), 8, {}, "p1", epoch)},
        live={p: Live(state="up") for p in ("p1", "p2", "p3")},
    )


def inventory(owned: int = 0, handed: Peer | None = None) -> Inventory:
    queries = {"q": HostedQuery(CQL, 0, ("o:a",), True)} if owned else {}
    return Inventory(
        {}, (), queries, {"o:a": owned} if owned else {}, {}, {}, {}, {},
        {"o:a": handed} if handed else {},
    )  # fmt: skip


HAVE = {
    "p1": inventory(handed=Peer("p2", "http://p2", 2)),
    "p2": inventory(handed=Peer("p3", "http://p3", 3)),
    "p3": inventory(owned=3),
}


@pytest.mark.parametrize("order", list(permutations(HAVE)))
def test_nobody_is_told_to_host_what_was_handed_over(order: tuple[str, ...]) -> None:
    state = remembered()
    for name in order:
        turn = Turn(state, 1.0)
        turn.live(name, actual=HAVE[name])
        reconcile(turn, name, HAVE[name])
        state = turn.state
        for other in order:
            if state.live[other].actual is not None:
                told = increments(state, blueprint(state), other)
                assert not any(isinstance(c, Host) for c in told), (name, other)
    assert (state.operators["o:a"].processor, state.operators["o:a"].epoch) == ("p3", 3)
    assert any("handed it over" in d.reason or "says so" in d.reason for d in state.decisions)


@pytest.mark.parametrize(
    ("state", "have"),
    [
        (remembered(epoch=2), HAVE["p1"]),  # an old pointer
        (remembered(phase="deploying"), HAVE["p1"]),  # of a former life: it is about to be hosted
        (remembered(), inventory(owned=4, handed=Peer("p2", "http://p2", 3))),  # it came back
        (remembered(), inventory(handed=Peer("p9", "http://p9", 2))),  # nobody we know
    ],
)
def test_pointers_that_are_not_followed(state: ManagerState, have: Inventory) -> None:
    turn = Turn(state, 1.0)
    turn.live("p1", actual=have)
    reconcile(turn, "p1", have)
    assert turn.state.operators["o:a"].processor == "p1"
