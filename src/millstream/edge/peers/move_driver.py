"""Goes on with the moves to this processor, each in a thread of its own.

Before the seal it copies and warms up; then it sleeps in a long poll at the old owner until that
has sealed, so that a move's pause is a step and a round trip. After the seal it asks until it has
everything. A manager is not needed for any of it.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from millstream.control.moves.table import ARRIVING, Phase
from millstream.core.errors import AwayError, MillstreamError, RefusedError

if TYPE_CHECKING:
    from millstream.engine.processor import Processor

WAIT_SECONDS = 20.0
PATIENCE_SECONDS = (0.02, 2.0)
Turn = Literal["over", "on", "asked", "waiting", "away", "trouble"]


class MoveDriver:
    def __init__(
        self, processor: "Processor", say: Callable[[str], None], copies: Callable[[], None]
    ) -> None:
        self.processor, self._say, self._copies = processor, say, copies
        self.failures: dict[str, str] = {}  # why a move cannot go on, as last seen
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._lock = threading.Lock()

    def look(self) -> None:
        """Begins with moves that are new; wakes those that are patient."""
        if self._stopping.is_set():
            return
        with self._lock:
            for move in self.processor.ownership.moves("new", ARRIVING):
                running = self._threads.get(move.id)
                if running is None or not running.is_alive():
                    thread = threading.Thread(
                        target=self._run, args=(move.id,), name=f"millstream-{move.id}", daemon=True
                    )
                    self._threads[move.id] = thread
                    thread.start()
            self._threads = {m: t for m, t in self._threads.items() if t.is_alive()}
        self._changed.set()
        self._changed.clear()

    def stop(self) -> None:
        self._stopping.set()
        self._changed.set()

    def _run(self, move: str) -> None:
        patience, longest = PATIENCE_SECONDS
        while not self._stopping.is_set():
            match self.turn(move, WAIT_SECONDS):
                case "over":
                    return
                case "on":
                    patience = PATIENCE_SECONDS[0]
                case "waiting":
                    self._changed.wait(patience)
                    patience = min(patience * 1.5, longest)
                case "away":
                    self._changed.wait(patience)
                    patience = min(patience * 2, longest)
                case "trouble":
                    self._changed.wait(longest)

    def turn(self, move: str, wait: float = 0.0) -> Turn:
        """Does once what a move can do now; at most as long as that it waits for the seal."""
        known = self.processor.ownership.move(move)
        if known is None or known.phase not in ARRIVING:
            self.failures.pop(move, None)
            return "over"
        try:
            advanced = self.processor.new_owner.advance(move, wait)
        except AwayError:
            return "away"
        except RefusedError as refusal:
            if refusal.code in ("unknown", "undone", "done", "not_owner"):
                self.failures[move] = refusal.message  # the manager decides what becomes of it
            return "trouble"
        except Exception as error:
            if self._stopping.is_set():
                return "over"  # ledger and client are closed by now
            self.failures[move] = _words(error)
            self._say(f"move {move} cannot continue: {self.failures[move]}")
            return "trouble"
        self.failures.pop(move, None)
        if advanced:
            self._copies()
            return "on"
        return "asked" if known.phase is Phase.READY else "waiting"


def _words(error: Exception) -> str:
    if isinstance(error, MillstreamError):
        return error.message
    first = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {first}"
