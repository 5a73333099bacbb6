"""Retention and compaction: how long segments live, and how few they are.

A segment lives until no cursor and no window needs it. Small neighbours that everyone has passed
are merged, sorted by time, so that a window scan opens few files however many steps made them; this
changes no result. Removal is committed first; the file goes when every step begun before has ended.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from millstream.engine.consumers import consumer_of
from millstream.engine.steps import StepRunner
from millstream.plan.nodes import Aggregate
from millstream.plan.windows import FOREVER
from millstream.share.dataflow import Operator
from millstream.spark.frames import Frame
from millstream.spark.operators import LOGIC, SELF_READING
from millstream.spark.operators.running import latest, table
from millstream.store import faults
from millstream.store.segments import Segment, Written
from millstream.store.shared_compaction import longest_shared, merge_shared, shared_run

RUN_OF_ITS_OWN = 16  # segments of a stream that get a file of its own if there is no other way
FAN_IN = 4  # neighbours of one size class that are merged
ROWS_MAX = 2_000_000  # a compacted segment grows no larger than this
BY_SPARK_BYTES = 64 << 20  # larger merges are done by the executors


class Maintenance:
    """Keeps the streams of one engine small. `operators` is the live dataflow."""

    def __init__(self, runner: StepRunner, operators: Mapping[str, Operator]) -> None:
        self.runner, self.operators = runner, operators
        self.ledger, self.store = runner.ledger, runner.store

    # -- retention ------------------------------------------------------------------------------

    def retain(self, streams: Iterable[str]) -> None:
        """Drops what nobody can need any more."""
        gone: list[str] = []
        for stream in streams:
            if not self._spare(stream):
                continue
            with self.ledger.transaction() as ledger:
                # looked at again under the lock: a new query may hold them by now
                spare = self._spare(stream)
                gone += ledger.replace(spare, None)
                if any(s.rows for s in spare):
                    ledger.retained_from(stream, max(s.ts_max for s in spare) + 1)
            faults.reach("removal.committed")
        self.runner.removals.add(gone)
        self.remove_files()

    def trim(self, stream: str, size_max: int) -> None:
        """Keeps the newest segments of a stream that nobody reads, up to so many bytes."""
        kept, spare = 0, []
        for segment in reversed(self.ledger.segments(stream)):
            kept += segment.size
            if kept > size_max:
                spare.append(segment)
        if spare:
            with self.ledger.transaction() as ledger:
                gone = ledger.replace(spare, None)
            self.runner.removals.add(gone)
            self.remove_files()

    def _spare(self, stream: str) -> list[Segment]:
        needed = self._needs(stream)
        return [] if needed is None else [s for s in self.ledger.segments(stream) if not needed(s)]

    def remove_files(self) -> None:
        for file in self.runner.removals.due():
            self.store.remove(file)
            faults.reach("removal.done")

    def _needs(self, stream: str) -> Callable[[Segment], bool] | None:
        """Tells whether someone needs a segment; None where the stream looks after itself."""
        if "#" in stream:  # state: replaced by its operator
            return None
        places = self.ledger.consumers(stream)
        readers = [o for o in list(self.operators.values()) if stream in o.inputs]
        marks = {o.id: self.runner.marks(o) for o in readers}
        starts = {o.id: self.ledger.cursor(o.id, stream)[0] for o in readers}
        readers_here = {consumer_of(name) for name in starts}
        others = [at.next for consumer, at in places.items() if consumer not in readers_here]
        own = self.operators.get(stream)
        self_read = own is not None and own.kind in SELF_READING
        head = self.ledger.stream(stream)
        promised = head["watermark"] if head and head["kind"] == "base" else FOREVER
        newest = head["next"] - 1 if head and head["kind"] == "base" else -1

        def needed(segment: Segment) -> bool:
            # a query that starts now needs every row from the present watermark on
            if segment.last == newest or (segment.rows and segment.ts_max >= promised):
                return True
            if self_read and segment.rows:
                return True
            if any(segment.last >= following for following in others):
                return True
            return any(
                segment.last >= starts[o.id]
                or (segment.rows and LOGIC[o.kind].reachable(o, segment, marks[o.id]))
                for o in readers
            )

        return needed

    # -- compaction -----------------------------------------------------------------------------

    def grown(self) -> list[str]:
        """Streams with enough segments that a merge may pay."""
        names = {s for o in self.operators.values() for s in (o.id, *o.inputs)}
        return [n for n in sorted(names) if len(self.ledger.segments(n)) > FAN_IN]

    def compactable(self, stream: str) -> list[Segment]:
        """A run of neighbours worth merging; empty where there is none."""
        if "#" in stream:
            return []
        row = self.ledger.stream(stream)
        if row is None or not self._windowed(stream):
            return []
        passed = min((n for n, _ in self.ledger.consumers(stream).values()), default=0)
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
            if len([s for s in run if s.rows]) >= FAN_IN and rows <= ROWS_MAX:
                best = list(run)
        return self._shared_part(best) if any(s.tag is not None for s in best) else best

    def _windowed(self, stream: str) -> bool:
        """Whether someone reads this stream's past again."""
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
        token = self.runner.removals.begin()
        try:
            written = self._merged(stream, [s for s in run if s.rows])
            faults.reach("compaction.written")
            with self.ledger.transaction() as ledger:
                if [s for s in ledger.segments(stream) if s in run] != run:
                    return 0  # somebody dropped one meanwhile: the merged file is an orphan
                gone = ledger.replace(run, _joined(run, written))
            faults.reach("compaction.committed")
        finally:
            self.runner.removals.end(token)
        self.runner.removals.add(gone)
        self.remove_files()
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
        with self.runner.removals.reading():
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
        self.runner.removals.add(gone)
        self.remove_files()
        return len(run)

    def _merged(self, stream: str, run: Sequence[Segment]) -> Written:
        own = self.operators.get(stream)
        relation = "_op" in self.runner.reader.schema(stream).names
        if relation or sum(s.size for s in run) > BY_SPARK_BYTES:
            frame = self.runner.reader.frame(stream, run)
            if own is not None and own.kind == "running":
                assert isinstance(own.core, Aggregate)
                # only the oldest run may forget what was taken back: all of it lies inside
                if run[0].first == min(s.first for s in self.ledger.segments(stream)):
                    frame = latest(frame, len(own.core.keys))
            elif relation and run[0].first == min(s.first for s in self.ledger.segments(stream)):
                plain = table(frame).selectExpr("*", "CAST(1 AS TINYINT) AS _op")
                frame = Frame(plain.select(*frame.data.columns), frame.hidden, frame.width)
            folder = self.store.path(f"{self.store.new_name()}.writing")
            ordered = frame.data.coalesce(1).sortWithinPartitions("_ts")
            ordered.write.option("compression", "zstd").parquet(folder)
            parts = self.store.adopt_spark_output(folder)
            return parts[0] if parts else Written(None, None, 0, 0, *[run[0].ts_min] * 3)
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
    last = run[-1]
    return replace(
        last,
        first=run[0].first,
        file=written.file,
        tag=written.tag if written.rows else None,
        rows=written.rows,
        size=written.size,
        ts_min=written.ts_min,
        ts_max=written.ts_max,
        until_max=written.until_max,
        watermark=max(s.watermark for s in run),
    )
