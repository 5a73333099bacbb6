"""Compaction: how few segments a stream is made of.

Small neighbours that everyone has passed are merged, sorted by time, so that a window scan opens
few files however many steps made them; this changes no result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from millstream.engine.ports import Evaluator, StreamRows
from millstream.language.share.dataflow import Operator
from millstream.store import faults
from millstream.store.columns import column_names
from millstream.store.reach import SELF_READING
from millstream.store.retention import Retention
from millstream.store.segments import Segment, Written
from millstream.store.shared_compaction import longest_shared, merge_shared, shared_run
from millstream.store.streams import Streams

RUN_OF_ITS_OWN = 16  # segments of a stream that get a file of its own if there is no other way
FAN_IN = 4  # neighbours of one size class that are merged
ROWS_MAX = 2_000_000  # a compacted segment grows no larger than this
HISTORY_ROWS_MAX = 100_000  # of a stream that keeps history: a step over it holds others up briefly
BY_EVALUATOR_BYTES = 64 << 20  # larger merges are not done in memory


class Maintenance(Retention):
    """Keeps the streams of one engine small: retention, and compaction on top of it."""

    def __init__(
        self, streams: Streams, operators: Mapping[str, Operator], evaluator: Evaluator
    ) -> None:
        super().__init__(streams, operators)
        self._evaluator = evaluator

    def grown(self) -> list[str]:
        """Streams with enough segments that a merge may pay."""
        names = {s for o in self.operators.values() for s in (o.id, *o.inputs)}
        names |= set(self.streams.retains)
        return sorted(n for n in names if self.ledger.segment_count(n) > FAN_IN)

    def compactable(self, stream: str) -> list[Segment]:
        """A run of neighbours worth merging; empty where there is none."""
        if "#" in stream:
            return []
        row = self.ledger.stream(stream)
        if row is None or not self._windowed(stream):
            return []
        readers = self.ledger.consumers(stream).items()
        unread = row["next"] if stream in self.streams.retains else 0
        passed = min((at.next for who, at in readers if who.kind != "rules"), default=unread)
        passed = min(passed, self.passed_on(stream))
        rows_max = HISTORY_ROWS_MAX if stream in self.streams.retains else ROWS_MAX
        run: list[Segment] = []
        best: list[Segment] = []
        for segment in self.ledger.segments(stream):
            if segment.last >= passed:
                break
            if run and _class(segment) > max(_class(s) for s in run):
                run = []
            run.append(segment)
            while run and _class(run[0]) > _class(segment):
                run.pop(0)
            rows = sum(s.rows for s in run)
            if len([s for s in run if s.rows]) >= FAN_IN and rows <= rows_max:
                best = list(run)
        return self._shared_part(best) if any(s.tag is not None for s in best) else best

    def _windowed(self, stream: str) -> bool:
        """Whether someone reads this stream's past again, or may yet."""
        if stream in self.streams.retains:
            return True
        own = self.operators.get(stream)
        if own is not None and own.kind in SELF_READING:
            return True
        return any(
            stream in o.inputs and o.kind not in ("map", "partial")
            for o in list(self.operators.values())
        )

    def compact(self, stream: str) -> int:
        """Merges one run of a stream; gives the number of segments that became one."""
        run = self.compactable(stream)
        if not run:
            return 0
        if self._one_layout(run):
            return self._compact_shared(run)
        with self.streams.removals.reading():
            written = self._merged(stream, [s for s in run if s.rows])
            faults.reach("compaction.written")
            with self.ledger.transaction() as ledger:
                if [s for s in ledger.segments(stream) if s in run] != run:
                    return 0  # somebody dropped one meanwhile: the merged file is an orphan
                gone = ledger.replace(run, _joined(run, written))
            faults.reach("compaction.committed")
        self.streams.remove(gone)
        return len(run)

    def _shared_part(self, run: list[Segment]) -> list[Segment]:
        """Of a run with files of many streams, what can be merged for all of them.

        Where that is nothing, a long run gets a file of its own; a short one waits: a layout has
        just changed, or a companion has not read so far.
        """
        part = longest_shared(run)
        if len([s for s in part if s.rows]) >= FAN_IN:
            places = self.store.layouts(next(s.tag for s in part if s.tag is not None))
            if shared_run(self.ledger, places, part) is not None:
                return part
        return run if len(run) >= RUN_OF_ITS_OWN else []

    def _one_layout(self, run: Sequence[Segment]) -> bool:
        tags = {s.tag for s in run if s.file}
        return len(tags) == 1 and None not in tags

    def _compact_shared(self, run: Sequence[Segment]) -> int:
        """Merges files of many streams for all of them."""
        (tag,) = {s.tag for s in run if s.tag is not None}
        places = self.store.layouts(tag)
        with self.streams.removals.reading():
            shared = shared_run(self.ledger, places, run)
            if shared is None:
                return 0
            written = merge_shared(self.store, places, shared)
            faults.reach("compaction.written")
            gone: list[str] = []
            with self.ledger.transaction() as ledger:
                for name, mine in shared.runs.items():
                    if tuple(s for s in ledger.segments(name) if s in mine) != mine:
                        return 0  # somebody dropped one meanwhile: the merged file is an orphan
                for name, mine in shared.runs.items():
                    gone += ledger.replace(mine, _joined(mine, replace(written[name], tag=tag)))
            faults.reach("compaction.committed")
        self.streams.remove(gone)
        return len(run)

    def _merged(self, stream: str, run: Sequence[Segment]) -> Written:
        columns = self.ledger.columns(stream)
        relation = "_op" in column_names(columns)
        if relation or sum(s.size for s in run) > BY_EVALUATOR_BYTES:
            rows = StreamRows(stream, tuple(run), columns, self.streams.layouts_of(run))
            # only the oldest run may forget what was taken back: all of it lies inside
            self.store.check(run)
            older = any(s.rows and s.first < run[0].first for s in self.ledger.segments(stream))
            return self._evaluator.merge(rows, changes=relation and not older)
        tables = [self.store.read(s) for s in run]
        merged = pa.concat_tables(tables, promote_options="permissive")
        return self.store.write(merged.sort_by("_ts"))


def _class(segment: Segment) -> int:
    """The size class of a segment: merging four of one class gives one of the next."""
    size, number = max(segment.rows, 1), 0
    while size >= FAN_IN:
        size //= FAN_IN
        number += 1
    return max(0, number - 4)  # below about a thousand rows all are alike


def _joined(run: Sequence[Segment], written: Written) -> Segment:
    """One segment in the place of several."""
    rows = written if written.rows else replace(written, tag=None)
    whole = replace(run[-1], first=run[0].first, watermark=max(s.watermark for s in run))
    return whole.holding(rows)
