"""A data plane in plain Python: rows (time, value) in, rows out. The engine is the real one.

`compiled` says what a text means; `compute` says what an operator gives.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.engine.ports import (
    CompiledQuery,
    MadeStream,
    SourceSetting,
    Step,
    StepResult,
    StreamRows,
    TrainStep,
)
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.share.dataflow import Operator, state_stream
from millstream.store import faults
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW, Appender
from millstream.store.arrivals.file_source import NUMBER
from millstream.store.columns import columns_text
from millstream.store.segments import EMPTY, Segment, SegmentStore, Written

COLUMNS = columns_text({"_ts": "long", "c0": "long"})
Rows = list[tuple[int, Any]]
Read = Callable[[Sequence[Segment]], Rows]
Compute = Callable[[Step, Read], tuple[Rows, Rows | None]]  # the result, and the state if any


def read(files: SegmentStore, segments: Sequence[Segment]) -> Rows:
    found: Rows = []
    for segment in segments:
        if segment.rows:
            table = files.read(segment)
            found += zip(table["_ts"].to_pylist(), table["c0"].to_pylist(), strict=True)
    return found


def write(files: SegmentStore, rows: Rows) -> Written:
    if not rows:
        return EMPTY
    return files.write(pa.table({"_ts": [r[0] for r in rows], "c0": [r[1] for r in rows]}))


class PlainCompiler:
    analyzer: Any = None

    def __init__(self, compiled: Callable[[str], CompiledQuery]) -> None:
        self._compiled = compiled

    def compile(self, cql: str, catalog: Catalog, start: int, reader: str = "") -> CompiledQuery:
        return self._compiled(cql)

    def functions_changed(self) -> None:
        return None

    def check(self, definition: StreamDefinition) -> None:
        return None

    def columns(self, definition: StreamDefinition) -> str:
        return COLUMNS

    def made(self, operator: Operator, inputs: Mapping[str, str]) -> Sequence[MadeStream]:
        assert set(inputs.values()) == {COLUMNS}, "the columns of all inputs are known"
        result = MadeStream("", operator.kind, COLUMNS)
        if operator.kind != "interval":
            return (result,)
        suffix = state_stream(operator.id).removeprefix(operator.id)
        return (result, MadeStream(suffix, "state", COLUMNS))


class PlainEvaluator:
    def __init__(self, files: SegmentStore, compute: Compute) -> None:
        self._files, self._compute = files, compute

    def evaluate(self, job: TrainStep) -> StepResult:
        (step,) = job.steps
        name = step.operator.id
        result, state = self._compute(step, lambda segments: read(self._files, segments))
        faults.reach("step.evaluated")
        written = {name: [write(self._files, result)]}
        if state is None:
            return StepResult(written, {name: step.after})
        written[state_stream(name)] = [write(self._files, state)]
        return StepResult(written, {name: step.after}, replaced=(state_stream(name),))

    def try_out(self, job: TrainStep) -> None:
        (step,) = job.steps
        self._compute(step, lambda segments: read(self._files, segments))

    def merge(self, rows: StreamRows, *, changes: bool) -> Written:
        raise AssertionError("small streams without changes are merged in memory")

    def table(self, rows: StreamRows, staging: Path, *, collect: bool) -> Iterator[pa.Table]:
        raise AssertionError("there are no relations here")

    def nothing(self, columns: str) -> pa.Table:
        return pa.table({"_ts": pa.array([], pa.int64()), "c0": pa.array([], pa.int64())})

    def data_error(self, error: Exception) -> str | None:
        return str(error) if isinstance(error, ValueError) else None


def arrived(rows: Rows, origin: str, **more: list[int]) -> pa.Table:
    """Rows as an appender takes them; a negative value is malformed."""
    count = len(rows)
    wrong = ["a negative value" if isinstance(v, int) and v < 0 else None for _, v in rows]
    columns = {
        "c0": pa.array([v for _, v in rows]),
        "_ts": pa.array([ts for ts, _ in rows], pa.int64()),
        REASON: pa.array(wrong, pa.string()),
        RECORD: pa.nulls(count, pa.string()),
        FILE: pa.array([origin] * count, pa.string()),
        ROW: pa.array(range(count), pa.int64()),
    }
    return pa.table(columns | {name: pa.array(v, pa.int64()) for name, v in more.items()})


class PlainParser:
    """Files of lines `time,value`."""

    def check(self, files: Sequence[Path]) -> None:
        return None

    def pieces(self, files: Sequence[Path], numbers: Sequence[int]) -> Iterator[pa.Table]:
        for path, number in zip(files, numbers, strict=True):
            cells = (line.split(",") for line in path.read_text().split())
            rows = [(int(ts), int(v)) for ts, v in cells]
            yield arrived(rows, path.name, **{NUMBER: [number] * len(rows)})


def unknown(cql: str) -> CompiledQuery:
    raise AssertionError(f"{cql} is no query here")


def idle(step: Step, rows: Read) -> tuple[Rows, Rows | None]:  # noqa: ARG001
    raise AssertionError(f"{step.operator.id} should not run")


class PlainPlane:
    """`engine.ports.DataPlane` without another process."""

    machine = None
    files: type[SegmentStore] = SegmentStore

    def __init__(
        self, compiled: Callable[[str], CompiledQuery] = unknown, compute: Compute = idle
    ) -> None:
        self.compiler = PlainCompiler(compiled)
        self._compute = compute

    def evaluator(self, files: SegmentStore) -> PlainEvaluator:
        return PlainEvaluator(files, self._compute)

    def row_parser(self, definition: StreamDefinition) -> Any:
        return lambda rows, producer: arrived([(r["ts"], r["c0"]) for r in rows], producer)

    def file_parser(self, definition: StreamDefinition, kind: str, staging: Path) -> "PlainParser":
        return PlainParser()

    def open_stream(
        self, definition: StreamDefinition, appender: Appender, setting: SourceSetting
    ) -> Any:
        raise AssertionError("no streaming source is read here")
