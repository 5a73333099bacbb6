"""In a user's Spark with settings of its own: the same results, and the user's Spark as it was."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream
from millstream.core.errors import MillstreamError

ODD = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.adaptive.enabled": "true",
}
OF_THE_MACHINE = {  # another file system than that of the files here, and other names of files
    "spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:9",
    "spark.hadoop.mapreduce.output.basename": "rows",
}
GROUP = "what the user does"
ROWS = "at,Name,name,n\n" + "".join(
    f"2024-03-10 0{h}:{m:02d}:00,N{m},{'ann' if m == 7 else m},{h * m}\n"
    for h in range(1, 9)
    for m in range(0, 60, 7)
)
QUERIES = {
    "times": "SELECT at, hour(at) AS h, CAST(at AS STRING) AS text, Name FROM f WHERE n % 2 = 0",
    "texts": "SELECT Name, name AS other,"
    " '\\t' AS tab, '${env:HOME}${spark.app.name}' AS v,"
    " to_timestamp('2024-07-01 08:00:00') AS t FROM f",
    "counts": "SELECT name, count(*) AS c, max(at) AS latest FROM f"
    " [RANGE 2 HOURS SLIDE 1 HOUR] GROUP BY name",
    "pairs": "SELECT x.n AS n, y.k AS k FROM f [RANGE 3 HOURS] x JOIN p [RANGE 3 HOURS] y"
    " ON x.n = y.k",
    "pushed": "SELECT k, twice(k) AS d, thrice(k) AS t, at FROM p",
    "broken": "SELECT CAST(name AS INT) AS number FROM f",
}


def answers(session: millstream.Session, folder: Path) -> dict[str, Any]:
    """What users get of each query: the bytes of its rows in order, or why it failed."""
    columns = {"at": "timestamp", "Name": "string", "name": "string", "n": "int"}
    session.stream(
        "f", path=folder / "f.csv", columns=columns, time="at", options={"header": "true"}
    )
    session.stream("p", columns={"at": "timestamp", "k": "int"}, time="at")
    session.register_function("twice", lambda k: k * 2, "int")
    session.register_function("thrice", "k * 3", "int", parameters={"k": "int"})
    queries = {name: session.query(cql, name) for name, cql in QUERIES.items()}
    running = session.query("SELECT name, sum(n) AS s FROM f GROUP BY name", "running")
    rows = [{"at": f"2024-03-10T0{h}:30:00", "k": k} for h in range(1, 8) for k in range(0, 50, 5)]
    session.push("p", rows[:40])
    session.push("p", rows[40:])
    session.finish("p")
    session.wait()
    told: dict[str, Any] = {"broken": [queries["broken"].state, queries["broken"].reason]}
    for name in (*QUERIES, "running"):
        if name != "broken":
            table = running.table() if name == "running" else queries[name].to_arrow()
            if name == "running":
                table = table.drop_columns(["ts"])
            told[name] = _bytes(table)
    return told


def _bytes(table: pa.Table) -> str:
    assert table.num_rows
    ordered = table.sort_by([(name, "ascending") for name in table.column_names])
    # a column says which values are null even where none is, or not, as steps happened to come
    ordered = pa.Table.from_pylist(ordered.to_pylist(), ordered.schema)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, ordered.schema) as writer:
        writer.write_table(ordered.combine_chunks())
    return base64.b64encode(out.getvalue()).decode()


def user(folder: Path) -> None:
    """What the user's process does."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key, value in [
        *OF_THE_MACHINE.items(),
        *list(ODD.items())[:5],
    ]:  # some for the whole Spark, others for the session
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for key, value in ODD.items():
        spark.conf.set(key, value)
    own = spark.createDataFrame([(1, "a")], "n INT, Text STRING")
    own.createOrReplaceTempView("mine")
    before = dict(spark.conf.getAll)
    spark.sparkContext.setJobGroup(GROUP, GROUP)

    def look() -> list[Any]:
        frame = spark.sparkContext.parallelize([(1,)]).toDF()
        return [
            dict(spark.conf.getAll) == before,
            SparkSession.getActiveSession() is spark,
            SparkSession.builder.getOrCreate() is spark,
            frame.sparkSession is spark,
            spark.sql("SELECT TEXT FROM mine WHERE CAST('ann' AS INT) IS NULL").count(),
            spark.sql("SELECT CAST(TIMESTAMP '2024-07-01 08:00:00' AS STRING) AS t").first().t,
            spark.catalog.functionExists("twice"),
            spark.sparkContext.getLocalProperty("spark.jobGroup.id"),
        ]

    first = look()
    looks = []
    with millstream.attach(spark, folder / "a home[1]") as session:
        told = answers(session, folder)
        looks.append(look())
    looks.append(look())
    # a Spark that runs is not taken for ours either; executors write
    with millstream.Session(folder / "{b}*", settings={"collect_bytes_max": 0}) as session:
        session.stream("p", columns={"at": "timestamp", "k": "int"}, time="at")
        query = session.query("SELECT CAST(at AS STRING) AS t, k FROM p")
        counts = session.query("SELECT k, count(*) AS c FROM p GROUP BY k")
        session.push("p", [{"at": "2024-07-01T08:00:00", "k": 1}])
        session.finish("p")
        found = [query.to_arrow().to_pylist()[0]["t"], counts.table().to_pylist()[0]["c"]]
        looks.append(look())
    looks.append(look())
    parts = {"answers": told, "first": first, "looks": looks, "found": found}
    with millstream.attach(spark) as session:  # and whose Spark is ended by its owner meanwhile
        session.stream("p", columns={"at": "timestamp", "k": "int"}, time="at")
        session.query("SELECT k FROM p WHERE k > 1", "left")
        session.push("p", [{"at": "2024-07-01T08:00:00", "k": 1}])
        session.wait()
        spark.stop()
        session.push("p", [{"at": "2024-07-01T08:00:01", "k": 2}])
        parts["ended"] = [refused(session.wait), session.queries()[0].state]
    parts["stopped"] = refused(lambda: millstream.attach(spark))
    parts["odd"] = [refused(partial(millstream.attach, odd)) for odd in (7, "spark")]
    (folder / "told.json").write_text(json.dumps(parts))


def refused(act: Callable[[], object]) -> str:
    try:
        act()
    except MillstreamError as error:
        return f"{error}"
    return ""


@pytest.mark.spark
@pytest.mark.process
def test_attached_to_another_time_zone_and_other_rules(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(ROWS)
    with millstream.Session() as session:
        ours = answers(session, tmp_path)
    assert ours["broken"][0] == "failed"
    command = f"import test_attach as t, pathlib; t.user(pathlib.Path({str(tmp_path)!r}))"
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{here!r}]; {command}"],
        capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path,
        env={**os.environ, "TZ": "America/New_York"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    for name, answer in ours.items():
        assert told["answers"][name] == answer, name
    assert told["found"] == ["2024-07-01 08:00:00", 1]
    assert told["first"] == [True, True, True, True, 1, "2024-07-01 08:00:00", False, GROUP]
    assert all(look == told["first"] for look in told["looks"])
    assert told["stopped"].startswith("this session of Spark has been stopped")
    assert told["ended"][0].startswith("Spark has been stopped")
    assert told["ended"][1] != "failed", "it is no fault of the query's"
    for text, kind in zip(told["odd"], ("int", "str"), strict=True):
        assert text.startswith(f"attach takes a session of Spark, not {kind}")
