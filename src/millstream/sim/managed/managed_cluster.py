"""A manager and virtual processors in virtual time, with faults: the manager's other driver.

The manager is the production state machine (`control.manager.step`). Messages to processors are
delayed, lost, repeated; processors and the manager are killed at any moment, between a commit and
the answer too; processors pause and come back at other addresses. A run is a function of the seed.
Nothing here judges: the tests do (tests/sim/managed_checkers.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from millstream.control.manager.events import (
    DeclareStream,
    Event,
    Joined,
    Replied,
    Send,
    Tick,
    Unanswered,
)
from millstream.control.manager.manager import step
from millstream.control.manager.state import ManagerState, Settings, started_again
from millstream.control.moves.table import Phase
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.replies import Compiled, CompiledOperator, Reply
from millstream.core.errors import AwayError, MillstreamError
from millstream.engine.processor import Processor
from millstream.sim.kernel import Kernel
from millstream.sim.managed.plain_plane import read
from millstream.sim.managed.plan_plane import PlanPlane
from millstream.sim.managed.virtual_processor import Rows, VirtualProcessor
from millstream.store.consumers import subscriber

MEMORY = Path("/dev/shm")  # homes that need no disk, where there is such a file system
OPEN: list["ManagedCluster"] = []  # that nobody has closed
QUICK = Settings(
    beat_s=1.0, silent_after_s=4.0, patience_s=3.0, prepare_s_max=40.0, attempts_max=1000
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """How bad the world is, until `until_s`."""

    until_s: float = 0.0
    loss: float = 0.0  # of a request, and of an answer
    repeat: float = 0.0
    delay_s: float = 0.05  # mean
    cut: float = 0.0  # of a pull between processors
    kill_every_s: float = 0.0  # mean time between kills of a processor; 0: never
    kill_manager_every_s: float = 0.0
    burn_manager_every_s: float = 0.0  # it comes back with an empty home, or an old one
    pause_every_s: float = 0.0
    down_s: float = 3.0  # mean
    elsewhere: float = 0.3  # of a killed processor coming back at another address
    part_every_s: float = 0.0  # the manager and some processors do not hear each other, or one
    # of the two the other: a question is carried out, and its answer is lost
    unheard: float = 0.0  # of a question between processors that is carried out: its answer is lost
    skew_s: float = 0.0  # by how much a manager's clock may be wrong, another way in every life


@dataclass(slots=True)
class Truth:
    """Every segment that was ever committed, by stream and life of the stream."""

    logs: dict[str, list[list[Rows]]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def begin(self, stream: str) -> None:
        """An operator is hosted that was dropped by all its queries before, or is new."""
        lives = self.logs.setdefault(stream, [])
        if not lives or lives[-1] or self.epochs.get(stream):
            lives.append([])
        self.epochs[stream] = 0

    def publish(self, stream: str, epoch: int, number: int, rows: Rows) -> None:
        lives = self.logs.setdefault(stream, [[]])
        log = lives[-1]
        if number != len(log) + 1:
            self.faults.append(f"{stream}: number {number} after {len(log)}")
        if epoch < self.epochs.get(stream, 0):
            self.faults.append(f"{stream}: epoch {epoch} after {self.epochs[stream]}")
        self.epochs[stream] = max(self.epochs.get(stream, 0), epoch)
        log.append(rows)


class Target(Protocol):
    """Somebody who takes a manager's messages."""

    @property
    def up(self) -> bool: ...

    @property
    def url(self) -> str: ...

    def take(self, envelope: Envelope, told: Callable[[tuple[Reply, ...]], None]) -> None: ...


class Nowhere:
    """Takes nothing."""

    up, url = False, ""

    def take(self, envelope: Envelope, told: Any) -> None:
        return None


