"""A topic has each row once and is the query's table at every commit, whoever is killed when."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from target_runs import Home, cut_off_often

import kafka_broker
from millstream.control.definitions.sink_table import SinkDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.delivery import Result, SinkError, TargetError
from millstream.store.sinks.kafka import KafkaSink
from millstream.store.sinks.kafka_marks import MARKS
from transactional_broker import TransactionalBroker, running_transactional_broker

pytest.importorskip("confluent_kafka")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RESULT = Result("q", "r:q", (Field("name", "string"), Field("n", "bigint")), changes=True)


@pytest.fixture(scope="module")
def broker() -> Iterator[TransactionalBroker]:
    with running_transactional_broker() as running:
        yield running


def sink(broker: TransactionalBroker, topic: str, *key: str, **options: str) -> KafkaSink:
    told = {"topic": topic, "bootstrap.servers": broker.address} | options
    return KafkaSink(SinkDefinition("kafka", told, key))


def committed(broker: TransactionalBroker, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values as every consumer sees them, partition by partition."""
    return kafka_broker.committed(broker.address, topic, len(broker.logs[topic]))


def model_row(value: dict[str, Any]) -> tuple[Any, ...]:
    moment = datetime.fromisoformat(value["ts"])
    return value["name"], value["n"], round((moment - EPOCH).total_seconds() * 1e6)


def table(broker: TransactionalBroker, topic: str) -> "Counter[tuple[Any, ...]]":
    """What a topic of upserts comes to."""
    rows: dict[str, Any] = {}
    for key, value in committed(broker, topic):
        rows[json.dumps(key)] = value
    return Counter(model_row(v) for v in rows.values() if v is not None)


def bag(broker: TransactionalBroker, topic: str) -> "Counter[tuple[Any, ...]]":
    """What a topic of changes, or of rows, comes to."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for _, value in committed(broker, topic):
        rows[model_row(value)] += -1 if value.get("op") == "-" else 1
    return +rows


@pytest.mark.parametrize(
    ("topic", "changes", "key", "kills"),
    [("keyed", True, ("name",), 50), ("changes", True, (), 15), ("appended", False, ("n",), 20)],
)
def test_kills_lose_double_and_mix_nothing(
    broker: TransactionalBroker,
    tmp_path: Path,
    topic: str,
    changes: bool,
    key: tuple[str, ...],
    kills: int,
) -> None:
    broker.make(topic)
    seen = table if changes and key else bag
    home = Home(tmp_path / "home", changes=changes, unique=bool(key))
    cut_off_often(home, lambda: sink(broker, topic, *key), lambda: seen(broker, topic), kills)
    home.close()
    assert broker.configs[MARKS] == {"cleanup.policy": "compact"}


def changes(*rows: tuple[str | None, int, str]) -> pa.Table:
    moment = pa.array([EPOCH] * len(rows), pa.timestamp("us", tz="UTC"))
    names, numbers, signs = (list(c) for c in zip(*rows, strict=True))
    columns = [pa.array(names, pa.string()), pa.array(numbers, pa.int64()), moment, signs]
    return pa.table(columns, ["name", "n", "ts", "op"])


def test_upserts_and_tombstones_by_key(broker: TransactionalBroker) -> None:
    broker.make("shape", 1)
    opened = sink(broker, "shape", "name")
    assert opened.following(RESULT, "d-shape") == 1
    opened.deliver(RESULT, 1, 1, changes(("a", 1, "+"), (None, 2, "+")))
    opened.deliver(RESULT, 2, 2, changes(("a", 1, "-"), ("a", 3, "+"), (None, 2, "-")))
    opened.close()
    moment = "1970-01-01T00:00:00.000000Z"
    found = committed(broker, "shape")
    assert sorted(found[:2], key=str) == [
        ({"name": "a"}, {"name": "a", "n": 1, "ts": moment}),
        ({"name": None}, {"name": None, "n": 2, "ts": moment}),
    ]
    assert sorted(found[2:], key=str) == [
        ({"name": "a"}, {"name": "a", "n": 3, "ts": moment}),
        ({"name": None}, None),
    ]


def test_two_rows_with_one_key_are_told_and_nothing_is_written(broker: TransactionalBroker) -> None:
    broker.make("twice")
    opened = sink(broker, "twice", "name")
    opened.following(RESULT, "d-twice")
    with pytest.raises(TargetError, match=r"two rows with one key.*hint: name all columns"):
        opened.deliver(RESULT, 1, 1, changes(("b", 1, "+"), ("b", 2, "+")))
    assert opened.following(RESULT, "d-twice") == 1
    assert committed(broker, "twice") == []
    opened.close()


def test_of_two_writers_the_first_is_refused(broker: TransactionalBroker) -> None:
    broker.make("owned")
    first, second = sink(broker, "owned", "name"), sink(broker, "owned", "name")
    first.following(RESULT, "d-owned")
    first.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    assert second.following(RESULT, "d-owned") == 2  # the first is a process that was thought dead
    with pytest.raises(TargetError, match="another process delivers query q to owned"):
        first.deliver(RESULT, 2, 2, changes(("a", 1, "-"), ("a", 2, "+")))
    second.deliver(RESULT, 2, 2, changes(("a", 1, "-"), ("a", 2, "+")))
    assert [row[:2] for row in table(broker, "owned")] == [("a", 2)]
    with pytest.raises(TargetError, match=r"another delivery.*query q, of another run"):
        sink(broker, "owned", "name").following(RESULT, "d-other")
    second.close()


def test_of_two_that_begin_at_once_the_later_gives_way(broker: TransactionalBroker) -> None:
    """The other one's first mark lands after our look and before ours."""
    broker.make("race")
    first, second = sink(broker, "race", "name"), sink(broker, "race", "name")
    begun = second._begin  # type: ignore[attr-defined]

    def late(*arguments: Any) -> Any:
        first.following(RESULT, "d-race-1")
        first.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
        return begun(*arguments)

    second._begin = late  # type: ignore[method-assign]
    with pytest.raises(TargetError, match="holds the rows of another delivery"):
        second.following(RESULT, "d-race-2")
    assert first.following(RESULT, "d-race-1") == 2
    second._begin = begun  # type: ignore[method-assign]
    with pytest.raises(TargetError, match="query q, of another run"):
        second.following(RESULT, "d-race-2")
    first.deliver(RESULT, 2, 2, changes(("a", 1, "-")))
    first.close()
    assert not table(broker, "race")


