"""A processor makes itself known to its manager, and again while it hears nothing from it.

The manager may be away for minutes: the processor goes on with its work and keeps saying where it
is. A manager that has seen a later epoch of this home says so: then another process has it, and
this one ends. Whatever else a manager refuses is the manager's matter, and no reason to end.
"""

import threading
from collections.abc import Callable

from millstream.client.http import HttpClient
from millstream.control.protocol.commands import HOME_TAKEN, Join
from millstream.core.errors import AwayError, MillstreamError, RefusedError

AGAIN_SECONDS = 5.0
SILENCE_SECONDS = 7.0  # longer than a manager takes between two reports
ANSWER_SECONDS = 5.0


class Registration:
    """Says `here I am` until a manager asks something, and whenever none has for a while."""

    def __init__(
        self,
        manager: str,
        joining: Callable[[], Join],
        heard: threading.Event,
        say: Callable[[str], None],
        *,
        token: str | None = None,
        verify: str | bool = True,
    ) -> None:
        self._managers = [one.rstrip("/") for one in manager.split(",")]  # one of them leads
        self._joining, self._heard, self._say = joining, heard, say
        self._client = HttpClient(token, verify, answer_s=ANSWER_SECONDS)
        self.refused = threading.Event()
        self._stopping = threading.Event()
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="millstream-join", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._heard.clear()
            self._join()
            if self._stopping.wait(AGAIN_SECONDS):
                return
            while self._heard.is_set() and not self._stopping.is_set():
                self._heard.clear()
                self._stopping.wait(SILENCE_SECONDS)

    def _join(self) -> None:
        try:
            self._ask()
        except AwayError as error:
            cause = type(error.__cause__).__name__ if error.__cause__ else error.message
            self._tell(f"the manager does not answer: {cause}")
        except MillstreamError as error:
            self._tell(f"the manager refuses this processor: {error.message[:300]}")
            if isinstance(error, RefusedError) and error.code == HOME_TAKEN:
                self.refused.set()
        else:
            self._tell("")

    def _ask(self) -> None:
        """Asks the one that answered last, then the others."""
        failure: MillstreamError | None = None
        for url in list(self._managers):
            try:
                self._client.ask("POST", url + Join.PATH, self._joining())
            except MillstreamError as error:
                refused = isinstance(error, RefusedError) and error.code == "superseded"
                if not refused and not isinstance(error, AwayError):
                    raise
                failure = failure if isinstance(failure, RefusedError) else error
                self._managers.append(self._managers.pop(0))
            else:
                return
        if failure is not None:
            raise failure

    def _tell(self, text: str) -> None:
        if text != self._told and text:
            self._say(text)
        self._told = text
