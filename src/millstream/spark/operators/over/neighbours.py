"""OVER: each row with what its frames hold, when the watermark says that they are whole.

A frame of time is read from the input's tail. A frame of rows needs the last rows of each
partition, however old: they are the operator's state, told ones apart from those that still wait
for rows after them. A frame from the first row on keeps one part for each partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import Over
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.dataflow import state_stream, stream_of
from millstream.spark.frames import Frame, lower, order_struct, order_text, time_bound
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.over.by_blocks import by_blocks, valued_by_blocks
from millstream.spark.operators.over.frame_texts import over_clause, valued
from millstream.spark.operators.over.running_texts import (
    RunningPart,
    running_parts,
    running_value,
)
from millstream.store.reach import time_reach, waiting
from millstream.store.segments import Segment

TOLD, WAITING = 0, 1  # parts of the state of frames of rows


class OverLogic:
    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Over)
        frames = _frames(step, node)
        promised = frames.promise()
        if step.after <= step.before or not frames.news():
            return Answer((), promised, {})
        return Answer(tuple(frames.outputs()), promised, {})


@dataclass(frozen=True, slots=True)
class _Frames:
    """What all kinds of frames have in common."""

    step: Step
    node: Over

    def partition(self) -> list[str]:
        return [sql(key) for key in self.node.partition]

    def segments(self) -> list[Segment]:
        return [s for i in self.step.inputs.values() for s in (*i.tail, *i.new) if s.rows]

    def news(self) -> bool:
        """Whether there is any row that this step could decide."""
        return any(s.ts_min < self.step.after for s in self.segments())

    def promise(self) -> int:
        return self.step.after

    def rows(self, since: int) -> Frame:
        """Rows of the input below the watermark, from a time on, in the columns of OVER's input."""
        found = self.segments()
        rows = lower(
            self.node.input,
            lambda leaf: self.step.read(
                stream_of(leaf), [s for s in found if s.stream == stream_of(leaf)]
            ),
        )
        hidden = [h for h in ("_ts", "_pos") if h in rows.hidden]
        rows = rows.select({h: h for h in hidden}, [f"c{i}" for i in range(rows.width)])
        count = sum(s.rows for s in found)
        if self.step.after < FOREVER:
            rows = rows.where(f"_ts < {time_bound(self.step.after, count)}")
        return rows.where(f"_ts >= {time_bound(since, count)}") if since > BEGINNING else rows

    def with_values(self, rows: Frame, *more: str) -> Frame:
        """The rows with their calls as last columns, and other window columns as hidden ones."""
        calls = enumerate(zip(self.node.calls, self.node.frames, strict=True))
        made = [valued(c, f, i, rows, self.partition()) for i, (c, f) in calls]
        texts = [f"{text} AS {name}" for v in made for name, text in v.columns]
        data = rows.data.selectExpr("*", *texts, *more)
        names = [text.rpartition(" AS ")[2] for text in more]
        columns = [*(f"c{i}" for i in range(rows.width)), *(v.value for v in made)]
        hidden = {name: name for name in (*rows.hidden, *names)}
        return Frame(data, (), 0).select(hidden, columns)

    def output(self, rows: Frame) -> Output:
        kept = [h for h in rows.hidden if h in ("_ts", "_pos")]
        columns = [f"c{i}" for i in range(rows.width)]
        frame = rows.select({h: h for h in kept}, columns)
        return Output(self.step.operator.id, lower(self.step.operator.node, lambda _: frame))

    def state(self, part: int) -> tuple[Segment, ...]:
        return tuple(s for s in self.step.states.get(part, ()) if s.rows)


class _OfTime(_Frames):
    """A row is told when the watermark has passed the end of its frames."""

    def promise(self) -> int:
        return _earlier(self.step.after, waiting(self.node))

    def outputs(self) -> list[Output]:
        rows = self.rows(_earlier(self.step.before, time_reach(self.node)))
        count = sum(s.rows for s in self.segments())
        first, stop = _earlier(self.step.before, waiting(self.node)), self.promise()
        due = [f"_ts >= {time_bound(first, count)}"] if first > BEGINNING else []
        due += [f"_ts < {time_bound(stop, count)}"] if stop < FOREVER else []
        told = " AND ".join(due) or "TRUE"
        if by_blocks(self.node, count):
            return [self.output(valued_by_blocks(self.node, rows, told))]
        return [self.output(self.with_values(rows).where(told))]


def _frames(step: Step, node: Over) -> "_OfTime | _OfRows | _Running":
    """All frames of a node are of one kind."""
    if node.frames[0].unbounded:
        return _Running(step, node)
    return _OfRows(step, node) if node.frames[0].by == "rows" else _OfTime(step, node)


