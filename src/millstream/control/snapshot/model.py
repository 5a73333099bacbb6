"""What a person sees of a running system: one value, taken at one moment.

The dashboard, `millstream top`, the metrics and the notebook all read a `Snapshot` and nothing
else, whether one engine or a manager with many processors stands behind it. Pure data: nothing here
measures, decides or talks to anybody.

Conventions

- Times are seconds since 1970 (UTC); event times are ISO texts, `end` where a stream has ended,
  None where there is none yet. Rates are means over the last seconds.
- Ids are unique within a snapshot: an operator's id is the stream it gives; a base stream's is
  `s:NAME`; a query is its name. `OperatorSnapshot.queries` and `QuerySnapshot.operators` name each
  other.
- A source fills what it knows and leaves the rest at its default. Readers show an unknown value as
  such, never as nought.
- `taken` is when the figures were true and `interval_s` how often they are taken: a reader that has
  an older one than a few intervals says so.

A new kind of system implements `SnapshotSource`; see docs/design/0009.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Protocol

from pydantic import PlainSerializer

from millstream.language.cql.parsing.completion import Known

VERSION = 1  # of this contract; grows with a change that an older reader would misunderstand

ALARM_KINDS = (
    "away",  # a processor does not answer
    "replicas",  # too few others have what a processor commits: it tells nobody
    "trouble",  # a processor says that it cannot do something
    "busy",  # a processor has no time left
    "failed",  # a query has failed on its data
    "stalled",  # a query does not advance
    "held",  # a query is parked, waits or begins
    "goal",  # a limit is not met
    "foretold",  # a limit is met, and soon will not be if things go on so
    "shed",  # a query did without rows, as its goals allow
    "gap",  # a part of a result went with a processor
    "delay",  # rows wait long
    "rejected",  # malformed rows were put aside
    "late",  # most rows of a stream came late
    "pressure",  # an operator does not keep up
)
ACTIONS = (
    "pause",  # a query rests, its rows are kept
    "resume",  # it goes on
    "drain",  # a processor gives away what it has, and gets nothing new
    "undrain",  # it takes part again
    "remove_lost",  # a processor that is gone with its home is given up
    "move",  # an operator goes to another processor
)
PASSING = "shell_"  # so begin names of queries that last as long as somebody looks at them
PAUSES = ACTIONS[:2]  # what whoever may submit queries may do
DECISION_KINDS = (
    "admission",  # a query was taken
    "refusal",  # a query was not, and what would fit
    "drop",  # a query was ended by its user
    "move",  # operators go to another processor
    "switch",  # a processor's scheduling algorithm changed
    "failure",  # a query, a source or a processor has failed
    "notice",  # anything else that an operator should hear of
)


def _cell(value: Any) -> Any:
    """A value of a row as JSON has it; what JSON does not know is told in words."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _cell(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cell(inner) for inner in value]
    return str(value)


Cell = Annotated[Any, PlainSerializer(_cell)]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something to look at, and where."""

    severity: str  # "warning" | "error"
    sentence: str
    subject_kind: str = ""  # "query" | "operator" | "processor" | "stream" | ""
    subject: str = ""
    kind: str = ""  # one of ALARM_KINDS: the same alarm has the same kind and subject
    culprit: str = ""  # what brings it about, in words
    queries: tuple[str, ...] = ()  # that suffer
    since: float = 0.0  # 0: not known
    todo: str = ""  # what helps


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole system in a few figures."""

    title: str
    state: str = "running"  # "starting" | "running" | "finished" | "stopped" | "failed"
    started: float = 0.0
    rows_in: int = 0  # accepted from sources, ever
    rows_out: int = 0  # given as results, ever
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    backlog_rows: int = 0
    backlog_bytes: int = 0
    watermark_lag_s: float | None = None  # the most that processing is behind what has come
    steps: int = 0
    jobs_alone: int | None = None  # steps, had every query run by itself
    saved_s: float | None = None  # work that sharing has saved, against one job for each query
    saved_part: float | None = None  # of the work without sharing: from 0 to 1
    alarms: tuple[Alarm, ...] = ()
    actions: tuple[str, ...] = ()  # those of ACTIONS that this system carries out


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """A base stream."""

    id: str
    name: str
    source: str = ""  # "file" | "http" | "push" | "spark" | ...
    processor: str = ""
    rows: int = 0
    rows_per_s: float = 0.0
    late: int = 0
    rejected: int = 0
    watermark: str | None = None
    ended: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    silent_s: float | None = None  # since a row came, while none waits to be read


