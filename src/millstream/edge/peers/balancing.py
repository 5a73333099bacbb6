"""Balancing without a manager, between real processors: drives one node of seed 002's scheme.

The very classes that the simulator drives (decide/balance/balancer.py) decide; this turns the
clock, what the engine took and what peers write into events, and commands into messages and live
moves. While a manager leads, it watches and asks for nothing: the two exclude each other. No
decision here.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from millstream.control.admission.estimates import CYCLE_S
from millstream.control.moves.handover import Handover, PeerCommand
from millstream.control.peers.membership import Timing
from millstream.control.protocol.envelope import Introduce
from millstream.core.errors import MillstreamError, UsageError
from millstream.decide.balance import balancer
from millstream.decide.balance.balancer import Node, Settings
from millstream.decide.balance.load_information import Fluctuation, smallest_alpha
from millstream.decide.balance.protocol import (
    Command,
    Event,
    FragmentsRead,
    LoadShifted,
    Message,
    Move,
    ReadFragments,
    Received,
    RefreshDue,
    RoundStarted,
    Send,
    WindowClosed,
)
from millstream.decide.balance.running import RunningFragment, neighbours, view
from millstream.decide.balance.selection import SELECTIONS
from millstream.edge.peers.peer_book import PeerBook
from millstream.edge.peers.peer_moves import PREFIX, PeerMoves
from millstream.edge.processor.dispatcher import Dispatcher
from millstream.edge.processor.measured_load import Costs, MeasuredLoad
from millstream.edge.views.running_view import fragments_here, operators_here, surroundings
from millstream.engine.steps.priming import prime
from millstream.store.machine_failures import first_line

if TYPE_CHECKING:
    from millstream.edge.processor.connection_manager import ConnectionManager
    from millstream.edge.processor.statistics_gatherer import StatisticsGatherer
    from millstream.engine.processor import Processor

PLACEMENT = "placement"  # the seed's scheme as it stands
NOTHING = "none"  # a member that moves nothing because of its load
MANAGER_SILENCE_SECONDS = 30.0  # longer than a manager needs to give a processor up
LONELY_SECONDS = 1.0  # between looks for others, while nobody is known
FRAGMENTS_MAX = 3  # of a move: each is tried out before it is taken over, which takes time
# So often an operator runs, unless told otherwise: a processor is then as busy as it has work.
PACE_SECONDS = 1.0
LOG_KEPT = 100
# Steps on Spark take tenths of a second to seconds, so windows are longer than the seed's 100 ms;
# a load that doubles within a window and stays for two is not yet a change.
WINDOW_SECONDS = 0.5
KAPPA = 1.2
FLUCTUATION = Fluctuation(rise_windows=1, hold_windows=2, factor=2.0)


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """How a processor balances with its peers."""

    scheme: str = PLACEMENT  # or the name of a load selection
    peers: tuple[str, ...] = ()  # addresses; others make themselves known
    window_s: float = WINDOW_SECONDS
    round_s: float = 4.0
    kappa: float = KAPPA
    manager_silence_s: float = MANAGER_SILENCE_SECONDS
    cpu: float = 1.0
    cycle_s: float = CYCLE_S  # within which every operator is to have its turn
    seed: int = 0
    membership: Timing = field(default_factory=Timing)

    @property
    def moves(self) -> bool:
        """Whether load is a reason to move anything."""
        return self.scheme != NOTHING

    def node_settings(self) -> Settings:
        plain = self.scheme in (PLACEMENT, NOTHING)
        selection = Settings().selection if plain else self.scheme
        if selection not in SELECTIONS.names():
            known = ", ".join((PLACEMENT, *SELECTIONS.names(), NOTHING))
            raise UsageError(f"there is no balancing {self.scheme!r}", hint=f"one of {known}")
        return Settings(
            window_s=self.window_s,
            round_s=self.round_s,
            kappa=self.kappa,
            alpha=smallest_alpha(FLUCTUATION, self.kappa),
            selection=selection,
        )


@dataclass(slots=True)
class _Clock:
    """When each last was."""

    round_s: float
    refresh_s: float


class Balancing:
    """The node of one processor, its clock and its mailbox."""

    def __init__(
        self,
        processor: "Processor",
        connections: "ConnectionManager",
        statistics: "StatisticsGatherer",
        settings: BalanceSettings,
        url: Callable[[], str],
        say: Callable[[str], None],
        book: PeerBook,
        costs: Costs,
        ratios: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self.processor, self.connections, self.statistics = processor, connections, statistics
        self.settings, self._say = settings, say
        self._ratios = ratios
        self.rules = settings.node_settings()
        self.book = book
        self.book.add(settings.peers)
        self.moves = PeerMoves(processor, connections, book, url, say, self.led)
        self.moves.on_end.append(self._ended)
        epoch = processor.engine.ledger.epoch
        self.node = Node(processor.id, seed=settings.seed * 1009 + epoch, cpu=settings.cpu)
        self.log: deque[str] = deque(maxlen=LOG_KEPT)
        self.moved = self.undone = 0
        self._lock = threading.RLock()
        now_s = time.monotonic()
        self._clock = _Clock(now_s, now_s - self.rules.refresh_s)
        self.load = MeasuredLoad(
            processor.engine,
            costs,
            alpha=self.rules.alpha,
            cycle_s=processor.engine.settings.pace_s or settings.cycle_s,
            now_s=now_s,
        )
        self._fragments: dict[str, RunningFragment] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-balance", daemon=True)
        self._priming: threading.Thread | None = None
        processor.new_owner.on_owner.append(self._arrived)

    def start(self) -> None:
        self._thread.start()
        if not self.processor.engine.operators and self.processor.engine.plane.machine is not None:
            self._priming = threading.Thread(
                target=self._prime, name="millstream-prime", daemon=True
            )
            self._priming.start()

    def _prime(self) -> None:
        """Who has nothing to do will be given something: its first step should not be slow."""
        with suppress(Exception):  # a session that ends meanwhile; nothing depends on it
            engine = self.processor.engine
            prime(engine.plane, engine.home / "priming", self._wanted)

    def _wanted(self) -> bool:
        """Whether there is real work, or none any more."""
        engine = self.processor.engine
        given = bool(engine.operators or engine.appenders) or self.moves.engaged is not None
        return given or self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()
        for thread in (self._thread, self._priming):
            if thread is not None and thread.is_alive():
                thread.join()
        self.moves.stop()
        self.book.close()

    def led(self) -> str:
        """Why this processor takes no part in balancing now; empty if it does."""
        heard_s = self.connections.heard_s
        if heard_s and time.monotonic() - heard_s < self.settings.manager_silence_s:
            return "a manager leads"
        return ""

    # -- the clock ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(self.rules.window_s):
            try:
                self._beat(time.monotonic())
            except MillstreamError as error:
                self._say(f"balancing: {error.message}")
            except Exception as error:
                if self._stopping.is_set():
                    return  # ledger and client are closed by now
                self._say(f"balancing: {type(error).__name__}: {first_line(error)}")

    def _beat(self, now_s: float) -> None:
        clock = self._clock
        often_s = self.rules.refresh_s if self.node.partners.others else LONELY_SECONDS
        if now_s - clock.refresh_s >= min(often_s, self.rules.refresh_s):
            clock.refresh_s = now_s
            self.book.ask_around()
            self.moves.sweep()
            self._read()
            near = neighbours(self._views(), self.processor.id)
            others = self.book.names
            met = tuple(name for name in near if name in others)
            self._give(RefreshDue(now_s, met, others))
        self.load.close_window(now_s)
        gone = self.moves.leaving  # others are told of what stays
        stays = sum(load for name, load in self.load.loads.items() if name not in gone)
        self._give(WindowClosed(now_s, stays))
        if now_s - clock.round_s >= self.rules.round_s:
            clock.round_s = now_s
            # Who takes part in a move asks for nothing: its load is about to change.
            if not self.led() and self.moves.engaged is None and self.settings.moves:
                self._give(RoundStarted(now_s))

    # -- events and commands --------------------------------------------------------------------

    def _give(self, event: Event) -> None:
        with self._lock:
            self.node, commands = balancer.step(self.node, event, self.rules)
        self._obey(commands)

    def _obey(self, commands: tuple[Command, ...]) -> None:
        news: dict[str, list[Message]] = {}
        moves: dict[str, list[Move]] = {}
        for command in commands:
            match command:
                case Send(to, message):
                    news.setdefault(to, []).append(message)
                case Move():
                    moves.setdefault(command.to, []).append(command)
                case ReadFragments():
                    if self.moves.engaged is not None or not self.settings.moves:
                        continue  # who asks now is served, the largest wish first, when it is over
                    self._read()
                    self._give(FragmentsRead(time.monotonic(), self._views()))
        for to, messages in news.items():
            self.book.tell(to, messages)
        for to, chosen in moves.items():
            self._move(to, chosen)

    def _read(self) -> None:
        self._around = surroundings(self.processor, self.book.entered_at())
        found = operators_here(
            self.processor,
            self.statistics,
            self.load.loads,
            self._ratios(),
            self.load.shared_jobs(),
        )
        self._fragments = fragments_here(found, self._around)

    def _views(self) -> list[Any]:
        return [view(fragment, self._around) for fragment in self._fragments.values()]

    def _move(self, to: str, chosen: list[Move]) -> None:
        """Fragments to one processor go together, a few at a time: one copy of what they read, one
        seal, and the next who asks need not wait for long."""
        leaving = self._few(chosen)
        for left in chosen:
            if left not in leaving:  # it stays for now
                self._give(LoadShifted(time.monotonic(), left.load))
        chosen = leaving
        load = sum(move.load for move in chosen)
        fragments = [self._fragments[m.fragment] for m in chosen if m.fragment in self._fragments]
        arriving = sum(move.arriving for move in chosen)
        problem = self.led() or self.moves.begin(fragments, to, load, arriving)
        if problem:
            self._give(LoadShifted(time.monotonic(), load))
            self._note(f"nothing goes to {to}: {problem}")
        else:
            reason = "; ".join(dict.fromkeys(move.reason for move in chosen))
            self._note(f"{len(fragments)} fragments go to {to}: {reason}")

    def _few(self, chosen: list[Move]) -> list[Move]:
        """The first of them, and those that share a job with these."""
        kept: list[Move] = []
        jobs: set[str] = set()
        for move in chosen:
            fragment = self._fragments.get(move.fragment)
            mine = {o.job for o in fragment.operators if o.job} if fragment is not None else set()
            if len(kept) < FRAGMENTS_MAX or mine & jobs:
                kept.append(move)
                jobs |= mine
        return kept

    def _ended(self, move: Handover) -> None:
        to = move.target.processor
        if move.moved:
            self.moved += 1
            self._note(f"{to} has taken over {len(move.prepare.operators)} operators ({move.id})")
        else:
            self.undone += 1
            self._give(LoadShifted(time.monotonic(), move.load))
            self._note(f"the move {move.id} to {to} is undone: {move.outcome}")

    def _arrived(self, move: str) -> None:
        """This processor has become the owner of what a peer handed over."""
        known = self.moves.engaged
        if move.startswith(PREFIX) and known is not None and known.move == move:
            now_s, names = time.monotonic(), self.moves.operators_of(move)
            self.load.arrived(names, known.load, now_s)
            self._give(LoadShifted(now_s, known.load))

    def _note(self, text: str) -> None:
        self.log.append(text)
        self._say(text)

    # -- what peers and people ask --------------------------------------------------------------

    def take_messages(self, dispatcher: Dispatcher) -> None:
        """News and commands of partners come here."""
        dispatcher.on((Introduce,), lambda sender, m: self.book.met(sender, m.url, m.streams))
        dispatcher.on(get_args(Message), self._heard)
        dispatcher.on(get_args(PeerCommand), lambda _, command: self.moves.receive(command))

    def _heard(self, sender: str, message: Message) -> None:
        self._give(Received(time.monotonic(), sender, message))

    def seen(self) -> dict[str, Any]:
        """What a person, or a script, wants to know."""
        with self._lock:
            node, loads, busy = self.node, self.load.loads, self.load.busy
        engaged = self.moves.engaged
        return {
            "processor": self.processor.id,
            "scheme": self.settings.scheme,
            "led": self.led(),
            "load": round(node.own.load, 4),
            "busy": round(busy, 4),
            "round": node.round,
            "partners": {
                name: round(node.known[name].load, 4) if name in node.known else None
                for name in sorted(node.partners.all)
            },
            "operators": {name: round(loads.get(name, 0.0), 4) for name in self._running()},
            "engaged": engaged.move if engaged else None,
            "priming": self._priming is not None and self._priming.is_alive(),
            "moved": self.moved,
            "undone": self.undone,
            "lost_messages": self.book.lost,
            "log": list(self.log),
        }

    def _running(self) -> list[str]:
        return sorted(self.processor.engine.operators)
