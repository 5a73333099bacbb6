"""How an engine works: sizes of batches and steps, quotas, slots, sharing, scheduling, goals."""

from dataclasses import dataclass

from millstream.control.recovery.restarts import NEVER
from millstream.decide.schedule.quality import DEFAULT as DEFAULT_QUALITY
from millstream.decide.schedule.quality import Quality
from millstream.decide.schedule.settings import ScheduleSettings
from millstream.language.share.matching import DEFAULT as DEFAULT_SHARING

COLLECT_BYTES_MAX = 32 << 20  # input of a step below which its result is collected by the driver
# Without goals of the user's own, one algorithm that makes the most of each step.
# Admission counts on a turn for everybody within a cycle (docs/design/0006-planning-with-reuse.md).
PATIENCE_S = 5.0
BATCHES = ScheduleSettings(candidates=("cost_aware",), selector="fixed", patience_s=PATIENCE_S)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    batch_rows: int = 50_000  # rows of an ingested batch
    step_rows_max: int = 500_000  # new rows a step takes at most
    step_seconds_max: float = 900.0  # after which a step is cut off
    pairs_max: int = 100_000_000  # that a step of a join without a key may combine
    backlog_rows_max: int = 2_000_000  # ingest waits while an operator is this far behind
    collect_bytes_max: int = COLLECT_BYTES_MAX
    quota_bytes: int = 4 << 30  # results that a query's consumer may leave lying
    restart: str = NEVER  # of failed queries: never, or backoff
    restarts_max: int = 3  # in a row
    slots: int = 2  # pieces of work in flight at once
    pace_s: float = 0.0  # between two steps of an operator, while no row waits for longer
    sharing: str = DEFAULT_SHARING  # none, exact or subsuming
    schedule: ScheduleSettings = BATCHES
    quality: Quality = DEFAULT_QUALITY
    local_disk: bool = True  # False for a home on shared storage
