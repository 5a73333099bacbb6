"""The data plane in plain Python of the simulator, and what windows of its operators reach.

Operators here have no plan to tell that from: it is set by kind.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from millstream.language.share.dataflow import Operator
from millstream.sim.managed.plain_plane import (
    COLUMNS,
    PlainParser,
    PlainPlane,
    Read,
    Rows,
    arrived,
    read,
    write,
)
from millstream.store import reach
from millstream.store.segments import Segment

__all__ = [
    "COLUMNS", "PlainParser", "PlainPlane", "Read", "Rows", "arrived", "reaching", "read", "write",
]  # fmt: skip


@contextmanager
def reaching(monkeypatch: pytest.MonkeyPatch, **windows: int | None) -> Iterator[None]:
    """How far back operators of each kind reach; None for not at all."""
    for kind, window in windows.items():

        def reaches(
            operator: Operator, segment: Segment, at: Mapping[str, int], window: int | None = window
        ) -> bool:
            return window is not None and segment.ts_max + window >= min(at.values())

        monkeypatch.setitem(reach.REACHES, kind, reaches)  # type: ignore[misc]
    yield
