"""What can happen to a manager, and what it sends: records only.

Events carry no time: a driver gives it with them. `Send` is the one thing a manager asks of its
driver, which answers with `Replied` or `Unanswered`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.control.manager.state import NOBODY, Settings
from millstream.control.protocol.commands import Join
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.replies import Reply


@dataclass(frozen=True, slots=True)
class Joined:
    join: Join


@dataclass(frozen=True, slots=True)
class Replied:
    """The answer to a message: one reply a command."""

    processor: str
    channel: str  # "work" | "beat" | "ask"
    number: int
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A message was not delivered, or its answer did not come; it may have taken effect."""

    processor: str
    channel: str
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class DeclareStream:
    table: Mapping[str, Any]  # with `name`
    processor: str = NOBODY  # where rows shall enter; nobody: wherever least enter
    start: bool = False


@dataclass(frozen=True, slots=True)
class StartStreams:
    """Rows may come, once all queries submitted before are deployed. Empty: all of them."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgetStream:
    name: str


@dataclass(frozen=True, slots=True)
class Submit:
    name: str
    cql: str
    from_beginning: bool = False
    deliver_to: str = ""
    latency_s: float | None = None
    queue: bool = False
    dry_run: bool = False
    weight: float = 1.0
    replicas: int = 1
    paused: bool = False  # it rests from the beginning


@dataclass(frozen=True, slots=True)
class Restart:
    """A failed query goes on where it failed."""

    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """A query rests, or (`wanted` is false) goes on where it stood; its rows are kept meanwhile."""

    name: str
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Drop:
    name: str


@dataclass(frozen=True, slots=True)
class RequestMove:
    """Somebody, or a policy, wants operators elsewhere."""

    operators: tuple[str, ...]
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Everything away from a processor (or, `back`, let it take part again)."""

    processor: str
    back: bool = False


@dataclass(frozen=True, slots=True)
class Halt:
    """The requests Shutdown and Restart of table 4.1: a processor that has nothing ends its
    process, or (`restart`) forgets all it ever had and waits for new work. `again`: its process
    ends and begins again with what its home has."""

    processor: str
    restart: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget a processor that has nothing any more, or that is lost with what it has."""

    processor: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """New settings."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class SetGoals:
    """Goals of one query, or of all together (an empty name); an empty table forgets them."""

    query: str
    table: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SetSchedule:
    """How every processor schedules, as a `[schedule]` table; an empty one leaves it to them."""

    table: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FromAbove:
    """A higher manager's message, which treats this manager as a processor."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Introduced:
    """The owner of an outside stream keeps it for one of our processors from now on."""

    stream: str
    consumer: str


Event = (
    Joined | Replied | Unanswered | Tick | DeclareStream | StartStreams | ForgetStream | Submit
    | Drop | Restart | Pause | RequestMove | Drain | Halt | Remove | Change | SetGoals | SetSchedule
    | FromAbove | Introduced
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Send:
    """What a driver is to do: send this, and feed `Replied` or `Unanswered`."""

    processor: str
    url: str
    channel: str
    number: int  # to be given back; the envelope's own is 0 for questions
    envelope: Envelope
