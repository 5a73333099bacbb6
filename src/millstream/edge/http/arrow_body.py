"""A posted Arrow stream as a table: nothing is unpacked before it is known how large it becomes.

Some kilobytes of a stream can stand for terabytes: buffers are compressed, a dictionary's values
and a view's bytes count for many rows, and a column of NULLs has no bytes at all. So the sizes are
added up from what the stream says of itself, first before its buffers are unpacked, then before
anybody turns its values into rows.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.edge.http.access import AnswerError
from millstream.engine.sources.push_source import ROWS_MAX

ARROW_HINT = "an Arrow stream, with ?producer=p&sequence=1"
UNPACKED_SHARE = 8  # times the size of a request may its rows be large
CELL_BYTES = 8  # that any value takes, NULL as well
DICTIONARY_BATCH, RECORD_BATCH = 2, 3  # of what a message of the format is
LISTS = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, kinds.is_map)


def arrow_table(body: bytes, size_max: int) -> pa.Table:
    """The rows of a body, of a request that holds at most so many bytes."""
    limit = size_max * UNPACKED_SHARE
    try:
        rows = size = 0
        for message in _messages(body):
            more, bytes_ = _unpacked(message)
            rows, size = rows + more, size + bytes_
            _bound(rows, size, limit)
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
        _ = table.column_names  # each has to be a text
        _bound(rows, sum(_size(c) for column in table.columns for c in column.chunks), limit)
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
        text = f"the body is not an Arrow stream: {error}"[:300]
        raise AnswerError(400, "mistake", text, ARROW_HINT) from None
    return table


def _bound(rows: int, size: int, limit: int) -> None:
    if rows > ROWS_MAX or size > limit:
        text = f"{rows} rows of {size} bytes, once they are unpacked, are too large a batch"
        most = f"at most {ROWS_MAX} rows and {limit} bytes at a time"
        raise AnswerError(413, "too_large", text, most)


def _messages(body: bytes) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _unpacked(message: pa.ipc.Message) -> tuple[int, int]:
    """Rows of a message, and the bytes of its buffers.

    Read from the message as it lies there (Flatbuffers, whose offsets Arrow has checked): Arrow
    tells neither before it has unpacked the buffers.
    """
    data = message.metadata.to_pybytes()
    header = _Table(data, _number("I", data, 0))
    kind = header.number(1, "B")
    if kind not in (DICTIONARY_BATCH, RECORD_BATCH):
        return 0, 0
    batch = header.table(2)
    if kind == DICTIONARY_BATCH:
        batch = batch and batch.table(1)
    if batch is None:
        return 0, 0
    rows = batch.number(0, "q") if kind == RECORD_BATCH else 0
    if rows < 0:
        raise pa.ArrowInvalid(f"a batch of {rows} rows")
    if batch.table(3) is None:  # as it is
        return rows, message.body.size if message.body is not None else 0
    body, size = memoryview(message.body), 0
    for offset, length in batch.buffers(2):
        if length:
            size += max(_number("q", body, offset), length - 8)  # -1: this one is as it is
    return rows, size


def _number(kind: str, data: Any, at: int) -> int:
    return int(struct.unpack_from(f"<{kind}", data, at)[0])


class _Table:
    """A table of Flatbuffers: fields by number, missing where they have their default."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - _number("i", data, at)

    def _place(self, field: int) -> int | None:
        where = 4 + 2 * field
        if where >= _number("H", self._data, self._fields):
            return None
        offset = _number("H", self._data, self._fields + where)
        return self._at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        place = self._place(field)
        return 0 if place is None else _number(kind, self._data, place)

    def table(self, field: int) -> "_Table | None":
        place = self._place(field)
        if place is None:
            return None
        return _Table(self._data, place + _number("I", self._data, place))

    def buffers(self, field: int) -> Iterator[tuple[int, int]]:
        """Offset and length of each."""
        place = self._place(field)
        if place is not None:
            place += _number("I", self._data, place)
            for number in range(_number("I", self._data, place)):
                yield struct.unpack_from("<qq", self._data, place + 4 + 16 * number)


def _size(array: pa.Array) -> int:
    """Bytes that the values take one by one, without any that stand for several rows."""
    type_, count = array.type, len(array)
    cells = count * CELL_BYTES
    if kinds.is_dictionary(type_):
        return cells + _repeated(array)
    if _is_text(type_):
        return cells + int(pc.sum(_lengths(array)).as_py() or 0)
    if kinds.is_struct(type_):
        return cells + sum(_size(array.field(n)) for n in range(type_.num_fields))
    if any(is_kind(type_) for is_kind in LISTS):
        return cells + _size(array.values)
    if isinstance(array, pa.ExtensionArray):
        return _size(array.storage)
    if kinds.is_null(type_):
        return cells
    return count * max(CELL_BYTES, _width(type_))


def _repeated(array: pa.DictionaryArray) -> int:
    if not _is_text(array.dictionary.type):
        return len(array) * _width(array.dictionary.type)
    return int(pc.sum(_lengths(array.dictionary).take(array.indices)).as_py() or 0)


def _is_text(type_: pa.DataType) -> bool:
    views = (kinds.is_string_view, kinds.is_binary_view, kinds.is_large_binary, kinds.is_binary)
    return kinds.is_string(type_) or kinds.is_large_string(type_) or any(v(type_) for v in views)


def _lengths(texts: pa.Array) -> pa.Array:
    """Of each text in bytes; a view has its length where it begins."""
    if not (kinds.is_string_view(texts.type) or kinds.is_binary_view(texts.type)):
        return pc.binary_length(texts).cast(pa.int64())
    views = texts.buffers()[1]
    lengths = np.frombuffer(b"" if views is None else views, "<i4")[::4].astype(np.int64)
    return pa.array(lengths[texts.offset : texts.offset + len(texts)])


def _width(type_: pa.DataType) -> int:
    """Bytes of one value of a type that has a fixed width."""
    try:
        return (int(type_.bit_width) + 7) // 8
    except ValueError:
        raise pa.ArrowInvalid(f"a column of type {type_}: send it as plain values") from None
