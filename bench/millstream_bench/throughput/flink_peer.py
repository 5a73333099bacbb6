"""The queries of the sharing benchmark as one Flink statement set.

Run by a Python that has `apache-flink`, never imported by Millstream: it takes a task as JSON on
standard input (folders with CSV files, SQL of the queries) and prints the seconds it took.
"""

import json
import sys
import time

SOURCE = """
CREATE TABLE {name} (`at` TIMESTAMP(3), k INT, g INT, v DOUBLE, WATERMARK FOR `at` AS `at`)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""
SINK = """
CREATE TABLE {name} ({columns})
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""
COLUMNS = {
    "filter": "`at` TIMESTAMP(3), k INT, v DOUBLE",
    "average": "g INT, m DOUBLE, ts TIMESTAMP(3)",
    "join": "`at` TIMESTAMP(3), bt TIMESTAMP(3), k INT, v DOUBLE, bv DOUBLE",
}
QUERY = {
    "filter": "SELECT `at`, k, v FROM a WHERE v > {c}",
    "average": (
        "SELECT g, AVG(v), window_end FROM TABLE(HOP(TABLE chosen_{name}, DESCRIPTOR(`at`), "
        "INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY g, window_start, window_end"
    ),
    "join": (
        "SELECT a.`at`, CAST(b.`at` AS TIMESTAMP(3)), a.k, a.v, b.v FROM a JOIN b "
        "ON a.k = b.k AND b.`at` BETWEEN a.`at` - INTERVAL '5' SECOND "
        "AND a.`at` + INTERVAL '5' SECOND WHERE a.v > {c}"
    ),
}


def main() -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore  # noqa: PLC0415

    task = json.load(sys.stdin)
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = tables.get_config()
    settings.set("parallelism.default", str(task["parallelism"]))
    settings.set("execution.checkpointing.interval", "10 s")
    settings.set("pipeline.object-reuse", "true")
    settings.set("table.exec.mini-batch.enabled", "true")
    settings.set("table.exec.mini-batch.allow-latency", "200 ms")
    settings.set("table.exec.mini-batch.size", "5000")
    for name in ("a", "b"):
        tables.execute_sql(SOURCE.format(name=name, path=task["data"] + "/" + name))
    together = tables.create_statement_set()
    for ask in task["asks"]:
        name, kind = ask["name"], ask["kind"]
        if kind == "average":
            tables.execute_sql(
                f"CREATE TEMPORARY VIEW chosen_{name} AS SELECT * FROM a WHERE v > {ask['c']}"
            )
        path = task["out"] + "/" + name
        tables.execute_sql(SINK.format(name=name, columns=COLUMNS[kind], path=path))
        text = QUERY[kind].format(c=ask["c"], name=name)
        together.add_insert_sql(f"INSERT INTO {name} {text}")
    clock = time.perf_counter()
    together.execute().wait()
    print(json.dumps({"seconds": time.perf_counter() - clock}), flush=True)


if __name__ == "__main__":
    main()
