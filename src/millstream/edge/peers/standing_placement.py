"""Keeps trees placed between real processors, without a manager (`control/peers/standing.py`).

Each member looks at its interval at what runs, lets the trees of which it is the proxy be mapped by
all (`placement_coordinator.py`), and leads for as long as the moves take that follow
(`member_desk.py`). A member that is gone is told to the coordinators at once; what is mapped again
because of it is looked at as soon as it is there. While a manager leads, it rests. Decides nothing.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from millstream.control.admission.parts import Part
from millstream.control.admission.replacement import Proposal
from millstream.control.manager.state import ManagerState
from millstream.control.peers import leading, standing
from millstream.control.peers.standing import Kept, StandingSettings
from millstream.control.protocol.replies import Refusal, TreePlaced
from millstream.core.errors import MillstreamError
from millstream.core.placement import Placement
from millstream.edge.manager import answers
from millstream.edge.peers.member_desk import MemberDesk
from millstream.edge.peers.placement_coordinator import PlacementCoordinator
from millstream.store.machine_failures import first_line

BEAT_S = 0.25
MAPPING_S = 30.0
MOVES_S = 120.0
READ_S = 20.0
T = TypeVar("T")


class StandingPlacement:
    """One member's standing trees."""

    def __init__(
        self,
        desk: MemberDesk,
        coordinator: PlacementCoordinator,
        settings: StandingSettings,
        loop: Callable[[], asyncio.AbstractEventLoop],
        say: Callable[[str], None],
        life: int,
    ) -> None:
        self._desk, self._coordinator, self.settings = desk, coordinator, settings
        self._loop, self._say, self._life = loop, say, life
        self._kept: standing.Trees = {}
        self._parts: dict[str, Part] = {}
        self._said: dict[str, str] = {}
        self._looked_s = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-standing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(MAPPING_S)

    @property
    def _me(self) -> str:
        return self._desk.gossip.me

    def _run(self) -> None:
        while not self._stopping.wait(BEAT_S):
            try:
                self._beat()
            except MillstreamError as error:
                self._tell("", f"standing placement: {error.message}")
            except Exception as error:
                if self._stopping.is_set():
                    return  # ledger and clients are closed by now
                self._tell("", f"standing placement: {type(error).__name__}: {first_line(error)}")

    def _beat(self) -> None:
        if self._desk.led():
            self._let_go(self._kept.keys())  # a manager places by itself
            return
        news = [name for name, k in self._kept.items() if self._coordinator.has_news(k.tree.id)]
        if time.monotonic() - self._looked_s >= self.settings.every_s:
            self._looked_s = time.monotonic()
            self._look()
        for name in news:  # somebody was gone, and the others have mapped it again
            if name in self._kept and self._coordinator.has_news(self._kept[name].tree.id):
                self._follow(name)

    # -- looking --------------------------------------------------------------------------------

    def _look(self) -> None:
        state, seen = standing.looked(self._await(self._desk.read(), READ_S), self.settings)
        self._parts = standing.own_parts(state, seen, self._me)
        now_s = time.monotonic()
        self._let_go(self._kept.keys() - self._parts.keys())
        self._kept = standing.noticed(self._kept, self._parts, self._me, self._life, now_s)
        urls = self._urls()
        for name, kept in self._kept.items():
            how = standing.asked(self._parts[name], kept.tree, self._me, self.settings, urls)
            self._coordinator.stand(kept.tree, how, urls, self.settings.levels, MAPPING_S)
        for name in tuple(self._kept):
            if not self._stopping.is_set():
                self._follow(name)

    def _urls(self) -> dict[str, str]:
        return {name: join.url for name, join in self._desk.gossip.up().items()}

    def _let_go(self, names: Any) -> None:
        for name in tuple(names):
            self._coordinator.withdraw(self._kept[name].tree.id)
            self._kept = {other: kept for other, kept in self._kept.items() if other != name}

    # -- following ------------------------------------------------------------------------------

    def _follow(self, name: str) -> None:
        """What the processors have found for a tree, and what that leads to."""
        kept, part = self._kept[name], self._parts[name]
        told = self._coordinator.outcome(kept.tree, self._urls(), MAPPING_S)
        if not isinstance(told, TreePlaced):
            reason = f": {told.detail}" if isinstance(told, Refusal) else ""
            self._note(name, f"{name} stays where it is: the processors find no placement{reason}")
            return
        kept = replace(
            kept, epoch=told.attempts, zones=told.zones, cost=part.judged(part.running).cost,
            found=told.cost,
        )  # fmt: skip
        self._kept = {**self._kept, name: kept}
        if all(part.running.get(o) == place for o, place in told.placement.items()):
            self._note(name, f"{name} stays where it is: nothing better is known")
            return
        proposal = self._await(self._carried_out(kept, name, told.placement), MOVES_S + READ_S)
        why = f" ({proposal.reason})" if proposal.moves else ""
        self._note(name, proposal.sentence + why)
        if proposal.moves and self.settings.moves:
            there = {o: place for o, (_, place) in proposal.moves.items()}
            after = replace(
                self._kept[name], places={**kept.places, **there}, moved_s=time.monotonic()
            )
            self._kept = {**self._kept, name: after}
            self._looked_s = min(self._looked_s, time.monotonic() - self.settings.every_s / 2)

    async def _carried_out(self, kept: Kept, name: str, placement: Placement) -> Proposal:
        """Decides by what is known now; then again as the leader, when nothing else goes on."""
        resting = standing.rests(kept, self.settings, time.monotonic())
        proposal = self._decided(await self._desk.read(), name, placement, resting=resting)
        if not proposal.moves or not self.settings.moves:
            return proposal
        async with self._desk.changing() as driver:
            view = self._desk.gossip.view
            known = leading.shown(driver.state, view.records, self._desk.gossip.up())
            proposal = self._decided(known, name, placement, resting=resting)
            before = driver.state.counter
            for wish in proposal.wishes():
                driver.feed(wish)
            mine = [move["id"] for move in answers.moves_since(driver.state, before)]
            await driver.until(lambda s: answers.settled(s, mine), MOVES_S)
        return proposal

    def _decided(
        self, known: ManagerState, name: str, placement: Placement, *, resting: bool
    ) -> Proposal:
        state, seen = standing.looked(known, self.settings)
        part = standing.own_parts(state, seen, self._me).get(name)
        if part is None:
            reason = "another processor places it now"
            return Proposal(name, {}, f"{name} stays where it is: {reason}", reason)
        return standing.decided(state, seen, part, placement, resting=resting)

    # -- saying ---------------------------------------------------------------------------------

    def _await(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Lets the endpoint's event loop do something for this thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop()).result(seconds)

    def _note(self, name: str, sentence: str) -> None:
        self._kept = {**self._kept, name: replace(self._kept[name], sentence=sentence)}
        self._tell(name, sentence)

    def _tell(self, about: str, text: str) -> None:
        """The same sentence is told once."""
        if self._said.get(about) != text:
            self._said[about] = text
            self._say(text)

    def seen(self) -> list[Mapping[str, Any]]:
        """What a person, or a script, wants to know."""
        return [
            {
                "part": name,
                "queries": list(self._parts[name].queries) if name in self._parts else [],
                "proxy": self._me,
                "epoch": kept.epoch,
                "coordinators": dict(kept.zones),
                "places": dict(kept.places),
                "cost": kept.cost,
                "found": kept.found,
                "sentence": kept.sentence,
            }
            for name, kept in sorted(self._kept.items())
        ]
