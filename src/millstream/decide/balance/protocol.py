"""What nodes that balance without a manager tell each other, and what their driver tells them.

The contract:

- A node is `step(state, event) -> (state, commands)` in `balancer`; whoever drives it (the
  simulator, a processor) turns happenings into events and carries commands out.
- Messages travel in the envelope of `control/protocol/envelope.py`.
- Messages may be late, lost, repeated or overtake each other. Numbers make old and repeated ones
  harmless; periodic refresh and bounded silence make lost ones good again.
- Times are the node's own clock and are compared only with each other: clocks may disagree.
- `ReadFragments` is answered by `FragmentsRead`, at once or later. `Move` starts a live move, which
  may fail; `LoadShifted` tells a node when a fragment's load has left or reached it.
- A load is the fraction of its time that a node, or a fragment on it, keeps the processor busy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field

# Messages come from other processes, and amounts are divided by a processor's speed.
Load = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Speed = Annotated[float, Field(strict=True, ge=1e-6, allow_inf_nan=False)]
Number = Annotated[int, Field(strict=True, gt=-(1 << 62), lt=1 << 62)]
Flag = Annotated[bool, Field(strict=True)]
EXACT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class FragmentView:
    """A fragment as the node that runs it sees it: local knowledge only."""

    id: str
    load: float
    state_bytes: float
    native: str  # the delegation node of its stream
    neighbours_at: tuple[str, ...]  # nodes where the fragments it exchanges rows with run
    query: str = ""
    ratio: float = 0.0  # performance ratio that the sink last reported for its query; 0: unknown
    # Jobs that its operators share with others here, and the load each is more where it begins one:
    # a job's fixed cost is shared here, and paid again there.
    jobs: tuple[tuple[str, float], ...] = ()


# --- messages between nodes ---------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PartnerRequest:
    load: Load
    cpu: Speed = 1.0
    probed: Flag = False  # after a probe: the receiver said that it has room
    do: Literal["partner_request"] = "partner_request"
    __pydantic_config__ = EXACT


@dataclass(frozen=True, slots=True)
class PartnerAnswer:
    accepted: Flag
    load: Load
    cpu: Speed = 1.0
    do: Literal["partner_answer"] = "partner_answer"
    __pydantic_config__ = EXACT


@dataclass(frozen=True, slots=True)
class PartnerEnd:
    """The sender does not, or no longer, count the receiver as a partner."""

    do: Literal["partner_end"] = "partner_end"
    __pydantic_config__ = EXACT


@dataclass(frozen=True, slots=True)
class LoadReport:
    load: Load
    number: Number  # rises with every report of a node; a lower one is old
    cpu: Speed = 1.0
    do: Literal["load_report"] = "load_report"
    __pydantic_config__ = EXACT


@dataclass(frozen=True, slots=True)
class LoadRequest:
    amount: Load  # of the receiver's time
    number: Number  # the round of the one who asks; one request a round
    do: Literal["load_request"] = "load_request"
    __pydantic_config__ = EXACT


@dataclass(frozen=True, slots=True)
class Probe:
    number: Number
    do: Literal["probe"] = "probe"
    __pydantic_config__ = EXACT


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    load: Load
    number: Number
    do: Literal["probe_answer"] = "probe_answer"
    __pydantic_config__ = EXACT


Message: TypeAlias = (
    PartnerRequest | PartnerAnswer | PartnerEnd | LoadReport | LoadRequest | Probe | ProbeAnswer
)


# --- events from the driver ---------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class WindowClosed:
    now_s: float
    load: float  # measured in the window


@dataclass(frozen=True, slots=True)
class RoundStarted:
    now_s: float


@dataclass(frozen=True, slots=True)
class RefreshDue:
    """Time to look for partners; also the first event of a node."""

    now_s: float
    neighbours: tuple[str, ...]  # by descending neighbouring factor
    others: tuple[str, ...]  # every other node there is


@dataclass(frozen=True, slots=True)
class Received:
    now_s: float
    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class FragmentsRead:
    now_s: float
    fragments: Sequence[FragmentView]


@dataclass(frozen=True, slots=True)
class LoadShifted:
    now_s: float
    change: float  # load that came (positive) or went with a fragment


Event: TypeAlias = WindowClosed | RoundStarted | RefreshDue | Received | FragmentsRead | LoadShifted


# --- commands to the driver ---------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Send:
    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class ReadFragments:
    """Answer with `FragmentsRead`: the fragments that run here and are not already moving."""


@dataclass(frozen=True, slots=True)
class Move:
    fragment: str
    to: str
    load: float
    reason: str  # for the log, for a person to read
    arriving: float  # load that it will be there


Command: TypeAlias = Send | ReadFragments | Move
