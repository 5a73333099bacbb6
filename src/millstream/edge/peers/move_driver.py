"""Goes on with the moves to this processor, each in a thread of its own.

Before the seal it copies and warms up; then it sleeps in a long poll at the old owner until that
has sealed, so that a move's pause is a step and a round trip. After the seal it asks until it has
everything. A manager is not needed for any of it.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.control.moves.table import ARRIVING, Phase
from millstream.core.errors import MillstreamError
from millstream.store.moves.transfer import PeerAwayError, RefusedError

if TYPE_CHECKING:
    from millstream.engine.processor import Processor

WAIT_SECONDS = 20.0
PATIENCE_SECONDS = (0.02, 2.0)


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
        patience = PATIENCE_SECONDS[0]
        while not self._stopping.is_set():
            known = self.processor.ownership.move(move)
            if known is None or known.phase not in ARRIVING:
                self.failures.pop(move, None)
                return
            try:
                if self.processor.new_owner.advance(move, WAIT_SECONDS):
                    patience = PATIENCE_SECONDS[0]
                    self._copies()
                elif known.phase is not Phase.READY:
                    self._changed.wait(patience)
                    patience = min(patience * 1.5, PATIENCE_SECONDS[1])
                self.failures.pop(move, None)
            except PeerAwayError:
                self._changed.wait(patience)
                patience = min(patience * 2, PATIENCE_SECONDS[1])
            except RefusedError as refusal:
                if refusal.code in ("unknown", "undone", "done", "not_owner"):
                    self.failures[move] = refusal.message  # the manager decides what becomes of it
                self._changed.wait(PATIENCE_SECONDS[1])
            except MillstreamError as error:
                self.failures[move] = error.message
                self._say(f"move {move} cannot go on: {error.message}")
                self._changed.wait(PATIENCE_SECONDS[1])
            except Exception as error:
                if self._stopping.is_set():
                    return  # ledger and client are closed by now
                first = (str(error).strip().splitlines() or [""])[0][:300]
                self.failures[move] = f"{type(error).__name__}: {first}"
                self._say(f"move {move} cannot go on: {self.failures[move]}")
                self._changed.wait(PATIENCE_SECONDS[1])
