"""Results and streams of a running system as a format of anybody's Spark: `format("millstream")`.

    from millstream.datasource import MillstreamSource
    spark.dataSource.register(MillstreamSource)
    spark.readStream.format("millstream").option("query", "errors").load()

Options: `manager` (an address, else `MILLSTREAM_MANAGER`), `query` to read, `stream` to write, and
`token` (`env:NAME` or `file:PATH`), where the keyring does not have it. Rows of a result have
numbers: an offset is the number that follows, and what Spark has committed is acknowledged, so that
a restart from its checkpoint reads every row once. Between two commits rows are kept; a result has
one reader. Rows are written in numbered batches of a producer for each task, so that a task that is
tried again repeats nothing.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from millstream.client.manager_client import ManagerClient, manager_url
from millstream.client.pushing import posted
from millstream.client.results import ResultReader
from millstream.core.errors import StateError, UsageError
from millstream.core.secrets import resolved

NAME = "millstream"
EXAMPLE = '.option("manager", "http://127.0.0.1:8360").option("query", "errors")'
READ_S = 60.0  # without the rows that were told of, after which a task gives up


@dataclass(frozen=True)
class Address:
    """Where a system is, and what of it is meant; travels to executors."""

    manager: str
    token: str | None

    def client(self) -> ManagerClient:
        used = resolved(f"format {NAME}", {"token": self.token}) if self.token else {}
        return ManagerClient(self.manager, token=used.get("token"))


@dataclass(frozen=True)
class Numbers(InputPartition):
    """Numbers of a result that one task reads, the last included."""

    first: int
    last: int


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task has written."""

    rows: int
    late: int
    rejected: int


class MillstreamSource(DataSource):
    """A query's result to read, a stream to write."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        with self._address().client() as client:
            told = client.query(self._named("query"))
        fields = [(str(name), str(type_)) for name, type_ in told["columns"]]
        fields += [("ts", "timestamp"), *([("op", "string")] if told["relation"] else [])]
        return ", ".join(f"`{name.replace('`', '``')}` {type_}" for name, type_ in fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ResultNow(self._address(), self._named("query"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return ResultStream(self._address(), self._named("query"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise UsageError("a stream cannot be overwritten", hint='.mode("append")')
        return RowsWriter(self._address(), self._named("stream"))

    def _address(self) -> Address:
        return Address(manager_url(self.options.get("manager")), self.options.get("token"))

    def _named(self, option: str) -> str:
        found = self.options.get(option)
        if not found:
            raise UsageError(f"format {NAME}: which {option}?", hint=EXAMPLE)
        return str(found)


class ResultNow(DataSourceReader):
    """All rows of a result that are kept, as they are when Spark plans the job."""

    def __init__(self, address: Address, query: str) -> None:
        self._address, self._query = address, query

    def partitions(self) -> Sequence[InputPartition]:
        with self._address.client() as client:
            reader = ResultReader(client, self._query)
            return [Numbers(first, last) for first, last in reader.listed()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Numbers)
        return _rows(self._address, self._query, partition)


class ResultStream(DataSourceStreamReader):
    """A result as it comes; an offset is the result's own name and the number that follows."""

    def __init__(self, address: Address, query: str) -> None:
        self._address, self._query = address, query
        self._client: ManagerClient | None = None
        self._last: dict[str, Any] | None = None  # the offset that was told last

    def _reader(self, following: int | None = None) -> ResultReader:
        if self._client is None:
            self._client = self._address.client()
        return ResultReader(self._client, self._query, following)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        reader = self._reader()
        self._last = {"result": reader.stream, "next": reader.following}
        return self._last

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """From Spark 4.2 on it is told where to begin; before, from where it was."""
        known = start or self._last
        reader = self._reader(None if known is None else int(known["next"]))
        if known is not None and known["result"] != reader.stream:
            raise StateError(
                f"the result of {self._query} has begun again, and its numbers with it",
                hint="begin with a checkpoint of its own",
            )
        for _, last in reader.listed():
            reader.following = last + 1
        self._last = {"result": reader.stream, "next": reader.following}
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        reader = self._reader(int(start["next"]))
        return [Numbers(a, b) for a, b in reader.listed() if b < int(end["next"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Numbers)
        return _rows(self._address, self._query, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader(int(end["next"])).acknowledge()

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def __getstate__(self) -> dict[str, Any]:
        """Connections stay where they are."""
        return {slot: None if slot == "_client" else v for slot, v in vars(self).items()}


def _rows(address: Address, query: str, wanted: Numbers) -> Iterator[pa.RecordBatch]:
    with address.client() as client:
        reader = ResultReader(client, query, wanted.first)
        while reader.following <= wanted.last:
            before = reader.following
            for page in reader.pages(READ_S):
                if page.table is not None:
                    yield from page.table.to_batches()
                if reader.following > wanted.last:
                    break
            if reader.idle and reader.following == before:
                raise StateError(f"numbers {before} to {wanted.last} of {query} do not come")


class RowsWriter(DataSourceArrowWriter):
    """Posts rows to where a stream enters; a batch that comes again is known by its number."""

    def __init__(self, address: Address, stream: str) -> None:
        self._address, self._stream = address, stream
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        producer = f"spark-{self._job}-{0 if context is None else context.partitionId()}"
        rows = late = rejected = 0
        with self._address.client() as client:
            for number, batch in enumerate(iterator, start=1):
                table = pa.Table.from_batches([batch])
                told = posted(client, self._stream, table, producer, number)
                rows, late = rows + int(told["rows"]), late + int(told["late"])
                rejected += int(told["rejected"])
        return Sent(rows, late, rejected)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        told = [m for m in messages if isinstance(m, Sent)]
        late, rejected = sum(m.late for m in told), sum(m.rejected for m in told)
        if late or rejected:
            rows = sum(m.rows for m in told)
            print(f"{self._stream}: {rows} rows taken, {late} late, {rejected} rejected")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was posted is there; a job that runs again has another name and posts it again."""
