"""The live queries as one Flink statement set, printed row by row.

Run by a Python that has `apache-flink`, never imported by Millstream: it takes a task as JSON on
standard input, prints `ready` when the job runs, and then what Flink's print connector prints.
"""

import json
import sys
import time

SOURCE = """
CREATE TABLE {name} (
  t BIGINT, k INT, g INT, v DOUBLE, sent DOUBLE,
  `at` AS TO_TIMESTAMP_LTZ(t / 1000, 3), WATERMARK FOR `at` AS `at`
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv',
  'source.monitor-interval' = '10 ms')
"""
SINK = """
CREATE TABLE {name} ({columns})
WITH ('connector' = 'print', 'print-identifier' = '{name}', 'sink.parallelism' = '1')
"""
COLUMNS = {
    "filter": "k INT, v DOUBLE, sent DOUBLE, t BIGINT",
    "average": "g INT, m DOUBLE, t BIGINT",
    "join": "k INT, v DOUBLE, w DOUBLE, sent DOUBLE, t BIGINT",
}
# a window ends at a whole second; Flink's times are milliseconds, so the join looks again
QUERY = {
    "filter": "SELECT k, v, sent, t FROM a WHERE v > {c}",
    "average": (
        "SELECT g, AVG(v), UNIX_TIMESTAMP(CAST(window_end AS STRING)) * 1000000 FROM TABLE("
        "HOP(TABLE chosen_{name}, DESCRIPTOR(`at`), INTERVAL '1' SECOND, INTERVAL '2' SECOND)) "
        "GROUP BY g, window_start, window_end"
    ),
    "join": (
        "SELECT x.k, x.v, y.v, GREATEST(x.sent, y.sent), GREATEST(x.t, y.t) "
        "FROM a AS x JOIN b AS y ON x.k = y.k AND y.`at` BETWEEN x.`at` - INTERVAL '5.001' "
        "SECOND(1, 3) AND x.`at` + INTERVAL '5.001' SECOND(1, 3) "
        "WHERE x.v > {c} AND ABS(x.t - y.t) <= 5000000"
    ),
}
SETTINGS = {
    "table.local-time-zone": "UTC",
    "execution.checkpointing.interval": "10 s",
    "execution.buffer-timeout.interval": "5 ms",
    "pipeline.object-reuse": "true",
    "pipeline.auto-watermark-interval": "20 ms",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "50 ms",
    "table.exec.mini-batch.size": "5000",
    # a reader that has no file at hand holds no watermark back
    "table.exec.source.idle-timeout": "100 ms",
}


def main() -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore  # noqa: PLC0415

    task = json.load(sys.stdin)
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = tables.get_config()
    settings.set("parallelism.default", str(task["parallelism"]))
    for key, value in SETTINGS.items():
        settings.set(key, value)
    for name in ("a", "b"):
        tables.execute_sql(SOURCE.format(name=name, path=task["data"] + "/" + name))
    together = tables.create_statement_set()
    for ask in task["asks"]:
        name, kind = ask["name"], ask["kind"]
        if kind == "average":
            tables.execute_sql(
                f"CREATE TEMPORARY VIEW chosen_{name} AS SELECT * FROM a WHERE v > {ask['c']}"
            )
        tables.execute_sql(SINK.format(name=name, columns=COLUMNS[kind]))
        together.add_insert_sql(f"INSERT INTO {name} {QUERY[kind].format(c=ask['c'], name=name)}")
    job = together.execute().get_job_client()
    while "RUNNING" not in str(job.get_job_status().result()):
        time.sleep(0.1)
    print("ready", flush=True)
    job.get_job_execution_result().result()


if __name__ == "__main__":
    main()
