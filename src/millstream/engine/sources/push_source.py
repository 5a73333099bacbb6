"""Rows pushed from Python or posted over HTTP: batches that come at once are committed together.

A malformed row is rejected with a reason and never takes its neighbours with it. A producer numbers
its batches: one that was committed is acknowledged and skipped, a gap is refused, and the answer
comes after the commit. So a producer that repeats what was not answered loses nothing and doubles
nothing.

Each thread reads its rows before it waits for a lock. The first thread then commits for all that
have come meanwhile: one segment and one transaction, however many producers there are, and no delay
for a single one. A push waits for no step of the engine.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from millstream.core.errors import MovedError, StateError, UsageError
from millstream.engine.ports import RowParser
from millstream.engine.sources.gained_columns import GainedColumns
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Appended, Appender, Rows

NAME_MAX = 200  # characters of a producer's name
ROWS_MAX = 500_000  # of a batch
GROUP_ROWS_MAX = 500_000  # committed together, beyond the first batch
REPEATED = Appended(0, 0, 0, 0.0, repeated=True)


class GapError(UsageError):
    """A batch whose number does not follow the producer's last one."""

    def __init__(self, producer: str, number: int, expected: int) -> None:
        super().__init__(
            f"producer {producer} sent batch {number} where {expected} follows",
            hint=f"send batch {expected} first",
        )
        self.expected = expected


@dataclass(slots=True)
class _Waiting:
    """A batch that has been read, and its answer once there is one."""

    producer: str
    number: int | None
    table: pa.Table
    answer: Appended | None = None
    failure: Exception | None = None

    @property
    def answered(self) -> bool:
        return self.answer is not None or self.failure is not None


class PushSource:
    """The door of one stream for rows from outside."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        pushed: Callable[[str], None] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.definition, self.appender = definition, appender
        self.failure: BaseException | None = None
        self._parse = parse
        self._pushed = pushed  # told after each commit
        self._gained = GainedColumns(definition, say)
        self._queue: list[_Waiting] = []
        self._queue_lock = threading.Lock()  # never held for longer than a look

    def push(self, producer: str, number: int | None, rows: Rows) -> Appended:
        """Appends a batch of mappings by column, or a table; returns after the commit.

        Without a number it is the one that follows. In the answer, rows are counted from 0 within
        the batch.
        """
        _check(producer, number, rows)
        if number is not None and number < self.expected(producer):
            return REPEATED
        own = _Waiting(producer, number, self._parse(rows, producer))
        with self._queue_lock:
            self._queue.append(own)
        with self.appender.lock:
            while not own.answered:
                self._commit_group()
        if own.failure is not None:
            raise own.failure
        assert own.answer is not None
        self._gained.look_at_rows(rows)
        self._tell()
        return own.answer

    def _commit_group(self) -> None:
        """Commits what waits, in order of coming (under the appender's lock)."""
        group = self._take()
        numbers: dict[str, int] = {}
        for batch in group:
            expected = numbers.get(batch.producer, 0) + 1
            if batch.producer not in numbers:
                expected = self.expected(batch.producer)
            number = expected if batch.number is None else batch.number
            if number < expected:
                batch.answer = REPEATED
            elif number > expected:
                batch.failure = GapError(batch.producer, number, expected)
            else:
                numbers[batch.producer] = number
        if self.appender.moved_to:  # what was expected was perhaps looked up where nothing is left
            for batch in group:
                batch.answer = None
                batch.failure = MovedError(self.definition.name, self.appender.moved_to)
            return
        new = [batch for batch in group if not batch.answered]
        if not new:
            return
        try:
            self._refuse_ended()
            places = {self._key(name): {"number": number} for name, number in numbers.items()}
            answers = self.appender.append_together([b.table for b in new], places)
        except BaseException as error:
            interrupted = StateError(
                f"the commit of a batch for stream {self.definition.name} was interrupted",
                hint="send it again under the same number",
            )
            for batch in new:
                batch.failure = error if isinstance(error, Exception) else interrupted
            if isinstance(error, Exception):
                return
            raise
        for batch, answer in zip(new, answers, strict=True):
            batch.answer = answer

    def _take(self) -> list[_Waiting]:
        """The batches that are next, as many as one commit may hold."""
        with self._queue_lock:
            rows = count = 0
            for batch in self._queue:
                rows += batch.table.num_rows
                if count and rows > GROUP_ROWS_MAX:
                    break
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
        return group

    def _refuse_ended(self) -> None:
        if self.ended:
            raise StateError(f"stream {self.definition.name} has ended")

    def expected(self, producer: str) -> int:
        """The number of the batch that a producer should send next; the first is 1."""
        position = self.appender.ledger.ingest_position(self._key(producer))
        return int(position.get("number", 0)) + 1

    def finish(self) -> None:
        """No more rows will come."""
        self.appender.finish()
        self._tell()

    def _key(self, producer: str) -> str:
        return position_key(self.appender.stream, producer)

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


def position_key(stream: str, producer: str) -> str:
    """The name under which the ledger keeps what a producer has sent to a stream."""
    return f"{stream}@{producer}"


def _check(producer: str, number: int | None, rows: Rows) -> None:
    if not isinstance(producer, str) or not 0 < len(producer) <= NAME_MAX:
        raise UsageError(
            "a batch needs the name of its producer",
            hint=f"a text of at most {NAME_MAX} characters",
        )
    if number is not None and (
        isinstance(number, bool) or not isinstance(number, int) or number < 1
    ):
        raise UsageError(
            f"the number {number!r} of a batch is not a whole number from 1 on",
            hint="a producer counts its batches: 1, 2, 3, ...",
        )
    if len(rows) > ROWS_MAX:
        raise UsageError(
            f"a batch of {len(rows)} rows is too large", hint=f"at most {ROWS_MAX} rows at a time"
        )
    if isinstance(rows, pa.Table) or set(map(type, rows)) <= {dict}:
        return
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"row {index} is not an object with a value for each column")
