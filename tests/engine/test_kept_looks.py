"""What the loop keeps of its last look is what a fresh look would give: units, inputs, deliveries.

The engine is the real one, with trains of the mix of live queries that come, go and rest; an
evaluator without Spark makes up rows.
"""

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.engine.delivering import Delivering
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import CompiledQuery, MadeStream, StepResult, TrainStep
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.engine.steps.plans import StepPlanner
from millstream.engine.steps.trains import Trains
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.rewrite import starting_at
from millstream.language.plan.schema import Field, Schema
from millstream.language.share.dataflow import compile_plan, result_stream
from millstream.language.share.shared_panes import WindowMember, windows_together
from millstream.language.share.shared_plan import (
    JoinMember,
    Member,
    Place,
    joins_together,
    maps_together,
)
from millstream.sim.managed.plain_plane import PlainPlane, arrived
from millstream.store.columns import columns_text
from millstream.store.delivery import CallbackSink
from millstream.store.segments import SegmentStore

SECOND = 1_000_000
TEXTS = (
    "SELECT k, v FROM a WHERE v > {}D",
    "SELECT k, avg(v) AS mean FROM a [RANGE 2 SECONDS SLIDE 1 SECOND] WHERE v > {}D GROUP BY k",
    "SELECT x.k, x.v, y.v AS w FROM a AS x [RANGE {1} SECONDS] JOIN b AS y [RANGE {1} SECONDS] "
    "ON x.k = y.k WHERE x.v > {0}D",
)
HIDDEN = {"_ts": "long", "_pos": "long", "_until": "long"}


class _Types:
    """Types of the expressions of the texts above."""

    def analyse(
        self, columns: Schema, expressions: list[str], *, aggregates: bool = False
    ) -> tuple[str, ...]:
        def kind(text: str) -> str:
            if (column := re.fullmatch(r"c(\d+)", text)) is not None:
                return columns[int(column[1])].type
            compared = not aggregates and re.search("[<>=]", text)
            return "boolean" if compared else "bigint" if "_ts" in text else "double"

        return tuple(kind(text) for text in expressions)

    def computable(self, constant: str) -> bool:
        return True

    def read_as_times(self, columns: Schema, expression: str) -> frozenset[int]:
        return frozenset()

    def reads_texts_as_times(self, columns: Schema, expression: str) -> bool:
        return False


class _Compiler:
    analyzer: Any = _Types()

    def compile(self, cql: str, catalog: Catalog, start: int, reader: str = "") -> CompiledQuery:
        plan = bind(parse_query(cql), catalog, self.analyzer)
        plan = replace(plan, root=starting_at(plan.root, start))
        return CompiledQuery(plan, compile_plan(plan), result_stream(plan))

    def check(self, definition: StreamDefinition) -> None:
        return None

    def columns(self, definition: StreamDefinition) -> str:
        names = (f"c{i}" for i in range(len(definition.columns)))
        return columns_text({**HIDDEN, **dict.fromkeys(names, "double")})

    def made(self, operator: Any, inputs: Any) -> tuple[MadeStream, ...]:
        columns = {**HIDDEN, **dict.fromkeys(("c0", "c1", "c2"), "double")}
        return (MadeStream("", operator.kind, columns_text(columns)),)


