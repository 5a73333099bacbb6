"""Columns as the ledger keeps them: the same text whoever writes it."""

from pyspark.sql.types import LongType, StringType, StructField, StructType

from millstream.language.share.dataflow import REJECTED_NAMES
from millstream.store.arrivals.appending import REJECTED
from millstream.store.columns import column_names, columns_text


def test_the_text_is_the_one_that_spark_writes() -> None:
    """Homes written by either are read by both, and a stream is compared by its text."""
    types = {"_ts": LongType(), "c0": StringType()}
    spark = StructType([StructField(name, kind) for name, kind in types.items()]).json()
    assert columns_text({"_ts": "long", "c0": "string"}) == spark


def test_rejected_rows_have_a_column_for_each_name() -> None:
    names = column_names(REJECTED)
    assert names == ["_ts", *(f"c{i}" for i in range(len(REJECTED_NAMES)))]
