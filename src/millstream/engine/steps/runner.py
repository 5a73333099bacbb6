"""A step: plan what it reads, evaluate it, commit what it gives in one transaction.

A step of one operator is a train with one member. A crash before the transaction leaves only files
that nobody names; a crash after it loses nothing. The time that a step took is attributed to its
operators by the rows they read and gave.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.engine.ports import Compiler, Evaluator, Step, StepResult, TrainStep
from millstream.engine.settings import COLLECT_BYTES_MAX
from millstream.engine.steps.bounds import ProductError
from millstream.engine.steps.plans import AllowanceOf, StepPlanner
from millstream.engine.steps.reports import StepReport, TrainReport
from millstream.engine.steps.shedding import SHED_ROWS
from millstream.engine.steps.trains import Unit
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import Operator
from millstream.store import faults
from millstream.store.segments import EMPTY, Segment, Written
from millstream.store.streams import Streams


class StepRunner:
    """Runs the steps of units over the streams of one home."""

    def __init__(
        self,
        streams: Streams,
        compiler: Compiler,
        evaluator: Evaluator,
        collect_bytes_max: int = COLLECT_BYTES_MAX,
        limit: Callable[[TrainStep], TrainStep] = lambda job: job,
        allowance: AllowanceOf = lambda _: None,
    ) -> None:
        self.streams, self.ledger = streams, streams.ledger
        self.evaluator = evaluator
        self.planner = StepPlanner(streams, collect_bytes_max, allowance)
        self._compiler, self._limit = compiler, limit

    def install(self, operator: Operator) -> None:
        """Makes room for an operator's streams in the ledger (inside a transaction)."""
        self.ledger.add_stream(operator.id, operator.kind)
        if self.ledger.columns(operator.id):
            return
        inputs = {s: self.ledger.columns(s) for s in operator.inputs}
        for made in self._compiler.made(operator, inputs):
            self.ledger.add_stream(operator.id + made.suffix, made.kind)
            self.ledger.set_columns(operator.id + made.suffix, made.columns)

    def run(self, unit: Unit, rows_max: int) -> TrainReport | None:
        """One step on at most about `rows_max` new rows; None where there is nothing new."""
        with self.streams.removals.reading():
            report, gone = self._run(unit, rows_max)
        self.streams.removals.add(gone)
        return report

    def _run(self, unit: Unit, rows_max: int) -> tuple[TrainReport | None, list[str]]:
        started, clock = time.time(), time.perf_counter()
        job = self._planned(unit, rows_max)
        if job is None:
            return None, []
        self.streams.files.check(job.files())
        result = self.evaluator.evaluate(job)
        faults.reach("step.written")
        clock_commit = time.perf_counter()
        shares = _shares(job.steps, result.written)
        gone = self._commit(job, result, shares, clock_commit - clock)
        faults.reach("step.committed")
        done = time.perf_counter()
        parts = tuple(
            replace(
                _report(step, result, started),
                seconds=share * (done - clock),
                commit_seconds=share * (done - clock_commit),
                job=unit.id if job.members else "",
                members=len(job.steps),
            )
            for step, share in zip(job.steps, shares, strict=True)
        )
        whole = StepReport(
            unit.id,
            rows_in=max(p.rows_in for p in parts),
            rows_out=sum(p.rows_out for p in parts),
            bytes_in=max(p.bytes_in for p in parts),
            bytes_out=sum(p.bytes_out for p in parts),
            seconds=done - clock,
            commit_seconds=done - clock_commit,
            tail_segments=max(p.tail_segments for p in parts),
            started=started,
            arrived=min(p.arrived for p in parts),
            collected=result.collected,
        )
        return TrainReport(whole, parts), gone

    def _planned(self, unit: Unit, rows_max: int) -> TrainStep | None:
        """A step within its limits: one that combines too much takes fewer rows, if it can."""
        while (job := self.planner.plan(unit, rows_max)) is not None:
            try:
                return self._limit(job)
            except ProductError:
                inputs = [i for step in job.steps for i in step.inputs.values()]
                if max(sum(1 for s in i.new if s.rows) for i in inputs) <= 1:
                    raise
                rows_max = min(rows_max, max(sum(s.rows for s in i.new) for i in inputs)) // 2
        return None

    def _commit(
        self, job: TrainStep, result: StepResult, shares: Sequence[float], seconds: float
    ) -> list[str]:
        """Publishes, advances, records; gives files that nobody names any more."""
        gone: list[str] = []
        with self.ledger.transaction() as ledger:
            for stream in result.replaced:
                gone += ledger.replace(ledger.segments(stream), None)
                ledger.publish(stream, result.written[stream] or [EMPTY], BEGINNING)
            tag = self.streams.layouts.number(result.places) if result.places else None
            for step, share in zip(job.steps, shares, strict=True):
                name = step.operator.id
                own = [replace(w, tag=tag) for w in result.written.get(name, ())]
                ledger.publish(name, own, result.watermarks[name], _arrived(step.new))
                for source in step.inputs.values():
                    if source.new:
                        following = source.new[-1].last + 1
                        ledger.set_cursor(name, source.stream, following, source.after)
                ledger.record_step(
                    name,
                    _notes(step, result),
                    sum(s.rows for s in step.new),
                    sum(w.rows for w in own),
                    share * seconds,
                    shared=bool(job.members),
                )
        return gone


def _notes(step: Step, result: StepResult) -> Mapping[str, Any]:
    """An operator's durable notes after a step: the evaluator's, and how many rows were shed."""
    notes = result.progress.get(step.operator.id, {})
    shed_rows = step.progress.get(SHED_ROWS, 0) + step.shed_rows
    return {**notes, SHED_ROWS: shed_rows} if shed_rows else notes


def _shares(steps: Sequence[Step], written: Mapping[str, Sequence[Written]]) -> list[float]:
    """What part of the step's time is each operator's: by the rows it gave, and one for reading."""
    given = [sum(w.rows for w in written.get(s.operator.id, ())) for s in steps]
    read = [sum(p.rows for p in s.new) for s in steps]
    weights = [r / len(steps) + g + 1 for r, g in zip(read, given, strict=True)]
    return [w / sum(weights) for w in weights]


def _report(step: Step, result: StepResult, started: float) -> StepReport:
    own = result.written.get(step.operator.id, ())
    return StepReport(
        step.operator.id,
        rows_in=sum(s.rows for s in step.new),
        rows_out=sum(w.rows for w in own),
        bytes_in=sum(s.size for s in step.new),
        bytes_out=sum(w.size for w in own),
        seconds=0.0,
        commit_seconds=0.0,
        tail_segments=sum(1 for i in step.inputs.values() for s in i.tail if s.file),
        started=started,
        arrived=_arrived(step.new),
        collected=result.collected,
    )


def _arrived(segments: Sequence[Segment]) -> float:
    """When the oldest of the segments entered the system."""
    return min((s.arrived for s in segments), default=time.time())