@dataclass(frozen=True, slots=True)
class GoalSnapshot:
    """A wish of the QoS specification beside what is measured."""

    statistic: str
    wish: str  # "below 2 s", "as small as possible"
    value: float | None = None
    met: bool | None = None  # None: not known yet, or a wish without limit
    misses_in_s: float | None = None  # a limit that is met now, at the present rate


@dataclass(frozen=True, slots=True)
class ErrorSnapshot:
    """Why a query failed, with the row that caused it where that is known."""

    message: str
    at: float = 0.0
    operator: str = ""
    place: str = ""  # "row 7 of doors"
    row: Mapping[str, Cell] | None = None  # its values by column


@dataclass(frozen=True, slots=True)
class QuerySnapshot:
    """A registered query."""

    name: str
    cql: str
    plan: str = ""  # as explain prints it
    state: str = "running"  # "running" | "stalled" | "parked" | "failed" | "waiting" | ...
    reason: str = ""
    registered: float = 0.0
    start: str | None = None  # the event time from which rows count
    relation: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    rows: int = 0
    rows_per_s: float = 0.0
    watermark: str | None = None
    delay_s: float | None = None  # how long the oldest row that waits for it has been here
    cost_s_own: float = 0.0  # seconds of work that only this query needs
    cost_s_shared: float = 0.0  # its part of work that it shares
    ratio: float | None = None  # delay of its results over their evaluation time (seed 002)
    ratio_communication: float | None = None  # the part of it that transfers take
    load_own: float = 0.0  # the same as seconds of work a second, lately
    load_shared: float = 0.0
    result: str = ""  # the operator that gives its result
    operators: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # queries and views that its text names
    goals: tuple[GoalSnapshot, ...] = ()
    goals_cost: float = 0.0  # of time: its steps went before older rows of others, for its goals
    error: ErrorSnapshot | None = None
    droppable: bool = True  # whether whoever looks on may end it
    restartable: bool = False  # whether it has failed and can go on where it was
    cause: str = ""  # what holds it up most, in a sentence
    cause_operator: str = ""
    lost: str = ""  # what is missing of its result, because a processor was lost
    shed_rows: int = 0  # that it did without, because its goals say may_drop


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """A piece of the dataflow that is run in steps."""

    id: str
    kind: str
    label: str
    processor: str = ""
    state: str = "running"  # "running" | "paused" | "moving" | "busy"
    queries: tuple[str, ...] = ()
    group: str = ""  # operators with one share group run in one job
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    queue_rows: int = 0
    queue_bytes: int = 0
    waiting_s: float | None = None  # the age of the oldest row in its queues
    steps: int = 0
    cost_s: float = 0.0
    load: float = 0.0  # seconds of work a second, lately
    text: str = ""  # what it computes, in more words than the label
    shed_rows: int = 0  # that it passed over because they had missed a limit of delay
    away: str = ""  # which processor below its manager it waits for: "processor p3 is silent"


@dataclass(frozen=True, slots=True)
class EdgeSnapshot:
    """Rows from a stream or operator to an operator, or to a query's readers."""

    source: str
    target: str
    rows_per_s: float = 0.0
    bytes_per_s: float = 0.0
    queue_rows: int = 0
    queue_bytes: int = 0
    pressure: float = 0.0  # 0: taken at once; 1: at the limit at which the source is made to wait


@dataclass(frozen=True, slots=True)
class ScorePoint:
    """The scores of the scheduling algorithms at a review."""

    at: float
    algorithm: str  # in charge from then on
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Connection:
    """Rows that a processor pulls from another one, or gives it."""

    peer: str
    direction: str  # "in" | "out"
    streams: int = 0
    rows_per_s: float = 0.0
    bytes_per_s: float = 0.0
    behind_rows: int = 0


