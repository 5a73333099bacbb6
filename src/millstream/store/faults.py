"""Places where a test may make the process fail.

Every point between writing a file, committing, compacting and removing has a name. In production
`reach` does nothing; a test sets a hook that raises, or kills the process.
"""

from collections.abc import Callable

POINTS = (
    "ingest.written",
    "ingest.committed",
    "step.evaluated",
    "step.written",
    "step.committed",
    "compaction.written",
    "compaction.committed",
    "removal.committed",
    "removal.done",
    "delivery.written",
    "delivery.committed",
)
# Points of a query that takes the place of another.
REPLACE_POINTS = (
    "replace.noted",
    "replace.begun",
    "replace.written",
    "replace.committed",
    "replace.tidied",
)
# Points inside the transaction of a sink that keeps the delivery's number beside the rows.
SINK_POINTS = ("sink.begun", "sink.written", "sink.committed")
# Points of transfers and moves: reached where several processors work together.
MOVE_POINTS = (
    "pull.written",
    "pull.committed",
    "pull.acknowledged",
    "pull.followed",
    "prepare.committed",
    "prepare.expected",
    "prepare.held",
    "prepare.written",
    "prepare.copied",
    "prepare.warm",
    "prepare.told",
    "ready.committed",
    "seal.resting",
    "seal.committed",
    "take.recorded",
    "take.written",
    "take.committed",
    "take.told",
    "taken.committed",
    "complete.committed",
    "undo.asked",
    "undo.committed",
)
# Points of a copy of another processor's home.
REPLICA_POINTS = (
    "replica.written",
    "replica.committed",
    "replica.whole",
    "replica.leapt",
)
_hook: Callable[[str], None] | None = None


def set_hook(hook: Callable[[str], None] | None) -> None:
    global _hook  # noqa: PLW0603  (one per process, by nature)
    _hook = hook


def reach(point: str) -> None:
    if _hook is not None:
        _hook(point)
