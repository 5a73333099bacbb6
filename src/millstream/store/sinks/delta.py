"""Results into Delta tables: a query's table as merges, a stream as appends, each row once.

A commit carries the delivery's number as version of an application transaction. Delta's library
does not refuse a version that is there already, so it is read first; and a commit is tried at one
version of the table only, so that nobody comes in between.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.control.definitions.sink_table import SinkDefinition
from millstream.core.errors import UsageError
from millstream.core.extras import told_where_missing
from millstream.core.secrets import resolved
from millstream.store import faults
from millstream.store.delivery import Result, TargetError
from millstream.store.machine_failures import shortened
from millstream.store.sinks.net_changes import KIND, NEW, ambiguous, by_key, net_changes

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

KEPT = "millstream.query"  # among the table's properties: whose table it is


class DeltaSink:
    """One table in a folder, or behind a URL of an object store."""

    def __init__(self, definition: SinkDefinition) -> None:
        with told_where_missing():
            import deltalake  # noqa: PLC0415  (an extra)
        self._library = deltalake
        self._written, self._key = definition.options, definition.key
        self._path, self._delivery, self._next = "", "", 0
        self.dataset = ("delta", definition.options["path"])  # for whoever draws lineage
        self._table: DeltaTable | None = None

    def recover(self, following: int) -> None:
        """The target itself says what it has taken."""

    def close(self) -> None:
        self._table, self._delivery = None, ""

    # -- how far it is --------------------------------------------------------------------------

    def following(self, result: Result, delivery: str) -> int:
        if self._delivery != delivery:
            with self._told(result):
                self._path = resolved(f"the sink of query {result.query}", self._written)["path"]
                self._table, self._next = None, 1
                if self._library.DeltaTable.is_deltatable(self._path):
                    self._table = self._library.DeltaTable(self._path)
                    self._next = self._taken(self._table, delivery, result)
                self._delivery = delivery
        return self._next

    def _taken(self, table: "DeltaTable", delivery: str, result: Result) -> int:
        version = table.transaction_version(delivery)
        if version is not None:
            return version + 1
        owner = table.metadata().configuration.get(KEPT)
        if owner is not None or (result.changes and table.file_uris()):
            raise TargetError(
                f"Delta table {self._path} holds the rows of another delivery",
                detail=f"query {owner}, of another run or home" if owner else "it has rows",
                hint="choose another path, or remove the table",
            )
        return 1

    # -- rows -----------------------------------------------------------------------------------

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        assert first >= self._next  # whoever delivers has left out what was taken
        with self._told(result):
            faults.reach("sink.begun")
            target = self._table or self._created(result, table, first)
            self._check_columns(target, table, result)
            if result.changes:
                self._merge(target, table, result, last)
            else:
                self._library.write_deltalake(
                    target, table, mode="append", commit_properties=self._committing(last)
                )
            faults.reach("sink.committed")
            target.update_incremental()
            self._table, self._next = target, last + 1

    def _created(self, result: Result, table: pa.Table, first: int) -> "DeltaTable":
        columns = [n for n in table.column_names if n != "op" or not result.changes]
        made = self._library.DeltaTable.create(
            self._path,
            table.select(columns).schema,
            mode="error",
            configuration={KEPT: result.query} if result.changes else None,
            raise_if_key_not_exists=False,
            commit_properties=self._committing(first - 1),
        )
        faults.reach("sink.written")
        return made

    def _committing(self, version: int) -> "CommitProperties":
        named = self._library.Transaction(self._delivery, version)
        return self._library.CommitProperties(max_commit_retries=0, app_transactions=[named])

    def _check_columns(self, target: "DeltaTable", table: pa.Table, result: Result) -> None:
        there = {field.name for field in target.schema().fields}
        wanted = [n for n in table.column_names if n != "op" or not result.changes]
        if lacking := [name for name in wanted if name not in there]:
            raise TargetError(
                f"Delta table {self._path} has no column {lacking[0]}",
                detail=f"query {result.query} gives {', '.join(wanted)}",
                hint=f"add a column {lacking[0]} of type {table.schema.field(lacking[0]).type}",
            )
        if strange := [name for name in self._key if name not in wanted]:
            raise TargetError(
                f"query {result.query} gives no column {strange[0]}, which its sink has as key",
                hint=f"it gives {', '.join(wanted)}",
            )

    def _merge(self, target: "DeltaTable", changes: pa.Table, result: Result, last: int) -> None:
        net = net_changes(changes)
        key = self._key or tuple(n for n in net.column_names if n in changes.column_names)
        rows = by_key(net, key, result.query)
        self._refuse_twice(target, rows, key, result)
        if not rows.num_rows:
            return  # nothing to say; the number goes on with the next ones
        columns = [name for name in rows.column_names if name != KIND]
        values = {f"t.{_quoted(n)}": f"s.{_quoted(n)}" for n in columns}
        merger = target.merge(
            rows,
            _matching(rows, key),
            source_alias="s",
            target_alias="t",
            commit_properties=self._committing(last),
        )
        merger = merger.when_matched_delete(f"s.{KIND} = 'gone'")
        merger = merger.when_matched_update(
            {n.removeprefix("t."): v for n, v in values.items()}, predicate=f"s.{KIND} = 'other'"
        )
        merger = merger.when_not_matched_insert(
            {n.removeprefix("t."): v for n, v in values.items()}, predicate=f"s.{KIND} <> 'gone'"
        )
        merger.execute()

    def _refuse_twice(
        self, target: "DeltaTable", rows: pa.Table, key: tuple[str, ...], result: Result
    ) -> None:
        """Rows that are new must not be there by their key: a merge would pass over them."""
        new = rows.filter(pc.equal(rows[KIND], NEW))
        if not new.num_rows or not target.file_uris():
            return
        wanted = {repr(row) for row in new.select([*key]).to_pylist()}
        first = new[key[0]].combine_chunks()
        for batch in target.to_pyarrow_dataset().to_batches(columns=[*key]):
            near = batch
            if not pa.types.is_nested(first.type):  # most rows are passed over without a look
                near = batch.filter(pc.is_in(pc.cast(batch[key[0]], first.type), first))
            for row in near.to_pylist():
                if repr(row) in wanted:
                    raise ambiguous(result.query, key, row)

    # -- trouble --------------------------------------------------------------------------------

    @contextmanager
    def _told(self, result: Result) -> Iterator[None]:
        """Trouble in words; how far the target is must be asked again after it."""
        try:
            yield
        except UsageError as error:
            self.close()
            raise TargetError(error.message, detail=error.detail, hint=error.hint) from None
        except (self._library.exceptions.DeltaError, OSError, pa.ArrowException) as error:
            self.close()
            words = shortened(str(error).strip().split("\n")[0])
            hint = "rows are kept and written again: see to the path, or to the table's columns"
            told = f"Delta table {self._path} does not take rows of query {result.query}"
            raise TargetError(told, detail=words, hint=hint) from None
        except BaseException:
            self.close()
            raise


def _quoted(name: str) -> str:
    """A column's name in an expression.

    >>> _quoted("n"), _quoted("a`b")
    ('`n`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


def _matching(rows: pa.Table, key: tuple[str, ...]) -> str:
    """What is the same row; where a key may be NULL, NULLs are equal."""
    parts = []
    for name in key:
        ours, theirs = f"t.{_quoted(name)}", f"s.{_quoted(name)}"
        same = f"{ours} = {theirs}"
        if rows[name].null_count:
            same = f"({same} OR ({ours} IS NULL AND {theirs} IS NULL))"
        parts.append(same)
    return " AND ".join(parts)
