"""Everything a manager knows, and what can happen to it: records only, no decision.

`ManagerState` has a durable half (processors, streams, queries, operators with their places, moves,
decisions), of which a store writes what has changed after every event, and a live half (who
answers, what each processor is believed to have, figures), which a restarted manager learns anew
from the processors. The three repositories of the seed (figure 4.7) are here: plans are `queries`
and `operators`, statistics are `statistics`, strategies are the registries that `Settings` names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from millstream.control.moves.table import ARRIVING, ENDED, Phase, Story
from millstream.control.protocol.commands import Command
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Compiled, Inventory, Refusal, Replicas, StreamMark
from millstream.control.recovery.restarts import NEVER
from millstream.decide.balance.cost_models import DEFAULT_COST_MODEL, CostMemory
from millstream.decide.balance.redistribution import DEFAULT_POLICY, Memory, Parameters
from millstream.decide.balance.scaling import Bounds
from millstream.decide.balance.scaling import Memory as Scaling
from millstream.decide.place.patterns import DEFAULT_PATTERN

NOBODY = ""
OUTSIDE = "@"  # the owner of a stream from outside this manager's cluster


@dataclass(frozen=True, slots=True)
class Settings:
    """How the manager decides; every strategy by name."""

    placer: str = "pattern"  # of new queries; see control/admission/rules.py
    pattern: str = DEFAULT_PATTERN
    cost_model: str = DEFAULT_COST_MODEL
    policy: str = DEFAULT_POLICY
    parameters: Parameters = field(default_factory=Parameters)
    redistribute: bool = False  # whether the policy's moves are carried out, or only asked for
    replace_s: float = (
        0.0  # between looks at the network (control/admission/replacement.py); 0: never
    )
    replace_gain: float = 0.1  # least part of a query's traffic x distance that must be saved
    replace_planner: str = "optimal_tree"
    replace: bool = True  # whether such moves are carried out, or only told
    # weights of SQPR's objectives: admitted queries, traffic, CPU, and the fullest processor
    weight_admit: float = 1000.0
    weight_network: float = 1.0
    weight_cpu: float = 1.0
    weight_balance: float = 0.0
    replan_s: float = 10.0  # between looks whether what runs is to be planned again; 0: never
    replan_gain: float = 0.1  # least part of the objective's cost that such a plan must save
    moves_a_minute: float = 12.0  # that planning may ask for; 0: what runs stays where it is
    relays: bool = True  # whether a reader may send a stream on to others
    beat_s: float = 5.0  # between reports of a processor
    silent_after_s: float = 15.0
    patience_s: float = 30.0  # for an answer to a message that changes something
    rows_missing_max: int = 100_000  # at which a prepared move is sealed
    prepare_s_max: float = 600.0  # after which an unprepared move is undone
    queue_s: float = 10.0  # between looks whether a queued query fits
    attempts_max: int = 3  # at placing, and at hosting a query
    restart: str = NEVER  # of failed queries: never, or backoff (control/recovery/restarts.py)
    restarts_max: int = 3  # in a row
    decisions_kept: int = 1000
    replicas: int = 1  # processors that are to have what each has (control/recovery/replication.py)
    lost_after_s: float = 15.0  # of silence: a follower then takes over; 0: only on request
    bounds: Bounds = field(default_factory=Bounds)  # of how many processors there should be
    # whether a manager that learns waits for processors that it only hears of from others
    asks_strangers: bool = True


@dataclass(frozen=True, slots=True)
class Processor:
    """Durable: a processor that has joined (its description is table 5.1 of the seed)."""

    id: str
    url: str
    epoch: int
    properties: Mapping[str, Any] = field(default_factory=dict)
    draining: bool = False  # gets nothing new, and gives away what it has
    home: str = ""  # tells homes under one id apart
    leaving_s: float = 0.0  # since when it is to end, because fewer are enough; 0: it is not
    untold: bool = False  # it was silent when this manager learned: it may run what no other has


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """Durable: a base stream, and the processor where its rows enter."""

    name: str
    table: Mapping[str, Any]
    processor: str = NOBODY  # none yet
    start_wanted: bool = False
    forgotten: bool = False
    epoch: int = 0  # as last heard

    @property
    def id(self) -> str:
        return f"s:{self.name}"


# A query's way: compiling (what does it read?), holding (keep that, until its start is known),
# placing, deploying, running. Others: queued (waits for room), dropping, failed, refused.
PHASES = (
    "compiling", "holding", "placing", "deploying", "running", "queued", "dropping", "failed",
    "refused",
)  # fmt: skip
PLACED = ("deploying", "running")  # phases in which operators have places


@dataclass(frozen=True, slots=True)
class Query:
    """Durable: a query on its way, running, or over."""

    name: str
    cql: str
    from_beginning: bool = False
    phase: str = "compiling"
    reason: str = ""
    submitted_s: float = 0.0
    start: int | None = None
    compiled: Compiled | None = None  # what its text means, until it has places
    sources: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()  # running operators' streams that were held for it
    operators: tuple[str, ...] = ()
    result: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    relation: bool = False
    plan: str = ""
    attempts: int = 0
    retry_s: float = 0.0  # not placed before
    given: tuple[str, ...] = ()  # the operators a higher manager wants here; empty: all
    deliver_to: str = ""  # a site: a processor's id
    latency_s: float | None = None
    queue: bool = False  # wait for room instead of being refused
    dry_run: bool = False  # only asked what would become of it
    admission: Mapping[str, Any] = field(default_factory=dict)  # what it reuses and costs
    found: bool = False  # on processors, by a manager that did not remember it
    ending: bool = False  # a user has dropped it
    lost: str = ""  # what is missing of its result, because a processor was lost
    floor: int | None = None  # before it, rows were counted before that; its start is not earlier
    weight: float = 1.0  # how much it counts when others have to make room
    awaits_room: bool = False  # queued until running operators have moved
    rooms: int = 0  # times that room was made for it
    resumable: bool = False  # it has failed, and its operators keep their places
    failed_s: float = 0.0
    restarts: int = 0  # by anybody
    pauses: int = 0  # requests to pause or to resume so far; odd: it is to be paused
    tried: int = 0  # in a row by the policy, the last of them at
    tried_s: float = 0.0
    # of one that was found: what its operators read, where that is not what its text says first
    ways: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    avoided: tuple[str, ...] = ()  # parts that run, but are not retained since its start
    readable: tuple[str, ...] = ()  # streams that it could be computed from, by any way
    replicas: int = 1  # processors that are to have what it needs

    @property
    def ended(self) -> bool:
        return self.phase in ("failed", "refused")

    @property
    def paused(self) -> bool:
        """Whether a user wants it paused."""
        return self.pauses % 2 == 1

    def meaning(self) -> Compiled | None:
        """What its text means with its start, until it has places."""
        if self.compiled is None or self.start is None:
            return self.compiled
        return self.compiled.starting(self.start)


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """Durable: an operator that at least one query uses, and where it runs."""

    id: str
    kind: str
    label: str
    inputs: tuple[str, ...]
    row_bytes: int = 0
    properties: Mapping[str, Any] = field(default_factory=dict)
    processor: str = NOBODY
    epoch: int = 0  # of its stream, as last heard
    another_way: bool = False  # whether its inputs are not those that a text says first


@dataclass(frozen=True, slots=True)
class Route:
    """Durable: a reader of a stream takes its bytes from another reader. No more than a hint: what
    a stream is, and keeping it, stays the owner's business."""

    id: str
    stream: str
    reader: str
    relay: str


