"""One node: events in, commands out; and many nodes with a network that loses and repeats."""

from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest

from millstream.decide.balance.balancer import Node, Settings, step
from millstream.decide.balance.decision import Demand, KnownLoad
from millstream.decide.balance.load_information import LoadInformation
from millstream.decide.balance.partners import Limits, Partners
from millstream.decide.balance.protocol import (
    Event,
    FragmentsRead,
    FragmentView,
    LoadReport,
    LoadRequest,
    LoadShifted,
    Message,
    Move,
    PartnerAnswer,
    PartnerEnd,
    PartnerRequest,
    Probe,
    ProbeAnswer,
    ReadFragments,
    Received,
    RefreshDue,
    RoundStarted,
    Send,
    WindowClosed,
)

SETTINGS = Settings()


def node(load: float = 0.5, **known: float) -> Node:
    return Node(
        "a",
        partners=Partners(asked=frozenset(known), others=tuple("bcdefgh")),
        known=MappingProxyType({name: KnownLoad(value) for name, value in known.items()}),
        own=LoadInformation(load, load, 0.0, 1),
    )


def hear(state: Node, sender: str, message: Message) -> tuple[Node, tuple[object, ...]]:
    return step(state, Received(1.0, sender, message), SETTINGS)


def test_the_first_refresh_asks_neighbours() -> None:
    state, commands = step(
        Node("a"), RefreshDue(0.0, ("c", "b"), tuple("bcd")), Settings(limits=Limits(1, 1))
    )
    assert commands == (Send("c", PartnerRequest(0.0)),)
    assert state.partners.waiting == {"c"}


def test_a_window_is_filtered_and_told_only_when_it_matters() -> None:
    state, commands = step(node(0.5, b=0.5), WindowClosed(0.1, 0.6), SETTINGS)
    assert state.own.load == pytest.approx(0.51)
    assert commands == ()
    state, commands = step(state, WindowClosed(0.2, 1.0), replace(SETTINGS, alpha=0.1))
    assert [c.to for c in commands if isinstance(c, Send)] == ["b"]


def test_a_light_node_asks_its_heaviest_partner() -> None:
    state, commands = step(node(0.2, b=0.6, c=0.9), RoundStarted(1.0), SETTINGS)
    assert commands == (Send("c", LoadRequest(pytest.approx(0.35), 1)),)
    assert state.round == 1


def test_requests_wait_for_the_window_and_are_served_within_half() -> None:
    state, _ = step(node(0.8, b=0.2, c=0.1), RoundStarted(1.0), SETTINGS)
    state, commands = hear(state, "b", LoadRequest(0.3, 5))
    assert commands == ()
    state, _ = hear(state, "c", LoadRequest(0.35, 9))
    state, commands = step(state, WindowClosed(1.1, 0.8), SETTINGS)
    assert commands == (ReadFragments(),)
    fragments = [FragmentView(f"f{n}", 0.1, 1.0, "x", ()) for n in range(8)]
    state, commands = step(state, FragmentsRead(1.1, fragments), SETTINGS)
    moves = [(c.to, c.fragment) for c in commands if isinstance(c, Move)]
    # c asked for more and comes first: three of 0.1; then b gets what half of 0.8 leaves.
    assert moves == [("c", "f0"), ("c", "f1"), ("c", "f2"), ("b", "f3")]
    assert state.own.load == pytest.approx(0.4)
    assert state.demands == ()
    assert "asked for" in next(c.reason for c in commands if isinstance(c, Move))


def test_a_part_of_a_shared_job_is_told_as_what_it_will_be_there() -> None:
    state, _ = step(node(0.8, b=0.0), RoundStarted(1.0), SETTINGS)
    state, _ = hear(state, "b", LoadRequest(0.4, 5))
    job = (("j", 0.5),)
    fragments = [FragmentView(f"f{n}", 0.2, 1.0, "x", (), jobs=job) for n in range(4)]
    state, commands = step(state, FragmentsRead(1.1, fragments), SETTINGS)
    moves = [c for c in commands if isinstance(c, Move)]
    assert [m.load for m in moves] == [0.2, 0.2]
    assert [m.arriving for m in moves] == pytest.approx([0.7, 0.2])
    assert state.own.load == pytest.approx(0.4)


def test_a_repeated_request_is_served_once() -> None:
    state = node(0.8, b=0.2)
    state, _ = hear(state, "b", LoadRequest(0.3, 5))
    state, _ = hear(state, "b", LoadRequest(0.3, 5))
    assert state.demands == (Demand("b", 0.3, 5),)
    state, _ = step(state, FragmentsRead(1.0, ()), SETTINGS)
    state, _ = hear(state, "b", LoadRequest(0.3, 5))
    assert state.demands == ()
    state, _ = hear(state, "b", LoadRequest(0.3, 6))
    assert state.demands == (Demand("b", 0.3, 6),)


def test_old_reports_are_ignored() -> None:
    state, _ = hear(node(0.5, b=0.5), "b", LoadReport(0.9, 7))
    state, _ = hear(state, "b", LoadReport(0.1, 6))
    assert state.known["b"].load == 0.9


