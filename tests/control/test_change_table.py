"""Streams of changes as they are declared: what a table says, and that it says so elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.language.cql.change_data import ChangeData, change_data_of

PEOPLE = {"source": "push", "columns": {"id": "int", "name": "string", "what": "string"}}


def test_an_envelope_is_the_same_on_another_processor() -> None:
    """It is opened once: what is sent on has the columns that rows have."""
    reader = StreamReader("people", {**PEOPLE, "format": "debezium", "key": "id"}, Path())
    definition = reader.definition()
    assert definition is not None, reader.mistakes
    assert [f.name for f in definition.columns] == ["before", "after", "op", "ts_ms"]
    assert definition.time == "timestamp_millis(ts_ms)"
    told = table_of(definition)
    assert StreamReader(told.pop("name"), told, Path()).definition() == definition
    assert change_data_of(definition.source) == ChangeData(("id",), "op", envelope=True)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"op": "what"}, "op needs a key"),
        ({"format": "debezium"}, "a stream of changes needs a key"),
        ({"key": "idd"}, "key names no column idd; did you mean id?"),
        ({"key": "id", "op": "that"}, "op names no column that; did you mean what?"),
        ({"key": 3}, "key is a column, or a list of columns"),
    ],
)
def test_mistakes(keys: dict[str, Any], message: str) -> None:
    reader = StreamReader("people", {**PEOPLE, "time": "now", **keys}, Path())
    assert reader.definition() is None
    assert [m.message for m in reader.mistakes] == [message]
