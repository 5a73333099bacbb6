"""Which rows broke a query: the smallest part of a failed step's input that fails as well.

A step whose expression raises tells a value, not its row. Afterwards the same operator is evaluated
again over halves of its rows, its results thrown away, until one row of an input is left, or a set
of which no half fails by itself (a sum that overflows). The number of these small jobs and the time
for them are bounded; nothing here changes a stream, a cursor or an answer.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import Evaluator, Input, Step, TrainStep
from millstream.engine.steps.runner import StepRunner
from millstream.engine.steps.trains import Unit
from millstream.language.share.dataflow import base_stream
from millstream.store.segments import Segment, SegmentStore

JOBS_MAX = 60  # of two inputs with half a million new rows each, about 20 halvings an input
SECONDS_MAX = 30.0
TEXT_MAX = 120  # characters of a value that are told

Part = tuple[str, str]  # an input stream, and `new` or `tail`
Segments = tuple[Segment, ...]
Selection = Mapping[Part, Segments]


@dataclass(frozen=True, slots=True)
class Culprit:
    """Rows of one input without which the step would not have failed."""

    stream: str  # a declared stream, or the label of the operator whose output was read
    rows: int  # 1, or the size of the smallest failing set that was found
    row: int | None  # where the (first) row stands in its stream, counted from 0
    values: Mapping[str, Any]  # of the (first) row, by column

    def told(self) -> str:
        """For people.

        >>> Culprit("doors", 1, 7, {"door": "x", "n": None}).told()
        "row 7 of doors: door='x', n=null"
        """
        cells = ", ".join(f"{k}={_shown(v)}" for k, v in self.values.items())
        place = f"row {self.row} of {self.stream}" if self.row is not None else self.stream
        if self.rows == 1:
            return f"{place}: {cells}"
        return f"{self.rows} rows of {self.stream} together, from {place}: {cells}"

    def table(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        where = {"stream": self.stream, "rows": self.rows}
        return where | {"row": self.row, "values": dict(self.values)}


def find_culprits(
    flow: Dataflow, runner: StepRunner, unit: Unit, rows_max: int
) -> tuple[Culprit, ...]:
    """The rows behind the failure of a step on at most so many rows; none where they hide."""
    with flow.streams.removals.reading(), suppress(Exception):  # the failure itself is known
        job = runner.planner.plan(unit, rows_max)
        if job is None:
            return ()
        search = _Search(replace(job, collect=False), runner.evaluator, flow.store)
        try:
            return tuple(
                _culprit(flow, stream, search.table(segments))
                for (stream, _), segments in search.smallest().items()
            )
        finally:
            search.clear()
    return ()


def with_culprits(reason: str, culprits: Sequence[Culprit]) -> str:
    """A reason and the rows behind it, in one line."""
    return "; ".join((reason, *(culprit.told() for culprit in culprits)))


def dumped(culprits: Sequence[Culprit]) -> str:
    """As text for the ledger."""
    return json.dumps([culprit.table() for culprit in culprits], ensure_ascii=False)


# -- the search ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
    """Halves the rows of a failed step, part by part."""

    job: TrainStep  # of one operator
    evaluator: Evaluator
    store: SegmentStore
    jobs: int = 0
    deadline: float = field(default_factory=lambda: time.monotonic() + SECONDS_MAX)
    _files: list[str] = field(default_factory=list)

    def smallest(self) -> Selection:
        """Parts that are needed for the failure, each as small as could be found."""
        chosen = dict(_parts(self.job.steps[0]))
        if not self._fails(chosen):
            return {}  # not the rows: the first failure was of another kind
        for part in list(chosen):  # what the step fails without is no culprit
            if len(chosen) > 1 and self._fails(without := _without(chosen, part)):
                chosen = without
        for part in chosen:

            def fails(segments: Segments, part: Part = part) -> bool:
                return self._fails(chosen | {part: segments})

            segments = halved(chosen[part], fails)
            if len(segments) == 1:
                segments = self._halved_rows(segments[0], fails)
            chosen[part] = segments
        return chosen

    def _halved_rows(self, segment: Segment, fails: Callable[[Segments], bool]) -> Segments:
        rows = self.table((segment,))

        def piece(numbers: range) -> Segments:
            return (self._written(segment, rows.slice(numbers.start, len(numbers))),)

        found = halved(range(rows.num_rows), lambda numbers: fails(piece(numbers)))
        return piece(found) if len(found) < rows.num_rows else (segment,)

    def _fails(self, chosen: Selection) -> bool:
        """Whether the operator breaks on these rows; after the last job, it does not."""
        self.jobs += 1
        if self.jobs > JOBS_MAX or time.monotonic() > self.deadline:
            return False
        try:
            self.evaluator.try_out(replace(self.job, steps=(_with(self.job.steps[0], chosen),)))
        except Exception as error:
            if self.evaluator.data_error(error) is None:
                raise
            return True
        return False

    def _written(self, segment: Segment, table: pa.Table) -> Segment:
        """A piece of a segment as a file that nobody else hears of."""
        w = self.store.write(table)
        if w.file is not None:
            self._files.append(w.file)
        return segment.holding(w)

    def table(self, segments: Segments) -> pa.Table:
        return pa.concat_tables([self.store.read(s) for s in segments if s.rows])

    def clear(self) -> None:
        for file in self._files:
            self.store.remove(file)


def halved(items: Any, fails: Callable[[Any], bool]) -> Any:
    """The smallest slice that fails, found by halving; all of it where no half fails alone.

    >>> halved([3, 1, 0, 4], lambda part: 0 in part)
    [0]
    >>> halved([3, 1, 0, 4], lambda part: sum(part) > 7)
    [3, 1, 0, 4]
    """
    while len(items) > 1:
        middle = len(items) // 2
        half = next((h for h in (items[:middle], items[middle:]) if fails(h)), None)
        if half is None:
            break
        items = half
    return items


def _parts(step: Step) -> Selection:
    """The rows that a step reads from its inputs: new ones first."""
    found: dict[Part, Segments] = {}
    for kind in ("new", "tail"):
        for stream, source in step.inputs.items():
            segments = tuple(s for s in getattr(source, kind) if s.rows)
            if segments:
                found[stream, kind] = segments
    return found


def _with(step: Step, chosen: Selection) -> Step:
    """The same step over these rows alone; watermarks stay."""
    inputs: dict[str, Input] = {}
    for stream, source in step.inputs.items():
        bare = tuple(s for s in source.new if not s.rows)
        inputs[stream] = replace(
            source,
            new=(*chosen.get((stream, "new"), ()), *bare),
            tail=chosen.get((stream, "tail"), ()),
        )
    return replace(step, inputs=inputs)


def _without(chosen: Selection, part: Part) -> dict[Part, Segments]:
    return {key: segments for key, segments in chosen.items() if key != part}


# -- rows for people ----------------------------------------------------------------------------


def _culprit(flow: Dataflow, stream: str, rows: pa.Table) -> Culprit:
    first = rows.slice(0, 1).to_pylist()[0]
    declared = {base_stream(name): name for name in flow.appenders}
    if stream in declared:
        shown = declared[stream]
        names = [f.name for f in flow.catalog.stream(shown).columns]
    else:
        producer = flow.operators.get(stream)
        shown = producer.label if producer is not None else stream
        names = [f.name for f in producer.node.schema] if producer is not None else []
    user = [name for name in rows.column_names if not name.startswith("_")]
    if len(names) != len(user):
        names = user  # partial results have columns of their own
    values = {
        name: _plain(first[column])
        for name, column in zip(names, user, strict=True)
        if column in first
    }
    position = first.get("_pos")
    return Culprit(shown, rows.num_rows, None if position is None else int(position), values)


def _plain(value: Any) -> Any:
    """A value as JSON has it, a long text cut."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _shown(value: Any) -> str:
    return "null" if value is None else repr(value) if isinstance(value, str) else str(value)