def test_a_report_from_a_stranger_is_answered_with_an_end_unless_we_asked_it() -> None:
    state, commands = hear(node(), "b", LoadReport(0.9, 1))
    assert commands == (Send("b", PartnerEnd()),)
    asking = replace(node(), partners=Partners(waiting=frozenset("b")))
    state, commands = hear(asking, "b", LoadReport(0.9, 1))
    assert commands == ()
    assert "b" not in state.known


def test_partner_requests_and_answers() -> None:
    state, commands = hear(node(0.4), "b", PartnerRequest(0.7))
    assert commands == (Send("b", PartnerAnswer(True, 0.4)),)
    assert state.known["b"].load == 0.7
    state, commands = hear(node(0.4), "b", PartnerAnswer(True, 0.7))  # nobody asked b
    assert commands == (Send("b", PartnerEnd()),)
    state, _ = hear(node(0.4, b=0.3), "b", PartnerEnd())
    assert state.partners.all == frozenset()
    assert not state.known


def test_when_all_are_overloaded_strangers_are_probed_and_one_with_room_becomes_a_partner() -> None:
    crowded = node(0.95, b=0.95, c=0.99, d=0.95, e=0.95, f=0.95)
    state, commands = step(crowded, RoundStarted(1.0), SETTINGS)
    probes = [c for c in commands if isinstance(c, Send)]
    assert {c.message for c in probes} == {Probe(1)}
    assert {c.to for c in probes} == {"g", "h"}
    same, commands = hear(state, "g", ProbeAnswer(0.95, 1))  # no room there either
    assert (same, commands) == (state, ())
    state, commands = hear(state, "g", ProbeAnswer(0.3, 1))
    assert commands == (
        Send("c", PartnerEnd()),  # the heaviest makes way
        Send("g", PartnerRequest(0.95, 1.0, probed=True)),
    )
    assert state.partners.waiting == {"g"}
    _, commands = hear(node(0.3), "a", Probe(4))
    assert commands == (Send("a", ProbeAnswer(0.3, 4)),)


def test_a_late_probe_answer_changes_nothing() -> None:
    state = replace(node(0.95, b=0.95), round=3)
    assert hear(state, "g", ProbeAnswer(0.1, 2)) == (state, ())


def test_silent_partners_are_dropped_at_refresh() -> None:
    state, commands = step(
        node(0.5, b=0.5), RefreshDue(100.0, (), ()), Settings(limits=Limits(0, 0))
    )
    assert commands == (Send("b", PartnerEnd()),)
    assert state.partners.all == frozenset()


def test_load_that_arrives_counts_at_once() -> None:
    state, _ = step(node(0.5), LoadShifted(1.0, 0.2), SETTINGS)
    assert state.own.load == pytest.approx(0.7)


class Town:
    """Nodes and a mail that is late, loses and repeats; loads are set, nothing moves."""

    def __init__(self, count: int, loss: float, repeat: float, seed: int) -> None:
        self.names = [f"n{n:02}" for n in range(count)]
        self.nodes = {name: Node(name, seed=seed) for name in self.names}
        self.random = Random(seed)
        self.loss, self.repeat = loss, repeat
        self.mail: list[tuple[float, str, str, Message]] = []
        self.now = 0.0

    def give(self, name: str, event: Event) -> None:
        self.nodes[name], commands = step(self.nodes[name], event, SETTINGS)
        for command in commands:
            assert isinstance(command, Send)
            for _ in range(2 if self.random.random() < self.repeat else 1):
                if self.random.random() >= self.loss:
                    due = self.now + self.random.uniform(0.001, 0.2)
                    self.mail.append((due, name, command.to, command.message))

    def run(self, seconds: float) -> None:
        for n in range(int(seconds * 10)):
            self.now = n / 10
            due = [m for m in self.mail if m[0] <= self.now]
            self.mail = [m for m in self.mail if m[0] > self.now]
            for _, sender, to, message in sorted(due, key=lambda m: m[0]):
                self.give(to, Received(self.now, sender, message))
            for name in self.names:
                others = tuple(o for o in self.names if o != name)
                if n % 100 == 0:
                    self.give(name, RefreshDue(self.now, others[:4], others))
                self.give(name, WindowClosed(self.now, 0.5))

    def one_sided(self) -> list[tuple[str, str]]:
        return [
            (a, b)
            for a in self.names
            for b in self.nodes[a].partners.all
            if a not in self.nodes[b].partners.all
        ]


def test_partnerships_are_symmetric_and_within_limits_on_a_reliable_network() -> None:
    town = Town(12, 0.0, 0.0, seed=1)
    town.run(20)
    assert town.one_sided() == []
    for state in town.nodes.values():
        assert 0 < len(state.partners.asked) <= SETTINGS.limits.asked_max + 1
        assert len(state.partners.accepted) <= SETTINGS.limits.accepted_max
        assert state.name not in state.partners.all


@pytest.mark.parametrize("seed", range(5))
def test_partnerships_become_symmetric_again_after_losses_and_repeats(seed: int) -> None:
    town = Town(10, 0.3, 0.3, seed)
    town.run(20)
    town.loss = town.repeat = 0.0
    town.run(40)
    assert town.one_sided() == []
    assert all(state.partners.all for state in town.nodes.values())
