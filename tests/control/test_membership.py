"""Members of a cluster without a manager: events in, gossip out; no network, no clock."""

import random
from dataclasses import dataclass, field, replace

import pytest

from millstream.control.peers import membership
from millstream.control.peers.membership import (
    Answered,
    Heard,
    Lost,
    Recorded,
    Refused,
    Tick,
    Timing,
    View,
    rumours,
    step,
)
from millstream.control.peers.records import accepted, changed, coordinator_of, merged, unfinished
from millstream.control.protocol.commands import Join
from millstream.control.protocol.member_messages import (
    VERSION,
    Card,
    Gossip,
    QueryRecord,
    Rumours,
)
from millstream.core.errors import RefusedError

TIMING = Timing(gossip_s=1.0, silent_s=8.0, fanout=2)


def card(name: str, beat: int = 0, **changes: object) -> Card:
    join = Join(name, f"http://{name}", 1, home=f"home of {name}")
    return replace(Card(join, beat), **changes)  # type: ignore[arg-type]


def view(name: str, *seeds: str) -> View:
    return View(card(name), TIMING, tuple(f"http://{seed}" for seed in seeds))


def gossip(*cards: Card) -> Gossip:
    return Gossip(VERSION, cards)


@dataclass
class Network:
    """Members that gossip in virtual time; who is cut off hears nothing."""

    views: dict[str, View]
    now_s: float = 0.0
    down: set[str] = field(default_factory=set)
    groups: dict[str, int] = field(default_factory=dict)  # of a partition

    def reach(self, one: str, other: str) -> bool:
        apart = self.groups.get(one, 0) != self.groups.get(other, 0)
        return other in self.views and not {one, other} & self.down and not apart

    def round(self) -> None:
        self.now_s += 1.0
        for name in sorted(self.views):
            if name in self.down:
                continue
            self.views[name], sends = step(self.views[name], Tick(self.views[name].me), self.now_s)
            for send in sends:
                to = send.to or send.url.removeprefix("http://")
                if to == name or not self.reach(name, to):
                    continue
                self.views[to], _ = step(self.views[to], Heard(name, send.gossip), self.now_s)
                told = rumours(self.views[to], send.gossip)
                self.views[name], _ = step(self.views[name], Answered(send.url, told), self.now_s)

    def up(self, name: str) -> set[str]:
        return set(self.views[name].up(self.now_s))


def chain(count: int) -> Network:
    """Each but the first knows the address of the one before it."""
    names = [f"p{n:02}" for n in range(count)]
    return Network({n: view(n, *names[max(0, i - 1) : i]) for i, n in enumerate(names)})


def test_from_one_address_each_everybody_is_known_in_a_few_rounds() -> None:
    network = chain(32)
    for _ in range(8):
        network.round()
    assert all(len(network.up(name)) == 32 for name in network.views)


def test_who_stops_is_silent_and_who_says_goodbye_has_left() -> None:
    network = chain(6)
    for _ in range(5):
        network.round()
    network.down.add("p03")
    leaving = network.views["p05"]
    network.views["p05"], sends = step(leaving, Tick(replace(leaving.me, left=True)), network.now_s)
    network.down.add("p05")
    for send in sends:
        network.views[send.to], _ = step(
            network.views[send.to], Heard("p05", send.gossip), network.now_s
        )
    for _ in range(4):
        network.round()
    there = network.views["p00"]
    assert there.state_of("p05", network.now_s) == "left"
    assert there.state_of("p03", network.now_s) == "up", "silence is told from a pause"
    for _ in range(10):
        network.round()
    assert network.up("p00") == {"p00", "p01", "p02", "p04"}
    network.down.clear()
    back = network.views["p05"]
    again = replace(back.me, join=replace(back.me.join, epoch=2), left=False)
    network.views["p05"] = replace(back, me=again)
    for _ in range(6):
        network.round()
    assert all(len(network.up(name)) == 6 for name in network.views)