class ManagedCluster:
    """The world: implements `Surroundings` for its processors."""

    def __init__(
        self,
        seed: int,
        names: tuple[str, ...],
        plans: Mapping[str, Compiled],
        trouble: Trouble | None = None,
        settings: Settings = QUICK,
        beside: "ManagedCluster | None" = None,  # shares its time, its network and its log
    ) -> None:
        self.kernel: Kernel = beside.kernel if beside else Kernel(seed)
        self.plans, self.plane = plans, PlanPlane(plans)
        self._homes = TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.folder = Path(self._homes.name)
        self.trouble = trouble or Trouble()
        self.truth: Truth = beside.truth if beside else Truth()
        self.world: list[ManagedCluster] = beside.world if beside else []
        self.world.append(self)
        self.sources: dict[str, int] = {}
        self._disturbed = 0  # how often somebody came, went, paused or went on
        self.processors = {name: VirtualProcessor(name, self) for name in names}
        self.paused: set[str] = set()
        self.dead: dict[str, VirtualProcessor] = {}  # with their homes, for good
        self._reading: dict[str, int] = {}  # by query: which life of its result is read
        self.state = ManagerState(settings=settings, lineage="m1")
        self._backup = self.state
        self._lives = 1  # of managers, each with a lineage of its own
        self.manager_up = True
        self.skew_s = self.trouble.skew_s  # that of a clock that is right
        self.deaf: dict[str, int] = {}  # processors that this manager does not hear: how often cut
        self.mute: dict[str, int] = {}  # those that do not hear it
        self.messages = 0
        self.received: dict[str, dict[int, Rows]] = {}  # by query: what its subscriber has
        for name in names:
            self._begin(name)
        self.kernel.every(0.25, lambda: self.feed(Tick()))
        self.kernel.every(0.6, self._subscribe)
        self._plan_faults()
        OPEN.append(self)

    def _begin(self, name: str) -> None:
        self.kernel.after(0.01, partial(self._announce, name))
        jitter = self._random("work").uniform(0.2, 0.4)
        self.kernel.every(jitter, partial(self._work, name))
        self.kernel.every(2.0, partial(self._announce_if_unknown, name))

    def close(self) -> None:
        """Nothing is left of its homes."""
        for processor in (*self.processors.values(), *self.dead.values()):
            processor.close()
        self._homes.cleanup()

    def _random(self, name: str) -> Random:
        return self.kernel.random(name)

    # -- surroundings ---------------------------------------------------------------------------

    def peer(self, me: str, url: str) -> Processor:
        found = next((p for c in self.world if (p := c.at(url)) is not None), None)
        cut = self._troubled and self._random("cut").random() < self.trouble.cut
        if found is None or me in self.paused or cut:
            raise AwayError(f"no server answers at {url}")
        return found

    def at(self, url: str) -> Processor | None:
        """Who answers at an address of this cluster."""
        found = next((p for p in self.processors.values() if p.url == url), None)
        return found.processor if found is not None and self._reachable(found.name) else None

    def changes(self) -> int:
        return sum(
            c._disturbed + sum(p.ledger.changes for p in c.processors.values()) for c in self.world
        )

    def changes_at(self, processor: str) -> int:
        for cluster in self.world:
            if processor in cluster.processors:
                return cluster.processors[processor].ledger.changes
        return self.changes()

    def gap(self, what: str) -> None:
        self.truth.faults.append(what)

    def begun(self, stream: str) -> None:
        self.truth.begin(stream)

    def published(
        self, stream: str, epoch: int, number: int, rows: Rows, maker: VirtualProcessor
    ) -> None:
        self.truth.publish(stream, epoch, number, rows)

    def follow(self, owner: str) -> None:
        return None

    def adopted(self, heir: str, name: str, home: Path) -> None:
        raise AssertionError("nobody keeps copies of homes here")

    def ended(self, heir: str, name: str) -> None:
        return None

    def now(self) -> float:
        return float(self.kernel.now)

    def rows(self, stream: str) -> int:
        return max(c.sources.get(stream, 0) for c in self.world)

    @property
    def _troubled(self) -> bool:
        return self.kernel.now < self.trouble.until_s

    def _reachable(self, name: str) -> bool:
        known = self.processors.get(name)
        return known is not None and known.up and name not in self.paused

    # -- life -----------------------------------------------------------------------------------

    def run(self, until_s: float) -> None:
        self.kernel.run(until_s)

    def declare(self, *names: str, rows: int) -> None:
        """Base streams whose sources have so many rows."""
        for name in names:
            self.sources[name] = rows
            self.feed(DeclareStream(table(name)))

    def ask(self, event: Event) -> str:
        """A user's wish; gives what was wrong with it."""
        if not self.manager_up:
            return "the manager is away"
        try:
            self.feed(event)
        except MillstreamError as error:
            return str(error)
        return ""

    def feed(self, event: Event) -> None:
        """One event to the manager; its messages go out unless it dies before sending them."""
        if not self.manager_up:
            return
        state, sends = step(self.state, event, self.kernel.now + self.skew_s)
        self.state = state  # the durable half is written before anything is sent
        chance = 0.02 if self.trouble.kill_manager_every_s and self._troubled else 0.0
        if chance and sends and self._random("manager").random() < chance:
            self.kill_manager()
            return
        for send in sends:
            self._transmit(send)

    def _announce(self, name: str) -> None:
        if self._reachable(name) and not self.deaf.get(name):
            with suppress(MillstreamError):
                self.feed(Joined(self.processors[name].join()))

    def _work(self, name: str) -> None:
        if self._reachable(name):
            self.processors[name].work()

    def _subscribe(self) -> None:
        """Whoever wants a query's result takes what follows, wherever it is kept."""
        for processor in self.processors.values():
            if not self._reachable(processor.name):
                continue
            for query, streams in processor.ledger.consumers_of("subscriber").items():
                for stream in streams:
                    self._take(query, stream, processor)

    def _take(self, query: str, stream: str, processor: VirtualProcessor) -> None:
        """What follows of a result is taken, and need not be kept any longer."""
        life = len(self.truth.logs.get(stream, ()))
        if self._reading.setdefault(query, life) != life:
            self.received.pop(query, None)  # begun again: other rows, from the first
            self._reading[query] = life
        got = self.received.setdefault(query, {})
        ledger, engine = processor.ledger, processor.processor.engine
        number, watermark = ledger.cursor(subscriber(query), stream)
        following = max(got, default=number - 1) + 1
        for segment in ledger.segments(stream, following) if following >= number else ():
            if segment.first != following:
                break
            got[following] = tuple(row for _, row in read(engine.store, [segment]))
            following += 1
        if following > number:
            with ledger.transaction():
                ledger.set_cursor(subscriber(query), stream, following, watermark)
            engine.maintenance.retain([stream])

    # -- messages -------------------------------------------------------------------------------

    def _delay(self) -> float:
        return float(self._random("delay").expovariate(1 / self.trouble.delay_s))

    def _lost(self) -> bool:
        return self._troubled and self._random("loss").random() < self.trouble.loss

    def _transmit(self, send: Send) -> None:
        self.messages += 1
        life = self.state.epoch
        timer = self.kernel.after(
            self.state.settings.patience_s, lambda: self._give_up(life, send, "no answer in time")
        )

        def arrive() -> None:
            target = Nowhere() if self.mute.get(send.processor) else self.target(send.processor)
            if send.url != target.url or not target.up:
                timer.cancel()
                self.kernel.after(
                    self._delay(), lambda: self._give_up(life, send, "no server answers there")
                )
            elif send.processor in self.paused:
                self.kernel.after(0.5, arrive)  # taken up when it goes on
            else:
                target.take(send.envelope, told)

        def told(replies: tuple[Reply, ...]) -> None:
            if not self._lost() and not self.deaf.get(send.processor):
                self.kernel.after(self._delay(), lambda: answer(replies))

        def answer(replies: tuple[Reply, ...]) -> None:
            if self.manager_up and self.state.epoch == life:
                timer.cancel()
                self.feed(Replied(send.processor, send.channel, send.number, replies))

        if not self._lost():
            self.kernel.after(self._delay(), arrive)
        if self._troubled and self._random("repeat").random() < self.trouble.repeat:
            self.kernel.after(10 * self._delay(), arrive)

    def target(self, name: str) -> Target:
        """Who takes messages under a name."""
        return self.processors.get(name) or self.dead.get(name) or Nowhere()

    def _give_up(self, life: int, send: Send, why: str) -> None:
        if self.manager_up and self.state.epoch == life:
            self.feed(Unanswered(send.processor, send.channel, send.number, why))

    # -- faults ---------------------------------------------------------------------------------

    def lose(self, name: str) -> None:
        """A processor and its home are gone for good; what it owned begins anew elsewhere."""
        gone = self.processors.pop(name)
        gone.up = False
        self._disturbed += 1
        self.dead[name] = gone
        left = {o for move in gone.ownership.moves("old", (Phase.SEALED,)) for o in move.operators}
        left -= {stream for p in self.processors.values() for stream in p.owned()}
        for stream in sorted(gone.owned().keys() | left):
            if stream.startswith("s:"):
                self.truth.begin(stream)

    def kill(self, name: str, down_s: float, *, moved: bool = False) -> None:
        processor = self.processors.get(name)
        if processor is None or not processor.up:
            return
        processor.up = False
        self._disturbed += 1

        def back() -> None:
            if name in self.dead or self.processors.get(name) is not processor:
                return
            processor.restart(moved=moved)
            self._disturbed += 1
            self._announce_until_heard(name)

        self.kernel.after(down_s, back)

    def _announce_until_heard(self, name: str) -> None:
        if name in self.dead or name not in self.processors:
            return
        known = self.state.processors.get(name)
        mine = self.processors[name]
        if self.manager_up and known and (known.epoch, known.url) == (mine.ledger.epoch, mine.url):
            return
        self._announce(name)
        self.kernel.after(1.0, lambda: self._announce_until_heard(name))

    def kill_manager(self, down_s: float = 2.0) -> None:
        if not self.manager_up:
            return
        self.manager_up = False

        def back() -> None:
            self.state = started_again(self.state, self._life())
            self._set_clock()
            self.manager_up = True
            self.feed(Tick())

        self.kernel.after(down_s, back)

    def burn_manager(self, down_s: float = 2.0, *, restored: bool = False) -> None:
        """The manager's home is gone; it comes back with an empty one, or with a backup."""
        if not self.manager_up:
            return
        self.manager_up = False
        fresh = ManagerState(settings=self.state.settings, lineage=self._life())
        old = self._backup

        def back() -> None:
            self.state = started_again(old, self._life()) if restored else fresh
            self._set_clock()
            self.manager_up = True
            self.feed(Tick())

        self.kernel.after(down_s, back)

    def _life(self) -> str:
        self._lives += 1
        return f"m{self._lives}"

    def _set_clock(self) -> None:
        if self.trouble.skew_s and self._troubled:
            most_s = self.trouble.skew_s
            self.skew_s = most_s + self._random("skew").uniform(-most_s, most_s)

    def part(self, names: Sequence[str], seconds: float, *, there: bool, back: bool) -> None:
        """For a while some do not hear the manager, or it does not hear them, or both."""
        sides = [side for side, cut in ((self.mute, there), (self.deaf, back)) if cut]

        def change(by: int) -> None:
            for side in sides:
                for name in names:
                    side[name] = side.get(name, 0) + by

        change(1)
        self.kernel.after(seconds, partial(change, -1))

    def unheard(self) -> bool:
        """Whether an answer between processors is lost now."""
        chance = self.trouble.unheard if self._troubled else 0.0
        return bool(chance) and self._random("unheard").random() < chance

    def back_up(self) -> None:
        """Keeps what the manager's home has now, for `burn_manager`."""
        self._backup = self.state

    def _announce_if_unknown(self, name: str) -> None:
        """A processor that no manager speaks to says where it is."""
        if name in self.dead:
            return
        known, live = self.state.processors.get(name), self.state.live.get(name)
        heard = known is not None and known.url == self.processors[name].url
        if self.manager_up and not (heard and live is not None and live.state != "silent"):
            self._announce(name)

    def pause(self, name: str, seconds: float) -> None:
        if name in self.dead:
            return

        def go_on() -> None:
            self.paused.discard(name)
            self._disturbed += 1

        self.paused.add(name)
        self._disturbed += 1
        self.kernel.after(seconds, go_on)

    def _plan_faults(self) -> None:
        trouble, chance = self.trouble, self._random("faults")
        names = sorted(self.processors)
        kills = trouble.kill_every_s if names else 0.0
        for at in _times(chance, kills, trouble.until_s):
            name, moved = chance.choice(names), chance.random() < trouble.elsewhere
            down = chance.expovariate(1 / trouble.down_s)
            self.kernel.at(at, partial(self.kill, name, down, moved=moved))
        for at in _times(chance, trouble.kill_manager_every_s, trouble.until_s):
            down = chance.expovariate(1 / trouble.down_s)
            self.kernel.at(at, partial(self.kill_manager, down))
        for at in _times(chance, trouble.burn_manager_every_s, trouble.until_s):
            down, restored = chance.expovariate(1 / trouble.down_s), chance.random() < 0.5
            self.kernel.at(at, partial(self.burn_manager, down, restored=restored))
            if chance.random() < 0.5:
                self.kernel.at(at, self.back_up)
        for at in _times(chance, trouble.part_every_s, trouble.until_s):
            some = chance.sample(names, chance.randint(1, len(names))) if names else []
            there = chance.random() < 0.7
            back, down = not there or chance.random() < 0.6, chance.choice((2.0, 6.0, 15.0))
            cut = partial(self.part, some, down, there=there, back=back)
            self.kernel.at(at, cut)
        pauses = trouble.pause_every_s if names else 0.0
        for at in _times(chance, pauses, trouble.until_s):
            name, down = chance.choice(names), chance.expovariate(1 / trouble.down_s)
            self.kernel.at(at, partial(self.pause, name, down))


def _times(chance: Random, mean_s: float, until_s: float) -> Iterator[float]:
    at = chance.expovariate(1 / mean_s) if mean_s else until_s
    while at < until_s:
        yield at
        at += chance.expovariate(1 / mean_s)


def table(name: str, **more: Any) -> dict[str, Any]:
    """The declaration of a stream of rows."""
    return {"name": name, "source": "push", "columns": {"row": "string"}, "time": "row", **more}


def tree(name: str, *operators: tuple[str, ...]) -> Compiled:
    """A plan from (operator, inputs...) rows, producers first; the last gives the result.

    >>> tree("q", ("o:f", "s:a"), ("o:j", "o:f", "s:b")).sources
    ('s:a', 's:b')
    """
    made = {o for o, *_ in operators}
    sources = dict.fromkeys(s for _, *inputs in operators for s in inputs if s not in made)
    return Compiled(
        tuple(CompiledOperator(o, "map", f"{name}/{o}", tuple(i)) for o, *i in operators),
        operators[-1][0],
        (("row", "string"),),
        False,
        tuple(sources),
    )
