"""A member that leads: what it says to whom, from nothing but the other members."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from millstream.control.manager.belief import after
from millstream.control.manager.events import DeclareStream, Event, Replied, Send, Submit, Tick
from millstream.control.manager.manager import step
from millstream.control.manager.state import ManagerState
from millstream.control.peers import leading
from millstream.control.peers.records import accepted, changed
from millstream.control.protocol.commands import (
    QUESTIONS,
    Command,
    Compile,
    Expect,
    Hold,
    Host,
    Join,
    Report,
    TakeInventory,
    Unhost,
)
from millstream.control.protocol.member_messages import QueryRecord
from millstream.control.protocol.replies import (
    Compiled,
    CompiledOperator,
    Done,
    Expected,
    Held,
    Inventory,
    Refusal,
    Reply,
    Reported,
    StreamMark,
)
from millstream.core.errors import UsageError

EMPTY = Inventory({}, (), {}, {}, {}, {}, {}, {})
MEANING = {
    "both": Compiled(
        (
            CompiledOperator("o:f", "map", "f", ("s:a",)),
            CompiledOperator("o:g", "map", "g", ("s:b",)),
            CompiledOperator("o:j", "join", "j", ("o:f", "o:g")),
        ),
        "o:j", (("n", "int"),), False, ("s:a", "s:b"),
    ),
    "one": Compiled(
        (CompiledOperator("o:f", "map", "f", ("s:a",)),), "o:f", (("n", "int"),), False, ("s:a",)
    ),
}  # fmt: skip


@dataclass
class Members:
    """Members that do what they are told, and a log of that."""

    names: tuple[str, ...]
    have: dict[str, Inventory] = field(default_factory=dict)
    tables: dict[str, dict[str, object]] = field(default_factory=dict)
    said: list[tuple[str, Command]] = field(default_factory=list)
    leader: int = 0
    refuse: Callable[[str, Command], Refusal | None] = lambda *_: None

    def joins(self) -> dict[str, Join]:
        return {name: Join(name, f"http://{name}", 1, home=name) for name in self.names}

    def lead(self, *, looks_only: bool = False) -> "Leader":
        self.leader += 1
        state = leading.beginning(
            ManagerState(), self.joins(), {}, 0.0, lineage=f"life {self.leader}",
            epoch=self.leader, looks_only=looks_only,
        )  # fmt: skip
        return Leader(self, state)

    def reply(self, name: str, command: Command) -> Reply:
        have = self.have.get(name, EMPTY)
        match command:
            case TakeInventory():
                tables = {s: self.tables[s] for s in have.declared if s in self.tables}
                return Inventory(
                    have.declared, have.started, have.queries,
                    {**have.owned, **{f"s:{s}": 1 for s, own in have.declared.items() if own}},
                    have.holds, have.expected, have.connected, {}, tables=tables, led_by="before",
                )  # fmt: skip
            case Report():
                return Reported(1, {}, {}, {})
            case Compile(cql):
                return MEANING.get(cql) or Refusal("mistake", f"no query {cql}")
            case Hold(_, streams):
                reply: Reply = Held({s: StreamMark(5, 0, 9) for s in streams})
            case Expect():
                reply = Expected(1, 1)
            case _:
                reply = Done()
        self.said.append((name, command))
        if (refused := self.refuse(name, command)) is not None:
            return refused
        if command.do == "declare":
            self.tables[str(command.stream["name"])] = dict(command.stream)
        self.have[name] = after(have, command, reply)
        return reply


@dataclass
class Leader:
    members: Members
    state: ManagerState
    now_s: float = 0.0
    asked: list[Command] = field(default_factory=list)
    away: str = ""  # it does not answer

    def feed(self, event: Event) -> None:
        waiting = self._step(event)
        while waiting:
            send = waiting.pop(0)
            if send.processor == self.away:
                continue
            self.asked += send.envelope.commands
            replies = tuple(self.members.reply(send.processor, c) for c in send.envelope.commands)
            waiting += self._step(Replied(send.processor, send.channel, send.number, replies))

    def _step(self, event: Event) -> list[Send]:
        self.state, sends = step(self.state, event, self.now_s)
        return list(sends)

    def until(self, done: Callable[[ManagerState], bool | None]) -> "Leader":
        for _ in range(40):
            self.feed(Tick())
            if done(self.state):
                return self
            self.now_s += 0.25
        raise AssertionError(self.state.decisions)


def three() -> Members:
    members = Members(("p0", "p1", "p2"))
    leader = members.lead().until(leading.has_learned)
    leader.feed(DeclareStream({"name": "a"}, "p1"))
    leader.feed(DeclareStream({"name": "b"}, "p2"))
    leader.until(leading.is_done)
    members.said.clear()
    return members


def running(name: str) -> Callable[[ManagerState], bool]:
    return lambda s: name in s.queries and s.queries[name].phase == "running"


def test_who_leads_learns_before_it_says_anything() -> None:
    members = three()
    leader = members.lead()
    leader.feed(Tick())
    assert {type(c) for c in leader.asked} == {Report, TakeInventory}
    assert members.said == []
    leader.until(leading.has_learned)
    assert {s.name: s.processor for s in leader.state.streams.values()} == {"a": "p1", "b": "p2"}
    assert leading.is_done(leader.state), "nothing differs from what is there"


def test_a_query_goes_to_the_delegation_nodes_with_the_managers_commands() -> None:
    members = three()
    leader = members.lead().until(leading.has_learned)
    leader.feed(Submit("q", "both"))
    leader.until(running("q")).until(leading.is_done)
    hosts = {(to, c.operators) for to, c in members.said if isinstance(c, Host)}
    assert hosts == {("p1", ("o:f", "o:j")), ("p2", ("o:g",))}
    assert members.have["p2"].expected == {"o:g": ("p1",)}
    assert members.have["p1"].connected["o:g"].processor == "p2"
    assert not any(queries for have in members.have.values() for queries in have.holds)
    assert leader.state.queries["q"].admission["sentence"] == (
        "2 fragments on p1, p2, at most 2 processors"
    )


def test_the_next_who_leads_finds_what_runs_shares_it_and_ends_nothing() -> None:
    members = three()
    leader = members.lead().until(leading.has_learned)
    leader.feed(Submit("q", "both"))
    leader.until(running("q")).until(leading.is_done)
    members.said.clear()
    other = members.lead().until(leading.has_learned)
    other.feed(Submit("r", "one"))
    other.until(running("r")).until(leading.is_done)
    assert running("q")(other.state)
    assert other.state.queries["r"].admission["reused"] == ["o:f"]
    assert not any(isinstance(c, Unhost) for _, c in members.said)
    assert {to for to, c in members.said if isinstance(c, Host)} == {"p1"}


def test_who_only_looks_asks_and_says_nothing_whatever_it_finds() -> None:
    members = three()
    leader = members.lead().until(leading.has_learned)
    leader.feed(Submit("q", "both"))
    for _ in range(3):  # it dies in the middle: some things are said, others are not
        leader.feed(Tick())
    members.said.clear()
    looker = members.lead(looks_only=True).until(leading.has_looked)
    for _ in range(20):
        looker.now_s += 1.0
        looker.feed(Tick())
    assert members.said == []
    assert all(isinstance(command, QUESTIONS) for command in looker.asked)


@pytest.mark.parametrize("said", range(1, 12))
def test_wherever_a_leader_dies_the_next_one_completes_the_query(said: int) -> None:
    members = three()
    dead = Refusal("busy", "it has died")
    members.refuse = lambda *_: dead if len(members.said) > said else None
    leader = members.lead().until(leading.has_learned)
    leader.feed(Submit("q", "both"))
    for _ in range(4):
        leader.now_s += 0.25
        leader.feed(Tick())
    members.refuse = lambda *_: None
    other = members.lead().until(leading.has_learned)
    other.feed(Submit("q", "both"))  # as the coordinator does for what was not finished
    other.until(running("q")).until(leading.is_done)
    hosted = {o for have in members.have.values() for q in have.queries.values()
              for o in q.operators}  # fmt: skip
    assert hosted == {"o:f", "o:g", "o:j"}
    assert not any(have.holds for have in members.have.values())


def led_without_p2(members: Members, record: QueryRecord | None) -> "Leader":
    """p2 is away; what records say of it is all that is known."""
    members.leader += 1
    joins = members.joins()
    away = {"p2": joins.pop("p2")}
    state = leading.beginning(
        ManagerState(), joins, away, 0.0, lineage=f"life {members.leader}", epoch=members.leader,
        records={record.name: record} if record else {},
    )  # fmt: skip
    return Leader(members, state, away="p2").until(leading.has_learned)


def test_who_is_away_and_has_nothing_of_a_query_holds_nobody_up() -> None:
    leader = led_without_p2(three(), None)
    leader.feed(Submit("r", "one"))
    leader.until(running("r"))


@pytest.mark.parametrize("phase", ["running", "accepted"])
def test_who_is_away_and_may_have_an_operator_is_waited_for(phase: str) -> None:
    """Else two would own one stream when it comes back."""
    places = {"o:f": "p2"} if phase == "running" else {}
    name = "other" if phase == "running" else "r"
    record = changed(accepted({}, name, "one", "p2", 1.0, from_beginning=True), places=places)
    leader = led_without_p2(three(), changed(record, phase=phase))
    leader.feed(Submit("r", "one"))
    for _ in range(20):
        leader.now_s += 0.5
        leader.feed(Tick())
    assert leader.state.queries["r"].phase == "placing"
    assert "p2 has not said yet what it runs" in leader.state.queries["r"].reason


def test_a_query_that_another_member_has_is_refused_with_its_name() -> None:
    records = {"q": accepted({}, "q", "both", "p2", 1.0, from_beginning=False)}
    up = ("p0", "p1", "p2")
    with pytest.raises(UsageError, match="query q exists already") as told:
        leading.check_new(records, "q", "both", "p0", up)
    assert told.value.detail == "p2 has accepted it"
    leading.check_new(records, "q", "both", "p2", up)
    leading.check_new(records, "q", "both", "p0", ("p0", "p1"))  # it takes the place of p2
    with pytest.raises(UsageError):
        leading.check_new(records, "q", "other", "p0", ("p0", "p1"))
    gone = {"q": changed(records["q"], phase="gone")}
    leading.check_new(gone, "q", "other", "p0", up)


def test_a_query_of_which_nobody_who_answers_has_anything_is_still_known() -> None:
    record = accepted({}, "q", "both", "p2", 1.0, from_beginning=False)
    record = changed(record, phase="running", places={"o:j": "p2"})
    members = Members(("p0",))
    state = members.lead(looks_only=True).until(leading.has_looked).state
    shown = leading.shown(state, {"q": record}, ("p0",))
    assert shown.queries["q"].phase == "running"
    assert shown.queries["q"].admission == {"acceptor": "p2", "coordinator": "p0"}
    assert leading.shown(state, {"q": record}, ("p0", "p2")).queries == {}
