"""Results into Kafka: a query's table as upserts and tombstones, a stream appended, each row once.

A batch is one transaction of Kafka, and holds beside the messages a mark that says how far the
delivery is (`kafka_marks.py`). Whoever begins takes the delivery's transactional id over: what
another left open is taken back, the other writes no more, and the marks say what is there.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.control.definitions.sink_table import SinkDefinition
from millstream.core.errors import UsageError
from millstream.core.extras import told_where_missing
from millstream.core.secrets import resolved, without_secrets
from millstream.store import faults
from millstream.store.delivery import Result, TargetError
from millstream.store.file_formats import json_lines, zoned
from millstream.store.sinks.kafka_marks import ANSWER_S, MARKS, Mark, Marks
from millstream.store.sinks.net_changes import GONE, KIND, by_key, net_changes

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

QUIET = 2  # of librdkafka, which else tells every broken connection on the terminal
JAVAS = "murmur2_random"  # keys go to the partitions that Java's clients would choose
COMMIT_S = 60.0
FULL_S = 0.1  # between two tries while the client's queue is full
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
GONE_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
Message = tuple[str | None, str | None]  # key and value


class KafkaSink:
    """One topic."""

    def __init__(self, definition: SinkDefinition) -> None:
        with told_where_missing():
            import confluent_kafka  # noqa: PLC0415  (an extra)
        self._library = confluent_kafka
        self._written = {k: v for k, v in definition.options.items() if k != "topic"}
        self._topic, self._key = definition.options["topic"], definition.key
        self._producer: Producer | None = None
        self.dataset = ("kafka", self._topic)  # for whoever draws lineage
        self._mark, self._noted = Mark("", "", "", False, 1), 1

    def recover(self, following: int) -> None:
        """The target itself says what it has taken; the ledger, whether it must know."""
        self._noted = following

    def close(self) -> None:
        """Lets go at once. What was begun is taken back by who comes next, or by the broker."""
        if self._producer is not None:
            with suppress(Exception):
                self._producer.purge()
        self._producer = None

    # -- how far it is --------------------------------------------------------------------------

    def following(self, result: Result, delivery: str) -> int:
        if self._producer is None or self._mark.delivery != delivery:
            with self._told(result):
                self._open(result, delivery)
        return self._mark.following

    def _open(self, result: Result, delivery: str) -> None:
        self.close()
        options = {"log_level": QUIET, **resolved(self._owner(result), self._written)}
        marks = Marks(self._library, options)
        marks.make()
        own = {"transactional.id": f"millstream {delivery}"}
        producer = self._library.Producer({"partitioner": JAVAS} | options | own)
        self._check_topic(producer)
        producer.init_transactions(ANSWER_S)
        found = marks.read()
        self._producer = producer
        if (mark := found.get(delivery)) is None:
            mark = self._begin(marks, found, result, delivery)
        self._mark = mark

    def _check_topic(self, producer: "Producer") -> None:
        told = producer.list_topics(self._topic, timeout=ANSWER_S).topics[self._topic]
        if told.error is not None:
            raise self._no_topic(told.error)

    def _begin(self, marks: Marks, found: "dict[str, Mark]", result: Result, delivery: str) -> Mark:
        """Notes a new delivery; a topic belongs to one query's table, or to streams alone.

        Of two that begin at once each sees the other's first mark unless its own was earlier: the
        later one gives way.
        """
        mark = Mark(delivery, self._topic, result.query, result.changes, 1)
        self._refuse_others(found, mark)
        if self._noted > 1:
            raise TargetError(
                f"topic {MARKS} no longer says how far the delivery into {self._topic} is",
                detail=f"{self._noted - 1} parts of query {result.query} were delivered",
                hint=f"restore {MARKS}, and keep it compacted; or begin in a new folder",
            )
        with self._transaction() as producer:
            marks.note(producer, mark)
        found = marks.read()
        try:
            self._refuse_others(found, found[delivery])
        except TargetError:
            with self._transaction() as producer:
                marks.forget(producer, mark)
            raise
        return found[delivery]

    def _refuse_others(self, found: "dict[str, Mark]", mark: Mark) -> None:
        for other in found.values():
            earlier = mark.begun < 0 or other.begun < mark.begun
            meets = other.topic == mark.topic and (other.changes or mark.changes)
            if meets and earlier and other.delivery != mark.delivery:
                raise TargetError(
                    f"topic {self._topic} holds the rows of another delivery",
                    detail=f"query {other.query}, of another run or home",
                    hint=f"choose another topic, or remove its mark in {MARKS}: "
                    f"a message with key {other.delivery!r} and no value",
                )

    # -- rows -----------------------------------------------------------------------------------

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        assert first >= self._mark.following  # whoever delivers has left out what was taken
        with self._told(result):
            messages = self._messages(result, table)
            following = self._mark.at(last + 1)
            with self._transaction() as producer:
                faults.reach("sink.begun")
                for key, value in messages:
                    self._produce(producer, key, value)
                Marks(self._library, {}).note(producer, following)
                producer.flush(COMMIT_S)
                faults.reach("sink.written")
            faults.reach("sink.committed")
            self._mark = following

    @contextmanager
    def _transaction(self) -> "Iterator[Producer]":
        producer = self._producer
        assert producer is not None  # `following` was asked before
        producer.begin_transaction()
        yield producer
        producer.commit_transaction(COMMIT_S)

    def _produce(self, producer: "Producer", key: str | None, value: str | None) -> None:
        while True:
            try:
                producer.produce(self._topic, value, key)
                return
            except BufferError:  # as many as the client holds: wait until the broker has some
                producer.poll(FULL_S)

    def _messages(self, result: Result, table: pa.Table) -> Iterator[Message]:
        given = [n for n in table.column_names if n != "op" or not result.changes]
        if strange := [name for name in self._key if name not in given]:
            raise TargetError(
                f"query {result.query} gives no column {strange[0]}, which its sink has as key",
                hint=f"it gives {', '.join(given)}",
            )
        if not result.changes or not self._key:  # changes without a key are told as they are
            yield from zip(self._keys(table), json_lines(zoned(table)), strict=True)
            return
        rows = by_key(net_changes(table), self._key, result.query)
        gone = pc.equal(rows[KIND], GONE).to_pylist()
        values = json_lines(zoned(rows.drop_columns([KIND])))
        for key, value, away in zip(self._keys(rows), values, gone, strict=True):
            yield key, None if away else value

    def _keys(self, rows: pa.Table) -> Iterator[str | None]:
        if self._key:
            return json_lines(zoned(rows.select([*self._key])))
        return iter([None] * rows.num_rows)

    # -- trouble --------------------------------------------------------------------------------

    def _owner(self, result: Result) -> str:
        return f"the sink of query {result.query}"

    @contextmanager
    def _told(self, result: Result) -> Iterator[None]:
        """Trouble in words; how far the target is must be asked again after it."""
        try:
            yield
        except UsageError as error:
            self.close()
            raise TargetError(error.message, detail=error.detail, hint=error.hint) from None
        except self._library.KafkaException as error:
            self.close()
            raise self._in_words(error.args[0], result) from None
        except BaseException:
            self.close()
            raise

    def _in_words(self, error: "KafkaError", result: Result) -> TargetError:
        if error.name() in FENCED:
            return TargetError(f"another process delivers query {result.query} to {self._topic}")
        if error.name() in GONE_TOPIC:
            return self._no_topic(error)
        told = f"Kafka does not take rows of query {result.query}"
        hint = "rows are kept and written again: see that the broker runs and the options are right"
        return TargetError(told, detail=self._without_secrets(str(error.str()), result), hint=hint)

    def _no_topic(self, error: "KafkaError") -> TargetError:
        hint = "make it, or name another: rows are kept and written then"
        return TargetError(f"there is no topic {self._topic}", detail=error.str(), hint=hint)

    def _without_secrets(self, words: str, result: Result) -> str:
        used: dict[str, Any] = {}
        with suppress(UsageError):
            used = resolved(self._owner(result), self._written)
        return without_secrets(words, self._written, used)
