"""Rows of change data that say something nobody knows go aside with a reason, without Spark."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import enveloped
from millstream.language.plan.schema import Field
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW, Appender
from millstream.store.columns import columns_text
from millstream.store.streams import Streams

PEOPLE = (Field("id", "int"), Field("what", "string"))


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    made = Streams(tmp_path / "home")
    yield made
    made.close()


def appender(
    streams: Streams, columns: Sequence[Field], source: dict[str, Any], text: dict[str, str]
) -> Appender:
    definition = StreamDefinition("people", tuple(columns), "now", source=source)
    hidden = {"_ts": "long", "_pos": "long"}
    made = Appender(definition, columns_text(hidden | text), streams.ledger, streams.files)
    with streams.ledger.transaction():
        made.install()
    return made


def arrived(columns: Sequence[pa.Array], reasons: Sequence[str | None]) -> pa.Table:
    count = len(reasons)
    nothing = pa.nulls(count, pa.string())
    parts = [
        *columns, pa.array(range(count), pa.int64()), pa.array(reasons, pa.string()), nothing,
        nothing, pa.array(range(count), pa.int64()),
    ]  # fmt: skip
    names = [f"c{i}" for i in range(len(columns))]
    return pa.table(parts, [*names, "_ts", REASON, RECORD, FILE, ROW])


def test_an_unknown_op_rejects_its_row_alone(streams: Streams) -> None:
    source = {"source": "push", "key": ["id"], "op": "What"}
    people = appender(streams, PEOPLE, source, {"c0": "int", "c1": "string"})
    words = ["c", "UPSERT", None, "", "-U", "+I", "D", "delete", "truncate", "x", "t"]
    reasons = [None] * (len(words) - 1) + ["no number"]
    ids = pa.array(range(len(words)), pa.int32())
    told = people.append(arrived([ids, pa.array(words, pa.string())], reasons), {})
    assert (told.rows, told.rejected) == (8, 3)
    why = dict(told.reasons)
    assert why[8].startswith("what says truncate, which is not a change of a table")
    assert why[9].startswith("what says x")
    assert why[10] == "no number", "what was wrong before is said"
    (aside,) = streams.ledger.segments(people.rejected)
    records = streams.files.read(aside)["c1"].to_pylist()
    assert records[0] == '{"id": 8, "what": "truncate"}'


def test_an_envelope_says_it_too(streams: Streams) -> None:
    source = {"source": "push", "key": ["id"], "op": "op", "envelope": "debezium"}
    columns = enveloped((Field("id", "int"),))
    row = pa.struct([("id", pa.int32())])
    text = {"c0": "struct<id:int>", "c1": "struct<id:int>", "c2": "string", "c3": "long"}
    people = appender(streams, columns, source, text)
    ops = ["r", "c", "d", "t"]
    rows = pa.array([{"id": i} for i in range(4)], row)
    times = pa.array(range(4), pa.int64())
    told = people.append(arrived([rows, rows, pa.array(ops), times], [None] * 4), {})
    assert (told.rows, told.rejected) == (3, 1)
    assert told.reasons[0][1].startswith("op says t,")


def test_streams_of_plain_rows_may_say_anything(streams: Streams) -> None:
    people = appender(streams, PEOPLE, {"source": "push"}, {"c0": "int", "c1": "string"})
    ids = pa.array([1, 2], pa.int32())
    told = people.append(arrived([ids, pa.array(["x", "t"])], [None, None]), {})
    assert (told.rows, told.rejected) == (2, 0)
