"""A step of several operators: one Spark job, one set of files, one transaction.

The time it took is attributed to the operators by the rows they read and gave.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.engine.steps import (
    RECORDS_OF_A_FILE,
    StepReport,
    StepRunner,
    arrived_of,
    with_nullable_parts,
)
from millstream.engine.trains import Unit
from millstream.spark.collecting import collected
from millstream.spark.frames import Frame
from millstream.spark.operators.base import Input, Step
from millstream.spark.operators.shared import SharedAnswer, evaluate_together
from millstream.store import faults
from millstream.store.layouts import Layouts
from millstream.store.segments import Segment, Written

EVERYTHING = 1 << 62  # rows: the limits say where to stop


@dataclass(frozen=True, slots=True)
class TrainReport:
    """The whole step, and what of it is each operator's."""

    whole: StepReport
    members: tuple[StepReport, ...]


class TrainRunner:
    """Runs units of several operators on a step runner's ledger, store and session."""

    def __init__(self, runner: StepRunner, layouts: Layouts) -> None:
        self.runner, self.layouts = runner, layouts

    def run(self, unit: Unit, rows_max: int) -> TrainReport | None:
        """One step of all the unit's operators; None where there is nothing new."""
        with self.runner.removals.reading():
            return self._run(unit, rows_max)

    def _run(self, unit: Unit, rows_max: int) -> TrainReport | None:
        started, clock = time.time(), time.perf_counter()
        prepared = self._prepare(unit, rows_max)
        if prepared is None:
            return None
        unit, steps = prepared
        answer = evaluate_together(unit.members, steps, self.runner.reader)
        faults.reach("step.evaluated")
        files = _files(steps)
        size = sum(s.size for s in files)
        written: Mapping[str, Sequence[Written]] = {}
        collected = size <= self.runner.collect_bytes_max
        if answer.frame is not None:
            written, collected = self._materialise(answer.frame, answer, collected)
        faults.reach("step.written")
        clock_commit = time.perf_counter()
        shares = _shares(steps, written)
        self._commit(steps, answer, written, shares, time.perf_counter() - clock)
        faults.reach("step.committed")
        done = time.perf_counter()
        members = tuple(
            replace(
                _report(step, written.get(step.operator.id, ()), started, collected),
                seconds=share * (done - clock),
                job=unit.id,
                members=len(steps),
            )
            for step, share in zip(steps, shares, strict=True)
        )
        whole = StepReport(
            unit.id,
            rows_in=max(m.rows_in for m in members),
            rows_out=sum(m.rows_out for m in members),
            bytes_in=max(m.bytes_in for m in members),
            bytes_out=sum(m.bytes_out for m in members),
            seconds=done - clock,
            commit_seconds=done - clock_commit,
            tail_segments=max(m.tail_segments for m in members),
            started=started,
            arrived=min(m.arrived for m in members),
            collected=collected,
        )
        return TrainReport(whole, members)

    def _prepare(self, unit: Unit, rows_max: int) -> tuple[Unit, list[Step]] | None:
        """Each operator's step over the same segments, or, for panes, the same time.

        None where they differ by now: rows may have come since the unit was formed.
        """
        if unit.operators[0].kind == "combine":
            # members may have published other steps: all of them end at the same head
            return self._panes(unit, rows_max) or self._panes(unit, EVERYTHING)
        lead = self.runner.prepare(unit.operators[0], rows_max, unit.limits)
        if lead is None:
            return None
        steps = [lead]
        for operator in unit.operators[1:]:
            limits = {s: self._end_of(lead, s) for s in operator.inputs}
            step = self.runner.prepare(operator, EVERYTHING, limits)
            if step is None:
                return None
            steps.append(step)
        return unit, _with_all_tails(steps) if lead.operator.kind == "join" else steps

    def _panes(self, unit: Unit, rows_max: int) -> tuple[Unit, list[Step]] | None:
        """Steps from one watermark to another, of the members that have anything on the way."""
        prepared = (self.runner.prepare(o, rows_max) for o in unit.operators)
        first = next((step for step in prepared if step is not None), None)
        if first is None:
            return None
        members, steps = [], []
        for member in unit.members:
            (stream,) = member.operator.inputs
            limits = self._up_to(first.after, stream, member.operator.id)
            step = self.runner.prepare(member.operator, EVERYTHING, limits)
            if step is not None:
                members.append(member)
                steps.append(step)
            elif self.runner.ledger.cursor(member.operator.id, stream)[1] != first.after:
                return None
        reads = {_panes_read(s) for s in steps}
        if len(reads) > 1 or None in reads:
            return None
        operators = tuple(m.operator for m in members)
        return replace(unit, operators=operators, members=tuple(members)), steps

    def _end_of(self, lead: Step, stream: str) -> int:
        """Where the first step stops reading a stream."""
        new = lead.inputs[stream].new
        return new[-1].last + 1 if new else self.runner.ledger.cursor(lead.operator.id, stream)[0]

    def _up_to(self, watermark: int, stream: str, consumer: str) -> dict[str, int]:
        """Limits that let a step take what a watermark covers."""
        following, _ = self.runner.ledger.cursor(consumer, stream)
        waiting = self.runner.ledger.segments(stream, following)
        taken = [s for s in waiting if s.watermark <= watermark]
        return {stream: taken[-1].last + 1 if taken else following}

    def _materialise(
        self, frame: Frame, answer: SharedAnswer, collect: bool
    ) -> tuple[Mapping[str, Sequence[Written]], bool]:
        store = self.runner.store
        if collect:
            table = collected(with_nullable_parts(frame.data, frame.data.schema))
            if table is not None:
                found = store.write_wide(table, answer.places)
                return {s: [w] if w.rows else [] for s, w in found.items()}, True
        folder = store.path(f"{store.new_name()}.writing")
        writer = frame.data.write.option("compression", "zstd")
        writer.option("maxRecordsPerFile", RECORDS_OF_A_FILE).parquet(folder)
        return store.adopt_wide(folder, answer.places), False

    def _commit(
        self,
        steps: Sequence[Step],
        answer: SharedAnswer,
        written: Mapping[str, Sequence[Written]],
        shares: Sequence[float],
        seconds: float,
    ) -> None:
        with self.runner.ledger.transaction() as ledger:
            tag = self.layouts.number(answer.places) if answer.places else None
            for step, share in zip(steps, shares, strict=True):
                name = step.operator.id
                own = [replace(w, tag=tag) for w in written.get(name, ())]
                new = [s for i in step.inputs.values() for s in i.new]
                ledger.publish(name, own, answer.watermarks[name], arrived_of(new))
                for source in step.inputs.values():
                    if source.new:
                        following = source.new[-1].last + 1
                        ledger.set_cursor(name, source.stream, following, source.after)
                rows_in, rows_out = sum(s.rows for s in new), sum(w.rows for w in own)
                ledger.record_step(name, {}, rows_in, rows_out, share * seconds, shared=True)


