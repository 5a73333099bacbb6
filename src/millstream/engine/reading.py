"""Segments as Spark frames."""

import json
import zlib
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructType

from millstream.engine.frames import Frame
from millstream.engine.ledger import Ledger
from millstream.engine.segments import TAG, Segment, SegmentStore
from millstream.errors import StateError


def tag_of(stream: str) -> int:
    """A stream's tag in files that hold rows of several streams."""
    return zlib.crc32(stream.encode()) & 0x7FFFFFFF


class SegmentReader:
    """Reads segments of a stream through Spark, with the columns the ledger has for it."""

    def __init__(self, spark: SparkSession, ledger: Ledger, store: SegmentStore) -> None:
        self._spark, self._ledger, self._store = spark, ledger, store
        self._schemas: dict[str, StructType] = {}

    def schema(self, stream: str) -> StructType:
        if stream not in self._schemas:
            text = self._ledger.columns(stream)
            if not text:
                raise StateError(f"the columns of stream {stream} are not known yet")
            self._schemas[stream] = StructType.fromJson(json.loads(text))
        return self._schemas[stream]

    def forget(self, stream: str) -> None:
        self._schemas.pop(stream, None)

    def frame(self, stream: str, segments: Sequence[Segment]) -> Frame:
        schema = self.schema(stream)
        names = schema.names
        hidden = tuple(n for n in names if n.startswith("_"))
        plain = [self._store.path(s.file) for s in segments if s.file and s.tag is None]
        tagged = [self._store.path(s.file) for s in segments if s.file and s.tag is not None]
        frames: list[DataFrame] = []
        if plain:
            frames.append(self._spark.read.schema(schema).parquet(*plain))
        if tagged:
            wide = StructType([*schema.fields]).add(TAG, IntegerType())
            rows = self._spark.read.schema(wide).parquet(*tagged)
            frames.append(rows.where(f"{TAG} = {tag_of(stream)}").select(*names))
        if not frames:
            data = self._nothing(schema)
        else:
            data = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        return Frame(data, hidden, len(names) - len(hidden))

    def _nothing(self, schema: StructType) -> DataFrame:
        """No rows, known as such to the optimiser; `createDataFrame` would start Python workers."""
        columns = (f"CAST(NULL AS {f.dataType.simpleString()}) AS {f.name}" for f in schema.fields)
        return self._spark.sql(f"SELECT {', '.join(columns)} WHERE FALSE")
