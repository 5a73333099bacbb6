"""Rows pushed from Python or posted over HTTP: each call is one batch and one commit.

A malformed row is rejected with a reason and never takes its neighbours with it. A producer numbers
its batches: one that was committed is acknowledged and passed over, a gap is refused, and the
answer comes after the commit. So a producer that repeats what was not answered loses nothing and
doubles nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from millstream.core.errors import StateError, UsageError
from millstream.engine.ports import Row, RowParser
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Appended, Appender

NAME_MAX = 200  # characters of a producer's name
ROWS_MAX = 500_000  # of a batch
REPEATED = Appended(0, 0, 0, 0.0, repeated=True)


class GapError(UsageError):
    """A batch whose number does not follow the producer's last one."""

    def __init__(self, producer: str, number: int, expected: int) -> None:
        super().__init__(
            f"producer {producer} sent batch {number} where {expected} follows",
            hint=f"send batch {expected} first",
        )
        self.expected = expected


class PushSource:
    """The door of one stream for rows from outside."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        pushed: Callable[[str], None] | None = None,
    ) -> None:
        self.definition, self.appender = definition, appender
        self.failure: BaseException | None = None
        self._parse = parse
        self._pushed = pushed  # told after each commit

    def push(self, producer: str, number: int, rows: Sequence[Row]) -> Appended:
        """Appends a batch of mappings by column; returns after the commit.

        In the answer, rows are counted from 0 within the batch.
        """
        _check(producer, number, rows)
        with self.appender.lock:
            expected = self.expected(producer)
            if number < expected:
                return REPEATED
            if number > expected:
                raise GapError(producer, number, expected)
            if self.ended:
                raise StateError(f"stream {self.definition.name} has ended")
            table = self._parse(rows, producer)
            appended = self.appender.append(table, {}, {self._key(producer): {"number": number}})
        self._tell()
        return appended

    def expected(self, producer: str) -> int:
        """The number of the batch that a producer should send next; the first is 1."""
        position = self.appender.ledger.ingest_position(self._key(producer))
        return int(position.get("number", 0)) + 1

    def finish(self) -> None:
        """No more rows will come."""
        self.appender.finish()
        self._tell()

    def _key(self, producer: str) -> str:
        return f"{self.appender.stream}@{producer}"

    def _tell(self) -> None:
        if self._pushed is not None:
            self._pushed(self.definition.name)

    # -- as a source of the loop ----------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return bool(self.appender.ledger.ingest_position(self.appender.stream).get("ended"))

    def start(self) -> None:
        """Rows come by themselves."""

    def stop(self) -> None:
        """Nothing runs in between."""

    def silent_since(self) -> float:
        return self.appender.arrived


def _check(producer: str, number: int, rows: Sequence[Row]) -> None:
    if not isinstance(producer, str) or not 0 < len(producer) <= NAME_MAX:
        raise UsageError(
            "a batch needs the name of its producer",
            hint=f"a text of at most {NAME_MAX} characters",
        )
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise UsageError(
            f"the number {number!r} of a batch is not a whole number from 1 on",
            hint="a producer counts its batches: 1, 2, 3, ...",
        )
    if len(rows) > ROWS_MAX:
        raise UsageError(
            f"a batch of {len(rows)} rows is too large", hint=f"at most {ROWS_MAX} rows at a time"
        )
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"row {index} is not an object with a value for each column")
