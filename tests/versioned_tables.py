"""Tables of Delta and Iceberg in a folder, written by their own libraries, for tests of readers."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC")),
        ("word", pa.string()),
    ]
)  # fmt: skip
Row = tuple[Any, ...]


def rows_of(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows by place; a time is in microseconds, what is missing NULL."""
    columns = [
        pa.array([row[i] if i < len(row) else None for row in rows], pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array([row[i] if i < len(row) else None for row in rows], field.type)
        for i, field in enumerate(schema)
    ]
    return pa.table(columns, schema=schema)


class DeltaTables:
    """One Delta table."""

    kind = "delta"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "delta"

    @property
    def source(self) -> Mapping[str, Any]:
        return {"source": "delta", "path": str(self.path)}

    @property
    def table(self) -> Any:
        return DeltaTable(self.path)

    def append(self, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> None:
        write_deltalake(self.path, rows_of(rows, schema), mode="append", schema_mode="merge")

    def delete(self, where: str) -> None:
        self.table.delete(where)

    def update(self, row: Row) -> None:
        given = self.table.merge(rows_of([row]), "t.id = s.id", source_alias="s", target_alias="t")
        given.when_matched_update_all().execute()

    def compact(self) -> None:
        self.table.optimize.compact()

    def forget(self) -> None:
        """The past can no longer be read."""
        self.table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def drop(self) -> None:
        shutil.rmtree(self.path)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table.to_pyarrow_table().to_pylist()
        return found

    def number(self) -> int:
        return int(self.table.version())


class IcebergTables:
    """One table in a catalog of SQLite."""

    kind = "iceberg"

    def __init__(self, folder: Path) -> None:
        (folder / "iceberg").mkdir(exist_ok=True)
        self.options = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/iceberg/catalog.db",
            "warehouse": str(folder / "iceberg"),
        }

    @property
    def source(self) -> Mapping[str, Any]:
        return {"source": "iceberg", "table": "shop.people", "options": self.options}

    @property
    def catalog(self) -> Any:
        return load_catalog("default", **self.options)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("shop.people")

    def append(self, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> None:
        catalog = self.catalog
        if not catalog.namespace_exists("shop"):
            catalog.create_namespace("shop")
        table = catalog.create_table_if_not_exists("shop.people", schema)
        if len(schema) > len(table.schema().fields):
            with table.update_schema() as change:
                change.union_by_name(schema)
        table.append(rows_of(rows, schema))

    def delete(self, where: str) -> None:
        self.table.delete(where)

    def update(self, row: Row) -> None:
        """Deletes and appends in one commit of two snapshots."""
        self.table.overwrite(rows_of([row]), f"id = {row[0]}")

    def compact(self) -> None:
        """The rows in files of their own; pyiceberg writes no snapshot that says so."""
        table = self.table
        table.overwrite(table.scan().to_arrow())

    def forget(self) -> None:
        for snapshot in self.table.snapshots()[:-1]:
            self.table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()

    def drop(self) -> None:
        self.catalog.drop_table("shop.people")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table.scan().to_arrow().to_pylist()
        return found

    def number(self) -> int:
        return int(self.table.current_snapshot().snapshot_id)


KINDS = (DeltaTables, IcebergTables)
