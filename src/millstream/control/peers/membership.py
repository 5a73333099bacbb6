"""Who is a member of a cluster without a manager, as one of them sees it: events in, gossip out.

`step(view, event, now_s) -> (view, sends)`. Every member counts its own beat; once a second it
sends the members that it knows to a few others and receives those that it does not know, so news
reach all members in a few rounds, whichever member a newcomer met first. A member is present while
its beat grows. It is silent when its beat stands still for a while, and has left when it said
goodbye. Each member uses only its own clock, so no clock can mislead another. What is impossible
(another version, another home under a known name, numbers beyond bounds) is refused with a reason
and changes nothing. The records of queries (`records.py`) travel with it.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from millstream.control.peers.records import Records, lacking, merged
from millstream.control.protocol.commands import Join
from millstream.control.protocol.member_messages import (
    MEMBERS_MAX,
    VERSION,
    Card,
    Gossip,
    QueryRecord,
    Rumours,
)
from millstream.core.errors import RefusedError

NUMBER_MAX = 1 << 50  # beyond it, what was told is no epoch and no beat
STEP_MAX = 10**6  # by which another's epoch or beat may grow between two looks at it


@dataclass(frozen=True, slots=True)
class Timing:
    gossip_s: float = 1.0
    silent_s: float = 8.0  # without a new beat
    fanout: int = 3  # members that are told in a round
    forget_s: float = 3600.0  # after which one that is silent or has left is not spoken of


@dataclass(frozen=True, slots=True)
class Seen:
    """Another member as it is known here."""

    card: Card
    grew_s: float  # when its beat last grew, by the clock here


@dataclass(frozen=True, slots=True)
class View:
    """All that one member knows."""

    me: Card
    timing: Timing = field(default_factory=Timing)
    seeds: tuple[str, ...] = ()  # addresses to begin with
    others: Mapping[str, Seen] = field(default_factory=dict)
    records: Records = field(default_factory=dict)
    told_s: float = float("-inf")  # when the last round began
    round: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)  # by name or address: why

    def state_of(self, name: str, now_s: float) -> str:
        """`up`, `silent` or `left`; `unknown` for one that was never met."""
        if name == self.me.id:
            return "left" if self.me.left else "up"
        seen = self.others.get(name)
        if seen is None:
            return "unknown"
        if seen.card.left:
            return "left"
        return "up" if now_s - seen.grew_s <= self.timing.silent_s else "silent"

    def up(self, now_s: float) -> dict[str, Join]:
        """Who is there now, by name, this member included."""
        found = {self.me.id: self.me.join} if not self.me.left else {}
        for name, seen in self.others.items():
            if self.state_of(name, now_s) == "up":
                found[name] = seen.card.join
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; `card` is this member as it is now."""

    card: Card


@dataclass(frozen=True, slots=True)
class Heard:
    """Another member's gossip."""

    sender: str
    gossip: Gossip


@dataclass(frozen=True, slots=True)
class Answered:
    """What was answered to gossip: by whom, at which address."""

    url: str
    rumours: Rumours


