"""When a failed query is restarted automatically, if a policy asks for it.

A restarted query continues where it failed; if the cause is still there, it fails again. So a
policy waits longer each time and ends after a number of restarts: a query that fails on an
unchanged row soon fails for good. The count of a query that has run long enough begins anew. Pure.
"""

from dataclasses import dataclass, replace

from millstream.core.errors import UsageError

NEVER, BACKOFF = "never", "backoff"
POLICIES = (NEVER, BACKOFF)
FIRST_S = 5.0  # from the failure to the first restart; then twice as long each time
LONGEST_S = 300.0
HEALTHY_S = 1800.0  # without a failure after a restart: what was before does not count any more
GUILTY = (
    "Spark's Java process ended while this query ran, and again when it ran alone; "
    "it may need more memory than there is"
)


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a query was restarted in a row, and when last."""

    count: int = 0
    last_s: float = 0.0

    def due_s(self, failed_s: float) -> float:
        """When the next one is due.

        >>> [Restarts(count).due_s(100.0) for count in (0, 1, 2, 20)]
        [105.0, 110.0, 120.0, 400.0]
        """
        return failed_s + min(FIRST_S * 2.0 ** min(self.count, 20), LONGEST_S)

    def at_failure(self, failed_s: float) -> "Restarts":
        """Those that count for a failure.

        >>> Restarts(3, 100.0).at_failure(200.0).count, Restarts(3, 100.0).at_failure(2000.0).count
        (3, 0)
        """
        healthy = self.count and failed_s - self.last_s >= HEALTHY_S
        return Restarts() if healthy else self

    def once_more(self, now_s: float) -> "Restarts":
        return replace(self, count=self.count + 1, last_s=now_s)


def worth_it(reason: str) -> bool:
    """Whether a failure may be tried again without a person: not where it ends Java."""
    return not reason.startswith(GUILTY)


def checked(policy: str) -> str:
    """The name of a policy; UsageError where there is none of that name."""
    if policy not in POLICIES:
        raise UsageError(f"unknown restart {policy!r}", hint=f"one of {', '.join(POLICIES)}")
    return policy
