"""Runs whole dataflows on the real engine: rows in batches, steps in between, all results out."""

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.engine import maintenance
from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.trains import Trains
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING
from millstream.spark.plane import SparkPlane
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW
from millstream.store.consumers import subscriber
from millstream.store.reach import SELF_READING
from oracle.harness import files_of
from oracle.model import Stream


def acknowledge_kept(engine: Engine) -> None:
    """Stands for users who have taken every row of results that their operators keep anyway."""
    with engine.ledger.transaction() as ledger:
        for query in engine.queries.values():
            operator, head = engine.operators.get(query.stream), ledger.stream(query.stream)
            if operator is not None and operator.kind in SELF_READING and head is not None:
                ledger.set_cursor(subscriber(query.name), query.stream, head["next"], BEGINNING)


def compact_all(engine: Engine) -> None:
    """Merges whatever may be merged, be it two segments, tables that users read included."""
    acknowledge_kept(engine)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(maintenance, "FAN_IN", 2)
        for row in engine.ledger.streams():
            while engine.maintenance.compact(row["id"]):
                pass


class ForcedCompaction:
    """Compaction between any two steps: after each of them, or after some by chance."""

    def __init__(self, share: float = 1.0, seed: int = 1) -> None:
        self.share, self.chance = share, random.Random(seed)

    def __call__(self, engine: Engine) -> None:
        if self.chance.random() < self.share:
            compact_all(engine)


class EngineRunner:
    """One engine a run, in a folder of its own.

    `between_steps` may disturb it after any step, `after_round` between batches.
    """

    def __init__(
        self,
        spark: Any,
        folder: Path,
        settings: EngineSettings | None = None,
        after_round: Callable[[Engine, int], Engine] | None = None,
        between_steps: Callable[[Engine], None] | None = None,
        prepared: bool = True,
    ) -> None:
        self.spark, self.folder, self.prepared = spark, folder, prepared
        self.settings = settings or EngineSettings()
        self.after_round, self.between_steps = after_round, between_steps
        self._runs = 0

    def run(
        self,
        streams: Sequence[Stream],
        queries: Mapping[str, str],
        batches: Mapping[str, Sequence[int]],
    ) -> dict[str, list[dict[str, Any]]]:
        self._runs += 1
        home = self.folder / f"run-{self._runs}"
        engine = Engine(home, SparkPlane(self.spark, prepared=self.prepared), self.settings)
        engine.check_new = lambda _: None  # type: ignore[method-assign]  # made-up joins may be products
        declare(engine, streams)
        for name, cql in queries.items():
            engine.add_query(name, cql)
        tables = {s.name: files_of(s, batches[s.name]) for s in streams}
        for number in range(max((len(t) for t in tables.values()), default=0)):
            for name, parts in tables.items():
                if number < len(parts):
                    engine.appenders[name].append(arrived(parts[number]), {})
            settle(engine, self.between_steps)
            if self.after_round is not None:
                engine = self.after_round(engine, number)
        for appender in engine.appenders.values():
            appender.finish()
        settle(engine, self.between_steps)
        results = {name: rows_of(engine, name) for name in queries}
        engine.close()
        shutil.rmtree(home)
        return results


def declare(engine: Engine, streams: Sequence[Stream]) -> None:
    for stream in streams:
        columns = (Field("ts", "timestamp"), *(Field(c.name, c.type) for c in stream.columns))
        engine.add_stream(
            StreamDefinition(stream.name, columns, "ts", stream.lateness, source={"source": "push"})
        )


def arrived(table: pa.Table) -> pa.Table:
    """A file's rows as an ingest hands them over."""
    count = table.num_rows
    columns = [table[name] for name in table.column_names]
    names = [f"c{i}" for i in range(len(columns))]
    nothing = pa.array([None] * count, pa.string())
    times = pc.cast(table["ts"], pa.int64())
    extra = [times, nothing, nothing, nothing, pa.array(np.arange(count, dtype=np.int64))]
    return pa.table([*columns, *extra], [*names, "_ts", REASON, RECORD, FILE, ROW])


def settle(engine: Engine, between_steps: Callable[[Engine], None] | None = None) -> None:
    """Runs steps until nobody has anything new to read; together what can run together."""
    trains = Trains(engine)
    rows = engine.settings.step_rows_max
    worked = True
    while worked:
        worked = False
        for unit in trains.units():
            worked = engine.runner.run(unit, rows) is not None or worked
            engine.maintenance.retain({s for o in unit.operators for s in o.inputs})
            if between_steps is not None:
                between_steps(engine)
        for row in engine.ledger.streams():
            engine.maintenance.compact(row["id"])


def rows_of(engine: Engine, name: str) -> list[dict[str, Any]]:
    query = engine.queries[name]
    assert query.state == "running", query.reason
    table = engine.table(name) if query.plan.relation else engine.result(name)
    at = table.schema.get_field_index("ts")
    table = table.set_column(at, "ts", pc.cast(table["ts"], pa.int64()))
    return list(table.to_pylist())
