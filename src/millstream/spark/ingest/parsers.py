"""How rows of a stream are read through a session, whichever kind of session it is."""

from pathlib import Path

from pyspark.sql import SparkSession

from millstream.engine.ports import RowParser
from millstream.language.cql.catalog import StreamDefinition
from millstream.spark.ingest.file_parsing import SparkFileParser
from millstream.spark.ingest.row_parsing import SparkRowParser
from millstream.store.arrivals.arrow_rows import ArrowRows


class Parsers:
    """The part of a data plane that reads files and pushed rows."""

    spark: SparkSession

    def file_parser(
        self, definition: StreamDefinition, kind: str, staging: Path
    ) -> SparkFileParser:
        return SparkFileParser(definition, self.spark, kind, staging)

    def row_parser(self, definition: StreamDefinition) -> RowParser:
        zone = str(self.spark.conf.get("spark.sql.session.timeZone"))
        return ArrowRows(definition, zone, SparkRowParser(definition, self.spark).table).table
