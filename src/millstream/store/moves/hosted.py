"""What a move asks of the processor that it leaves or comes to: which operators run there.

The processor's own modules stand above this one; here is only what a move may ask of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from millstream.control.protocol.commands import Host
from millstream.language.share.dataflow import Operator
from millstream.store.ledger import Ledger
from millstream.store.moves.ownership import Ownership


class RunningQuery(Protocol):
    """A query as it stands."""

    name: str
    state: str
    reason: str


class RunningHere(Protocol):
    """The operators of one processor."""

    resting: set[str]  # operators that are about to be handed over

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    @property
    def operators(self) -> dict[str, Operator]: ...

    def pause_operators(self) -> None:
        """Lets operators rest that ought to, and no others."""
        ...

    def queries_of(self, operator: str) -> Iterator[RunningQuery]: ...


class Hosting(Protocol):
    """Who brings operators to life on one processor, and forgets them."""

    @property
    def engine(self) -> RunningHere: ...

    @property
    def ownership(self) -> Ownership: ...

    @property
    def ledger(self) -> Ledger: ...

    def chosen(self, text: Host) -> tuple[Operator, ...]:
        """The operators that a text means."""
        ...

    def install(self, text: Host) -> None:
        """Makes the columns of all the query's streams known (inside a transaction)."""
        ...

    def register(self, text: Host) -> None:
        """Notes which operators of a query are here (inside a transaction)."""
        ...

    def run(self, text: Host) -> None:
        """Lets the loop see the operators of a query that the ledger says are here."""
        ...

    def warm_up(self, operator: Operator, rounds: int) -> str:
        """Tries an operator out on what lies here; gives what went wrong, if anything did."""
        ...

    def drop_operator(self, operator: str) -> list[str]:
        """Forgets an operator's cursors and states (inside a transaction); gives files to go."""
        ...

    def leave(self, query: str) -> None:
        """Forgets a query of which nothing is left here (inside a transaction)."""
        ...

    def refresh(self, query: str) -> None:
        """Brings what the loop sees of a query in line with the ledger."""
        ...

    def tidy(self, stream: str) -> None:
        """Forgets a stream that nobody reads from this ledger any more."""
        ...

    def unread(self, stream: str) -> bool:
        """Whether nobody, here or elsewhere, reads a stream from this ledger."""
        ...

    def remove(self, files: Sequence[str]) -> None: ...
