"""What other readers still want of copies that lie here, so that a copy can be passed on."""

from collections.abc import Callable

from millstream.language.plan.windows import FOREVER

KEPT = 32  # numbers of a copy that stay for others after all of its own readers have passed them
READERS_MAX = 1000  # that are remembered, over all streams


class Passing:
    """How far who asks here has come. In memory: who is forgotten takes bytes from the owner, and
    is remembered when it asks here again."""

    def __init__(self, head: Callable[[str], int]) -> None:
        self._head = head  # the next number of a stream
        self._wanted: dict[tuple[str, str], int] = {}  # by stream and reader: from which number on

    def asked(self, stream: str, reader: str, number: int) -> bool:
        """Notes how far a reader is; says whether it has come further."""
        before = self._wanted.pop((stream, reader), 0)
        self._wanted[stream, reader] = max(before, number)
        while len(self._wanted) > READERS_MAX:
            self._wanted.pop(next(iter(self._wanted)), None)
        return number > before

    def needed(self, stream: str) -> int:
        """The first number that somebody may still ask for; who lags too far behind, or has gone,
        is not waited for."""
        mine = [(key, number) for key, number in list(self._wanted.items()) if key[0] == stream]
        if not mine:
            return FOREVER
        least = self._head(stream) - KEPT
        for key, number in mine:
            if number < least:
                self._wanted.pop(key, None)
        return min((number for _, number in mine if number >= least), default=FOREVER)