def test_streams_share_a_topic(broker: TransactionalBroker) -> None:
    broker.make("shared", 1)
    stream = Result("q", "r:q", RESULT.columns)
    for delivery in ("d-s1", "d-s2"):
        opened = sink(broker, "shared")
        opened.following(stream, delivery)
        opened.deliver(stream, 1, 1, changes(("a", 1, "+")).drop_columns(["op"]))
        opened.close()
    assert len(committed(broker, "shared")) == 2
    with pytest.raises(TargetError, match="holds the rows of another delivery"):
        sink(broker, "shared", "name").following(RESULT, "d-s3")


def test_marks_that_are_gone_are_told(broker: TransactionalBroker, tmp_path: Path) -> None:
    broker.make("kept")
    home = Home(tmp_path / "home", changes=True)
    home.grow(2)
    delivery = home.delivery(sink(broker, "kept", "name"))
    assert delivery.advance()
    delivery.close()
    lost = broker.logs.pop(MARKS)
    home.grow(1)
    again = home.delivery(sink(broker, "kept", "name"))
    with pytest.raises(SinkError, match=f"topic {MARKS} no longer says.*hint: restore"):
        again.advance()
    broker.logs[MARKS] = lost
    again.advance()
    again.close()
    assert table(broker, "kept") == home.tables[max(home.tables)]
    home.close()


def test_trouble_is_told_and_secrets_are_not(
    broker: TransactionalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TargetError, match=r"there is no topic nowhere.*hint: make it"):
        sink(broker, "nowhere").following(RESULT, "d-none")
    with pytest.raises(TargetError, match=r"the sink of query q: the secret.*not in the env"):
        sink(broker, "x", **{"sasl.password": "env:NOT_THERE"}).following(RESULT, "d-none")
    monkeypatch.setenv("PLACE", "hunter2")
    with pytest.raises(TargetError, match="does not take rows of query q") as told:
        sink(broker, "x", **{"security.protocol": "env:PLACE"}).following(RESULT, "d-none")
    assert "hunter2" not in str(told.value)
    broker.make("odd")
    opened = sink(broker, "odd", "host")
    opened.following(RESULT, "d-odd")
    with pytest.raises(TargetError, match="no column host, which its sink has as key"):
        opened.deliver(RESULT, 1, 1, changes(("a", 1, "+")))


def test_what_is_not_committed_is_seen_by_nobody(broker: TransactionalBroker) -> None:
    """The broker of these tests holds back what real ones hold back."""
    broker.make("open", 1)
    opened = sink(broker, "open", "name")
    opened.following(RESULT, "d-open")
    seen: list[Any] = []
    (log,) = broker.logs["open"]
    faults.set_hook(lambda point: seen.append((point, committed(broker, "open"), log.end)))
    try:
        opened.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    finally:
        faults.set_hook(None)
    opened.close()
    assert [(p, len(rows), end) for p, rows, end in seen] == [
        ("sink.begun", 0, 0), ("sink.written", 0, 1), ("sink.committed", 1, 2)
    ]  # fmt: skip