def _panes_read(step: Step) -> tuple[int, int] | None:
    """From where to where a step's windows go; None where its panes are not in shared files."""
    (source,) = step.inputs.values()
    if any(s.file and s.tag is None for s in (*source.tail, *source.new)):
        return None
    return source.before, source.after


def _with_all_tails(steps: Sequence[Step]) -> list[Step]:
    """Every step with the tails that any of them can reach: windows may differ."""
    tails: dict[str, dict[int, Segment]] = {}
    for step in steps:
        for stream, source in step.inputs.items():
            tails.setdefault(stream, {}).update({s.first: s for s in source.tail})
    inputs: dict[str, Input] = {
        stream: replace(source, tail=tuple(s for _, s in sorted(tails[stream].items())))
        for stream, source in steps[0].inputs.items()
    }
    return [replace(step, inputs=inputs) for step in steps]


def _files(steps: Sequence[Step]) -> list[Segment]:
    """The segments that the shared job reads, each file once."""
    found = {
        s.file: s
        for step in steps
        for i in step.inputs.values()
        for s in (*i.tail, *i.new)
        if s.file
    }
    return list(found.values())


def _shares(steps: Sequence[Step], written: Mapping[str, Sequence[Written]]) -> list[float]:
    """What part of the step's time is each operator's: by the rows it gave, and one for reading."""
    given = [sum(w.rows for w in written.get(s.operator.id, ())) for s in steps]
    read = [sum(p.rows for i in s.inputs.values() for p in i.new) for s in steps]
    weights = [r / len(steps) + g + 1 for r, g in zip(read, given, strict=True)]
    return [w / sum(weights) for w in weights]


def _report(step: Step, own: Sequence[Written], started: float, collected: bool) -> StepReport:
    new = [s for i in step.inputs.values() for s in i.new]
    return StepReport(
        step.operator.id,
        rows_in=sum(s.rows for s in new),
        rows_out=sum(w.rows for w in own),
        bytes_in=sum(s.size for s in new),
        bytes_out=sum(w.size for w in own),
        seconds=0.0,
        commit_seconds=0.0,
        tail_segments=sum(1 for i in step.inputs.values() for s in i.tail if s.file),
        started=started,
        arrived=arrived_of(new),
        collected=collected,
    )
