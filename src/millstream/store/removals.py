"""Files that nobody names any more: they go once every step that began before has ended, and who
keeps a copy of the home has passed them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Removals:
    """Who reads now, and which files wait until they have ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    clock: int = 0
    active: dict[int, int] = field(default_factory=dict)  # reader -> clock at its start
    waiting: list[tuple[int, str]] = field(default_factory=list)
    needed: Callable[[str], bool] = lambda file: False  # noqa: ARG005  (whether others fetch it)

    def begin(self) -> int:
        with self.lock:
            self.clock += 1
            self.active[self.clock] = self.clock
            return self.clock

    def end(self, token: int) -> None:
        with self.lock:
            self.active.pop(token, None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keeps every file that is there now for as long as somebody reads."""
        token = self.begin()
        try:
            yield
        finally:
            self.end(token)

    def add(self, files: Sequence[str]) -> None:
        with self.lock:
            self.clock += 1
            self.waiting += [(self.clock, f) for f in files]

    def due(self) -> list[str]:
        with self.lock:
            oldest = min(self.active.values(), default=self.clock + 1)
            ready = [f for at, f in self.waiting if at < oldest and not self.needed(f)]
            gone = frozenset(ready)
            self.waiting = [(at, f) for at, f in self.waiting if f not in gone]
            return ready