def _earlier(instant: int, by_us: int) -> int:
    return instant if instant in (BEGINNING, FOREVER) else instant - by_us


class _OfRows(_Frames):
    """A row is told when as many rows as its frames want are behind it, or none can come."""

    @property
    def before(self) -> int:
        return max(0, *(-f.first for f in self.node.frames))

    @property
    def behind(self) -> int:
        return max(0, *(f.last for f in self.node.frames))

    def news(self) -> bool:
        ended = self.step.after == FOREVER
        return super().news() or (ended and bool(self.state(WAITING)))

    def promise(self) -> int:
        """Rows that wait are told with their own times: nothing before the first of them is due.

        Which rows wait after this step is known with its result, so that it goes by those before.
        """
        if self.step.after == FOREVER or not self.behind:
            return self.step.after
        return min((self.step.before, *(s.ts_min for s in self.state(WAITING))))

    def outputs(self) -> list[Output]:
        rows = self._known()
        descending = order_text(rows, descending=True)
        last = f"row_number() {over_clause(self.partition(), descending, '')} AS _last"
        placed = Frame(rows.data.selectExpr("*", last), (*rows.hidden, "_last"), rows.width)
        due = "NOT _told"
        if self.step.after < FOREVER:
            due += f" AND _last > {self.behind}"
        told = placed.where(f"_last > {self.behind} AND _last <= {self.behind + self.before}")
        outputs = [
            self.output(self.with_values(rows, last).where(due)),
            self._kept(TOLD, told),
        ]
        if self.behind:
            outputs.append(self._kept(WAITING, placed.where(f"_last <= {self.behind}")))
        return outputs

    def _known(self) -> Frame:
        """Rows of the state and new ones, with `_told`."""
        rows = self.rows(self.step.before).with_hidden(_told="FALSE")
        for part in (TOLD, WAITING):
            if self.state(part):
                old = self.step.read(state_stream(self.step.operator.id, part), self.state(part))
                rows = rows.union(old.with_hidden(_told="TRUE" if part == TOLD else "FALSE"))
        return rows

    def _kept(self, part: int, rows: Frame) -> Output:
        frame = rows.without("_told", "_last")
        return Output(state_stream(self.step.operator.id, part), frame, replaces=True)


class _Running(_Frames):
    """A row is told when the watermark has passed it, with all that came before."""

    def outputs(self) -> list[Output]:
        node, rows = self.node, self.rows(self.step.before)
        made = [running_parts(call, order_struct(rows)) for call in node.calls]
        parts = {f"a{i}_{j}": p for i, own in enumerate(made) for j, p in enumerate(own)}
        data = self._with_state(rows, parts)
        running, values = [], []
        for i, (call, frame) in enumerate(zip(node.calls, node.frames, strict=True)):
            order, kind = (order_text(rows), "ROWS") if frame.by == "rows" else ("_ts", "RANGE")
            over = over_clause(self._keys(), order, f"{kind} UNBOUNDED PRECEDING")
            names = [f"a{i}_{j}" for j in range(len(made[i]))]
            running += [f"{parts[name].over(name, over)} AS r{name}" for name in names]
            values.append(running_value(call, [f"r{name}" for name in names]))
        told = Frame(data.selectExpr("*", *running).where("_new"), (), 0)
        columns = [*(f"c{i}" for i in range(rows.width)), *values]
        result = told.select({h: h for h in rows.hidden}, columns)
        return [self.output(result), self._state(data, parts)]

    def _keys(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.node.partition))]

    def _with_state(self, rows: Frame, parts: Mapping[str, RunningPart]) -> DataFrame:
        """New rows as parts, and before them what the state has of each partition."""
        texts = [f"{text} AS {k}" for text, k in zip(self.partition(), self._keys(), strict=True)]
        texts += [f"{part.of_row} AS {name}" for name, part in parts.items()]
        data = rows.data.selectExpr("*", *texts, "TRUE AS _new")
        if not self.state(0):
            return data
        old = self.step.read(state_stream(self.step.operator.id), self.state(0))
        columns = (f"c{i} AS {name}" for i, name in enumerate((*self._keys(), *parts)))
        kept = old.data.selectExpr("_ts", *columns, "FALSE AS _new")
        return data.unionByName(kept, allowMissingColumns=True)

    def _state(self, data: DataFrame, parts: Mapping[str, RunningPart]) -> Output:
        merged = [F.expr(part.over(name, "")).alias(name) for name, part in parts.items()]
        latest = F.expr("max(_ts)").alias("_ts")
        grouped = data.groupBy(*self._keys()).agg(latest, *merged).where("_ts IS NOT NULL")
        frame = Frame(grouped, (), 0).select({"_ts": "_ts"}, [*self._keys(), *parts])
        return Output(state_stream(self.step.operator.id), frame, replaces=True)
