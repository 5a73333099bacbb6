"""A job's result on this machine: collected where it is small, else in files of a folder.

A folder here is named with its file system: where a user's Spark has another one by default (HDFS
on YARN), a bare path would mean that. Nothing is a pattern: a folder may be called `a[1]`.
"""

import os
import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millstream.spark.failures import result_too_large

_SIGNS = re.compile(r"[{}\[\]*?\\]")
PARTS = "part-*.parquet"  # what executors have written
WRITTEN_SO = {
    # of two attempts of a task only the one that the driver lets commit leaves files, also where a
    # user's Spark moves each task's files at once
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.output.basename": "part",  # a user's Spark may call them otherwise
}


def collected(data: DataFrame) -> pa.Table | None:
    """The rows, or None where they are too many to be collected: then executors write them."""
    try:
        return data.toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if not result_too_large(error):
            raise
    return None


def local(path: str | PathLike[str]) -> str:
    """A path of this machine as Spark has it, whatever its default file system is.

    >>> local("/data/a b/../c")
    'file:/data/c'
    """
    return f"file:{os.path.abspath(path)}"


def readable(path: str | PathLike[str]) -> str:
    """The same for Spark's readers, which take a path for a pattern.

    Its own option against that, `__globPaths__`, reads all files once for each whose name holds one
    of these signs.

    >>> print(readable("/data/a[1]/x"))
    file:/data/a\\[1\\]/x
    """
    return _SIGNS.sub(r"\\\g<0>", local(path))


def read_parquet(spark: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame:
    return spark.read.schema(schema).parquet(*map(readable, paths))


def write_parquet(data: DataFrame, folder: str | PathLike[str], **options: Any) -> list[Path]:
    """Executors write the rows into a folder; the files, in order of partitions."""
    writer = data.write.mode("overwrite").options(**WRITTEN_SO, **options)
    writer.parquet(local(folder))
    return sorted(Path(folder).glob(PARTS))
