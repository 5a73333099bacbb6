"""What a step of a unit reads: new segments up to where it stops, tails, states, own output.

The operators of a unit read the same new segments, or, for panes, the same time. A plan holds all
that an evaluator needs; whoever carries it out asks the ledger nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.engine.ports import Input, Step, TrainStep
from millstream.engine.steps.shedding import EVERY_ROW, Allowance, Useful
from millstream.engine.steps.trains import Unit
from millstream.language.plan.nodes import sources_of
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.dataflow import Operator, base_stream, state_stream
from millstream.store.reach import SELF_READING, WITH_STATE, marks, reach_of, reachable
from millstream.store.segments import Segment
from millstream.store.streams import Streams

AllowanceOf = Callable[[Sequence[Operator]], Allowance | None]
EVERYTHING = 1 << 62  # rows: the limits say where to stop
BASES_KEPT_MAX = 10_000
Known = dict[tuple[Any, ...], Mapping[str, Input] | None]


class StepPlanner:
    """Plans steps over the streams of one home."""

    def __init__(
        self, streams: Streams, collect_bytes_max: int, allowance: AllowanceOf = lambda _: None
    ) -> None:
        self._streams, self._ledger = streams, streams.ledger
        self._collect_bytes_max = collect_bytes_max
        self._allowance = allowance
        self._bases: dict[str, frozenset[str]] = {}  # below each operator: an id says what it means

    def plan(self, unit: Unit, rows_max: int) -> TrainStep | None:
        """One step of all the unit's operators, on at most about so many new rows.

        None where there is nothing new, or where they differ by now: rows may have come since the
        unit was formed.
        """
        useful = Useful(self._allowance(unit.operators), time.time())
        if not unit.members:
            step = self._of(unit.operators[0], rows_max, unit.limits, useful)
            return None if step is None else self.job((step,))
        if unit.operators[0].kind == "combine":
            # members may have published other steps: all of them end at the same head
            return self._panes(unit, rows_max) or self._panes(unit, EVERYTHING)
        lead = self._of(unit.operators[0], rows_max, unit.limits, useful)
        if lead is None:
            return None
        steps = [lead]
        limits = {s: self._end_of(lead, s) for s in lead.inputs}
        known: Known = {}
        for operator in unit.operators[1:]:
            step = self._of(operator, EVERYTHING, limits, useful, known)
            if step is None:
                return None
            steps.append(step)
        together = _with_all_tails(steps) if lead.operator.kind == "join" else tuple(steps)
        return replace(self.job(together), members=unit.members)

    def job(self, steps: Sequence[Step]) -> TrainStep:
        """Steps with everything that it takes to evaluate them."""
        names = {name for step in steps for name in _streams_of(step)}
        inputs = {id(i): i for step in steps for i in step.inputs.values()}.values()
        read = {s.file: s for i in inputs for s in (*i.tail, *i.new) if s.file}
        job = TrainStep(
            tuple(steps),
            (),
            {name: self._ledger.columns(name) for name in names},
            {},
            collect=sum(s.size for s in read.values()) <= self._collect_bytes_max,
        )
        return replace(job, layouts=self._streams.layouts_of(job.segments()))

    # -- one operator ---------------------------------------------------------------------------

    def _of(
        self,
        operator: Operator,
        rows_max: int,
        limits: Mapping[str, int] | None = None,
        useful: Useful = EVERY_ROW,
        known: "Known | None" = None,
    ) -> Step | None:
        """What an operator would read; `limits` are numbers of segments before which it stops.

        `known` has what others read that need the same from the same places, within those limits.
        """
        if known is None:
            inputs = self._inputs(operator, rows_max, limits, useful)
        else:
            places = tuple(self._ledger.cursor(operator.id, s) for s in operator.inputs)
            key = (operator.inputs, operator.sides, places, reach_of(operator))
            if key not in known:
                known[key] = self._inputs(operator, rows_max, limits, useful)
            inputs = known[key]
        return None if inputs is None else self.over(operator, inputs)

    def _inputs(
        self, operator: Operator, rows_max: int, limits: Mapping[str, int] | None, useful: Useful
    ) -> Mapping[str, Input] | None:
        """The same without what is the operator's alone; None where nothing is new."""
        inputs: dict[str, Input] = {}
        at = marks(self._ledger, operator)
        anything = False
        for stream in operator.inputs:
            following, before = self._ledger.cursor(operator.id, stream)
            segments = self._ledger.segments(stream)
            tail = tuple(
                s for s in segments if s.last < following and s.file and reachable(operator, s, at)
            )
            # inputs that stand beside come last, and whole: what they hold for the rows just
            # taken was there before these
            side = stream in operator.sides
            stop = FOREVER if limits is None or side else limits[stream]
            waiting = [s for s in segments if following <= s.last < stop]
            kept = [useful.of(s) for s in waiting]
            new = tuple(waiting) if side else _limited(kept, rows_max)
            shed_rows = sum(s.rows for s in waiting[: len(new)]) - sum(s.rows for s in new)
            after = new[-1].watermark if new else before
            anything = anything or bool(new)
            inputs[stream] = Input(stream, tail, new, before, max(before, after), shed_rows)
        return inputs if anything else None

    def over(self, operator: Operator, inputs: Mapping[str, Input]) -> Step:
        """A step over these inputs, with the operator's notes, states and own output."""
        return Step(
            operator,
            inputs,
            self._ledger.progress(operator.id),
            self._states(operator),
            tuple(self._ledger.segments(operator.id)) if operator.kind in SELF_READING else (),
            self._last_row(operator),
        )

    def _states(self, operator: Operator) -> dict[int, tuple[Segment, ...]]:
        found: dict[int, tuple[Segment, ...]] = {}
        if operator.kind in WITH_STATE:
            part = 0
            while self._ledger.stream(state_stream(operator.id, part)) is not None:
                found[part] = tuple(self._ledger.segments(state_stream(operator.id, part)))
                part += 1
        return found

    def _last_row(self, operator: Operator) -> int:
        bases = self._bases.get(operator.id)
        if bases is None:
            if len(self._bases) > BASES_KEPT_MAX:
                self._bases.clear()
            bases = frozenset(base_stream(s.stream) for s in sources_of(operator.node))
            self._bases[operator.id] = bases
        return max((self._ledger.last_row(base) for base in bases), default=BEGINNING)

    # -- several --------------------------------------------------------------------------------

    def _panes(self, unit: Unit, rows_max: int) -> TrainStep | None:
        """Steps from one watermark to another, of the members that have anything on the way."""
        planned = (self._of(o, rows_max) for o in unit.operators)
        first = next((step for step in planned if step is not None), None)
        if first is None:
            return None
        members, steps = [], []
        for member in unit.members:
            (stream,) = member.operator.inputs
            limits = self._up_to(first.after, stream, member.operator.id)
            step = self._of(member.operator, EVERYTHING, limits)
            if step is not None:
                members.append(member)
                steps.append(step)
            elif self._ledger.cursor(member.operator.id, stream)[1] != first.after:
                return None
        reads = {_panes_read(s) for s in steps}
        if len(reads) > 1 or None in reads:
            return None
        return replace(self.job(steps), members=tuple(members))

    def _end_of(self, lead: Step, stream: str) -> int:
        """Where the first step stops reading a stream."""
        new = lead.inputs[stream].new
        return new[-1].last + 1 if new else self._ledger.cursor(lead.operator.id, stream)[0]

    def _up_to(self, watermark: int, stream: str, consumer: str) -> dict[str, int]:
        """Limits that let a step take what a watermark covers."""
        following, _ = self._ledger.cursor(consumer, stream)
        waiting = self._ledger.segments(stream, following)
        taken = [s for s in waiting if s.watermark <= watermark]
        return {stream: taken[-1].last + 1 if taken else following}


