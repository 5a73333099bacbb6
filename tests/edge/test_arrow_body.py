"""Posted Arrow streams: those that unpack to too much are refused before they are unpacked."""

import contextlib
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.edge.http.access import AnswerError
from millstream.edge.http.arrow_body import arrow_table

SIZE_MAX = 1 << 20
TEXTS = ["x", None, "long enough for a view of its own"] * 20


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def views(count: int, text: str) -> pa.Array:
    """Many views of one text."""
    one = pa.array([text], pa.string_view())
    place = pa.py_buffer(one.buffers()[1].to_pybytes() * count)
    return pa.Array.from_buffers(pa.string_view(), count, [None, place, one.buffers()[2]])


def dictionary(count: int, values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), values)


LONG = "x" * 10_000
BOMBS: dict[str, tuple[pa.Array, str | None]] = {
    "zstd": (pa.array(np.zeros(2_000_000)), "zstd"),
    "lz4": (pa.array(np.zeros(2_000_000)), "lz4"),
    "wide rows": (pa.array([LONG] * 1000), "zstd"),
    "rows": (pa.nulls(600_000), None),
    "dictionary": (dictionary(1000, pa.array([LONG])), None),
    "compressed dictionary": (dictionary(1, pa.array([LONG * 1000])), "zstd"),
    "views": (views(1000, LONG), None),
    "dictionary of views": (dictionary(1000, views(1, LONG)), None),
    "list of nulls": (pa.FixedSizeListArray.from_arrays(pa.nulls(1 << 21), 1 << 21), None),
    "in a struct": (pa.StructArray.from_arrays([dictionary(1000, pa.array([LONG]))], ["a"]), None),
    "in a list": (pa.ListArray.from_arrays(pa.array([0, 1000]), views(1000, LONG)), None),
}  # fmt: skip
FINE: dict[str, pa.Array] = {
    "numbers": pa.array(range(60)),
    "texts": pa.array(TEXTS),
    "large texts": pa.array(TEXTS, pa.large_string()),
    "views": pa.array(TEXTS, pa.string_view()),
    "bytes": pa.array([b"x"] * 60, pa.binary()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of numbers": pa.array([1, 2, None] * 20).dictionary_encode(),
    "flags": pa.array([True, False, None] * 20),
    "decimals": pa.array([1, 2, None] * 20, pa.decimal128(10, 2)),
    "times": pa.array(range(60), pa.timestamp("us", "UTC")),
    "lists": pa.array([[1], [], None] * 20),
    "maps": pa.array([[("a", 1)], [], None] * 20, pa.map_(pa.string(), pa.int64())),
    "structs": pa.array([{"a": 1, "b": "x"}, None] * 30),
    "nulls": pa.nulls(60),
    "nothing": pa.array([], pa.int32()),
}


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("name", FINE)
def test_rows_come_as_they_were_sent(name: str, compression: str | None) -> None:
    table = pa.table({"v": FINE[name]})
    assert arrow_table(stream(table, compression), SIZE_MAX).equals(table)


@pytest.mark.parametrize("name", BOMBS)
def test_a_stream_that_unpacks_to_too_much_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, compression = BOMBS[name]
    body = stream(pa.table({"v": array}), compression)
    assert len(body) < SIZE_MAX
    if compression or name == "rows":  # found before anything is unpacked
        monkeypatch.setattr(pa.ipc, "open_stream", None)
    with pytest.raises(AnswerError) as refused:
        arrow_table(body, SIZE_MAX)
    assert refused.value.status == 413
    assert "unpacked" in refused.value.message


def test_many_columns_of_nothing_are_too_many() -> None:
    wide = pa.table({f"v{n}": pa.nulls(10_000) for n in range(200)})
    with pytest.raises(AnswerError, match="too large a batch"):
        arrow_table(stream(wide), SIZE_MAX)


@pytest.mark.parametrize(
    "array",
    [pa.RunEndEncodedArray.from_arrays(pa.array([1000]), pa.array(["x"])),
     pa.ListViewArray.from_arrays(pa.array([0] * 9), pa.array([1] * 9), pa.array([1])),
     pa.UnionArray.from_dense(pa.array([0], "i1"), pa.array([0], "i4"), [FINE["flags"]])],
)  # fmt: skip
def test_types_whose_values_may_stand_for_several_rows_are_refused(array: pa.Array) -> None:
    with pytest.raises(AnswerError, match="plain values") as refused:
        arrow_table(stream(pa.table({"v": array})), SIZE_MAX)
    assert refused.value.status == 400


def test_damaged_streams_are_refused_or_read() -> None:
    columns: dict[str, Any] = {"a": range(60), "b": TEXTS, "c": FINE["dictionary"]}
    whole, chance = stream(pa.table(columns), "zstd"), random.Random(1)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3, 8))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            data = data[: chance.randrange(len(data))]
        with contextlib.suppress(AnswerError):
            arrow_table(bytes(data), SIZE_MAX)