def test_another_version_another_home_and_nonsense_are_refused_and_change_nothing() -> None:
    mine = step(view("a"), Heard("b", gossip(card("b", 5))), 1.0)[0]
    with pytest.raises(RefusedError, match="c cannot be a member here"):
        step(mine, Heard("c", Gossip(VERSION + 1, (card("c"),))), 1.0)
    other = card("b", 9, join=Join("b", "http://elsewhere", 1, home="another"))
    with pytest.raises(RefusedError, match="another member is called b"):
        step(mine, Heard("b", gossip(other)), 2.0)
    with pytest.raises(RefusedError, match="does not name its sender"):
        step(mine, Heard("d", gossip(card("b", 6))), 2.0)
    huge = card("e", 1 << 55)
    assert step(mine, Heard("b", gossip(card("b", 5), huge)), 1.0)[0].others.keys() == {"b"}
    answered, _ = step(mine, Answered("http://x", Rumours(VERSION + 1, (card("x"),))), 1.0)
    assert answered.others == mine.others
    assert "version 2" in answered.refused["http://x"]
    noted, _ = step(mine, Refused("http://y", "the server there is not a processor"), 1.0)
    assert noted.refused == {"http://y": "the server there is not a processor"}
    # once it has been silent for long, another home may have the name
    late, _ = step(mine, Heard("b", gossip(other)), 60.0)
    assert late.others["b"].card == other


def test_a_rumour_cannot_make_the_dead_live_nor_the_living_dead() -> None:
    mine = step(view("a"), Heard("b", gossip(card("b", 5))), 1.0)[0]
    lied, _ = step(mine, Heard("c", gossip(card("c", 1), card("b", 5 + 10**7))), 20.0)
    assert lied.state_of("b", 20.0) == "silent"
    said_left = card("b", 50, left=True)
    left, _ = step(mine, Heard("c", gossip(card("c", 1), said_left)), 2.0)
    assert left.state_of("b", 2.0) == "left"
    back, _ = step(left, Heard("b", gossip(card("b", 6))), 3.0)
    assert back.state_of("b", 3.0) == "up", "what a member says itself counts"
    about_me, _ = step(view("a"), Heard("c", gossip(card("c", 1), card("a", 7, left=True))), 1.0)
    assert about_me.me.beat == 8
    assert not about_me.me.left


def test_who_was_declared_lost_is_refused_wherever_it_comes_back() -> None:
    network = chain(4)
    for _ in range(10):
        network.round()
    network.down.add("p03")
    for _ in range(10):
        network.round()
    network.views["p00"], _ = step(network.views["p00"], Lost("p03"), network.now_s)
    for _ in range(10):
        network.round()
    names = ("p00", "p01", "p02")
    assert all(network.views[name].others["p03"].card.lost for name in names)
    back = card("p03", 10**5)
    back = replace(back, join=replace(back.join, epoch=2))
    for name in names:
        with pytest.raises(RefusedError, match="was declared lost"):
            step(network.views[name], Heard("p03", gossip(back)), network.now_s)
        told, _ = step(
            network.views[name],
            Answered("http://p03", Rumours(VERSION, (back,), ())),
            network.now_s,
        )
        assert "p03" not in told.up(network.now_s), "nor by a rumour"
    fresh = replace(back, join=replace(back.join, home="an empty one"))
    told, _ = step(network.views["p01"], Heard("p03", gossip(fresh)), network.now_s)
    assert "p03" in told.up(network.now_s)


def test_a_rumour_that_one_is_lost_who_is_there_is_not_believed() -> None:
    mine, _ = step(view("m0"), Heard("m1", gossip(card("m1", 5))), 1.0)
    rumour = gossip(card("m2", 1), card("m1", 9, left=True, lost=True))
    after, _ = step(mine, Heard("m2", rumour), 2.0)
    assert "m1" in after.up(2.0)
    after, _ = step(mine, Heard("m2", rumour), 20.0)
    assert after.others["m1"].card.lost