@dataclass(frozen=True, slots=True)
class ProcessorSnapshot:
    """A query processor."""

    id: str
    state: str = "running"  # "running" | "joining" | "silent" | "lost" | "left" | "finished"
    address: str = ""
    seen: float = 0.0  # when it was last heard of
    load: float = 0.0  # seconds of work a second and slot: 1 is full
    slots: int = 1
    memory_bytes: int | None = None
    memory_bytes_max: int | None = None
    algorithm: str | None = None
    selector: str = ""
    scores: tuple[ScorePoint, ...] = ()  # of the last reviews, oldest first
    goals: tuple[GoalSnapshot, ...] = ()
    connections: tuple[Connection, ...] = ()
    operators: int = 0
    segments: int = 0
    segment_bytes: int = 0
    ledger_bytes: int = 0
    steps: int = 0
    steps_per_s: float = 0.0
    epoch: int = 0
    troubles: tuple[str, ...] = ()  # what it cannot do at present, in sentences
    unsafe: str = ""  # why it tells nobody what it commits


@dataclass(frozen=True, slots=True)
class DecisionSnapshot:
    """What the system decided, and why."""

    number: int  # grows by one; readers ask for those after the last they have
    at: float
    kind: str  # one of DECISION_KINDS
    sentence: str
    reason: str = ""
    subject_kind: str = ""
    subject: str = ""
    subjects: tuple[str, ...] = ()  # operators that moved


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything, at one moment."""

    taken: float
    overview: Overview
    interval_s: float = 1.0
    streams: tuple[StreamSnapshot, ...] = ()
    queries: tuple[QuerySnapshot, ...] = ()
    operators: tuple[OperatorSnapshot, ...] = ()
    edges: tuple[EdgeSnapshot, ...] = ()
    processors: tuple[ProcessorSnapshot, ...] = ()
    decisions: tuple[DecisionSnapshot, ...] = ()  # the latest, oldest first
    version: int = VERSION


# -- questions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """An operator that a query would need."""

    id: str
    kind: str
    label: str
    shared_with: tuple[str, ...] = ()  # queries for which it runs, or that run in one job with it
    exists: bool = False
    words: str = ""  # how it is shared


@dataclass(frozen=True, slots=True)
class Admission:
    """What would become of a query if it were registered now."""

    admitted: bool | None  # None: there is nobody who refuses
    sentence: str
    processor: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A query's meaning, before it runs."""

    plan: str
    relation: bool
    columns: tuple[tuple[str, str], ...]
    operators: tuple[PlannedOperator, ...] = ()
    warnings: tuple[str, ...] = ()
    admission: Admission = Admission(None, "")


@dataclass(frozen=True, slots=True)
class Results:
    """Rows of a result. `last` is what to ask from next; `lost` rows in between are not kept."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    last: int = 0
    lost: int = 0
    note: str = ""


class SnapshotSource(Protocol):
    """A running system as a person sees it and acts on it.

    All methods may be called from any thread and come back soon: `snapshot` within a fraction of
    `interval_s` and without waiting for work in hand. Mistakes are raised as `UsageError`; those in
    a query's text as `CqlError`, which knows line, column and length.
    """

    def snapshot(self) -> Snapshot: ...

    def explain(self, cql: str) -> Explanation: ...

    def preview(self, cql: str, rows_max: int = 20) -> Results:
        """What a query would give over rows that are at hand; registers nothing."""
        ...

    def register(self, name: str, cql: str) -> DecisionSnapshot:
        """Registers a query: an admission, or a refusal with its reason."""
        ...

    def drop(self, name: str) -> None: ...

    def act(self, action: str, name: str, to: str = "") -> str:
        """Carries out one of ACTIONS on a query, processor or operator; says what was done."""
        ...

    def restart(self, name: str) -> None:
        """Lets a failed query go on where it failed."""
        ...

    def results(self, query: str, after: int = 0) -> Results:
        """The latest rows of a result with numbers above `after`, oldest first."""
        ...


def known_names(snapshot: Snapshot) -> Known:
    """The names that completion of queries knows."""
    streams = {s.name: tuple(name for name, _ in s.columns) for s in snapshot.streams}
    return Known(streams, tuple(q.name for q in snapshot.queries))