class _MakesUp:
    """Rows over the times of the new ones, of random members."""

    def __init__(self, files: SegmentStore) -> None:
        self._files, self._random = files, np.random.default_rng(1)
        self._places: dict[tuple[str, ...], dict[str, Place]] = {}

    def evaluate(self, job: TrainStep) -> StepResult:
        (first, *_), combines = job.steps, job.steps[0].operator.kind == "combine"
        new = [s for i in first.inputs.values() for s in i.new if s.rows]
        marks = {s.operator.id: s.after for s in job.steps}
        if combines:
            marks = {name: at // SECOND * SECOND for name, at in marks.items()}
        places = self._of(job) if job.members else {}
        if not new or (combines and first.before // SECOND == first.after // SECOND):
            return StepResult({}, marks, places=places)
        times = np.linspace(min(s.ts_min for s in new), max(s.ts_max for s in new), 20)
        columns = {name: times.astype(np.int64) for name in HIDDEN}
        if not places:
            names = ("c0", "c1", "c2")
            written = self._files.write(pa.table(columns | dict.fromkeys(names, np.ones(20))))
            return StepResult({first.operator.id: [written]}, marks)
        for place in places.values():
            columns[f"c{place.word}"] = self._random.integers(0, 1 << 62, 20)
            columns |= dict.fromkeys(set(place.columns.values()) - set(columns), columns["_ts"])
        wide = self._files.write_wide(pa.table(columns), places)
        return StepResult({s: [w] if w.rows else [] for s, w in wide.items()}, marks, places=places)

    def data_error(self, error: Exception) -> str | None:
        raise error

    def _of(self, job: TrainStep) -> dict[str, Place]:
        ids = tuple(s.operator.id for s in job.steps)
        if ids not in self._places:
            parts: list[Any] = [m.part for m in job.members]
            match parts[0]:
                case Member():
                    found = maps_together(parts).places
                case JoinMember():
                    found = joins_together(parts, ids).places
                case WindowMember():
                    found = windows_together(parts).together.places
                case _:
                    own = {"c0": "d0", "c1": "d1", "c2": "d2"}
                    found = {name: Place(0, 1 << bit, own) for bit, name in enumerate(ids)}
            self._places[ids] = dict(found)
        return self._places[ids]


class _Plane(PlainPlane):
    def __init__(self) -> None:
        self.compiler: Any = _Compiler()

    def evaluator(self, files: SegmentStore) -> Any:
        return _MakesUp(files)

    def row_parser(self, definition: StreamDefinition) -> Any:
        def parsed(rows: pa.Table, producer: str) -> pa.Table:
            table = arrived([(at, 1) for at in rows["at"].to_pylist()], producer)
            return table.append_column("c1", table["c0"]).append_column("c2", table["c0"])

        return parsed


@pytest.mark.parametrize("seed", range(3))
def test_kept_looks_are_those_of_a_fresh_look(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = _compare_with_fresh_looks(monkeypatch)
    random_, engine = random.Random(seed), Engine(tmp_path, _Plane(), EngineSettings(slots=1))
    columns = (Field("at", "bigint"), Field("k", "int"), Field("v", "double"))
    for stream in "ab":
        engine.add_stream(StreamDefinition(stream, columns, "at"))
    rows: Counter[str] = Counter()
    for number in range(15):
        _add(engine, number, rows)
    loop, at = Loop(engine), 1_700_000_000 * SECOND
    for tick in range(60):
        at += SECOND // 4
        for stream in random_.choice(("a", "b", "ab", "ab")):
            source = engine.sources[stream]
            assert isinstance(source, PushSource)
            source.push("p", None, pa.table({"at": range(at, at + 10)}))
        for _ in range(random_.randrange(1, 14)):
            if (piece := loop._next()) is None:
                break
            loop._busy |= {piece.name, *piece.more}
            loop._do(piece)
            loop._busy -= {piece.name, *piece.more}
        if random_.random() < 0.3:
            _add(engine, 15 + tick, rows)
        names = sorted(engine.queries)
        if random_.random() < 0.2:
            engine.drop_query(random_.choice(names))
        elif random_.random() < 0.1:
            engine.pause_query(random_.choice(names), random_.random() < 0.5, "a test")
    assert loop.failure is None
    assert len(rows) > 10
    assert min(kept["units"], kept["inputs"], kept["deliveries"]) > 5, kept
    engine.close()


def _add(engine: Engine, number: int, rows: Counter[str]) -> None:
    name = f"q{number}"
    engine.add_query(name, TEXTS[number % 3].format(10 + number % 30, 2 + number % 2 * 3))
    engine.deliver(name, CallbackSink(lambda table, _: rows.update({name: table.num_rows})))


def _compare_with_fresh_looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts looks at what was kept; each is compared."""
    kept: Counter[str] = Counter()
    units, inputs, due = Trains.units, StepPlanner._of, Delivering.due

    def compared_units(self: Trains, busy: Any = ()) -> Any:
        seen = self._seen
        found = units(self, busy)
        kept["units"] += seen == self._seen
        assert found == self._formed(busy)
        return found

    def compared_inputs(self: StepPlanner, *asked: Any) -> Any:
        *whose, known = asked if len(asked) == 5 else (*asked, None)
        before = len(known or ())
        found = inputs(self, *asked)
        if known is not None:
            kept["inputs"] += len(known) == before
            assert found == inputs(self, *whose)
        return found

    def compared_due(self: Delivering, busy: Any) -> Any:
        found = due(self, busy)
        if not found and self._all_delivered is not None:
            kept["deliveries"] += 1
            assert not any(d.pending() for d in self._engine.deliveries)
        return found

    monkeypatch.setattr(Trains, "units", compared_units)
    monkeypatch.setattr(StepPlanner, "_of", compared_inputs)
    monkeypatch.setattr(Delivering, "due", compared_due)
    return kept