def _streams_of(step: Step) -> Iterator[str]:
    """Every stream that a step reads or makes."""
    yield step.operator.id
    yield from step.inputs
    yield from (state_stream(step.operator.id, part) for part in step.states)


def _panes_read(step: Step) -> tuple[int, int] | None:
    """From where to where a step's windows go; None where its panes are not in shared files."""
    (source,) = step.inputs.values()
    if any(s.file and s.tag is None for s in (*source.tail, *source.new)):
        return None
    return source.before, source.after


def _with_all_tails(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Every step with the tails that any of them can reach: windows may differ."""
    tails: dict[str, dict[int, Segment]] = {}
    for source in {id(i): i for step in steps for i in step.inputs.values()}.values():
        tails.setdefault(source.stream, {}).update({s.first: s for s in source.tail})
    inputs: dict[str, Input] = {
        stream: replace(source, tail=tuple(s for _, s in sorted(tails[stream].items())))
        for stream, source in steps[0].inputs.items()
    }
    return tuple(replace(step, inputs=inputs) for step in steps)


def _limited(segments: Sequence[Segment], rows_max: int) -> tuple[Segment, ...]:
    """A prefix of about as many rows, one segment at least."""
    taken: list[Segment] = []
    rows = 0
    for segment in segments:
        if taken and rows + segment.rows > rows_max:
            break
        taken.append(segment)
        rows += segment.rows
    return tuple(taken)
