"""What a move asks of the processor that it leaves or comes to: which operators run there.

The processor's own modules stand above this one; here is only what a move may ask of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from millstream.control.protocol.commands import Host
from millstream.language.share.dataflow import Operator
from millstream.store.ledger import Ledger
from millstream.store.moves.ownership import Ownership
from millstream.store.moves.records import Place, SourceRecord, StateRecord


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

    def settle(self, query: str) -> None:
        """Lets a query rest, or go on, as was last told (inside a transaction)."""
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

    # -- base streams ---------------------------------------------------------------------------

    def enters(self, stream: str) -> bool:
        """Whether rows of a base stream enter here."""
        ...

    def refuse_to_move(self, stream: str) -> None:
        """Refuses where the kind of a source keeps it where it is."""
        ...

    def rest_source(self, stream: str) -> None:
        """Lets no more rows come by themselves; posted ones are taken until the seal."""
        ...

    def wake_source(self, stream: str) -> None:
        """Lets rows come again, where the stream was not handed over after all."""
        ...

    def source_record(self, stream: str) -> SourceRecord:
        """Where a source stands."""
        ...

    def rejects(self, stream: str) -> dict[str, StateRecord]:
        """The rows of a base stream that went aside."""
        ...

    def give_source(self, stream: str, to: Place) -> None:
        """Rows enter elsewhere from now on (inside the transaction of the seal)."""
        ...

    def let_go(self, stream: str) -> None:
        """Forgets what this process had of a source whose stream was handed over."""
        ...

    def drop_rejects(self, stream: str) -> list[str]:
        """Forgets rows that went aside (inside a transaction); gives files to go."""
        ...

    def expect_source(self, tables: Sequence[Mapping[str, Any]]) -> None:
        """Refuses streams that are not known here yet, or are declared with a mistake."""
        ...

    def try_source(self, table: Mapping[str, Any], known: SourceRecord) -> None:
        """Refuses a source that could not go on here; says what is missing."""
        ...

    def take_source(self, table: Mapping[str, Any], known: SourceRecord) -> None:
        """Rows enter here, from where the former owner stood (inside a transaction)."""
        ...

    def open_taken(self, stream: str) -> None:
        """Opens a source that has come."""
        ...
