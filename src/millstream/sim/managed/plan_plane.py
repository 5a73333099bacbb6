"""Operators of given plans: each hands on every row of every input, with where it came from.

So checkers see what was read, in which order, how often. The engine, the ledger and the segments
are the real ones.
"""

from collections.abc import Mapping

import pyarrow as pa

from millstream.control.protocol.replies import Compiled
from millstream.core.errors import UsageError
from millstream.engine.ports import CompiledQuery, Step
from millstream.language.cql.catalog import Catalog
from millstream.language.plan.nodes import Plan, Source, Union
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from millstream.sim.managed.plain_plane import PlainCompiler, PlainPlane, Read, Rows
from millstream.store.segments import SegmentStore

COLUMNS = (Field("row", "string"),)


class PlanCompiler(PlainCompiler):
    """Knows what some texts mean; they read streams that have to be declared."""

    def __init__(self, plans: Mapping[str, Compiled]) -> None:
        super().__init__(lambda cql: meaning(plans[cql]))
        self.plans = plans

    def compile(self, cql: str, catalog: Catalog, start: int, reader: str = "") -> CompiledQuery:
        if cql not in self.plans:
            raise UsageError("no such text")
        for source in self.plans[cql].sources:
            catalog.stream(source.removeprefix("s:"))
        return super().compile(cql, catalog, start, reader)


class ArrowFiles(SegmentStore):
    """Segments as Arrow has them in memory: writing and reading Parquet costs ten times as much."""

    def encoded(self, table: pa.Table) -> memoryview:
        content = pa.BufferOutputStream()
        with pa.ipc.new_stream(content, table.schema) as writer:
            writer.write_table(table)
        return memoryview(content.getvalue())

    def decoded(self, file: str) -> pa.Table:
        with open(self.path(file), "rb") as content:
            return pa.ipc.open_stream(content.read()).read_all()

    def rows_in(self, file: str) -> int:
        return int(self.decoded(file).num_rows)


class PlanPlane(PlainPlane):
    files = ArrowFiles

    def __init__(self, plans: Mapping[str, Compiled]) -> None:
        super().__init__(compute=hand_on)
        self.compiler: PlanCompiler = PlanCompiler(plans)


def meaning(plan: Compiled) -> CompiledQuery:
    """A plan as an engine has it. All operators are maps, whatever a planner takes them for."""
    sources = [Source(s.removeprefix("s:"), COLUMNS) for s in plan.sources]
    root = Union(tuple(sources))
    operators = tuple(Operator(o.id, "map", root, None, o.inputs) for o in plan.operators)
    return CompiledQuery(Plan(root, COLUMNS, plan.relation), operators, plan.result)


def hand_on(step: Step, read: Read) -> tuple[Rows, Rows | None]:
    return [
        (ts, f"{stream}|{segment.first}|{row}")
        for stream, source in step.inputs.items()
        for segment in source.new
        for ts, row in read([segment])
    ], None
