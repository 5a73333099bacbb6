"""What a step did, for statistics and displays."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepReport:
    """One operator's part of a step, or the whole of it."""

    operator: str
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    seconds: float  # all of it
    commit_seconds: float
    tail_segments: int  # files of windows that were opened
    started: float
    arrived: float  # when the oldest rows behind the result entered the system
    collected: bool
    job: str = ""  # that it shared with others
    members: int = 1  # of that job


@dataclass(frozen=True, slots=True)
class TrainReport:
    """The whole step, and what of it is each operator's."""

    whole: StepReport
    members: tuple[StepReport, ...]
