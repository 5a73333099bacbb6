"""Aggregates over frames of time with very many rows: from parts of blocks, not row by row.

Spark goes through all rows of a frame for every row, those that were told long ago among them. Here
only the instants that this step tells are looked at. Time is cut into blocks of a fraction of the
frame; a frame is the parts of the blocks that lie in it, and the rows of the one or two blocks that
do so in part. Every join is by keys and block.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import AggregateCall, Over
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import OverFrame
from millstream.spark.frames import Frame, order_struct
from millstream.spark.operators.aggregates import finals, merge, names_of, partial

DIRECT_ROWS_MAX = 50_000  # read by a step, up to which Spark's own frames cost less
BLOCKS_A_FRAME = 32


def by_blocks(node: Over, rows: int) -> bool:
    """Whether a step over so many rows takes its frames from blocks.

    A frame that holds its own row is never empty, so that each instant has a part.
    """
    whole = all(f.first <= 0 <= f.last for f in node.frames)
    return rows > DIRECT_ROWS_MAX and whole and all(c.function != "nth_value" for c in node.calls)


def valued_by_blocks(node: Over, rows: Frame, told: str) -> Frame:
    """The rows that a condition names, with their calls as last columns."""
    keys = [f"k{i}" for i in range(len(node.partition))]
    named = [f"{sql(e)} AS {key}" for e, key in zip(node.partition, keys, strict=True)]
    keyed = rows.data.selectExpr("*", *named)
    result = keyed.where(told)
    instants = result.selectExpr(*keys, "_ts AS _at").distinct()
    order = order_struct(rows)
    values: dict[int, str] = {}
    for number, frame in enumerate(dict.fromkeys(node.frames)):
        wanted = [i for i, f in enumerate(node.frames) if f == frame]
        calls = [node.calls[i] for i in wanted]
        own = _Blocks(frame, tuple(keys), tuple(calls), order).values(keyed, instants)
        names = [f"v{number}_{i}" for i in range(len(calls))]
        texts = [f"{text} AS {n}" for n, text in zip(names, finals([], calls), strict=True)]
        mine = [f"{key} AS j{key}" for key in keys]
        found = own.selectExpr("_at AS _told_at", *mine, *texts)
        same = ["_ts = _told_at", *(f"{key} <=> j{key}" for key in keys)]
        result = result.join(found, F.expr(" AND ".join(same))).drop(
            "_told_at", *(f"j{key}" for key in keys)
        )
        values |= dict(zip(wanted, names, strict=True))
    columns = [*(f"c{i}" for i in range(rows.width)), *(values[i] for i in sorted(values))]
    return Frame(result, (), 0).select({h: h for h in rows.hidden}, columns)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """One frame, and the calls over it."""

    frame: OverFrame
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    order: str

    @property
    def size(self) -> int:
        return max(1, (self.frame.last - self.frame.first + 1) // BLOCKS_A_FRAME)

    def values(self, rows: DataFrame, instants: DataFrame) -> DataFrame:
        """Merged parts by (_at, keys) for every instant."""
        placed = rows.selectExpr("*", f"{self._start('_ts')} AS _block")
        grouped = [(name, name) for name in ("_block", *self.keys)]
        blocks = partial(placed, grouped, self.calls, self.order)
        group = ["_at", *self.keys]
        kept = [*group, *names_of(self.calls), "_latest"]
        inner = self._joined(instants.selectExpr("*", f"{self._inside()} AS _wanted"), blocks)
        edges = self._joined(instants.selectExpr("*", f"{self._beside()} AS _wanted"), placed)
        near = edges.where(f"_ts >= {self._first()} AND _ts <= {self._last()}")
        parts = partial(near, [(name, name) for name in group], self.calls, self.order)
        return merge(parts.select(*kept).unionByName(inner.select(*kept)), group, self.calls)

    def _joined(self, wanted: DataFrame, blocks: DataFrame) -> DataFrame:
        renamed = wanted.selectExpr("_at", "_wanted", *(f"{key} AS i{key}" for key in self.keys))
        same = ["_wanted = _block", *(f"i{key} <=> {key}" for key in self.keys)]
        return renamed.join(blocks, F.expr(" AND ".join(same)))

    def _start(self, time: str) -> str:
        return f"({time} - pmod({time}, {self.size}L))"

    def _first(self) -> str:
        return f"(_at + {self.frame.first}L)"

    def _last(self) -> str:
        return f"(_at + {self.frame.last}L)"

    def _inner_bounds(self) -> tuple[str, str]:
        """Where the first and the last block begin that lie wholly in the frame."""
        first, size = self._first(), self.size
        low = f"({first} + pmod(-{first}, {size}L))"
        return low, f"({self._start(f'({self._last()} + 1L)')} - {size}L)"

    def _inside(self) -> str:
        low, high = self._inner_bounds()
        return f"explode(IF({low} <= {high}, sequence({low}, {high}, {self.size}L), array()))"

    def _beside(self) -> str:
        low, high = self._inner_bounds()
        edges = f"array_distinct(array({self._start(self._first())}, {self._start(self._last())}))"
        return f"explode(filter({edges}, b -> NOT (b >= {low} AND b <= {high})))"
