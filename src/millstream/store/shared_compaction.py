"""Compaction of files that hold rows of many streams: they are merged for all of them at once.

A stream's own copy of its rows would be correct, but its operators would then read other files
than their companions and no longer run in one job with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.language.share.shared_plan import Place
from millstream.store.ledger import Ledger
from millstream.store.segments import Segment, SegmentStore, Written


@dataclass(frozen=True, slots=True)
class SharedRun:
    """Files of one layout, oldest first, and the run of segments of each stream that they are."""

    tag: int
    files: tuple[str, ...]
    runs: Mapping[str, tuple[Segment, ...]]


def longest_shared(run: Sequence[Segment]) -> list[Segment]:
    """The longest part of a run whose files have one layout; watermarks in between come along.

    >>> parts = [Segment("s", n, n, f"{n}", tag, 1, 1, 0, 0, 0, 0, 0.0)
    ...          for n, tag in enumerate([1, 2, 2, 2])]
    >>> [s.file for s in longest_shared(parts)]
    ['1', '2', '3']
    """
    best: list[Segment] = []
    part: list[Segment] = []
    tag: int | None = None
    for segment in run:
        if segment.file and segment.tag != tag:
            part, tag = [], segment.tag
        part.append(segment)
        if len(_files(part)) > len(_files(best)) and tag is not None:
            best = list(part)
    while best and not best[-1].file:
        best.pop()
    while best and not best[0].file:
        best.pop(0)
    return best


def shared_run(
    ledger: Ledger, layouts: Mapping[str, Place], run: Sequence[Segment]
) -> SharedRun | None:
    """The same files as all their streams see them; None where somebody is not ready.

    Every stream that names one of the files must have been read past them by all of its consumers,
    and have nothing else in between.
    """
    files = tuple(_files(run))
    tag = next(s.tag for s in run if s.file)
    assert tag is not None
    runs: dict[str, tuple[Segment, ...]] = {}
    for stream in layouts:
        segments = ledger.segments(stream)
        places = [i for i, s in enumerate(segments) if s.file in files]
        if not places:
            continue
        mine = segments[places[0] : places[-1] + 1]
        passed = min((n for n, _ in ledger.consumers(stream).values()), default=0)
        foreign = any(s.file and s.file not in files for s in mine)
        if foreign or mine[-1].last >= passed or any(s.tag not in (None, tag) for s in mine):
            return None
        runs[stream] = tuple(mine)
    shared = SharedRun(tag, files, runs)
    return shared if all(_bits_left(layouts, shared, file) is not None for file in files) else None


def merge_shared(
    store: SegmentStore, places: Mapping[str, Place], shared: SharedRun
) -> dict[str, Written]:
    """Writes one file with the rows that somebody still names."""
    words = {place.word for place in places.values()}
    naming = {s.file: s for run in shared.runs.values() for s in run if s.file}
    tables = [
        _with_bits(store.read_wide(naming[file]), _bits_left(places, shared, file) or {}, words)
        for file in shared.files
    ]
    merged = pa.concat_tables(tables, promote_options="permissive").sort_by("_ts")
    return store.write_wide(merged, {s: places[s] for s in shared.runs})


def _bits_left(places: Mapping[str, Place], shared: SharedRun, file: str) -> dict[int, int] | None:
    """By word, the bits of those who still name a file.

    None where of two streams with one bit one has dropped its rows, and the other not.
    """
    naming = {s for s, run in shared.runs.items() if any(p.file == file for p in run)}
    kept: dict[int, int] = {}
    spare: dict[int, int] = {}
    for stream, place in places.items():
        bits = kept if stream in naming else spare
        bits[place.word] = bits.get(place.word, 0) | place.bit
    lost = any(spare.get(word, 0) & bits for word, bits in kept.items())
    return None if lost else kept


def _with_bits(table: pa.Table, kept: Mapping[int, int], words: set[int]) -> pa.Table:
    """A file's rows with the bits of those who still name it, without rows of nobody."""
    wanted = np.zeros(table.num_rows, bool)
    for word in sorted(words):
        name = f"c{word}"
        bits = table[name].to_numpy() & kept.get(word, 0)
        wanted |= bits != 0
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(bits))
    return table.filter(pa.array(wanted))


def _files(segments: Sequence[Segment]) -> list[str]:
    return [s.file for s in segments if s.file]
