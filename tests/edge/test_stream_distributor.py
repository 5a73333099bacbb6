"""Files of segments on their way to other processors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from millstream.edge.processor.stream_distributor import CHUNK, SegmentResponse

HTTP = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}}


async def silence() -> dict[str, Any]:
    await asyncio.sleep(60)
    return {"type": "http.disconnect"}


def test_a_segment_comes_whole_and_in_pieces(tmp_path: Path) -> None:
    content = bytes(range(256)) * (CHUNK // 100)
    (tmp_path / "segment").write_bytes(content)
    file = (tmp_path / "segment").open("rb")
    pieces: list[bytes] = []

    async def send(message: Any) -> None:
        pieces.append(message.get("body", b""))

    asyncio.run(SegmentResponse(file)(HTTP, silence, send))
    assert b"".join(pieces) == content
    assert len(pieces) > 3
    assert file.closed


def test_the_file_of_a_reader_that_is_gone_is_closed(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"rows")
    file = (tmp_path / "segment").open("rb")

    async def gone(message: Any) -> None:
        raise OSError("the reader is gone")

    with pytest.raises(Exception, match=r"gone|^$"):
        asyncio.run(SegmentResponse(file)(HTTP, silence, gone))
    assert file.closed
