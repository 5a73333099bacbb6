"""Runs whole dataflows on the real engine: rows in batches, steps in between, all results out."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.cql.catalog import StreamDefinition
from millstream.engine.engine import Engine, EngineSettings
from millstream.engine.trains import Trains
from millstream.plan.schema import Field
from millstream.store.appending import FILE, REASON, RECORD, ROW
from oracle.harness import files_of
from oracle.model import Stream


class EngineRunner:
    """One engine a run, in a folder of its own; `after_round` may disturb it between batches."""

    def __init__(
        self,
        spark: Any,
        folder: Path,
        settings: EngineSettings | None = None,
        after_round: Callable[[Engine, int], Engine] | None = None,
    ) -> None:
        self.spark, self.folder = spark, folder
        self.settings = settings or EngineSettings()
        self.after_round = after_round
        self._runs = 0

    def run(
        self,
        streams: Sequence[Stream],
        queries: Mapping[str, str],
        batches: Mapping[str, Sequence[int]],
    ) -> dict[str, list[dict[str, Any]]]:
        self._runs += 1
        home = self.folder / f"run-{self._runs}"
        engine = Engine(home, self.spark, self.settings)
        declare(engine, streams)
        for name, cql in queries.items():
            engine.add_query(name, cql)
        tables = {s.name: files_of(s, batches[s.name]) for s in streams}
        for number in range(max((len(t) for t in tables.values()), default=0)):
            for name, parts in tables.items():
                if number < len(parts):
                    engine.appenders[name].append(arrived(parts[number]), {})
            settle(engine)
            if self.after_round is not None:
                engine = self.after_round(engine, number)
        for appender in engine.appenders.values():
            appender.finish()
        settle(engine)
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


def settle(engine: Engine) -> None:
    """Runs steps until nobody has anything new to read; together what can run together."""
    trains = Trains(engine)
    rows = engine.settings.step_rows_max
    worked = True
    while worked:
        worked = False
        for unit in trains.units():
            if unit.members:
                done: object = engine.train_runner.run(unit, rows)
            else:
                done = engine.runner.run(unit.operators[0], rows, unit.limits)
            worked = worked or done is not None
            engine.maintenance.retain({s for o in unit.operators for s in o.inputs})
        for row in engine.ledger.streams():
            engine.maintenance.compact(row["id"])


def rows_of(engine: Engine, name: str) -> list[dict[str, Any]]:
    query = engine.queries[name]
    assert query.state == "running", query.reason
    table = engine.table(name) if query.plan.relation else engine.result(name)
    at = table.schema.get_field_index("ts")
    table = table.set_column(at, "ts", pc.cast(table["ts"], pa.int64()))
    return list(table.to_pylist())
