"""Types of Parquet columns have the names that Spark gives them."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type

from millstream.control.definitions.parquet_footer import spark_name

KINDS = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float16(), pa.float32(),
    pa.float64(), pa.decimal128(10, 2), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary(4), pa.date32(), pa.date64(), pa.time32("s"),
    pa.time64("us"), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.duration("us"), pa.null(),
    pa.list_(pa.int32()), pa.large_list(pa.float16()), pa.list_(pa.string(), 2),
    pa.map_(pa.string(), pa.int32()), pa.month_day_nano_interval(),
    pa.struct([("a b", pa.int32()), ("c", pa.list_(pa.timestamp("us")))]),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_names_are_spark_s_own(kind: pa.DataType) -> None:
    try:
        expected = str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
    except PySparkException:
        expected = None
    assert spark_name(kind) == expected


@pytest.mark.parametrize(
    ("kind", "wider"),
    [(pa.uint8(), "smallint"), (pa.uint16(), "int"), (pa.uint32(), "bigint"),
     (pa.uint64(), "decimal(20,0)")],
)  # fmt: skip
def test_unsigned_integers_are_read_as_wider_ones(kind: pa.DataType, wider: str) -> None:
    assert spark_name(kind) == wider
    assert spark_name(pa.dictionary(pa.int32(), kind)) == wider
