"""The stream receiver: a thread for each copied stream, asleep in a long poll until rows come.

What has come is committed and told to the stream feeder by the ledger; so no cycle is spent on
looking (D-CAPE, section 4.3). A source that is away is asked again, less and less often.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.control.moves.table import Phase
from millstream.core.errors import AwayError, MillstreamError
from millstream.store.machine_failures import first_line
from millstream.store.moves.transfer import RefusedError

if TYPE_CHECKING:
    from millstream.engine.processor import Processor

WAIT_SECONDS = 20.0
PATIENCE_SECONDS = (0.1, 5.0)  # between questions to a source that is away: at first, at most
CROWDED_SECONDS = 0.1
FAREWELL_SECONDS = 2.0


class StreamReceiver:
    """Pulls every copy of one processor."""

    def __init__(self, processor: "Processor", say: Callable[[str], None]) -> None:
        self.processor, self._say = processor, say
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self.troubles: dict[str, str] = {}  # by stream: why it does not come, for as long as that

    def start(self) -> None:
        self.look()
        threading.Thread(target=self._leave, name="millstream-farewells", daemon=True).start()

    def _leave(self) -> None:
        """Now and then: sources that were away when they should have heard of a farewell."""
        while not self._stopping.wait(FAREWELL_SECONDS):
            try:
                self.processor.receiver.say_farewells()
            except Exception as error:
                if self._stopping.is_set():
                    return  # the ledger is closed by now
                self._say(f"cannot end a connection: {type(error).__name__}: {first_line(error)}")

    def look(self) -> None:
        """Begins with copies that are new; those that are gone end by themselves."""
        if self._stopping.is_set():
            return
        with self._lock:
            for copy in self.processor.ownership.copies():
                running = self._threads.get(copy.stream)
                if running is None or not running.is_alive():
                    thread = threading.Thread(
                        target=self._run,
                        args=(copy.stream,),
                        name=f"millstream-receiver {copy.stream[:20]}",
                        daemon=True,
                    )
                    self._threads[copy.stream] = thread
                    thread.start()
            self._threads = {s: t for s, t in self._threads.items() if t.is_alive()}
        self._changed.set()  # whoever is patient looks again
        self._changed.clear()

    def stop(self) -> None:
        """Asks the threads to end; those in a long poll end with the client."""
        self._stopping.set()
        self._changed.set()

    def _run(self, stream: str) -> None:
        try:
            self._pull(stream)
        finally:
            self.troubles.pop(stream, None)

    def _pull(self, stream: str) -> None:
        patience = PATIENCE_SECONDS[0]
        while not self._stopping.is_set():
            try:
                if self.processor.ownership.copy(stream) is None:
                    return
                if self.processor.receiver.crowded(stream):
                    self._stopping.wait(CROWDED_SECONDS)
                    continue
                self.processor.receiver.pull(stream, WAIT_SECONDS)
                patience = PATIENCE_SECONDS[0]
                self.troubles.pop(stream, None)
                if self._leads_here(stream):
                    self._stopping.wait(CROWDED_SECONDS)  # until this processor takes over
            except AwayError:
                self._changed.wait(patience)
                patience = min(patience * 2, PATIENCE_SECONDS[1])
            except RefusedError as refusal:
                if refusal.code not in ("busy", "not_owner"):
                    self._tell(stream, f"stream {stream} cannot be pulled: {refusal.message}")
                self._changed.wait(patience)
                patience = min(patience * 2, PATIENCE_SECONDS[1])
            except MillstreamError as error:
                self._tell(stream, f"stream {stream} cannot be stored: {error.message}")
                self._stopping.wait(PATIENCE_SECONDS[1])
            except Exception as error:
                if self._stopping.is_set():
                    return  # ledger and client are closed by now
                trouble = f"{type(error).__name__}: {first_line(error)}"
                self._tell(stream, f"stream {stream} cannot be pulled: {trouble}")
                self._stopping.wait(PATIENCE_SECONDS[1])

    def _tell(self, stream: str, trouble: str) -> None:
        if self.troubles.get(stream) != trouble:
            self.troubles[stream] = trouble
            self._say(trouble)

    def _leads_here(self, stream: str) -> bool:
        """Whether a move to this processor is about to make it the stream's owner."""
        sealed = self.processor.ownership.moves("new", [Phase.SEALED])
        return any(stream in move.copied for move in sealed)
