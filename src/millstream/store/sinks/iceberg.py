"""Results into Iceberg tables: a query's table as rewritten files, a stream as appends, each once.

A commit moves the delivery's number, a property of the table, together with the rows: one snapshot
a batch. It is tried on the snapshot that was read and no other, so that nobody comes in between.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.control.definitions.sink_table import SinkDefinition
from millstream.core.errors import UsageError
from millstream.core.extras import told_where_missing
from millstream.core.secrets import resolved
from millstream.store import faults
from millstream.store.delivery import Result, TargetError
from millstream.store.sinks.net_changes import GONE, KIND, NEW, ambiguous, by_key, net_changes
from millstream.store.versioned.catalog import IcebergCatalog

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

KEPT = "millstream.query"  # among the table's properties: whose table it is
MARK = "millstream.following."  # and how far a delivery is
RETRIES = "commit.retry.num-retries"


class IcebergSink:
    """One table of a catalog."""

    def __init__(self, definition: SinkDefinition) -> None:
        with told_where_missing():
            import pyiceberg  # noqa: F401, PLC0415  (an extra)
        self._written = {k: v for k, v in definition.options.items() if k != "table"}
        self._name, self._key = definition.options["table"], definition.key
        self._access = IcebergCatalog(self._written, {})
        self._delivery, self._next = "", 0
        self.dataset = ("iceberg", self._name)  # for whoever draws lineage
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def recover(self, following: int) -> None:
        """The target itself says what it has taken."""

    def close(self) -> None:
        self._catalog, self._table, self._delivery = None, None, ""

    # -- how far it is --------------------------------------------------------------------------

    def following(self, result: Result, delivery: str) -> int:
        if self._delivery != delivery:
            with self._told(result):
                used = resolved(f"the sink of query {result.query}", self._written)
                self._access = IcebergCatalog(self._written, used)
                self._catalog = self._access.open()
                self._table, self._next = None, 1
                if self._catalog.table_exists(self._name):
                    self._table = self._catalog.load_table(self._name)
                    self._next = self._taken(self._table, delivery, result)
                self._delivery = delivery
        return self._next

    def _taken(self, table: "Table", delivery: str, result: Result) -> int:
        if (mark := table.properties.get(MARK + delivery)) is not None:
            return int(mark)
        owner = table.properties.get(KEPT)
        if owner is not None or (result.changes and table.current_snapshot() is not None):
            raise TargetError(
                f"Iceberg table {self._name} holds the rows of another delivery",
                detail=f"query {owner}, of another run or home" if owner else "it has rows",
                hint="choose another table, or remove this one",
            )
        return 1

    # -- rows -----------------------------------------------------------------------------------

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        assert first >= self._next  # whoever delivers has left out what was taken
        with self._told(result):
            faults.reach("sink.begun")
            columns = [n for n in table.column_names if n != "op" or not result.changes]
            target = self._table or self._created(result, table.select(columns), first)
            self._check_columns(target, table, columns, result)
            if result.changes:
                self._merge(target, table, result, last)
            else:
                self._commit(target, [], _fitted(table, target), last)
            faults.reach("sink.committed")
            self._table, self._next = target, last + 1

    def _created(self, result: Result, rows: pa.Table, first: int) -> "Table":
        assert self._catalog is not None  # `following` was asked before
        namespace = self._name.rpartition(".")[0]
        if namespace:
            self._catalog.create_namespace_if_not_exists(namespace)
        told = {KEPT: result.query} if result.changes else {}
        properties = told | {MARK + self._delivery: str(first)}
        return self._catalog.create_table(self._name, rows.schema, properties=properties)

    def _check_columns(
        self, target: "Table", table: pa.Table, columns: Sequence[str], result: Result
    ) -> None:
        there = target.schema().column_names
        if lacking := [name for name in columns if name not in there]:
            raise TargetError(
                f"Iceberg table {self._name} has no column {lacking[0]}",
                detail=f"query {result.query} gives {', '.join(columns)}",
                hint=f"add a column {lacking[0]} of type {table.schema.field(lacking[0]).type}",
            )
        if strange := [name for name in self._key if name not in columns]:
            raise TargetError(
                f"query {result.query} gives no column {strange[0]}, which its sink has as key",
                hint=f"it gives {', '.join(columns)}",
            )

    def _merge(self, target: "Table", changes: pa.Table, result: Result, last: int) -> None:
        net = net_changes(changes)
        key = self._key or tuple(n for n in net.column_names if n in changes.column_names)
        rows = by_key(net, key, result.query)
        if not rows.num_rows:
            return  # nothing to say; the number goes on with the next ones
        kinds, fitted = rows[KIND], _fitted(rows, target)
        lost, parts = self._rewritten(target, fitted, kinds.to_pylist(), key, result)
        parts.append(fitted.filter(pc.not_equal(kinds, GONE)))
        self._commit(target, lost, pa.concat_tables(parts), last)

    def _rewritten(
        self,
        target: "Table",
        rows: pa.Table,
        kinds: list[str],
        key: tuple[str, ...],
        result: Result,
    ) -> "tuple[list[DataFile], list[pa.Table]]":
        """Files that hold rows with these keys, and what stays of each."""
        from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415  (an extra)
        from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415

        wanted = dict(zip(_keys(rows, key), kinds, strict=True))
        first = rows[key[0]].combine_chunks()
        scan = ArrowScan(target.metadata, target.io, target.schema(), AlwaysTrue())
        lost: list[DataFile] = []
        left: list[pa.Table] = []
        for task in target.scan(row_filter=_near(key[0], first)).plan_files():
            there = scan.to_table([task])
            flags = np.zeros(there.num_rows, bool)
            near = np.arange(there.num_rows)
            if not pa.types.is_nested(first.type):  # most rows are passed over without a look
                near = np.flatnonzero(np.asarray(pc.is_in(there[key[0]], first)))
            picked = there.take(pa.array(near, pa.int64()))
            for place, found in zip(near, _keys(picked, key), strict=True):
                kind = wanted.get(found)
                if kind == NEW:
                    row = there.select([*key]).slice(int(place), 1).to_pylist()[0]
                    raise ambiguous(result.query, key, row)
                flags[place] = kind is not None
            if flags.any():
                lost.append(task.file)
                left.append(there.filter(pa.array(~flags)).cast(rows.schema))
        return lost, left

    def _commit(self, target: "Table", lost: "list[DataFile]", rows: pa.Table, last: int) -> None:
        """One snapshot and the number. The library would try again on top of what others wrote."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files  # noqa: PLC0415  (an extra)

        target.metadata.properties[RETRIES] = "0"  # of this commit: it is not written
        with target.transaction() as transaction:
            transaction.set_properties({MARK + self._delivery: str(last + 1)})
            change = transaction.update_snapshot()
            with change.overwrite() if lost else change.fast_append() as snapshot:
                for file in lost:
                    snapshot.delete_data_file(file)
                metadata = transaction.table_metadata
                for file in _dataframe_to_data_files(metadata, rows, target.io):
                    snapshot.append_data_file(file)
            faults.reach("sink.written")

    # -- trouble --------------------------------------------------------------------------------

    @contextmanager
    def _told(self, result: Result) -> Iterator[None]:
        """Trouble in words; how far the target is must be asked again after it."""
        try:
            yield
        except TargetError:
            self.close()
            raise
        except UsageError as error:
            self.close()
            raise TargetError(error.message, detail=error.detail, hint=error.hint) from None
        except Exception as error:  # the library's errors have no base class
            self.close()
            hint = "rows are kept and written again: see to the catalog, or to the table's columns"
            told = f"Iceberg table {self._name} does not take rows of query {result.query}"
            raise TargetError(told, detail=self._access.words(error), hint=hint) from None
        except BaseException:
            self.close()
            raise


def _fitted(rows: pa.Table, target: "Table") -> pa.Table:
    """Rows as the table has them; columns that are not ours are NULL."""
    schema = target.schema().as_arrow()
    columns = [
        rows[f.name].cast(f.type) if f.name in rows.column_names else pa.nulls(len(rows), f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _keys(rows: pa.Table, key: Sequence[str]) -> list[str]:
    return [repr(tuple(row.values())) for row in rows.select([*key]).to_pylist()]


def _near(name: str, values: pa.Array) -> Any:
    """A filter by which files without these values are passed over."""
    from pyiceberg.expressions import (  # noqa: PLC0415  (an extra)
        AlwaysTrue,
        And,
        GreaterThanOrEqual,
        LessThanOrEqual,
    )

    texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if values.null_count or not (pa.types.is_integer(values.type) or texts):
        return AlwaysTrue()
    bounds = pc.min_max(values).as_py()
    return And(GreaterThanOrEqual(name, bounds["min"]), LessThanOrEqual(name, bounds["max"]))
