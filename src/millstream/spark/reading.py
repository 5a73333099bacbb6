"""Segments as Spark frames."""

import json
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, LongType, StructField, StructType

from millstream.core.errors import StateError
from millstream.language.share.shared_plan import Place
from millstream.spark.collecting import read_parquet
from millstream.spark.frames import Frame, spelling
from millstream.store.segments import Segment

SCHEMAS_KEPT_MAX = 10_000


class Schemas:
    """Columns as Spark has them, from the texts that the ledger keeps; each is read once."""

    def __init__(self) -> None:
        self._known: dict[str, StructType] = {}

    def of(self, columns: str) -> StructType:
        known = self._known.get(columns)
        if known is None:
            if len(self._known) > SCHEMAS_KEPT_MAX:
                self._known.clear()
            known = self._known[columns] = StructType.fromJson(json.loads(columns))
        return known


class SegmentReader:
    """Reads the segments of one job through Spark: its columns and layouts come with it."""

    carried: tuple[str, ...] = ()  # hidden columns that every frame has beside the stream's own

    def __init__(
        self,
        spark: SparkSession,
        schemas: Schemas,
        columns: Mapping[str, str],
        layouts: Mapping[int, Mapping[str, Place]] | None = None,
        path: Callable[[str], str] = str,
    ) -> None:
        self._spark, self._schemas = spark, schemas
        self._columns, self._layouts, self._path = columns, layouts or {}, path

    def schema(self, stream: str) -> StructType:
        text = self._columns.get(stream)
        if not text:
            raise StateError(f"the columns of stream {stream} are not known yet")
        return self._schemas.of(text)

    def frame(self, stream: str, segments: Sequence[Segment]) -> Frame:
        schema = self.schema(stream)
        names = schema.names
        hidden = tuple(n for n in names if n.startswith("_"))
        plain = [self._path(s.file) for s in segments if s.file and s.tag is None]
        frames: list[DataFrame] = []
        if plain:
            frames.append(read_parquet(self._spark, schema, plain))
        for tag, paths in self._tagged(segments).items():
            place = self._layouts[tag][stream]
            word = f"c{place.word}"
            columns = {n: place.columns.get(n, n) for n in names}
            fields = {w: schema[n].dataType for n, w in columns.items()} | {word: LongType()}
            wide = StructType([StructField(n, kind) for n, kind in fields.items()])
            rows = read_parquet(self._spark, wide, paths)
            chosen = rows.where(f"({word} & {place.bit}L) <> 0L")
            frames.append(chosen.selectExpr(*(f"{w} AS {n}" for n, w in columns.items())))
        if not frames:
            data = self._nothing(schema)
        else:
            data = frames[0]
            for other in frames[1:]:
                data = data.unionByName(other)
        return Frame(data, hidden, len(names) - len(hidden))

    def _tagged(self, segments: Sequence[Segment]) -> dict[int, list[str]]:
        """Files that hold rows of many streams, by their layout."""
        found: dict[int, list[str]] = {}
        for s in segments:
            if s.file and s.tag is not None:
                found.setdefault(s.tag, []).append(self._path(s.file))
        return found

    def layout(self, tag: int) -> Mapping[str, Place]:
        """Whose rows and columns are where in files of this layout."""
        return self._layouts[tag]

    def wide(self, files: Sequence[str], columns: Mapping[str, DataType]) -> DataFrame:
        """Files of many streams as they are, with the named columns."""
        fields = [StructField(name, kind) for name, kind in columns.items()]
        paths = [self._path(file) for file in files]
        return read_parquet(self._spark, StructType(fields), paths)

    def _nothing(self, schema: StructType) -> DataFrame:
        """No rows, known as such to the optimiser; `createDataFrame` would start Python workers."""
        columns = (f"CAST(NULL AS {spelling(f.dataType)}) AS {f.name}" for f in schema.fields)
        return self._spark.sql(f"SELECT {', '.join(columns)} WHERE FALSE")
