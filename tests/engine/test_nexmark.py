"""All of Nexmark at once, and each query by itself, give DuckDB's rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from engine_runner import ForcedCompaction, arrived, rows_of, settle

from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition, UserFunction
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane
from oracle.cases.nexmark_whole import QUERIES, streams
from oracle.evaluate import table_of
from oracle.model import Stream
from oracle.plain_sql import Case, problems

pytestmark = pytest.mark.spark

ROUNDS = 3
COUNT_CHAR = (
    "CREATE OR REPLACE TEMPORARY FUNCTION count_char(t STRING, c STRING) RETURNS BIGINT "
    "RETURN length(t) - length(replace(t, c, ''))"
)


def house(spark: Any, home: Path, house_streams: Sequence[Stream], sharing: str) -> Engine:
    """An engine with the streams declared as people declare them: the time is a column."""
    spark.sql(COUNT_CHAR)
    engine = Engine(home, SparkPlane(spark), EngineSettings(sharing=sharing))
    engine.catalog = engine.catalog.with_function(UserFunction("count_char", "1"))
    engine.compiler.functions_changed()
    for stream in house_streams:
        columns = tuple(Field(c.name, c.type) for c in stream.columns)
        engine.add_stream(
            StreamDefinition(
                stream.name, columns, "date_time", stream.lateness, source={"source": "push"}
            )
        )
    return engine


def run(
    engine: Engine, house_streams: Sequence[Stream], texts: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    for name, text in texts.items():
        engine.add_query(name, text)
    disturb = ForcedCompaction(share=0.1)
    for number in range(ROUNDS):
        for stream in house_streams:
            engine.appenders[stream.name].append(part(stream, number), {})
        settle(engine, disturb)
    for appender in engine.appenders.values():
        appender.finish()
    settle(engine, disturb)
    return {name: rows_of(engine, name) for name in texts}


def part(stream: Stream, number: int) -> pa.Table:
    """A piece of a stream, as an ingest hands it over."""
    whole = table_of(stream)
    times = {c.name for c in stream.columns if c.type == "timestamp"}
    kind = pa.timestamp("us", "UTC")
    named = {
        c.name: pc.cast(whole[c.name], kind) if c.name in times else whole[c.name]
        for c in stream.columns
    }
    size = -(-whole.num_rows // ROUNDS)
    rows = pa.table({"ts": pc.cast(whole["ts_us"], kind), **named}).slice(number * size, size)
    made = arrived(rows)
    columns = [made[f"c{i + 1}"] for i in range(len(stream.columns))]
    others = [n for n in made.column_names if not n.startswith("c")]
    names = [*(f"c{i}" for i in range(len(columns))), *others]
    return pa.table([*columns, *(made[n] for n in others)], names)


@pytest.mark.parametrize("sharing", ["subsuming", "none"])
def test_nexmark_gives_duckdbs_rows(sharing: str, spark: Any, tmp_path: Path) -> None:
    made = streams(7, 240)
    engine = house(spark, tmp_path / "home", made, sharing)
    results = run(engine, made, {name: query.cql for name, query in QUERIES.items()})
    engine.close()
    cases = {name: Case(query.cql, query.sql) for name, query in QUERIES.items()}
    assert not problems(made, cases, results)


@pytest.mark.soak
@pytest.mark.parametrize("name", QUERIES)
def test_each_query_alone(name: str, spark: Any, tmp_path: Path) -> None:
    made, query = streams(8, 240), QUERIES[name]
    engine = house(spark, tmp_path / "home", made, "subsuming")
    results = run(engine, made, {name: query.cql})
    engine.close()
    assert not problems(made, {name: Case(query.cql, query.sql)}, results)
