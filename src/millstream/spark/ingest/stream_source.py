"""Any Structured Streaming source: its query writes segments with foreachBatch, exactly once.

A batch is keyed by (stream, the checkpoint's query id, batch id) in the ledger's ingest position,
committed with its rows. Spark repeats a batch whose end it has not noted; it is then known and
passed over. A checkpoint that does not continue the ledger is refused: rows would be lost or come
twice.
"""

import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from millstream.core.errors import StateError, UsageError
from millstream.core.secrets import resolved, without_secrets
from millstream.core.suggestions import did_you_mean
from millstream.engine.ports import SourceSetting
from millstream.language.cql.catalog import StreamDefinition, lookup
from millstream.language.plan.sql_text import quoted
from millstream.spark.collecting import collected, local, write_parquet
from millstream.spark.frames import spelling
from millstream.spark.ingest.declared_columns import (
    CORRUPT,
    LOST,
    Value,
    converted,
    event_time,
    valid_text,
    with_time,
)
from millstream.spark.ingest.text_times import as_written, option, refuse_fallback
from millstream.spark.session import beside
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW, Appender
from millstream.store.machine_failures import disk_full, first_line
from millstream.store.segments import parquet_pieces

FILE_FORMATS = ("csv", "json", "parquet", "text", "orc")  # their schema is the declared one
TRIGGERS = ("available_now",)
WAIT_SECONDS = 0.1
STOP_SECONDS = 30.0  # for what a source is doing when it is stopped
MALFORMED = "malformed, or a value of another type than declared"
NEW_RUN = "choose an empty folder for a new run"


