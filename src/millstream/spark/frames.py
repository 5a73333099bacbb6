"""Virtual nodes as Spark expressions: a leaf's rows in, the node's rows out.

A frame is a DataFrame with columns c0..cn and hidden ones: `_ts` (time, microseconds), `_until`
(the end of the interval, where it is finite), `_pos` (position in the source), `_op` (+1 or -1 for
changes of a relation). Each output row comes from one input row, so that applying a chain to new
rows and to old rows gives the same as applying it to both; of one input row several may come.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from millstream.language.plan.nodes import (
    Emit,
    Filter,
    Node,
    Project,
    Source,
    Union,
    Unnest,
    Windowed,
)
from millstream.language.plan.sql_text import predicate_sql, quoted, sql
from millstream.language.plan.windows import BEGINNING, FOREVER, Now, Range, Rows, Unbounded, reach
from millstream.language.share.dataflow import is_core

SKIPPED_ROWS_MIN = 200_000  # below, reading them all costs less than generated code of its own


@dataclass(frozen=True, slots=True)
class Frame:
    data: DataFrame
    hidden: tuple[str, ...]
    width: int  # number of user columns

    def names(self) -> list[str]:
        return [*self.hidden, *(f"c{i}" for i in range(self.width))]

    def where(self, condition: str) -> "Frame":
        return Frame(self.data.where(condition), self.hidden, self.width)

    def select(self, hidden: dict[str, str], columns: list[str]) -> "Frame":
        """New hidden columns and user columns, each as SQL text."""
        texts = [f"{text} AS {name}" for name, text in hidden.items()]
        texts += [f"{text} AS c{i}" for i, text in enumerate(columns)]
        return Frame(self.data.selectExpr(*texts), tuple(hidden), len(columns))

    def with_hidden(self, **more: str) -> "Frame":
        """Adds or replaces hidden columns; None removes nothing."""
        hidden = {name: name for name in self.hidden} | more
        return self.select(hidden, [f"c{i}" for i in range(self.width)])

    def without(self, *names: str) -> "Frame":
        hidden = {name: name for name in self.hidden if name not in names}
        return self.select(hidden, [f"c{i}" for i in range(self.width)])

    def union(self, other: "Frame") -> "Frame":
        return Frame(
            self.data.unionByName(other.data.select(*self.names())), self.hidden, self.width
        )


Leaf = Callable[[Node], Frame]


def lower(node: Node, leaf: Leaf) -> Frame:
    """The rows of a node, given the rows of its leaves."""
    match node:
        case Filter():
            return lower(node.input, leaf).where(predicate_sql(node.predicate))
        case Project():
            frame = lower(node.input, leaf)
            return frame.select(
                {name: name for name in frame.hidden}, [sql(c) for c in node.columns]
            )
        case Unnest():
            return _unnested(node, lower(node.input, leaf))
        case Windowed(window=Rows()):
            return leaf(node)  # only an operator that keeps the stream's last rows knows the ends
        case Windowed():
            return lower(node.input, leaf).with_hidden(_until=until_text(node.window))
        case Emit(kind="istream") if not is_core(node):
            frame = lower(node.input, leaf)
            return frame.without("_until") if "_until" in frame.hidden else frame
        case Union():
            return _union([lower(i, leaf) for i in node.inputs])
        case Source():
            frame = leaf(node)
            return frame if node.start == BEGINNING else frame.where(f"_ts >= {node.start}L")
        case _:
            return leaf(node)


def _unnested(node: Unnest, frame: Frame) -> Frame:
    """Rows of elements have no position: several come from one row."""
    kept = [h for h in frame.hidden if h != "_pos"]
    columns = [f"c{i}" for i in range(frame.width)]
    name = "posexplode_outer" if node.outer else "posexplode"
    made = frame.data.selectExpr(
        *kept, *columns, f"{name}({sql(node.array)}) AS (_place, _element)"
    )
    places = ["_place + 1"] if len(node.fields) > 1 else []
    return Frame(made, (), 0).select({h: h for h in kept}, [*columns, "_element", *places])


def _union(frames: list[Frame]) -> Frame:
    """Rows of a union have no position; those without an end are there for ever."""
    ends = any("_until" in f.hidden for f in frames)
    changes = any("_op" in f.hidden for f in frames)
    hidden = ["_ts", *(["_until"] if ends else []), *(["_op"] if changes else [])]
    default = {"_until": f"{FOREVER}L", "_op": "CAST(1 AS TINYINT)"}
    aligned = [
        f.select(
            {h: h if h in f.hidden else default[h] for h in hidden},
            [f"c{i}" for i in range(f.width)],
        )
        for f in frames
    ]
    result = aligned[0]
    for other in aligned[1:]:
        result = result.union(other)
    return result


def steady(value: int, column: str = "_ts") -> str:
    """A number that differs from step to step, as SQL that leaves the generated code the same.

    Spark writes numbers into the code it generates, compiles that anew for each of them, and runs
    it cold; an array is handed to the code as data. The index is always 0, which Spark cannot
    know. `column` is any column of whole numbers.
    """
    return f"array({value}L)[CAST({column} & 0L AS INT)]"


def time_bound(value: int, rows: int) -> str:
    """A bound on time for that many rows: of many, written so that Parquet skips what is beyond."""
    return f"{value}L" if rows > SKIPPED_ROWS_MIN else steady(value)


def multiples(low: str, high: str, slide: int) -> str:
    """Every `slide` from one time to another, none where the first is the later one, as SQL.

    A filter before it does not keep Spark from computing a sequence that runs backwards, which it
    refuses: where bounds come to be constants it does so while it optimises.
    """
    return f"explode(IF({low} <= {high}, sequence({low}, {high}, {slide}L), array()))"


def until_text(window: Range | Now | Unbounded | Rows) -> str:
    """The end of a row's interval as SQL over its time."""
    match window:
        case Range() | Now():
            return f"_ts + {reach(window) + 1}L"
        case _:
            return f"{FOREVER}L"


def order_text(frame: Frame, *, descending: bool = False) -> str:
    """The order of rows with equal times: source position, or all columns, nulls first."""
    way = "DESC NULLS LAST" if descending else "ASC NULLS FIRST"
    ties = ["_pos"] if "_pos" in frame.hidden else [f"c{i}" for i in range(frame.width)]
    return ", ".join(f"{column} {way}" for column in ("_ts", *ties))


def order_struct(frame: Frame) -> str:
    """The same order as one comparable value."""
    if "_pos" in frame.hidden:
        return "struct(_ts, _pos)"
    return f"struct({', '.join(['_ts', *(f'c{i}' for i in range(frame.width))])})"


def spelling(kind: DataType) -> str:
    """A type's name as Spark itself reads it: fields with odd names stand in backquotes.

    >>> spelling(ArrayType(StructType().add("a", "integer").add("two words", "date")))
    'array<struct<a:int,`two words`:date>>'
    >>> spelling(StructType().add("2", "integer"))
    'struct<`2`:int>'
    """
    match kind:
        case ArrayType():
            return f"array<{spelling(kind.elementType)}>"
        case MapType():
            return f"map<{spelling(kind.keyType)},{spelling(kind.valueType)}>"
        case StructType():
            named = ((f.name, spelling(f.dataType)) for f in kind.fields)
            plain = re.compile(r"[A-Za-z_]\w*", re.ASCII).fullmatch
            return f"struct<{','.join(f'{n if plain(n) else quoted(n)}:{t}' for n, t in named)}>"
        case _:
            return kind.simpleString()
