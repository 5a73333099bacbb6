"""Who keeps a copy of whose home: what processors hear of it, and in which order."""

from dataclasses import dataclass, field, replace

import pytest

from millstream.control.manager.events import (
    DeclareStream,
    Event,
    Joined,
    Replied,
    RequestMove,
    Send,
    Tick,
    Unanswered,
)
from millstream.control.manager.manager import step
from millstream.control.manager.state import (
    Live,
    ManagerState,
    Processor,
    Replication,
    Settings,
)
from millstream.control.manager.turn import Turn
from millstream.control.protocol.commands import (
    Command,
    Declare,
    Join,
    KeepReplicas,
    Prepare,
    Report,
    StartStream,
    TakeInventory,
)
from millstream.control.protocol.replies import (
    Done,
    Inventory,
    KeptHome,
    Replicas,
    Reply,
    Reported,
)
from millstream.control.recovery import takeover
from millstream.control.recovery.replication import degraded
from millstream.sim.managed.managed_cluster import table

EMPTY = Inventory({}, (), {}, {}, {}, {}, {}, {})


@dataclass
class Cluster:
    """Processors that do as they are told; those that are `deaf` do not hear about replicas."""

    names: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    deaf: set[str] = field(default_factory=set)
    heard: dict[str, list[Command]] = field(default_factory=dict)
    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)  # configuration, wanted

    def __post_init__(self) -> None:
        self.state, self.now = ManagerState(settings=self.settings), 0.0
        for name in self.names:
            self.heard[name] = []
            self.feed(Joined(Join(name, f"http://{name}", 1)))
        self.run(5.0)

    def feed(self, event: Event) -> None:
        self.state, sends = step(self.state, event, self.now)
        for send in sends:
            self._take(send)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            self.feed(Tick())

    def _take(self, send: Send) -> None:
        commands = send.envelope.messages
        about = any(isinstance(c, KeepReplicas) for c in commands)
        if about and send.processor in self.deaf:
            self.feed(Unanswered(send.processor, send.channel, send.number, "away"))
            return
        self.heard[send.processor] += commands
        replies = tuple(self._reply(send.processor, c) for c in commands)
        self.feed(Replied(send.processor, send.channel, send.number, replies))

    def _reply(self, name: str, command: Command) -> Reply:
        match command:
            case Report():
                return Reported(1, {}, {}, {})
            case TakeInventory():
                return EMPTY
            case KeepReplicas():
                told = Replicas(command.number, (), safe=True)
                if command.number >= self.numbers.get(name, (0, 0))[0]:
                    self.numbers[name] = (command.number, command.wanted)
                return told
            case Declare(ingest=True):
                wanted = self.numbers.get(name, (0, 0))[1]
                assert wanted >= int(command.stream.get("replicas", 1)) - 1, "not yet"
        return Done()

    def told(self, name: str, kind: type) -> bool:
        return any(isinstance(c, kind) for c in self.heard[name])


def test_no_work_before_a_processor_knows_who_keeps_its_home() -> None:
    cluster = Cluster(("p1", "p2"), deaf={"p1"})
    cluster.feed(DeclareStream(table("a", replicas=2), "p1", start=True))
    cluster.run(2.0)
    assert not cluster.told("p1", StartStream)
    assert "does not know yet" in degraded(cluster.state)["p1"], "and it is said"
    cluster.deaf.clear()
    cluster.run(5.0)
    assert cluster.told("p1", StartStream)
    assert "p1" not in degraded(cluster.state)


def test_nobody_to_follow_is_no_reason_to_work_without() -> None:
    """It hears that one is wanted and that there is none; so it tells nobody anything."""
    cluster = Cluster(("p1",))
    cluster.feed(DeclareStream(table("a", replicas=2), "p1", start=True))
    cluster.run(2.0)
    assert cluster.told("p1", StartStream)
    assert cluster.numbers["p1"][1] == 1
    assert "1 more processors are wanted" in degraded(cluster.state)["p1"]


def test_where_a_stream_is_going_its_rows_are_kept_before_it_comes() -> None:
    cluster = Cluster(("p1", "p2", "p3"))
    cluster.feed(DeclareStream(table("a", replicas=2), "p1"))
    cluster.run(5.0)
    assert "p3" not in cluster.state.replications
    cluster.deaf = {"p3"}
    cluster.feed(RequestMove(("s:a",), "p3", "asked"))
    cluster.run(2.0)
    assert cluster.state.replications["p3"].wanted == 1
    assert not cluster.told("p3", Prepare)
    cluster.deaf = set()
    cluster.run(3.0)
    assert cluster.told("p3", Prepare)


def test_one_that_hears_of_more_followers_later_is_not_taken_for_safe() -> None:
    cluster = Cluster(("p1", "p2"), deaf={"p1"})
    cluster.feed(DeclareStream(table("a"), "p1", start=True))
    cluster.run(3.0)
    assert cluster.told("p1", StartStream)
    cluster.state = replace(cluster.state, settings=replace(cluster.settings, replicas=2))
    cluster.run(2.0)
    assert "p1" in degraded(cluster.state)


CHOICES = {
    "one of them is damaged": (("damaged", 0, 5), ("fenced", 5, 0), "p3"),
    "both that had everything are damaged": (("damaged", 0, 5), ("damaged", 0, 5), ""),
    "it was damaged before it had anything": (("damaged", 0, 3), ("damaged", 0, 0), "p4"),
    "it begins anew": (("fenced", 0, 5), ("following", 5, 0), ""),
    "the other never had it": (("fenced", 0, 5), ("fenced", 4, 0), "p4"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_an_heir_has_everything_that_was_told(case: str) -> None:
    """p4 has what was told before the fifth configuration, of which p2 and p3 are."""
    *kept, heir = CHOICES[case]
    homes = {
        name: {"p1": KeptHome(5, complete, 9, state, had)}  # type: ignore[arg-type]
        for name, (state, complete, had) in zip(("p2", "p3"), kept, strict=True)
    }
    homes["p4"] = {"p1": KeptHome(4, 4, 8, "fenced")}
    state = ManagerState(
        processors={n: Processor(n, f"http://{n}", 1) for n in ("p1", *homes)},
        live={
            "p1": Live(state="silent"),
            **{n: Live(state="up", replicas=Replicas(0, (), True, k)) for n, k in homes.items()},
        },
        replications={
            "p1": Replication("p1", 5, 2, ("p2", "p3"), ((4, ("p4",)),), phase="fencing")
        },
    )
    turn = Turn(state, 10.0)
    takeover.advance(turn)
    known = turn.state.replications["p1"]
    assert (known.heir, known.phase) == (heir, "adopting" if heir else "fencing")
    if heir:
        takeover.joined(turn, "p1")
        left = turn.state.replications["p1"].former
        assert left == (((5, ("p2",)),) if heir == "p3" else ()), "copies that are as good stay"
