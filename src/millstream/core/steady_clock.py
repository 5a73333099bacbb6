"""A clock for people and for waiting at once: it begins with the time of day and only goes forward.

Setting the machine's clock back or forward changes nothing while the process lives: between two
looks as much passes as truly passed. Decides nothing.
"""

import time
from collections.abc import Callable


class SteadyClock:
    """Seconds since 1970, as told at the start, plus what has passed since."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        passing: Callable[[], float] = time.monotonic,
    ) -> None:
        self._passing = passing
        self._ahead_s = wall() - passing()

    def __call__(self) -> float:
        """Now.

        >>> walls, passed = iter([1000.0]), iter([5.0, 7.5])
        >>> SteadyClock(lambda: next(walls), lambda: next(passed))()
        1002.5
        """
        return self._ahead_s + self._passing()
