"""What operators over tables have in common: the table so far, what a step touches, what differs.

A table is what its changes add up to; rows of a stream are changes that only add. Whatever is not
linear in its input (an antijoin, a rank) is computed anew for the keys that a step touches, and
what differs from the operator's own output is its answer. The row of a `-` is therefore always
read from the output.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import Node
from millstream.language.share.dataflow import stream_of
from millstream.spark.frames import Frame, lower
from millstream.spark.operators.base import Step
from millstream.spark.operators.joining import BROADCAST_BYTES
from millstream.spark.operators.running import present, table
from millstream.store.segments import Segment

MOVED = "_moved"  # prefix of the columns of touched keys


def so_far(step: Step, node: Node) -> Frame:
    """All changes of a node, those of this step among them."""
    return _read(step, node, {s: (*i.tail, *i.new) for s, i in step.inputs.items()})


def new_of(step: Step, node: Node) -> Frame:
    """The changes of a node in this step."""
    return _read(step, node, {s: i.new for s, i in step.inputs.items()})


def _read(step: Step, node: Node, segments: Mapping[str, Sequence[Segment]]) -> Frame:
    return lower(node, lambda leaf: step.read(stream_of(leaf), segments[stream_of(leaf)]))


def rows_of(changes: Frame) -> Frame:
    """The rows of a table; those of a stream keep their position."""
    if "_op" in changes.hidden:
        return Frame(table(changes), ("_ts",), changes.width)
    kept = {h: h for h in changes.hidden if h in ("_ts", "_pos")}
    return changes.select(kept, [f"c{i}" for i in range(changes.width)])


class Touched:
    """The keys that a step's changes have; without keys everything is touched."""

    def __init__(self, step: Step, found: Sequence[tuple[Frame, Sequence[str]]]) -> None:
        """`found` has changes with their keys, as SQL, in one order."""
        self._count = len(found[0][1])
        self._small = sum(s.size for s in step.new) < BROADCAST_BYTES
        self._keys: DataFrame | None = None
        for frame, keys in found if self._count else ():
            texts = (f"{key} AS {MOVED}{i}" for i, key in enumerate(keys))
            mine = frame.data.selectExpr(*texts)
            self._keys = mine if self._keys is None else self._keys.unionByName(mine)
        if self._keys is not None:
            self._keys = self._keys.distinct()
            self._keys = F.broadcast(self._keys) if self._small else self._keys

    def of(self, frame: Frame, keys: Sequence[str]) -> Frame:
        """The rows of a frame with a key that is touched."""
        if self._keys is None:
            return frame
        same = " AND ".join(f"{key} <=> {MOVED}{i}" for i, key in enumerate(keys))
        met = frame.data.join(self._keys, F.expr(same), "left_semi")
        return Frame(met, frame.hidden, frame.width)


def own_table(step: Step) -> Frame | None:
    """What the operator has told and not taken back; None where it has told nothing."""
    told = [s for s in step.own if s.rows]
    return present(step.read(step.operator.id, told)) if told else None


def difference(now: Frame, old: Frame | None, version: int) -> Frame:
    """The changes that make one table of another, as multisets."""
    kept = [h for h in ("_ts", "_pos") if h in now.hidden]
    columns = [f"c{i}" for i in range(now.width)]
    both = now.data.selectExpr(*kept, *columns, "1L AS _sign")
    if old is not None:
        both = both.unionByName(old.data.selectExpr(*kept, *columns, "-1L AS _sign"))
    counted = both.groupBy(*kept, *columns).agg(F.expr("sum(_sign)").alias("_times"))
    copied = counted.where("_times <> 0").withColumn(
        "_copy", F.expr("explode(sequence(1L, abs(_times)))")
    )
    hidden = {"_ts": "_ts", "_op": "CAST(sign(_times) AS TINYINT)", "_version": f"{version}L"}
    hidden |= {h: h for h in kept if h == "_pos"}
    return Frame(copied, (), 0).select(hidden, columns)