class StreamSource:
    """One stream's streaming query. It runs in threads of Spark's own between start and stop."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        spark: SparkSession,
        setting: SourceSetting,
    ) -> None:
        self.definition, self.appender = definition, appender
        self._arrived, self._congested = setting.arrived, setting.congested
        name = quote(definition.name, safe="")
        self.checkpoint = setting.home / "checkpoints" / name
        self._staging = setting.home / "staging" / name
        self._spark = beside(spark)
        self._query: Any = None
        self._watcher: threading.Thread | None = None
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self._finite = _trigger(definition) == "available_now"
        self._time = event_time(definition, self._spark)
        self._data = self._open()
        self._verify()

    # -- life -----------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return bool(self._position().get("ended"))

    def start(self) -> None:
        if self.ended:
            return
        self._stopping.clear()
        writer = self._data.writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", local(self.checkpoint))
        writer = writer.queryName(f"millstream {self.definition.name}")
        writer = writer.trigger(availableNow=True) if self._finite else writer
        self._query = writer.start()
        self._watcher = threading.Thread(
            target=self._watch, args=(self._query,), name="millstream-source", daemon=True
        )
        self._watcher.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(STOP_SECONDS)  # it may still be about to use the ledger
            self._watcher = None

    def silent_since(self) -> float:
        """When rows last came; now, where a batch is under way."""
        busy = self._query is not None and self._query.status.get("isTriggerActive")
        return time.monotonic() if busy else self.appender.arrived

    def _watch(self, query: Any) -> None:
        """Waits for the query's end and tells how it ended."""
        try:
            query.awaitTermination()
        except (StreamingQueryException, Py4JJavaError) as error:
            if not self._stopping.is_set():
                self.failure = self.failure or disk_full(error) or self._told(error)
        else:
            if self._finite and not self._stopping.is_set():
                self.appender.finish()
        if not self._stopping.is_set():
            self._arrived(self.definition.name)

    def _told(self, error: Exception) -> Exception:
        return UsageError(
            f"stream {self.definition.name}: its source has failed", detail=first_line(error)
        )

    # -- batches --------------------------------------------------------------------------------

    def _batch(self, data: DataFrame, batch: int) -> None:
        """Appends a batch unless it was appended before; Spark calls it in order."""
        try:
            position = self._position()
            query = self._checkpoint_id()
            if decide(position, query, batch, self.definition.name) == "append":
                while self._congested() and not self._stopping.wait(WAIT_SECONDS):
                    pass
                self.appender.append_all(self._pieces(data), {"query": query, "batch": batch})
        except BaseException as error:
            if not self._stopping.is_set():
                self.failure = error
            raise
        self._arrived(self.definition.name)

    def _pieces(self, data: DataFrame) -> Iterator[pa.Table]:
        """A batch's rows: collected where they are few, else by way of a folder."""
        shaped = self._shaped(data)
        table = collected(shaped)
        if table is not None:
            yield self._with_places(table, 0)
            return
        write_parquet(shaped, self._staging)
        row = 0
        for piece in parquet_pieces(self._staging):
            yield self._with_places(piece, row)
            row += piece.num_rows
        shutil.rmtree(self._staging, ignore_errors=True)

    def _shaped(self, data: DataFrame) -> DataFrame:
        """Declared columns by name, with their time and what they lost."""
        known = {f.name: spelling(f.dataType) for f in data.schema.fields}
        zone = option(dict(self.definition.source.get("options") or {}), "timeZone")
        values = []
        for field in self.definition.columns:
            source = list(known)[lookup(field.name, known)[0]]
            values.append(Value(quoted(source), known[source], zone))
        corrupt = CORRUPT if CORRUPT in known else "CAST(NULL AS STRING)"
        rows = converted(data, self.definition, values, f"{valid_text(corrupt)} AS {CORRUPT}")
        reason = f"IF({CORRUPT} IS NULL, {LOST}, '{MALFORMED}')"
        more = [f"{reason} AS _lost", f"{CORRUPT} AS _record"]
        return with_time(rows, self.definition, self._time, more)

    def _with_places(self, table: pa.Table, first: int) -> pa.Table:
        nothing = pa.nulls(table.num_rows, pa.string())
        rows = pa.array(np.arange(first, first + table.num_rows, dtype=np.int64))
        names = [f"c{i}" for i in range(len(self.definition.columns))]
        return pa.table(
            [*(table[n] for n in (*names, "_ts", "_lost", "_record")), nothing, rows],
            [*names, "_ts", REASON, RECORD, FILE, ROW],
        )

    # -- opening --------------------------------------------------------------------------------

    def _open(self) -> DataFrame:
        source, name = self.definition.source, self.definition.name
        kind = source.get("format")
        if not kind:
            raise UsageError(
                f"stream {name} has no format", hint='e.g. format = "rate" or format = "kafka"'
            )
        written = {str(k): v for k, v in dict(source.get("options") or {}).items()}
        options = resolved(f"stream {name}", written)
        if "path" in source:
            options["path"] = str(source["path"])
        reader = self._spark.readStream.format(str(kind)).options(**options)
        if kind in FILE_FORMATS:
            fields = [
                StructField(f.name, as_written(_parse_datatype_string(f.type), str(kind), options))
                for f in self.definition.columns
            ]
            if kind in ("csv", "json"):
                refuse_fallback(name, options)
                fields.append(StructField(CORRUPT, StringType()))
                reader = reader.option("mode", "PERMISSIVE")
                reader = reader.option("columnNameOfCorruptRecord", CORRUPT)
            reader = reader.schema(StructType(fields))
        try:
            data = reader.load()
            columns = data.columns
        except (PySparkException, Py4JJavaError) as error:
            raise UsageError(
                f"stream {name}: there is no source of format {kind} with these options",
                detail=without_secrets(first_line(error), written, options),
                hint="connectors that Spark does not bring are named in spark.jars.packages",
            ) from None
        for field in self.definition.columns:
            if not lookup(field.name, columns):
                raise UsageError(
                    f"stream {name}: the source has no column {field.name}"
                    f"{did_you_mean(field.name, columns)}",
                    hint=f"it has {', '.join(columns)}",
                )
        return data

    def _verify(self) -> None:
        """Refuses a checkpoint that does not continue the ledger, before anything runs."""
        position, found = self._position(), self._checkpoint_id()
        known = position.get("query")
        if known is not None and found != known:
            raise _unlike(
                self.definition.name,
                "its checkpoint is gone" if found is None else "its checkpoint is another one",
            )
        committed = _last_commit(self.checkpoint)
        if committed > int(position.get("batch", -1)):
            raise _unlike(
                self.definition.name,
                f"its checkpoint is at batch {committed}, the ledger at {position.get('batch')}",
            )

    def _position(self) -> dict[str, Any]:
        return self.appender.ledger.ingest_position(self.appender.stream)

    def _checkpoint_id(self) -> str | None:
        try:
            return str(json.loads((self.checkpoint / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError):
            return None


def decide(position: Mapping[str, Any], query: str | None, batch: int, stream: str) -> str:
    """`append` or `skip` for a batch, given what the ledger has; StateError for anything else.

    >>> decide({}, "q", 0, "s"), decide({"query": "q", "batch": 4}, "q", 4, "s")
    ('append', 'skip')
    """
    known, last = position.get("query"), int(position.get("batch", -1))
    if known is not None and known != query:
        raise _unlike(stream, "its checkpoint is another one")
    if batch <= last:
        return "skip"
    if batch > last + 1:
        raise _unlike(stream, f"batch {batch} came where {last + 1} follows")
    return "append"


def _unlike(stream: str, detail: str) -> StateError:
    return StateError(
        f"stream {stream}: the checkpoint does not continue the ledger", detail=detail, hint=NEW_RUN
    )


def _last_commit(checkpoint: Path) -> int:
    """The last batch whose end Spark has noted; -1 for none."""
    folder = checkpoint / "commits"
    if not folder.is_dir():
        return -1
    return max((int(p.name) for p in folder.iterdir() if p.name.isdigit()), default=-1)


def _trigger(definition: StreamDefinition) -> str | None:
    given = definition.source.get("trigger")
    if given is not None and given not in TRIGGERS:
        raise UsageError(
            f"stream {definition.name} has unknown trigger {given!r}",
            hint='trigger = "available_now" reads what is there and ends',
        )
    return given
