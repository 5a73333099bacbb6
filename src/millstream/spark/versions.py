"""What differs between the Sparks that we run on, 4.0 to 4.3: asked here, and nowhere else."""

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

# the name of one argument has changed between 4.1 and 4.2, and with it whether UTC is what one gets
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_schema).parameters else {}
)


def arrow_type(kind: DataType) -> pa.DataType:
    """Arrow's type of a Spark type; times are in UTC."""
    return types.to_arrow_type(kind, **_ZONE)


def arrow_schema(schema: StructType) -> pa.Schema:
    return types.to_arrow_schema(schema, **_ZONE)


def spark_type(kind: pa.DataType) -> DataType:
    """Spark's type of an Arrow type; times without a zone stay so."""
    return types.from_arrow_type(kind, prefer_timestamp_ntz=True)