def test_records_reach_everybody_and_the_highest_revision_counts() -> None:
    network = chain(12)
    for _ in range(6):
        network.round()
    record = accepted({}, "q", "SELECT 1", "p07", 3.0, from_beginning=False)
    network.views["p07"], _ = step(network.views["p07"], Recorded((record,)), network.now_s)
    for _ in range(8):
        network.round()
    assert {v.records["q"].phase for v in network.views.values()} == {"accepted"}
    running = changed(record, phase="running", places={"o:1": "p02"})
    gone = changed(running, phase="gone")
    network.views["p02"], _ = step(network.views["p02"], Recorded((gone,)), network.now_s)
    network.views["p09"], _ = step(network.views["p09"], Recorded((running,)), network.now_s)
    for _ in range(8):
        network.round()
    assert {v.records["q"].phase for v in network.views.values()} == {"gone"}


def test_of_two_acceptors_in_two_parts_of_a_network_all_come_to_believe_one() -> None:
    ours = QueryRecord("q", "a", "p1")
    theirs = QueryRecord("q", "b", "p2")
    assert merged({"q": ours}, (theirs,)) == merged({"q": theirs}, (ours,)) == {"q": ours}
    assert coordinator_of(ours, ("p1", "p2")) == "p1"
    assert coordinator_of(ours, ("p2", "p3")) == "p2"
    assert unfinished({"q": ours}, "p2", ("p2", "p3")) == (ours,)
    assert unfinished({"q": ours}, "p3", ("p2", "p3")) == ()
    assert unfinished({"q": changed(ours, phase="running")}, "p1", ("p1",)) == ()


def run(seed: int) -> None:
    """Members come, go and are cut off from each other; in the end all know the same."""
    chance = random.Random(seed)
    network = chain(chance.randint(2, 9))
    names = sorted(network.views)
    for _ in range(30):
        match chance.choice(("down", "up", "apart", "whole", "record", "liar", "rest")):
            case "down":
                network.down.add(chance.choice(names))
            case "up" if network.down:
                back = chance.choice(sorted(network.down))
                network.down.discard(back)
                known = network.views[back]
                join = replace(known.me.join, epoch=known.me.join.epoch + 1)
                network.views[back] = replace(known, me=replace(known.me, join=join, beat=0))
            case "apart":
                network.groups = {name: chance.randint(0, 1) for name in names}
            case "whole":
                network.groups = {}
            case "record":
                at = chance.choice([n for n in names if n not in network.down] or names)
                known = network.views[at].records
                record = accepted(known, "q", str(seed), at, 0.0, from_beginning=False)
                network.views[at], _ = step(network.views[at], Recorded((record,)), network.now_s)
            case "liar":
                at, about = chance.sample(names, 2) if len(names) > 1 else (names[0], names[0])
                lie = card(about, chance.choice((3, 10**5, 10**8)), left=chance.random() < 0.5)
                told = gossip(card("liar", network.views[at].round), lie)
                network.views[at], _ = step(network.views[at], Heard("liar", told), network.now_s)
        network.round()
    network.down.clear()
    network.groups = {}
    for _ in range(40):
        network.round()
    for name in names:
        assert network.up(name) - {"liar"} == set(names), f"seed {seed}"
    assert len({str(v.records.get("q")) for v in network.views.values()}) == 1, f"seed {seed}"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_all_know_the_same_in_the_end(seed: int) -> None:
    run(seed)


@pytest.mark.soak
def test_ten_thousand_networks() -> None:
    for seed in range(10_000):
        run(seed)


def test_nobody_is_told_twice_in_a_round() -> None:
    known, _ = step(view("a", "b"), Heard("b", gossip(card("b", 1))), 0.0)
    first, sends = step(known, Tick(known.me), 1.0)
    assert [(send.to, send.url) for send in sends] == [("b", "http://b")]
    assert step(first, Tick(first.me), 1.5)[1] == ()
    news = replace(first.me, streams=("s",))
    assert len(step(first, Tick(news), 1.5)[1]) == 1, "news are told at once"
    assert membership.MEMBERS_MAX >= 1000