@dataclass(frozen=True, slots=True)
class Move:
    """Durable: operators on their way from one processor to another."""

    id: str
    operators: tuple[str, ...]
    source: str
    target: str
    reason: str = ""
    story: Story = field(default_factory=Story)
    begun_s: float = 0.0
    outcome: str = ""  # why it is, or is to be, undone
    rows_missing: int = -1
    sealed_s: float = 0.0
    told: frozenset[str] = frozenset()  # participants that have confirmed the present phase
    asked_s: float = 0.0  # when it was last asked how far it is
    streams: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # next number, epoch

    @property
    def phase(self) -> Phase:
        return self.story.phase

    @property
    def over(self) -> bool:
        return self.phase in ENDED

    @property
    def undoing(self) -> bool:
        """Whether its ends are asked to forget it."""
        return bool(self.outcome) and not self.over

    @property
    def frozen(self) -> bool:
        """Whether no other query or reader needs its streams."""
        return self.phase in ARRIVING and not self.undoing

    @property
    def settled(self) -> bool:
        """Whether nothing depends on it any more, though its ends may have to forget it."""
        return self.over or (self.phase is Phase.OWNED and "readers" in self.told)


@dataclass(frozen=True, slots=True)
class PlannedWith:
    """Live: the world as it was when what runs was last looked at."""

    processors: Mapping[str, tuple[bool, bool, str]]  # answers, is drained, its properties
    queries: frozenset[str]
    rates: Mapping[str, float]  # of base streams, bytes a second
    weights: tuple[float, ...]
    crowded: frozenset[str] = frozenset()  # resources of which more is used than offered