@dataclass(frozen=True, slots=True)
class Refused:
    """Gossip was not taken, for a reason that will not pass by itself."""

    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """Records that were changed here, or that another one wants remembered."""

    records: tuple[QueryRecord, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """A user has said that a member is gone with its home."""

    name: str


Event = Tick | Heard | Answered | Refused | Recorded | Lost


@dataclass(frozen=True, slots=True)
class Send:
    """What a driver is to do: send this, and feed what comes of it."""

    to: str  # a name; empty where only the address is known
    url: str
    gossip: Gossip


def step(view: View, event: Event, now_s: float) -> tuple[View, tuple[Send, ...]]:
    """One event; raises a refusal, and nothing has changed then."""
    match event:
        case Tick(card):
            return _tick(view, card, now_s)
        case Heard(sender, gossip):
            _check_version(sender, gossip.version)
            _check_home(view, sender, gossip.cards, now_s)
            return _with_cards(view, gossip.cards, sender, now_s), ()
        case Answered(url, rumours):
            if rumours.version != VERSION:
                return _noted(view, url, _versions(rumours.version)), ()
            refused = {k: v for k, v in view.refused.items() if k != url}
            known = merged(view.records, rumours.records)
            view = replace(view, records=known, refused=refused)
            return _with_cards(view, rumours.cards, "", now_s), ()
        case Refused(url, reason):
            return _noted(view, url, reason), ()
        case Recorded(records):
            return replace(view, records=merged(view.records, records)), ()
        case Lost(name):
            return _with_lost(view, name), ()


def _with_lost(view: View, name: str) -> View:
    """Its card says so from now on, and outdoes all that it has said itself."""
    seen = view.others.get(name)
    if seen is None or seen.card.lost:
        return view
    card = replace(seen.card, left=True, lost=True, beat=seen.card.beat + 1)
    return replace(view, others={**view.others, name: replace(seen, card=card)})


def rumours(view: View, gossip: Gossip) -> Rumours:
    """The answer to gossip: everybody who is known, and the records that the sender lacks."""
    return Rumours(VERSION, _cards(view), lacking(view.records, gossip.records))


def _tick(view: View, card: Card, now_s: float) -> tuple[View, tuple[Send, ...]]:
    others = {
        name: seen
        for name, seen in view.others.items()
        if seen.card.lost or now_s - seen.grew_s <= view.timing.forget_s
    }
    view = replace(view, others=others)
    mine = replace(card, beat=view.me.beat)
    if now_s - view.told_s < view.timing.gossip_s and mine == view.me:
        return view, ()
    view = replace(
        view, me=replace(card, beat=view.me.beat + 1), told_s=now_s, round=view.round + 1
    )
    return view, _round(view, now_s)


def _round(view: View, now_s: float) -> tuple[Send, ...]:
    """To some who are there, to one who is not (it may be back), and to addresses without name."""
    chance = random.Random(f"{view.me.id} {view.round}")  # the same events give the same rounds
    there = [n for n in sorted(view.others) if view.state_of(n, now_s) == "up"]
    away = [n for n in sorted(view.others) if n not in there]
    chosen = chance.sample(there, min(view.timing.fanout, len(there)))
    chosen += chance.sample(away, min(1, len(away)))
    gossip = Gossip(
        VERSION, _cards(view), {name: record.stand for name, record in view.records.items()}
    )
    sends = [Send(name, view.others[name].card.join.url, gossip) for name in chosen]
    met = {seen.card.join.url for seen in view.others.values()} | {view.me.join.url}
    sends += [Send("", url, gossip) for url in view.seeds if url not in met]
    return tuple(sends)


def _cards(view: View) -> tuple[Card, ...]:
    others = [seen.card for seen in view.others.values()]
    return (view.me, *others)[:MEMBERS_MAX]


def _with_cards(view: View, cards: Iterable[Card], sender: str, now_s: float) -> View:
    others, me = dict(view.others), view.me
    for card in cards:
        if max(card.age) > NUMBER_MAX:
            continue
        if card.id == me.id:
            same = card.join.home == me.join.home and card.join.epoch == me.join.epoch
            if same and me.beat <= card.beat < me.beat + STEP_MAX and card != me:
                me = replace(me, beat=card.beat + 1)  # a rumour about oneself is outdone
            continue
        known = others.get(card.id)
        if card.lost and view.state_of(card.id, now_s) == "up":
            continue  # it is there
        if known is None or _newer(card, known.card, direct=card.id == sender):
            others[card.id] = Seen(card, now_s)
    return replace(view, others=others, me=me)


def _newer(card: Card, known: Card, *, direct: bool) -> bool:
    """Whether a card counts more than the one that is known. What a member says itself counts
    whatever others made of it; what others say only as far as it is possible."""
    if card.join.home != known.join.home:
        return known.left or direct
    if known.lost or card.lost:
        return card.lost and not known.lost  # whatever it says itself
    if direct:
        return card.age != known.age
    epochs, beats = card.join.epoch - known.join.epoch, card.beat - known.beat
    return card.age > known.age and epochs < STEP_MAX and beats < STEP_MAX


def _check_version(sender: str, version: int) -> None:
    if version != VERSION:
        raise RefusedError(
            "version", f"{sender} cannot be a member here", detail=_versions(version),
            hint="run the same version of Millstream on all members",
        )  # fmt: skip


def _versions(version: int) -> str:
    return f"it speaks version {version} of what members say, this cluster version {VERSION}"


def _check_home(view: View, sender: str, cards: tuple[Card, ...], now_s: float) -> None:
    """Two homes under one name would take each other's work for their own."""
    mine = next((card for card in cards if card.id == sender), None)
    if mine is None:
        raise RefusedError("mistake", f"gossip of {sender} does not name its sender")
    known = view.others.get(sender)
    if known is not None and known.card.lost and known.card.join.home == mine.join.home:
        raise RefusedError(
            "declared_lost", f"{sender} was declared lost, and its work begun again elsewhere",
            hint="start it with an empty home; rows that only this one has can be read from it",
        )  # fmt: skip
    there = known is not None and view.state_of(sender, now_s) == "up"
    taken = there and known is not None and known.card.join.home != mine.join.home
    if taken or (sender == view.me.id and mine.join.home != view.me.join.home):
        raise RefusedError(
            "other_home", f"another member is called {sender} here",
            hint="start it with another --id, or stop the other one first",
        )  # fmt: skip


def _noted(view: View, url: str, reason: str) -> View:
    return replace(view, refused={**view.refused, url: reason})
