"""The time of a stream from its columns, by Arrow: a column, or a well-known call of one.

Any other expression is Spark's to compute, and so is a value for which the two might differ.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.arrow_columns import (
    DAY_US,
    INTEGERS,
    SECONDS_MAX,
    UTC,
    Column,
    scaled,
    times_of_texts,
)

NAME = r"([A-Za-z_]\w*|`(?:[^`]|``)+`)"
CALL = re.compile(rf"\s*(\w+)\s*\(\s*{NAME}\s*\)\s*", re.ASCII)
CAST = re.compile(rf"\s*cast\s*\(\s*{NAME}\s+as\s+timestamp\s*\)\s*", re.ASCII | re.IGNORECASE)
UNITS_US = {"timestamp_seconds": 1_000_000, "timestamp_millis": 1_000, "timestamp_micros": 1}


@dataclass(frozen=True, slots=True)
class ArrowTime:
    """Which column the time is, and what is done with it."""

    column: int
    type: str
    unit_us: int  # of a number; 0 where it is no number
    utc: bool  # whether the session's zone, that of texts and dates, is UTC

    def of(self, values: pa.Array) -> Column:
        """Microseconds from the values of the column."""
        match self.type:
            case "timestamp":
                return values.cast(pa.int64()), None
            case "date":
                days = values.cast(pa.int32()).cast(pa.int64())
                return pc.multiply(days, DAY_US), None
            case "string":
                return times_of_texts(values, utc=self.utc)
            case "double":
                return _of_fractions(values)
            case _:
                return scaled(values.cast(pa.int64()), self.unit_us)


def time_of(definition: StreamDefinition, zone: str) -> ArrowTime | None:
    """How Arrow computes a stream's time; None where Spark has to.

    >>> from millstream.language.plan.schema import Field
    >>> columns = (Field("at", "long"), Field("n", "int"))
    >>> time_of(StreamDefinition("s", columns, "timestamp_millis(at)"), "UTC")
    ArrowTime(column=0, type='bigint', unit_us=1000, utc=True)
    >>> time_of(StreamDefinition("s", columns, "timestamp_millis(at + n)"), "UTC")
    """
    utc, unit_us, at = zone in UTC, 0, definition.time_column
    if at is None:
        if found := CAST.fullmatch(definition.time):
            name, unit_us = found[1], UNITS_US["timestamp_seconds"]
        elif (found := CALL.fullmatch(definition.time)) and found[1].lower() in UNITS_US:
            name, unit_us = found[2], UNITS_US[found[1].lower()]
        else:
            return None
        bare = name[1:-1].replace("``", "`") if name.startswith("`") else name
        names = [f.name for f in definition.columns]
        if bare not in names:
            return None
        at = names.index(bare)
    type_ = definition.columns[at].type
    called = definition.time_column is None and not CAST.fullmatch(definition.time)
    numbers = type_ in INTEGERS and unit_us > 0
    fractions = type_ == "double" and called and unit_us == UNITS_US["timestamp_seconds"]
    others = not called and type_ in ("timestamp", "string", "date")
    if not (numbers or fractions or others) or (type_ == "date" and not utc):
        return None
    return ArrowTime(at, type_, unit_us, utc)


def _of_fractions(seconds: pa.Array) -> Column:
    """Seconds with a fraction, cut off after the microsecond."""
    numbers = np.asarray(pc.fill_null(seconds, 0.0))
    unclear = ~(np.abs(numbers) < SECONDS_MAX)  # NaN among them
    micros = (np.where(unclear, 0.0, numbers) * 1e6).astype(np.int64)
    return pa.array(micros, mask=np.asarray(pc.is_null(seconds))), unclear
