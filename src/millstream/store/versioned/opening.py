"""The family of tables with versions, by the name that declarations give their kind."""

from collections.abc import Callable, Mapping
from typing import Any

from millstream.core.registry import Registry
from millstream.store.versioned.delta import DeltaVersions
from millstream.store.versioned.iceberg import IcebergVersions
from millstream.store.versioned.parquet import ParquetVersions
from millstream.store.versioned.versions import VersionedTable

# of a declared source; its options as they are written, and with the secrets that they refer to
Opening = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], VersionedTable]
VERSIONED: Registry[Opening] = Registry("kind of table with versions")


@VERSIONED.member("delta")
def _delta(
    source: Mapping[str, Any], _written: Mapping[str, Any], used: Mapping[str, Any]
) -> VersionedTable:
    return DeltaVersions(str(source["path"]), {k: str(v) for k, v in used.items()})


@VERSIONED.member("parquet")
def _parquet(
    source: Mapping[str, Any], _written: Mapping[str, Any], _used: Mapping[str, Any]
) -> VersionedTable:
    return ParquetVersions(str(source["path"]))


@VERSIONED.member("iceberg")
def _iceberg(
    source: Mapping[str, Any], written: Mapping[str, Any], used: Mapping[str, Any]
) -> VersionedTable:
    return IcebergVersions(str(source["table"]), written, used)
