"""Nexmark's queries as one Flink statement set over CSV files.

Run by a Python that has `apache-flink`, never imported by Millstream: it takes a task as JSON on
standard input. It runs once over a few rows, prints a line, runs over all of them, prints another
with the seconds, and waits for the end of its input, so that somebody can weigh it meanwhile.
"""

import json
import sys
import time

TABLES = {
    "person": "id BIGINT, name STRING, city STRING, state STRING, date_time TIMESTAMP(3)",
    "auction": (
        "id BIGINT, item_name STRING, initial_bid BIGINT, date_time TIMESTAMP(3), "
        "expires TIMESTAMP(3), seller BIGINT, category BIGINT"
    ),
    "bid": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
        "date_time TIMESTAMP(3), extra STRING"
    ),
}
CONNECTOR = "WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')"
CHANNEL = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
PRICED = "CAST(0.908 AS DECIMAL(3,3)) * price"
TUMBLE = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
SESSION = (
    "TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
)
ENDS = "window_start, window_end"
QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": f"SELECT auction, bidder, {PRICED}, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": (
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P "
        "ON A.seller = P.id WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')"
    ),
    "q5a": f"SELECT auction, COUNT(*), {ENDS} FROM {HOP} GROUP BY auction, {ENDS}",
    "q7a": f"SELECT MAX(price), {ENDS} FROM {TUMBLE} GROUP BY {ENDS}",
    "q10": (
        "SELECT auction, bidder, price, date_time, extra, DATE_FORMAT(date_time, 'yyyy-MM-dd'), "
        "DATE_FORMAT(date_time, 'HH:mm') FROM bid"
    ),
    "q11": f"SELECT bidder, COUNT(*), {ENDS} FROM {SESSION} GROUP BY bidder, {ENDS}",
    "q12": f"SELECT bidder, COUNT(*), {ENDS} FROM {TUMBLE} GROUP BY bidder, {ENDS}",
    "q14": (
        f"SELECT auction, bidder, {PRICED}, CASE WHEN HOUR(date_time) BETWEEN 8 AND 18 "
        "THEN 'dayTime' WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime' "
        "ELSE 'otherTime' END, date_time, "
        "CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) FROM bid "
        f"WHERE {PRICED} > 1000000 AND {PRICED} < 50000000"
    ),
    "q20": (
        "SELECT B.auction, B.bidder, B.price, A.item_name, A.initial_bid, A.seller "
        "FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10"
    ),
    "q21": (
        "SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' "
        "WHEN LOWER(channel) = 'google' THEN '1' WHEN LOWER(channel) = 'facebook' THEN '2' "
        f"WHEN LOWER(channel) = 'baidu' THEN '3' ELSE {CHANNEL} END FROM bid "
        f"WHERE {CHANNEL} <> '' OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"
    ),
    "q22": (
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), "
        "SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5) FROM bid"
    ),
}
RESULTS = {
    "q0": "a BIGINT, b BIGINT, p BIGINT, t TIMESTAMP(3), e STRING",
    "q1": "a BIGINT, b BIGINT, p DECIMAL(23, 3), t TIMESTAMP(3), e STRING",
    "q2": "a BIGINT, p BIGINT",
    "q3": "n STRING, c STRING, s STRING, i BIGINT",
    "q5a": "a BIGINT, n BIGINT, s TIMESTAMP(3), e TIMESTAMP(3)",
    "q7a": "p BIGINT, s TIMESTAMP(3), e TIMESTAMP(3)",
    "q10": "a BIGINT, b BIGINT, p BIGINT, t TIMESTAMP(3), e STRING, d STRING, m STRING",
    "q11": "b BIGINT, n BIGINT, s TIMESTAMP(3), e TIMESTAMP(3)",
    "q12": "b BIGINT, n BIGINT, s TIMESTAMP(3), e TIMESTAMP(3)",
    "q14": "a BIGINT, b BIGINT, p DECIMAL(23, 3), k STRING, t TIMESTAMP(3), c INT",
    "q20": "a BIGINT, b BIGINT, p BIGINT, i STRING, j BIGINT, s BIGINT",
    "q21": "a BIGINT, b BIGINT, p BIGINT, c STRING, i STRING",
    "q22": "a BIGINT, b BIGINT, p BIGINT, c STRING, d STRING, e STRING, f STRING",
}
SETTINGS = {
    "execution.checkpointing.interval": "10 s",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "200 ms",
    "table.exec.mini-batch.size": "5000",
}


def run(data: str, out: str, names: list[str], streams: list[str], parallelism: int) -> float:
    """One statement set, from its text to its end."""
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore  # noqa: PLC0415

    clock = time.perf_counter()
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = tables.get_config()
    settings.set("parallelism.default", str(parallelism))
    for key, value in SETTINGS.items():
        settings.set(key, value)
    for stream in streams:
        tables.execute_sql(
            f"CREATE TABLE {stream} ({TABLES[stream]}, WATERMARK FOR date_time AS date_time) "
            + CONNECTOR.format(path=f"{data}/{stream}")
        )
    together = tables.create_statement_set()
    for name in names:
        tables.execute_sql(
            f"CREATE TABLE {name} ({RESULTS[name]}) " + CONNECTOR.format(path=f"{out}/{name}")
        )
        together.add_insert_sql(f"INSERT INTO {name} {QUERIES[name]}")
    together.execute().wait()
    return time.perf_counter() - clock


def main() -> None:
    task = json.loads(sys.stdin.readline())
    chosen = (task["names"], task["streams"], task["parallelism"])
    run(task["warm"], task["out"] + ".warm", *chosen)
    print(json.dumps({"warm": True}), flush=True)
    sys.stdin.readline()
    print(json.dumps({"seconds": run(task["data"], task["out"], *chosen)}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
