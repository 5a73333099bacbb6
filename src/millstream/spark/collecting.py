"""A job's result on the driver, where it is not too large for that (`spark.collected_max`)."""

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from millstream.spark.failures import result_too_large


def collected(data: DataFrame) -> pa.Table | None:
    """The rows, or None where they are too many to be collected: then executors write them."""
    try:
        return data.toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if not result_too_large(error):
            raise
    return None
