"""Rows as programs have them; no Spark."""

import pandas as pd
import pyarrow as pa
import pytest

from millstream.app.session.rows import as_given
from millstream.core.errors import UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field

STREAM = StreamDefinition("s", (Field("At", "long"), Field("n", "int")), "timestamp_seconds(At)")
ROWS = [{"At": 1, "n": 2}, {"At": 3, "n": None}]


def test_mappings_and_sequences() -> None:
    assert as_given(ROWS, STREAM) == ROWS
    assert as_given(iter(ROWS), STREAM) == ROWS
    assert as_given([(1, 2), [3, None]], STREAM) == ROWS
    assert as_given([{"at": 1, "N": 2}, (3, None)], STREAM) == ROWS
    assert as_given([], STREAM) == []


def test_tables_stay_tables() -> None:
    table = pa.table({"at": [1, 3], "N": [2, None]})
    (batch,) = table.to_batches()
    for rows in (table, batch, [batch], iter([batch])):
        given = as_given(rows, STREAM)
        assert isinstance(given, pa.Table)
        assert given.to_pylist() == ROWS
    assert as_given([batch, batch], STREAM).num_rows == 4
    frame = as_given(pd.DataFrame({"at": [1]}), STREAM)
    assert isinstance(frame, pa.Table)
    assert frame.to_pylist() == [{"At": 1}]
    twice = pa.table({"n": [1], "N": [2]})
    assert as_given(twice, STREAM).to_pylist() == [{"n": 2}], "the last spelling counts"


def test_columns_that_are_not_there() -> None:
    for rows in ([{"m": 1}], pa.table({"m": [1]}), [{1: 1}]):
        with pytest.raises(UsageError, match="has no column"):
            as_given(rows, STREAM)
