"""What schedulers and statistics see and say: operators at a moment, choices, finished steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OperatorView:
    """One operator at the moment of choice."""

    id: str
    # In all input queues together; rows of a step in flight count or do not, as the driver's queues
    # have it, but always in the same way.
    rows: float
    bytes: float = 0.0
    oldest: float | None = None  # when the oldest pending row entered the system
    producers: tuple[str, ...] = ()  # operators that feed it; none: it reads a stream (a leaf)
    consumers: tuple[str, ...] = ()  # operators it feeds; none: it gives results (a root)
    queries: tuple[str, ...] = ()  # whose results it works for
    members: int = 1  # operators that run in it; each row that comes is read by all of them
    kind: str = ""  # its class: what steps of its like cost is a first guess
    meets: bool = False  # rows of several inputs meet in it: who is ahead waits for who is behind
    # What is known before anything was measured: seconds a step, seconds a row, rows out per row
    # in. Measurements replace them.
    fixed_cost_s: float | None = None
    row_cost_s: float | None = None
    row_selectivity: float | None = None
    runnable: bool = True  # False: paused, moving, waiting for a watermark


@dataclass(frozen=True, slots=True)
class Choice:
    """Run this operator on that many rows; carries why."""

    number: int  # counts from 1; names the choice in the trace and in the report
    operator: str
    rows: float
    at: float
    algorithm: str
    reason: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows that left the system as results of one query, and how long they had been in it."""

    rows: float = 0.0
    delay_s_total: float = 0.0  # summed over the rows
    delay_s_max: float = 0.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """One finished step."""

    operator: str
    rows_in: float
    rows_out: float
    seconds: float
    finished: float  # on the driver's clock
    choice: int | None = None  # Choice.number; None for a step the scheduler did not ask for
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    # Combinations the operator looked at: the product of the inputs' sizes for a join (section
    # 3.3.1, note 1), the rows themselves for others.
    candidates: float | None = None
    delivered: Delivery = Delivery()  # of all queries together; only roots deliver
    by_query: Mapping[str, Delivery] = field(default_factory=dict)
    # Rows and bytes in all queues after the step, where the driver knows; else the last views do.
    queue_rows: float | None = None
    queue_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """The scheduler changed its algorithm, or kept it after looking."""

    at: float
    before: str | None
    after: str
    reason: str