@dataclass(frozen=True, slots=True)
class Relocation:
    """Live: a move that planning wants, and the query that waits for the room it makes."""

    operators: tuple[str, ...]
    target: str
    reason: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class OutsideStream:
    """Durable, of a manager below another one: a stream that is pulled from beyond its own
    processors. `introduced` are those of them for which the owner there keeps it."""

    id: str
    source: Peer
    introduced: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Promise:
    """Durable, of a manager below another one: readers of a stream outside its own processors."""

    id: str
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Above:
    """Durable, of a manager below another one: the last message from there; what it holds for
    queries that may come."""

    id: str = "above"
    epoch: int = 0
    number: int = 0
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lineage: str = ""  # of the memory that last changed something here, with its revision
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """Durable: a processor that will not come back, and what was begun again for it."""

    id: str
    since_s: float  # when it was last heard
    told_s: float  # when a user declared it lost
    home: str = ""
    queries: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()  # that were given up, even if a processor still reports them


@dataclass(frozen=True, slots=True)
class Replication:
    """Durable: the followers of a processor's home, and whether one of them takes its place."""

    id: str
    number: int = 0  # of the configuration
    wanted: int = 0  # others that are to have everything
    followers: tuple[str, ...] = ()
    # configurations before this one, the latest first, until all followers have everything
    former: tuple[tuple[int, tuple[str, ...]], ...] = ()
    phase: str = ""  # of a takeover: "fencing" | "adopting"
    heir: str = ""
    told: bool = False  # a user has declared it lost


@dataclass(frozen=True, slots=True)
class Goals:
    """Durable: the goals of a query, of all together, or how processors schedule (by `id`, see
    manager_quality), as a table of a job file; an empty one takes back what was asked for."""

    id: str
    table: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """Durable: what was decided and why, in sentences."""

    number: int
    at_s: float
    kind: str  # as in control/snapshot/model.py
    sentence: str
    reason: str = ""
    subject_kind: str = ""
    subject: str = ""
    subjects: tuple[str, ...] = ()


# -- live -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """A message under way."""

    number: int
    at_s: float
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Live:
    """What is known of a processor at this moment."""

    state: str = "joining"  # "joining" | "up" | "silent"
    heard_s: float = 0.0
    since_s: float = 0.0  # when this manager began to wait for it
    version: int = 0  # of the last report
    actual: Inventory | None = None  # believed; None: to be asked
    work: Sent | None = None
    beat: Sent | None = None
    ask: Sent | None = None
    beat_due_s: float = 0.0
    look_again_s: tuple[float, ...] = ()  # when to ask anew what it has
    acquainted: tuple[Peer, ...] = ()  # the others that it knows
    roster: Mapping[str, Processor] | None = None  # the table that these were taken from
    retry_at_s: float = 0.0
    failures: int = 0
    told: Command | None = None  # which goals, since it joined
    measured: tuple[str, ...] | None = None  # which figures of operators it tells; None: all
    refused: Mapping[str, float] = field(default_factory=dict)  # streams; when to try again
    replicas: Replicas | None = None  # its followers, and the homes it follows, as reported


@dataclass(frozen=True, slots=True)
class Figures:
    """The last figures of something, rates between the last two, and those of the last while."""

    at_s: float
    values: Mapping[str, float]
    rates: Mapping[str, float] = field(default_factory=dict)
    steady: Mapping[str, float] = field(default_factory=dict)  # rates, smoothed over STEADY_S


