"""A source that cannot continue stops only its readers.

A broken file, one that has changed since it was read, a connector that fails: the stream is taken
from the loop, queries that read it are parked with the reason, and the rest continue. Every minute,
and by the next process, the source is opened again.
"""

from collections.abc import Callable
from contextlib import suppress

from millstream.core.errors import DamageError, MillstreamError, ResourceError
from millstream.engine.engine import Engine
from millstream.engine.query import STOPPED, Query
from millstream.language.plan.nodes import sources_of
from millstream.store.ledger_file import HomeTakenOverError
from millstream.store.machine_failures import first_line


def ends_all(error: BaseException) -> bool:
    """Whether an error of a source is not its own: a full disk, a lost home or process."""
    fatal = (ResourceError, HomeTakenOverError, DamageError)
    return isinstance(error, fatal) or not isinstance(error, Exception)


class StoppedSources:
    """Stops sources of one engine, and parks who reads them."""

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine, self._say = engine, say
        self.first: MillstreamError | None = None

    def take_up(self) -> None:
        """Parks readers of streams that could not be opened; lets the others go on."""
        self._wake()
        for name, error in list(self._engine.stopped.items()):
            self._told(name, error)

    def try_again(self) -> None:
        """Opens sources anew that somebody may have put right; a failure is no news."""
        declared = self._engine.hosting.ownership.declared()
        for name in list(self._engine.stopped):
            known = declared.get(name)
            if known is not None and not known.started:
                continue  # its rows are not to come yet
            with suppress(MillstreamError), self._engine.lock:
                self._engine.hosting.open_source(self._engine.catalog.stream(name))
                del self._engine.stopped[name]
                source = self._engine.sources.get(name)
                if source is not None:
                    source.start()
                self._say(f"stream {name} continues")
        if not self._engine.stopped:
            self.first = None
        self._wake()

    def _wake(self) -> None:
        for query in list(self._engine.queries.values()):
            if query.stopped and self._cause(query) is None:
                self._engine.set_query_state(query.name, "running")

    def stop(self, name: str, error: BaseException) -> None:
        """Takes a stream's source from the loop."""
        told = error if isinstance(error, MillstreamError) else _told(name, error)
        with self._engine.lock:
            self._engine.ingests.pop(name, None)
            source = self._engine.sources.pop(name, None)
            self._engine.stopped[name] = told
        if source is not None:
            with suppress(Exception):  # it has failed already
                source.stop()
        self._told(name, told)

    def _told(self, name: str, error: MillstreamError) -> None:
        self.first = self.first or error
        words = f"{error.message}{f': {error.detail}' if error.detail else ''}"
        self._say(f"error: stream {name} is stopped: {words}")
        for query in list(self._engine.queries.values()):
            if query.state == "running" and self._cause(query) is not None:
                reason = f"{STOPPED}its stream {name} cannot be read: {words}"
                self._engine.set_query_state(query.name, "parked", reason)
                self._say(f"query {query.name} is parked: {reason}")

    def _cause(self, query: Query) -> MillstreamError | None:
        streams = {source.stream for source in sources_of(query.plan.root)}
        return next((e for s, e in self._engine.stopped.items() if s in streams), None)


def _told(name: str, error: BaseException) -> MillstreamError:
    return MillstreamError(
        f"the source of stream {name} has failed",
        detail=f"{type(error).__name__}: {first_line(error)}",
        hint="put right what it says and start the process again: nothing is lost",
    )
