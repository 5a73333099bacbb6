"""Names that decide how a call is bound: aggregates, and functions that no query may call.

Those that may be called stand in `spark_functions.py`; what they mean is Spark's to know.
"""

# Aggregates of the language, under Spark's names, and what the algebra calls them.
AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "first": "first",
    "first_value": "first",
    "last": "last",
    "last_value": "last",
}
# Depend on when or where they run, though Spark calls some of them deterministic.
UNREPEATABLE = frozenset(
    {"now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp"}
    | {
        "current_timezone",
        "localtime",
        "current_path",
        "current_user",
        "user",
        "session_user",
        "current_catalog",
    }
    | {
        "current_database",
        "current_schema",
        "version",
        "uuid",
        "rand",
        "random",
        "randn",
        "randstr",
    }
    | {"uniform", "shuffle", "monotonically_increasing_id", "spark_partition_id"}
    | {"input_file_name", "input_file_block_start", "input_file_block_length"}
    | {"raise_error", "assert_true", "getdate"}
)
# Reach what is not the query's: classes of Java, files that a call names, Spark's own tables.
REACHING = frozenset(
    {"reflect", "java_method", "try_reflect", "from_protobuf", "to_protobuf"}
    | {"collations", "python_worker_logs", "sql_keywords"}
)
WHY_REACHING = "a query reads its streams and nothing else"
# The same, when called with fewer arguments than these: the clock, and a random vector.
UNREPEATABLE_BELOW = {"unix_timestamp": 1, "to_unix_timestamp": 1, "aes_encrypt": 5}
WHY_UNREPEATABLE = "a step must give the same rows when it is repeated"


def unrepeatable(name: str, arguments: int) -> bool:
    lower = name.lower()
    return lower in UNREPEATABLE or arguments < UNREPEATABLE_BELOW.get(lower, 0)