@dataclass(frozen=True, slots=True)
class Statistics:
    """The seed's statistics table."""

    processors: Mapping[str, Figures] = field(default_factory=dict)
    operators: Mapping[str, Figures] = field(default_factory=dict)
    streams: Mapping[str, Figures] = field(default_factory=dict)
    edges: Mapping[str, Figures] = field(default_factory=dict)
    queries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ManagerState:
    """One value; every event gives a new one."""

    epoch: int = 1
    lineage: str = ""  # of this life: shows processors which memory gave them their work
    lives: tuple[str, ...] = ()  # the earlier lineages of this memory
    revision: int = 0  # of what is durable: grows with every change
    settings: Settings = field(default_factory=Settings)
    # durable
    processors: Mapping[str, Processor] = field(default_factory=dict)
    streams: Mapping[str, StreamRecord] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    operators: Mapping[str, OperatorRecord] = field(default_factory=dict)
    moves: Mapping[str, Move] = field(default_factory=dict)
    outside: Mapping[str, OutsideStream] = field(default_factory=dict)
    promises: Mapping[str, Promise] = field(default_factory=dict)
    above: Mapping[str, Above] = field(default_factory=dict)
    goals: Mapping[str, Goals] = field(default_factory=dict)
    lost: Mapping[str, Lost] = field(default_factory=dict)
    replications: Mapping[str, Replication] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    counter: int = 0  # of moves and decisions, never used twice
    # live
    loaded: int = 0  # the revision with which this life began
    now_s: float = 0.0
    number: int = 0  # of messages of this epoch
    live: Mapping[str, Live] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=Statistics)
    marks: Mapping[str, Mapping[tuple[str, str], StreamMark]] = field(default_factory=dict)
    refusals: Mapping[str, Refusal] = field(default_factory=dict)  # the last ones, by query
    considered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of dry runs
    outbox: Mapping[str, tuple[Command, ...]] = field(default_factory=dict)
    cost_memory: CostMemory = field(default_factory=CostMemory)
    policy_memory: Memory = field(default_factory=Memory)
    checked_s: float = 0.0  # when the policy last looked
    replaced_s: float = 0.0  # when distances were last looked at
    proposed: Mapping[str, str] = field(default_factory=dict)  # by query: the last wish
    superseded: str = ""  # why this manager must not act now: another one does
    again_s: float = 0.0  # when it looks whether that one is still there
    learning_until_s: float = 0.0  # not before it tells processors anything; 0: it remembers
    remembered: frozenset[str] = frozenset()  # the streams that it knew when it began to learn
    # queries, and operators of them, of which those may have something who were silent when it
    # learned; None: of any
    elsewhere: frozenset[str] | None = None
    replanned_s: float = 0.0  # when it was last looked whether to plan again
    planned_with: PlannedWith | None = None
    relocations: tuple[Relocation, ...] = ()  # what planning wants moved, in order
    relocating: frozenset[str] = frozenset()  # the moves that it has begun last
    relocated_s: tuple[float, ...] = ()  # when it began those of the last while
    scaling: Scaling = field(default_factory=Scaling)  # how many processors are wanted, and why
    scaled_s: float = 0.0  # when that was last looked at
    short: Mapping[str, str] = field(default_factory=dict)  # by query: what more of them would have


DURABLE = (
    "processors", "streams", "queries", "operators", "moves", "outside", "promises", "above",
    "goals", "lost", "replications", "routes",
)  # fmt: skip
assert {f.name for f in fields(ManagerState)} > {
    *DURABLE, "decisions", "counter", "epoch", "lineage", "lives", "revision",
}  # fmt: skip


LIVES_KEPT = 200


def started_again(known: ManagerState, lineage: str) -> ManagerState:
    """What a manager that was killed knows when it is started again: the durable half, under a
    higher epoch, so that messages of its former life are refused, and a lineage of its own."""
    return ManagerState(
        epoch=known.epoch + 1,
        lineage=lineage,
        lives=(*known.lives, known.lineage)[-LIVES_KEPT:],
        revision=known.revision,
        loaded=known.revision,
        settings=known.settings,
        processors=known.processors,
        streams=known.streams,
        queries=known.queries,
        operators=known.operators,
        moves=known.moves,
        outside=known.outside,
        promises=known.promises,
        above=known.above,
        goals=known.goals,
        lost=known.lost,
        replications=known.replications,
        routes=known.routes,
        decisions=known.decisions,
        counter=known.counter,
    )
