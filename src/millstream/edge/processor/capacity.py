"""The default capacity of a processor: slots, cores, seconds of steps a second.

Steps of several slots share the cores, and ingest, delivery and compaction run in the same slots,
so that a further slot counts for less than the first: a cautious guess, on which admission held
where it was measured (docs/design/0006-planning-with-reuse.md). A user can set another figure:
`millstream processor --property cpu=3`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.engine.processor import Processor

FURTHER_SLOT = 0.4  # of what the first gives


def cpu_of(slots: int, cores: int) -> float:
    """Seconds of steps a second.

    >>> cpu_of(1, 8), cpu_of(2, 2), cpu_of(2, 1), cpu_of(4, 2)
    (1.0, 1.4, 1.0, 1.4)
    """
    return round(1.0 + FURTHER_SLOT * (max(1, min(slots, cores)) - 1), 3)


def capacity(processor: "Processor") -> dict[str, Any]:
    """Properties that a processor tells its manager when it joins."""
    slots = processor.engine.settings.slots
    machine = processor.engine.plane.machine
    cores = 1 if machine is None else machine.cores()
    return {"slots": slots, "cores": cores, "cpu": cpu_of(slots, cores)}
